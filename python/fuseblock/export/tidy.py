"""Device code without what nothing takes: parameters, members, loops of one turn.

The texts of all kernels of a file are looked at together, since they share device files: what is taken away
from a function is taken away wherever it is called.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from fuseblock.export.fold import block_end, fold, statement_end, without_comments

__all__ = ["tidied"]

_OPEN, _CLOSE = "([{", ")]}"
_NO_FUNCTIONS = frozenset(("if", "for", "while", "switch", "return", "sizeof", "alignas", "asm", "volatile"))


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
    pure = _pure(codes)
    calls = [
        (number, call)
        for number, code in enumerate(codes)
        for call in _calls(code, {name for name, _ in dropped})
        if (call.name, len(call.parts)) in dropped
    ]
    for number, call in calls:
        places = dropped[call.name, len(call.parts)]
        # What does something when it is given stays.
        places -= {i for i in places if _acts(codes[number][slice(*call.parts[i])], pure)}
    changed = False
    for number, text in enumerate(texts):
        cuts: list[tuple[int, int]] = []
        for _, call in (each for each in calls if each[0] == number):
            places = dropped[call.name, len(call.parts)]
            rest = [i for i in range(len(call.parts)) if i not in places]
            for i in places:
                begin, end = call.parts[i]
                # With the comma behind the first, or in front of others.
                if not rest or i > rest[0]:
                    begin -= i > 0
                else:
                    end += 1
                cuts.append((begin, end))
        last = len(text)
        for begin, end in sorted(set(cuts), key=lambda cut: (-cut[1], cut[0])):
            if begin < last:  # else it lies in one that is gone
                text = text[:begin] + text[min(end, last) :]
                last = begin
        text = re.sub(r"\(\s+(?=[\w\"])", "(", text) if cuts else text
        changed = changed or text != texts[number]
        texts[number] = text
    return changed


@dataclass
class _Call:
    """A call, or a definition."""

    name: str
    parts: list[tuple[int, int]]  # its arguments


def _calls(code: str, names: Collection[str]) -> list[_Call]:
    found = []
    for match in re.finditer(rf"\b({'|'.join(sorted(names))})(?:<[\w\s,:<>]*>)?\(", code):
        begin = match.end()
        parts = _split(code[begin : _closing(code, begin - 1)])
        found.append(_Call(match[1], [(begin + a, begin + b) for a, b in parts]))
    return found


def _pure(codes: Iterable[str]) -> set[str]:
    """The functions that do nothing but return a value."""
    return {name for code in codes for name in re.findall(_PURE, code)}


def _acts(expression: str, pure: Collection[str]) -> bool:
    """Whether an expression may do more than have a value."""
    called = set(re.findall(r"([a-z_]\w*)(?:<\w+>)?\(", expression)) - {"sizeof", *pure}
    return bool(called) or "++" in expression or "--" in expression


_ALL = "kAllElements"


def _without_masks(texts: list[str]) -> bool:
    """A parameter that all callers give the mask of all elements is that, and what it decides is decided."""
    codes = [without_comments(text) for text in texts]
    functions = [each for i, code in enumerate(codes) for each in _functions(i, code)]
    definitions = {(each.text, each.opening) for each in functions}
    given: dict[tuple[str, int, int], set[str]] = {}  # by function, number of parameters and place
    for number, code in enumerate(codes):
        for match in re.finditer(r"\b([a-z]\w*)(?:<[\w\s,:<>]*>)?\(", code):
            opening = match.end() - 1
            if match[1] in _NO_FUNCTIONS or (number, opening) in definitions:
                continue
            inner = code[opening + 1 : _closing(code, opening)]
            parts = [inner[a:b].strip() for a, b in _split(inner)]
            around = [
                each for each in functions if each.text == number and each.body[0] <= opening < each.body[1]
            ]
            for i, part in enumerate(parts):
                # A parameter handed on from function to function of one name is what the first was given.
                handed = any(
                    each.key == (match[1], len(parts))
                    and part == _parameter_name(code[slice(*each.parameters[i])])
                    for each in around
                )
                if not handed:
                    given.setdefault((match[1], len(parts), i), set()).add(part)
    for (name, count, place), values in given.items():
        members = [each for each in functions if each.key == (name, count)]
        if values != {_ALL}:
            continue
        changed = False
        for each in sorted(members, key=lambda member: member.body, reverse=True):
            text = texts[each.text]
            parameter = _parameter_name(codes[each.text][slice(*each.parameters[place])])
            body = text[slice(*each.body)]
            new = re.sub(rf"\b{parameter}\b", _ALL, body)
            for element in set(re.findall(rf"{_ALL} >> (\w+) & 1", new)):
                new = new.replace(f"if (!({_ALL} >> {element} & 1)) continue;", "")
                new = re.sub(rf"\n?[ \t]*if \({_ALL} >> {element} & 1\) ", " ", new)
            new = new.replace(f"__popc({_ALL})", "kElements")
            new = fold(new.replace(f"({_ALL} == 0)", "(0)").replace(f"({_ALL} == {_ALL})", "(1)"), {})
            changed = changed or new != body
            texts[each.text] = text[: each.body[0]] + new + text[each.body[1] :]
        if changed:
            return True
    return False


_LOOP = re.compile(
    r"(?:#pragma unroll\n\s*)?\bfor \(int (\w+) = 0; \1 < (\d+)(?: / (\d+))?; "
    r"(?:\+\+\1|\1 \+= (\d+|k\w+))\)\s*"
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


_LOCAL_CONSTANT = re.compile(r"^[ \t]+constexpr int (k\w+) = (\d+);\n", re.MULTILINE)


def _without_constants(text: str) -> str:
    """Functions' own constants as the numbers that they are."""
    while match := _LOCAL_CONSTANT.search(text):
        code = without_comments(text)
        depth, end = 0, match.end()
        while end < len(code) and depth >= 0:
            depth += (code[end] in _OPEN) - (code[end] in _CLOSE)
            end += 1
        rest = re.sub(rf"\b{match[1]}\b", match[2], text[match.end() : end])
        text = text[: match.start()] + rest + text[end:]
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


