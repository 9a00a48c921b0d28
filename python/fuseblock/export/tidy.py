"""Device code without what nothing takes: parameters, members, loops of one turn.

The texts of all kernels of a file are looked at together, since they share device files: what is taken away
from a function is taken away wherever it is called.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from fuseblock.export.fold import statement_end, without_comments

__all__ = ["tidied"]

_OPEN, _CLOSE = "([{", ")]}"
_NO_FUNCTIONS = frozenset(
    "if for while switch return sizeof alignas asm volatile defined static_assert".split()
)
_ATTRIBUTES = re.compile(r"(__launch_bounds__|__cluster_dims__|__align__)\s*\([^()]*\)")


def _closing(code: str, opening: int) -> int:
    depth = 0
    for i in range(opening, len(code)):
        depth += (code[i] in _OPEN) - (code[i] in _CLOSE)
        if depth == 0:
            return i
    return -1


def _split(code: str) -> list[tuple[int, int]]:
    """The places of the parts between commas, outside of brackets; none for nothing."""
    if not code.strip():
        return []
    parts, depth, begin = [], 0, 0
    for i, letter in enumerate(code):
        depth += (letter in _OPEN) - (letter in _CLOSE)
        # Of template arguments: `Vector<float, 4>`; not of comparisons, which have spaces around.
        depth += (letter == "<" and code[i - 1 : i].isalnum()) - (
            letter == ">" and not code[i - 1].isspace() and code[i - 1] != "-"
        )
        if letter == "," and depth == 0:
            parts.append((begin, i))
            begin = i + 1
    return [*parts, (begin, len(code))]


@dataclass
class _Function:
    text: int  # of the texts
    name: str
    opening: int  # of the parameters
    closing: int
    parameters: list[tuple[int, int]]
    body: tuple[int, int]
    template: set[str]  # its template's parameters

    @property
    def key(self) -> tuple[str, int]:
        return self.name, len(self.parameters)


def _functions(number: int, code: str) -> list[_Function]:
    """The functions that a text defines."""
    found = []
    for match in re.finditer(r"\b([a-z]\w*)\s*\(", code):
        name = match[1]
        if name in _NO_FUNCTIONS:
            continue
        closing = _closing(code, match.end() - 1)
        behind = re.compile(r"\s*(?:const\s*)?\{").match(code, closing + 1)
        begin = max(code.rfind(mark, 0, match.start()) for mark in ";{}") + 1
        front = code[begin : match.start()]
        if behind is None or "__device__" not in front:
            continue
        template = re.search(r"template\s*<([^;{]*?)>\s*(?=__|static|inline|\w)", front)
        words = set(re.findall(r"(?:class|int|bool)\s+(\w+)", template[1])) if template else set()
        inner = code[match.end() : closing]
        body_end = _closing(code, behind.end() - 1)
        found.append(
            _Function(
                number,
                name,
                match.end() - 1,
                closing,
                [(match.end() + a, match.end() + b) for a, b in _split(inner)],
                (behind.end(), body_end),
                words,
            )
        )
    return found


def _parameter_name(text: str) -> str:
    if match := re.search(r"\(&(\w+)\)", text):
        return match[1]
    words: list[str] = re.findall(r"\w+", re.sub(r"\[[^\]]*\]", "", text))
    return words[-1] if words else ""


def _without_parameters(texts: list[str]) -> bool:
    """Takes away parameters that no function of their name and number of parameters uses."""
    codes = [without_comments(text) for text in texts]
    functions = [each for i, code in enumerate(codes) for each in _functions(i, code)]
    groups: dict[tuple[str, int], list[_Function]] = {}
    for each in functions:
        groups.setdefault(each.key, []).append(each)
    dropped: dict[tuple[str, int], set[int]] = {}
    for key, members in groups.items():
        places = set(range(key[1]))
        for each in members:
            code = codes[each.text]
            body = code[slice(*each.body)]
            for i, (begin, end) in enumerate(each.parameters):
                parameter = code[begin:end]
                name = _parameter_name(parameter)
                deduced = each.template & set(re.findall(r"\w+", parameter))
                if deduced or re.search(rf"\b{name}\b", body):
                    places.discard(i)
        if places:
            dropped[key] = places
    if not dropped:
        return False
    names = {name for name, _ in dropped}
    changed = False
    for number, text in enumerate(texts):
        code = codes[number]
        cuts: list[tuple[int, int]] = []
        defined = {each.opening for each in functions if each.text == number}
        kept: set[tuple[str, int]] = set()
        for match in re.finditer(rf"\b({'|'.join(sorted(names))})(?:<[\w\s,:<>]*>)?\(", code):
            opening = match.end() - 1
            closing = _closing(code, opening)
            parts = _split(code[opening + 1 : closing])
            places = dropped.get((match[1], len(parts)), set())
            if any("++" in code[opening + 1 + parts[i][0] : opening + 1 + parts[i][1]] for i in places):
                kept.add((match[1], len(parts)))
            for i in places:
                begin, end = (opening + 1 + each for each in parts[i])
                # With the comma behind the first, or in front of others.
                rest = [k for k in range(len(parts)) if k not in places]
                if not rest or i > rest[0]:
                    begin -= i > 0
                else:
                    end += 1
                cuts.append((begin, end))
        if kept:
            return False
        for begin, end in sorted(set(cuts), reverse=True):
            text = text[:begin] + text[end:]
        text = re.sub(r"\(\s+(?=[\w\"])", "(", text) if cuts else text
        changed = changed or text != texts[number]
        texts[number] = text
        del defined
    return changed


_LOOP = re.compile(
    r"(?:#pragma unroll\n\s*)?\bfor \(int (\w+) = 0; \1 < (\d+)(?: / (\d+))?; (?:\+\+\1|\1 \+= (\d+|k\w+))\)\s*"
)


def _without_loops(text: str) -> str:
    """Loops of one turn as what they do in it."""
    code = without_comments(text)
    for match in _LOOP.finditer(code):
        end, step = int(match[2]) // int(match[3] or 1), match[4] or "1"
        if not step.isdigit():
            found = re.findall(rf"constexpr int {step} = (\d+);", code[: match.start()])
            if not found:
                continue
            step = found[-1]
        if end > int(step):
            continue
        stop = statement_end(code, match.end())
        body = text[match.end() : stop]
        if body.startswith("{"):
            body = body[1:-1].strip("\n").strip(" ")
        body = _with_number(body, match[1], 0)
        return _without_loops(text[: match.start()] + body + text[stop:])
    return text


def _with_number(body: str, name: str, value: int) -> str:
    """The text with a number in place of a name, and its products and sums worked out."""
    code = without_comments(body)
    for match in reversed(list(re.finditer(rf"\b{name}\b", code))):
        body = body[: match.start()] + str(value) + body[match.end() :]
    body = re.sub(r"\b\d+ \* 0\b", "0", body)
    body = re.sub(r"(?<=[\w)]) \+ 0\b(?!\s*[*.])", "", body)
    return re.sub(r"(?<=[\[(, ])0 \+ (?=\w)", "", body)


def _without_members(texts: list[str]) -> None:
    """Takes away members of structs that nothing reads, and unions of one."""
    every = "\n".join(without_comments(text) for text in texts)
    for number, text in enumerate(texts):
        for line in re.findall(r"^[ \t]*Element only;[^\n]*\n", text, re.MULTILINE):
            if not re.search(r"[.>]only\b", every):
                text = text.replace(line, "")
        text = re.sub(r"union \{\n\s*([^;{}]*;)[^\n]*\n\s*\};", r"\1", text)
        # `nothing` stands for members where there are none.
        texts[number] = re.sub(
            r"(struct \w+ \{\n)((?:[^{}]*\n)?)[ \t]*int nothing;\n((?:[^{}]*\n)?)(\s*\};)", _something, text
        )


def _something(match: re.Match[str]) -> str:
    own = match[2] + match[3]
    return match[1] + own + match[4] if re.search(r"\w+;|\];", own) else match.group()


def tidied(texts: Iterable[str]) -> list[str]:
    """The texts of all kernels of a file, in any order, without what nothing takes."""
    result = [_without_loops(text) for text in texts]
    _without_members(result)
    while _without_parameters(result):
        pass
    return result
