"""Device code for people: the declarations that a kernel uses, in reading order, formatted.

A kernel's text comes in pieces, device files and what was emitted around them. Here it is cut into
declarations; those that the kernel does not reach are left out. Of functions that exist for several element
types only those of the kernel's own types stay.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Piece", "format_cpp", "format_python", "pruned"]

STYLE = (
    "{BasedOnStyle: Google, Language: Cpp, Standard: c++20, ColumnLimit: 110, ReflowComments: false, "
    "DerivePointerAlignment: false, PointerAlignment: Left, AllowShortCaseLabelsOnASingleLine: true, "
    "IncludeBlocks: Preserve}"
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_ELEMENT_TYPES = ("double", "float", "bf16", "f16")


@dataclass
class _Member:
    """A function of a struct."""

    text: str
    names: set[str]
    words: set[str]
    signature: set[str]
    arity: int  # how many parameters it has


@dataclass
class _Declaration:
    text: str
    names: set[str]
    words: set[str]
    signature: set[str]  # words in front of the body
    # Of a struct with functions: its text in parts, of which these are some; `words` are those of the others.
    parts: list[str | _Member] = field(default_factory=list)

    def functions(self) -> list[_Member]:
        """Of a struct."""
        return [part for part in self.parts if isinstance(part, _Member)]

    def all_parts(self) -> list[_Declaration | _Member]:
        """Itself and its functions."""
        return [self, *self.functions()]

    def kept_text(self, kept: set[int]) -> str:
        """Without functions that are not kept."""
        if not self.parts:
            return self.text
        return "".join(
            part if isinstance(part, str) else part.text
            for part in self.parts
            if isinstance(part, str) or id(part) in kept
        )


@dataclass
class Piece:
    """A device file, or emitted text (no file), as declarations in namespaces."""

    file: str
    head: str = ""  # the comment at the beginning of a file
    parts: list[_Declaration | str] = field(default_factory=list)  # text: a namespace's begin or end

    def declarations(self) -> list[_Declaration]:
        """Without the namespaces."""
        return [part for part in self.parts if isinstance(part, _Declaration)]

    def text(self, kept: set[int]) -> str:
        """What is left with these declarations, by their ids; namespaces without any are dropped."""
        text = self.whole(kept)
        constants = re.match(r"(?:constexpr int \w+ = \w+;\n)+", text)
        if not self.file:
            return _joined(text)
        return _joined(constants[0]) + text[constants.end() :] if constants else text

    def whole(self, kept: set[int]) -> str:
        """The same with each member and constant in a declaration of its own, as it was parsed."""
        lines: list[str] = []
        for part in self.parts:
            if isinstance(part, str):
                if part.startswith("}") and lines and lines[-1].lstrip().startswith("namespace"):
                    lines.pop()
                    continue
                apart = "\n" if lines and part.lstrip().startswith("namespace") else ""
                lines.append(apart + (part.strip() if part.startswith("namespace") else part))
            elif id(part) in kept:
                lines.append(part.kept_text(kept))
        # Of functions that a head lists, those that are there.
        there = set(_WORD.findall("\n".join(lines)))
        listed = re.compile(r"^//   (\w+)\(")
        rows = [row for row in self.head.split("\n") if not (found := listed.match(row)) or found[1] in there]
        head = "\n".join(rows)
        body = "\n".join(lines)
        return re.sub(r"\n{3,}", "\n\n", f"{head}{body}".strip("\n")) + "\n" if body.strip() else ""


_PLAIN = re.compile(
    r"^([ \t]*)(constexpr int|typedef int|real|long long|int|\w+<\w+(?:<\w+>)?>) ([^;(){}]+);$"
)


def _joined(text: str) -> str:
    """The text with neighbouring members and constants of one type in one declaration."""
    lines: list[str] = []
    last = ""
    for line in text.split("\n"):
        match = _PLAIN.match(line)
        kind = match[1] + match[2] if match else ""
        if match and kind == last and (match[2] == "constexpr int" or "=" not in match[3]):
            lines[-1] = f"{lines[-1].removesuffix(';')}, {match[3]};"
        else:
            lines.append(line)
        last = kind
    return "\n".join(lines)


def _code(text: str) -> str:
    """The text with comments and strings blanked."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group())  # noqa: E731
    return _STRING.sub(blank, _COMMENT.sub(blank, text))