_LOCAL = re.compile(
    r"^[ \t]*const (?:real|Count|int|long long|unsigned int) (\w+) =\s([^;{}]*);\n", re.MULTILINE
)
_PURE = r"inline \w+ (\w+)\([^(){}]*\) \{\s*return [^;{}]*;\s*\}"


def _without_locals(texts: list[str]) -> bool:
    """Takes away names of values that nothing takes, and a `return` where a function ends anyway."""
    pure = _pure(without_comments(text) for text in texts)
    changed = False
    for number, text in enumerate(texts):
        code = without_comments(text)
        for match in reversed(list(_LOCAL.finditer(code))):
            end = block_end(code, match.end())
            taken = re.search(rf"\b{match[1]}\b", code[match.end() : end])
            several = len(_split(match[2])) > 1  # names, of which others may be taken
            if not taken and not several and not _acts(match[2], pure):
                text = text[: match.start()] + text[match.end() :]
        text = re.sub(r"\n[ \t]*return;[ \t]*\n?\}(?=\n)", "\n}", text)
        code = without_comments(text)
        for match in reversed(list(re.finditer(r"^[ \t]+[A-Z]\w* (\w+);\n", code, re.MULTILINE))):
            taken = re.search(rf"\b{match[1]}\b", code[match.end() : block_end(code, match.end())])
            if not taken and _in_function(code, match.start()):
                text = text[: match.start()] + text[match.end() :]
        changed = changed or text != texts[number]
        texts[number] = text
    return changed


def _in_function(code: str, place: int) -> bool:
    """Whether the block around a place is a function's, or a statement's, and no struct."""
    depth = 0
    while depth >= 0 and place > 0:
        place -= 1
        depth += (code[place] == "}") - (code[place] == "{")
    return code[:place].rstrip().endswith((")", "const", "else"))


def _initialisers(struct: str, code: str) -> int:
    """How many fields of a struct are given by their order, at most."""
    made = rf"\b{struct}(?:<\w+>)?"
    lists = list(re.finditer(rf"(?<!struct ){made} ?(?:\w+ = )?\{{", code))
    for function in re.finditer(rf"{made} \w+\([^{{}}]*\)(?: const)? \{{", code):
        end = block_end(code, function.end())
        lists += list(re.compile(r"return \{").finditer(code, function.end(), end))
    counts = [len(_split(code[each.end() : _closing(code, each.end() - 1)])) for each in lists]
    return max(counts, default=0)


