"""Device code whose constants are known: conditions that they decide are decided.

Decided are the conditions of `if` and of `? :`, whole or in parts joined by && and ||; what cannot run then
is left out. Constants keep their names wherever else they stand.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

__all__ = ["block_end", "constants", "fold", "statement_end", "with_sizes", "without_comments"]

_WORD = re.compile(r"[A-Za-z_]\w*")
_HIDDEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"', re.DOTALL)
_CONSTANT = re.compile(r"^constexpr int (k\w+) = ([^;]*);", re.MULTILINE)
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_ENDS = ("return", "continue", "break")


def without_comments(text: str) -> str:
    """The text with comments and strings blanked, each letter in its place."""
    return _HIDDEN.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def constants(text: str) -> dict[str, int]:
    """The named numbers of a text."""
    known: dict[str, int] = {}
    for name, expression in _CONSTANT.findall(without_comments(text)):
        value = _value(_fold_choice(expression, known) or expression, known)
        if value is not None:
            known[name] = value
    return known


_BYTES = {"double": 8, "float": 4, "bf16": 2, "f16": 2}


def with_sizes(text: str, elements: Collection[str], known: Mapping[str, int]) -> str:
    """The text with the sizes of vectors, and of their elements, as numbers where all have the same."""
    sizes = {_BYTES[element] for element in elements if element in _BYTES}
    if len(sizes) != 1 or "kVector" not in known:
        return text
    size = sizes.pop()
    vector = str(size * known["kVector"])
    for name, bytes_ in (
        ("Vector<Element>::kBytes / 16", str(int(vector) // 16)),
        ("Vector<Element>::kBytes", vector),
        ("sizeof(Element) * kVector", vector),
        ("(int)sizeof(Copied)", vector),
        ("sizeof(Copied)", vector),
    ):
        text = text.replace(name, bytes_)
    if int(vector) >= 4:
        text = text.replace("typename WordOf<kBytes>::type", "unsigned int")
    # What a function takes from them is then a number, too.
    for name, value in re.findall(r"^ +(?:static )?constexpr int (k\w+) = (\d[^;]*);", text, re.MULTILINE):
        number = _value(_fold_choice(value, {}) or value, {})
        if number is not None:
            text = text.replace(f"constexpr int {name} = {value};", f"constexpr int {name} = {number};")
    return text


def _value(expression: str, known: Mapping[str, int]) -> int | None:
    """A number out of numbers and constants; None where there is more than that."""
    if not re.fullmatch(r"[\w\s<>=!%*/+-]+", expression):
        return None
    if any(word not in known for word in _WORD.findall(re.sub(r"\b\d\w*", "", expression))):
        return None
    text = re.sub(r"!(?!=)", " not ", expression.replace("/", "//"))
    try:
        return int(eval(text, {}, dict(known)))
    except (SyntaxError, TypeError):
        return None


class Known(dict[str, int]):
    """Constants, and those of each kernel that has a text."""

    def __init__(self, known: Mapping[str, int], variants: Sequence[Mapping[str, int]]) -> None:
        """The first are the same in all of them."""
        super().__init__(known)
        self.variants = variants


def _truth(condition: str, known: Mapping[str, int]) -> bool | None:
    """Whether a condition holds; None where that is not known, or not the same for all kernels."""
    value = _value(condition, known)
    if value is not None:
        return bool(value)
    variants = known.variants if isinstance(known, Known) else ()
    truths = {None if (value := _value(condition, each)) is None else bool(value) for each in variants}
    return truths.pop() if len(truths) == 1 else None


def _split(code: str, joint: str) -> list[str]:
    """The parts of an expression that are joined so, outside of brackets."""
    parts, depth, begin = [], 0, 0
    for i, letter in enumerate(code):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and code.startswith(joint, i):
            parts.append(code[begin:i])
            begin = i + len(joint)
    return [*parts, code[begin:]]


def _decide(condition: str, known: Mapping[str, int]) -> bool | str:
    """What a condition is with these constants: decided, or what is left of it."""
    either = []
    for part in _split(condition, "||"):
        both = []
        for atom in _split(part, "&&"):
            value = _truth(atom.strip(), known)
            if value is None:
                both.append(atom.strip())
            elif not value:
                break
        else:
            if not both:
                return True
            either.append(" && ".join(both))
    return " || ".join(either) if either else False


def _closing(code: str, opening: int) -> int:
    """The bracket that closes the one there."""
    depth = 0
    for i in range(opening, len(code)):
        depth += (code[i] in "([{") - (code[i] in ")]}")
        if depth == 0:
            return i
    raise ValueError("a bracket that nothing closes")


def _skip(code: str, i: int) -> int:
    """Behind white space and directives."""
    while True:
        while i < len(code) and code[i].isspace():
            i += 1
        if i < len(code) and code[i] == "#":
            i = code.index("\n", i)
            continue
        return i


def statement_end(code: str, start: int) -> int:
    """Behind the statement that begins there."""
    start = _skip(code, start)
    if code[start] == "{":
        return _closing(code, start) + 1
    if match := re.compile(r"(if|for|while|switch)\b[^(]*\(").match(code, start):
        end = statement_end(code, _closing(code, match.end() - 1) + 1)
        follow = _skip(code, end)
        if match[1] == "if" and re.compile(r"else\b").match(code, follow):
            return statement_end(code, follow + 4)
        return end
    while code[start] != ";":
        start = _closing(code, start) + 1 if code[start] in _PAIRS else start + 1
    return start + 1


def _before(code: str, i: int) -> int:
    """The last letter in front of a place that is no white space."""
    i -= 1
    while i >= 0 and code[i].isspace():
        i -= 1
    return i


def _fold_if(text: str, known: Mapping[str, int]) -> str | None:
    """The text with the first `if` that can be decided, decided; None where there is none."""
    code = without_comments(text)
    for match in re.finditer(r"\bif\s*(?:constexpr\s*)?\(", code):
        close = _closing(code, match.end() - 1)
        condition = code[match.end() : close]
        decided = _decide(condition, known)
        if isinstance(decided, str):
            if re.sub(r"\s+", "", decided) != re.sub(r"\s+", "", condition):
                return text[: match.end()] + decided + text[close:]
            continue
        start = match.start()
        then_end = statement_end(code, close + 1)
        follow = _skip(code, then_end)
        has_else = re.compile(r"else\b").match(code, follow) is not None
        end = statement_end(code, follow + 4) if has_else else then_end
        body = text[close + 1 : then_end] if decided else text[follow + 4 : end] if has_else else ""
        before = _before(code, start)
        behind_else = code[: before + 1].endswith("else")
        if not body.strip():
            if behind_else:
                start = before + 1 - 4
            elif before >= 0 and code[before] == ")":
                continue
            return text[:start].rstrip(" ") + text[end:].lstrip(" ").removeprefix("\n")
        bare = not behind_else and code[before] != ")"
        leads = _leading_comment(body)
        inner = body.strip()
        if bare and inner[len(leads) :].lstrip().startswith("{"):
            inner = leads + inner[len(leads) :].strip()[1:-1].strip("\n")
        if bare and _ends(inner):
            end = block_end(code, end)
        return text[:start] + inner.strip(" ").rstrip() + text[end:]
    return None


def _leading_comment(body: str) -> str:
    match = re.match(r"\s*(?://[^\n]*\n\s*)*", body)
    return match.group().lstrip() if match else ""


def _ends(body: str) -> bool:
    """Whether nothing behind these statements runs."""
    code = without_comments(body).strip()
    last = code[:-1].rstrip()
    begin = max(last.rfind(";"), last.rfind("}"), last.rfind("{"), last.rfind("\n")) + 1
    return code.endswith(";") and last[begin:].strip().split(" ")[0].split("(")[0] in _ENDS


def block_end(code: str, start: int) -> int:
    """The bracket that closes the block around a place."""
    depth = 0
    for i in range(start, len(code)):
        if code[i] in ")]}":
            if depth == 0:
                return i
            depth -= 1
        depth += code[i] in "([{"
    return len(code)


def _fold_choice(text: str, known: Mapping[str, int]) -> str | None:
    """The text with the first `? :` that can be decided, decided; None where there is none."""
    code = without_comments(text)
    for match in re.finditer(r"\?", code):
        begin = _expression_begin(code, match.start())
        decided = _decide(code[begin : match.start()], known)
        if isinstance(decided, str):
            if re.sub(r"\s+", "", decided) != re.sub(r"\s+", "", code[begin : match.start()]):
                return f"{text[:begin]} {decided} {text[match.start() :]}"
            continue
        colon = _colon(code, match.end())
        end = _expression_end(code, colon + 1)
        chosen = text[match.end() : colon] if decided else text[colon + 1 : end]
        return f"{text[:begin]} {chosen.strip()}{text[end:]}"
    return None


def _expression_begin(code: str, i: int) -> int:
    depth = 0
    while i > 0:
        letter = code[i - 1]
        depth += (letter in ")]}") - (letter in "([{")
        if depth < 0 or (depth == 0 and letter in ",;?{}"):
            return i
        if depth == 0 and letter == ":" and code[i - 2] != ":" and code[i : i + 1] != ":":
            return i
        if depth == 0 and letter == "=" and code[i - 2] not in "=<>!" and code[i : i + 1] != "=":
            return i
        if depth == 0 and re.search(r"\breturn$", code[max(0, i - 7) : i]):
            return i
        i -= 1
    return 0


def _expression_end(code: str, i: int) -> int:
    depth = 0
    while i < len(code):
        depth += (code[i] in "([{") - (code[i] in ")]}")
        if depth < 0 or (depth == 0 and code[i] in ",;"):
            return i
        i += 1
    return i


def _colon(code: str, i: int) -> int:
    depth = nested = 0
    while True:
        depth += (code[i] in "([{") - (code[i] in ")]}")
        if depth == 0 and code[i] == "?":
            nested += 1
        if depth == 0 and code[i] == ":" and ":" not in (code[i - 1], code[i + 1]):
            if nested == 0:
                return i
            nested -= 1
        i += 1


_LOCAL = re.compile(r"^[ \t]*const real (t\d+) = [^;]*;\n", re.MULTILINE)


def _drop_unused(text: str) -> str | None:
    """The text without the first number that nothing takes; None where there is none."""
    code = without_comments(text)
    for match in _LOCAL.finditer(code):
        if not re.search(rf"\b{match[1]}\b", code[match.end() : block_end(code, match.end())]):
            return text[: match.start()] + text[match.end() :]
    return None


def fold(text: str, known: Mapping[str, int], variants: Sequence[Mapping[str, int]] = ()) -> str:
    """The text with all conditions decided that these constants decide.

    `variants`: all constants of each kernel that has the text; what they all decide alike is decided.
    """
    own = re.findall(r"^[ \t]+(?:static )?constexpr \w+ (k\w+) = ([^;]*);", text, re.MULTILINE)
    known = {name: value for name, value in known.items() if name not in dict(own)}
    for name in dict(own):
        values = {value for other, value in own if other == name}
        if len(values) == 1 and (value := values.pop()).isdigit():
            known[name] = int(value)
    alike = [{name: value for name, value in each.items() if name not in dict(own)} for each in variants]
    known = Known(known, alike)
    while True:
        changed = _fold_choice(text, known) or _fold_if(text, known) or _drop_unused(text)
        if changed is None:
            return re.sub(r"\b0 \* k\w+ \+ | \+ 0 \* k\w+\b", "", text)
        text = changed