def _end_of_declaration(code: str, start: int) -> int:
    """Behind the `;` or the `}` that ends the declaration at `start`."""
    depth = 0
    i = start
    while i < len(code):
        letter = code[i]
        if letter in "({[":
            depth += 1
        elif letter in ")}]":
            depth -= 1
            if depth == 0 and letter == "}":
                rest = code[i + 1 :].lstrip()
                if not rest.startswith((";", ",", ")")):
                    return i + 1
        elif letter == ";" and depth == 0:
            return i + 1
        i += 1
    return len(code)


def _declared(code: str) -> set[str]:
    """The names that a declaration declares."""
    plain = re.sub(
        r"^\s*template\s*<[^{;]*?>\s*(?=struct|class|__|static|inline|constexpr|[A-Za-z_])", "", code
    )
    plain = re.sub(r"(__launch_bounds__|__cluster_dims__|alignas)\s*\((?:[^()]|\([^()]*\))*\)", "", plain)
    if match := re.match(r"\s*(?:struct|class|union)\s+(\w+)", plain):
        return {match[1]}
    if re.match(r"\s*typedef\b", plain):
        return {_WORD.findall(plain)[-1]}
    if re.match(r"\s*static_assert\b", plain):
        return set()
    body = plain.find("{")
    front = plain if body < 0 else plain[:body]
    if "(" in front and not re.match(r"[^(]*=", front):
        found = re.search(r"(\w+)\s*\(", front)
        return {found[1]} if found else set()
    return set(re.findall(r"(\w+)\s*=(?!=)", plain)) or set(_WORD.findall(plain)[-1:])


def parse(file: str, text: str) -> Piece:
    """Cuts a piece into declarations, each with the comment in front of it."""
    piece = Piece(file)
    text = text.strip("\n") + "\n"
    if file and (head := re.match(r"(?://[^\n]*\n)+\n", text)):
        piece.head = head.group()
        text = text[head.end() :]
    code = _code(text)
    place = 0
    while True:
        blank = re.compile(r"\s*").match(code, place)
        start = blank.end() if blank else place
        if start >= len(code):
            break
        lead = text[place:start]  # white space and comments, as they stand
        if code.startswith("namespace", start):
            opening = code.index("{", start) + 1
            piece.parts.append(lead.strip("\n") + ("\n" if lead.strip() else "") + text[start:opening])
            place = opening
        elif code[start] == "}":
            end = text.find("\n", start)
            piece.parts.append(text[start : end if end >= 0 else len(text)] + "\n")
            place = end if end >= 0 else len(text)
        else:
            end = _end_of_declaration(code, start)
            # A comment that stands behind it on its line belongs to it.
            line_end = text.find("\n", end)
            end = line_end if line_end >= 0 and not code[end:line_end].strip() else end
            body = code.find("{", start, end)
            words = set(_WORD.findall(code[start:end]))
            names = _declared(code[start:end])
            signature = set(_WORD.findall(code[start : body if body >= 0 else end]))
            blank_line = "\n" if lead.count("\n\n") and piece.parts else ""
            comment = re.sub(r"^\s*\n", "", lead).strip("\n")
            front = blank_line + (comment.lstrip() + "\n" if comment.strip() else "")
            declaration = _Declaration(front + text[start:end], names, words - names, signature)
            if body >= 0 and re.search(r"\bstruct\b", code[start:body]):
                _cut_struct(declaration, front, text[start:end], body - start)
            piece.parts.append(declaration)
            place = end
    return piece