def _without_fields(texts: list[str]) -> bool:
    """Takes away fields of structs that are written alone."""
    every = "\n".join(without_comments(text) for text in texts)
    for number, text in enumerate(texts):
        for struct in re.finditer(r"^struct (\w+) \{\n(.*?)^\};", text, re.MULTILINE | re.DOTALL):
            fields = list(
                re.finditer(
                    r"^  (?!typedef|static)[\w:<>]+(?: \w+)*[ *]+(\w+);[^\n]*\n", struct[2], re.MULTILINE
                )
            )
            for field in fields[_initialisers(struct[1], every) :]:
                name = field[1]
                uses = re.findall(rf"(?:\.|->){name}\b", every)
                writes = rf"^[ \t]*\w+\.{name} [-+]?= [^;]*;\n"
                if struct[1] == "Arguments" or len(uses) != len(re.findall(writes, every, re.MULTILINE)):
                    continue
                others = without_comments(struct[2].replace(field.group(), ""))
                if "(" in others and re.search(rf"\b{name}\b", others):
                    continue  # a function of the struct takes it
                begin = struct.start(2) + field.start()
                texts[number] = text[:begin] + text[begin + len(field.group()) :]
                texts[:] = [re.sub(writes, "", each, flags=re.MULTILINE) for each in texts]
                return True
    return False


def _something(match: re.Match[str]) -> str:
    own = match[2] + match[3]
    return match[1] + own + match[4] if re.search(r"\w+;|\];", own) else match.group()


_TEMPLATE = re.compile(r"template <int (k\w+)(>\n|, )(?=[^;{]*?\b(\w+)\()")
# What is left of numbers that are one, or of threads where all of a block's are meant.
_TRIVIAL = (r" [*/] 1\b(?!\.)", r" \+ \w+ % 1\b", r"threadIdx\.x / kThreads \* \(kThreads / 32\) \+ ")


def _without_choices(texts: list[str]) -> bool:
    """A number of a template that all callers give alike is that number."""
    for number, text in enumerate(texts):
        for match in _TEMPLATE.finditer(without_comments(text)):
            name = match[3]
            uses = re.compile(rf"\b{name}<([^<>,()]*)(>|, )")
            codes = [without_comments(each) for each in texts]
            given = {found[1] for code in codes for found in uses.finditer(code)}
            defined = sum(len(re.findall(rf"inline [\w ]+ {name}\(", code)) for code in codes)
            if len(given) != 1 or defined != 1:
                continue
            value = given.pop()
            begin = text.index("{", match.end())
            end = _closing(without_comments(text), begin)
            body = re.sub(rf"\b{match[1]}\b", value, text[begin:end])
            for trivial in _TRIVIAL:
                body = re.sub(trivial, "", body)
            body = body.replace("threadIdx.x % kThreads", "threadIdx.x")
            front = "" if match[2].startswith(">") else "template <"
            texts[number] = text[: match.start()] + front + text[match.end() : begin] + body + text[end:]
            texts[:] = [each.replace(f"{name}<{value}>", name) for each in texts]
            texts[:] = [each.replace(f"{name}<{value}, ", f"{name}<") for each in texts]
            return True
    return False


_NAMES = re.compile(r"^([ \t]*const (?:int|long long) )(\w+ = [^;{}]*);\n", re.MULTILINE)


def _without_names(texts: list[str]) -> bool:
    """Takes away those of several names in a line that nothing takes."""
    for number, text in enumerate(texts):
        code = without_comments(text)
        for match in _NAMES.finditer(code):
            parts = [match[2][begin:end].strip() for begin, end in _split(match[2])]
            behind = code[match.end() : block_end(code, match.end())]
            for i, part in enumerate(parts):
                if re.search(rf"\b{part.split()[0]}\b", " ".join(parts[i + 1 :]) + behind):
                    continue
                rest = ", ".join(parts[:i] + parts[i + 1 :])
                line = f"{match[1]}{rest};\n" if rest else ""
                texts[number] = text[: match.start()] + line + text[match.end() :]
                return True
    return False


def tidied(texts: Iterable[str], plain: bool = False) -> list[str]:
    """The texts of all kernels of a file, in any order, without what nothing takes.

    `plain`: of kernels whose templates are functions' alone; these have no numbers that are always the same.
    """
    result = [_without_loops(_without_constants(text)) for text in texts]
    _without_members(result)
    while plain and (_without_choices(result) or _without_names(result)):
        pass
    while _without_masks(result):
        pass
    while _without_locals(result) or _without_fields(result) or _without_parameters(result):
        pass
    return result