def _cut_struct(declaration: _Declaration, front: str, text: str, body: int) -> None:
    """Cuts a struct's functions out."""
    code = _code(text)
    end = code.rindex("}")
    parts: list[str | _Member] = [front + text[: body + 1]]
    words = set(_WORD.findall(code[: body + 1]))
    place = body + 1
    while code[place:end].strip():
        start = place + len(code[place:end]) - len(code[place:end].lstrip())
        stop = _end_of_declaration(code, start)
        if (
            code[stop:].lstrip().startswith(";")
            and code[stop - 1] == "}"
            and "__device__" not in code[start:stop]
        ):
            stop = code.index(";", stop) + 1
        own = code[start:stop]
        # A comment that stands behind a member belongs to it.
        line_end = text.find("\n", stop)
        stop = line_end if line_end >= 0 and not code[stop:line_end].strip() else stop
        brace = own.find("{")
        if "__device__" in own:
            signature = set(_WORD.findall(own if brace < 0 else own[:brace]))
            names = _declared(own)
            words_of = set(_WORD.findall(own)) - names
            arity = next((count for name, count in calls(own) if name in names), 0)
            parts.append(_Member(text[place:stop], names, words_of, signature, arity))
        else:
            parts.append(text[place:stop])
            words |= set(_WORD.findall(own))
        place = stop
    parts.append("\n" + text[end:] if not text[place:end].strip() else text[place:])
    if not any(isinstance(part, _Member) for part in parts):
        return
    declaration.parts = parts
    declaration.words = words - declaration.names


def calls(code: str) -> list[tuple[str, int]]:
    """The functions that a text names with arguments behind them, and how many; a definition is one, too."""
    found = []
    for match in re.finditer(r"((?:\w+::)?\w+)\s*(?:<[\w\s,:]*>)?\(", code):
        depth, count = 0, 0
        for i in range(match.end() - 1, len(code)):
            depth += (code[i] in "([{") - (code[i] in ")]}")
            if depth == 0:
                count += bool(code[match.end() : i].strip())
                break
            count += depth == 1 and code[i] == ","
        found.append((match[1], count))
    return found


def _called(one: _Declaration | _Member, every: str) -> set[tuple[str, int]]:
    """What a declaration calls.

    A function of its base, which is a parameter of its template, is that of the structs that the template is
    used with.
    """
    if isinstance(one, _Declaration) and one.parts:
        text = "".join(part if isinstance(part, str) else "" for part in one.parts)
    else:
        text = one.text
    found = set()
    named = calls(_code(text))
    own = next((i for i, (name, _) in enumerate(named) if name in one.names), -1)
    for i, (name, count) in enumerate(named):
        if i == own:  # its definition
            continue
        base, _, function = name.rpartition("::")
        derived = re.search(rf"struct (\w+) : {base} ", every) if base else None
        if derived is None:
            found.add((function, count))
            continue
        special = set(re.findall(rf"struct {derived[1]}<(\w+)", every))
        used = set(re.findall(rf"\b{derived[1]}<(\w+)", every)) - special
        found |= {(f"{struct}::{function}", count) for struct in used}
    return found


def vector_elements(emitted: Iterable[str]) -> set[str]:
    """The types of elements that emitted text moves in vectors."""
    text = "\n".join(emitted)
    stored = set(re.findall(r"store_vector\(a\.(\w+)\.data", text))
    found = set(re.findall(r"Vector<(\w+)>", text))
    return found | {kind for kind, name in re.findall(r"Tensor<(\w+)> (\w+);", text) if name in stored}


def pruned(pieces: Sequence[Piece], entry: str, also: Collection[int] = ()) -> set[int]:
    """The ids of the declarations that the kernel `entry` and those of `also` reach."""
    declarations = [each for piece in pieces for each in piece.declarations()]
    emitted = {
        word for piece in pieces if not piece.file for each in piece.declarations() for word in each.words
    }
    absent = {name for name in _ELEMENT_TYPES if name not in emitted}
    vectors = vector_elements(
        each.text for piece in pieces if not piece.file for each in piece.declarations()
    )
    overloads: dict[str, int] = {}
    for each in declarations:
        for name in each.names:
            overloads[name] = overloads.get(name, 0) + 1

    def fits(each: _Declaration) -> bool:
        """Not one of several functions of the same name that is for a type the kernel does not have."""
        several = any(overloads[name] > 1 for name in each.names)
        taken = re.findall(rf"Vector<({'|'.join(_ELEMENT_TYPES)})>&", each.text)
        return not (several and (each.signature & absent or not vectors.issuperset(taken)))

    by_name: dict[str, list[_Declaration]] = {}
    for each in declarations:
        for name in each.names:
            by_name.setdefault(name, []).append(each)
    structs = {name for each in declarations if re.search(r"\bstruct\b", each.text) for name in each.names}
    every = "\n".join(_code(each.text) for each in declarations)
    kept: set[int] = set()
    seen: set[str] = set()  # the words of all that is kept
    called: set[tuple[str, int]] = set()  # by it, with how many arguments
    waiting: list[_Declaration | _Member] = [each for each in by_name[entry] if "__global__" in each.words]
    waiting += [part for each in declarations for part in each.all_parts() if id(part) in also]
    while waiting:
        one = waiting.pop()
        if id(one) not in kept:
            kept.add(id(one))
            seen |= one.words
            called |= _called(one, every)
            for word in one.words:
                waiting.extend(other for other in by_name.get(word, ()) if fits(other))
        if waiting:
            continue
        # Functions of structs, where they are called, and where what they take is there.
        for each in declarations:
            for function in each.functions() if id(each) in kept else ():
                takes = (function.signature & structs) - each.names
                wanted = {(name, function.arity) for name in function.names}
                wanted |= {(f"{struct}::{name}", count) for struct in each.names for name, count in wanted}
                if id(function) not in kept and wanted & called and takes <= seen:
                    waiting.append(function)
    kept -= _not_needed(
        declarations, kept, {id(each) for piece in pieces if not piece.file for each in piece.declarations()}
    )
    for each in declarations:
        known = {word for word in each.words if word in by_name}
        if not each.names and all(id(other) in kept for word in known for other in by_name[word][:1]):
            kept.add(id(each))
    return kept


def _not_needed(declarations: Sequence[_Declaration], kept: set[int], emitted: set[int]) -> set[int]:
    """Of functions with a form for each element type, the forms that no call takes.

    What takes an element of a tensor is known by the tensor's type. Forms for double beside one for float are
    for the arithmetic of statistics: emitted code that has doubles, and structs that are used with them.
    """
    own = "\n".join(_code(each.text) for each in declarations if id(each) in emitted and id(each) in kept)
    tensors = {
        name: kind
        for kind, names in re.findall(r"Tensor<(\w+)> ([\w, ]+);", own)
        for name in names.split(", ")
    }
    forms: dict[str, list[tuple[str, _Declaration]]] = {}
    for each in declarations:
        found = re.match(
            r"\s*__device__ inline \w+ (\w+)\((float|double|bf16|f16)&? ", _code(each.text).lstrip("\n")
        )
        if found and id(each) in kept:
            forms.setdefault(found[1], []).append((found[2], each))
    dropped: set[int] = set()
    for name, all_forms in forms.items():
        callers = [
            (each, part)
            for each in declarations
            for part in each.all_parts()
            if id(part) in kept and name not in part.names and re.search(rf"\b{name}\(", _code(part.text))
        ]
        calls_of = [
            call for _, part in callers for call in re.findall(rf"\b{name}\(([\w.]*)", _code(part.text))
        ]
        taken = {
            tensors.get(call.removeprefix("a.").partition(".")[0], "") if call.startswith("a.") else ""
            for call in calls_of
        }
        if not taken:  # it is handed over by its name
            continue
        if "" not in taken:
            dropped |= {id(each) for kind, each in all_forms if kind not in taken}
        elif {kind for kind, _ in all_forms} == {"float", "double"} and "typedef float real" in own:
            doubles = any(
                "double" in _code(part.text)
                if not isinstance(part, _Member)
                else any(f"{struct}<double>" in own for struct in each.names)
                for each, part in callers
            )
            if not doubles:
                dropped |= {id(each) for kind, each in all_forms if kind == "double"}
    return dropped


@functools.cache
def _tool(name: str) -> str | None:
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.is_file() else shutil.which(name)


def format_cpp(text: str) -> str:
    """The text as clang-format lays it out; as it is where that program is not there."""
    return _formatted(text, "clang-format", [f"--style={STYLE}", "--assume-filename=kernel.cu"])


def format_python(text: str) -> str:
    """The text as ruff lays it out; as it is where that program is not there."""
    return _formatted(text, "ruff", ["format", "--isolated", "--line-length=110", "-"])


def _formatted(text: str, tool: str, arguments: Iterable[str]) -> str:
    program = _tool(tool)
    if program is None:
        return text
    return subprocess.run(
        [program, *arguments], input=text, capture_output=True, text=True, check=True
    ).stdout
