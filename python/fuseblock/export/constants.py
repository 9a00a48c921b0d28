"""What a traced forward has taken from its model as constants, and a constructor that refuses other ones.

A norm's number of groups, its eps, an attribute such as self.scale, how many layers a list has: tracing
leaves them in the kernels and in the text of forward as they were. A ModelNew that is constructed with other
ones would compute with the old.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from fuseblock.export.graph_text import place
from fuseblock.export.values import value_text

__all__ = ["LISTS", "Constants", "checked_constructor"]

_NAMED = (nn.ModuleDict, nn.ParameterDict)
LISTS = (nn.ModuleList, nn.Sequential, nn.ParameterList, *_NAMED)


@dataclass(frozen=True)
class _Check:
    """An expression over `self`, and the Python text of the value that it must have."""

    found: str
    text: str
    own: str  # what an error names and shows


class Constants:
    """What must be as it was exported."""

    def __init__(self) -> None:
        self.counts: dict[str, _Check] = {}  # of layers: other checks may rely on them
        self.layers: dict[str, _Check] = {}
        self.attributes: dict[str, _Check] = {}

    def add_layer(self, path: str, layer: nn.Module, owner: nn.Module) -> None:
        """A layer whose call became functions, and the module that has it."""
        own = place(path)
        if layer.extra_repr() not in ("", "inplace=True") or not _is_only_choice(owner, path, layer):
            self.layers[own] = _Check(f"repr({own})", repr(str(layer)), own)

    def add_attributes(self, path: str, module: nn.Module) -> None:
        """The attributes that the methods of a module read, but for its constructor."""
        for chain in _names_read(type(module)):
            *modules, name = chain.split(".")
            owner: Any = module
            for each in modules:
                owner = getattr(owner, each, None) if isinstance(owner, nn.Module) else None
            if isinstance(owner, nn.Module) and name in vars(owner):
                own = f"{place('.'.join([*([path] if path else []), *modules]))}.{name}"
                if check := _check(own, vars(owner)[name]):
                    self.attributes[own] = check

    def add_count(self, path: str, module: nn.Module) -> None:
        """How many layers a list of the model has, and which ones a dictionary."""
        own = place(path)
        if isinstance(module, _NAMED):
            self.counts[own] = _Check(f"list({own})", repr(list(module)), f"list({own})")
        elif isinstance(module, LISTS):
            self.counts[own] = _Check(f"len({own})", repr(len(module)), f"len({own})")

    def lines(self) -> list[str]:
        """Statements that refuse other values."""
        result = []
        for check in (*self.counts.values(), *self.layers.values(), *self.attributes.values()):
            name = check.own.replace("self.", "").replace("'", "")
            shown = "another" if "'" in check.own else f"{{{check.own}}}"
            result += [
                f"if {check.found} != (exported := {check.text}):",
                f'    raise ValueError(f"{name}: expected {{exported}}, as exported, got {shown}")',
            ]
        return result


def _check(own: str, value: Any) -> _Check | None:
    """That an attribute has this value; none for what may be another, or has no text to compare."""
    if isinstance(value, nn.Module | Tensor):
        return None
    try:
        text = value_text(value)
        if value == value:  # a NaN is not
            return _Check(own, text, own)
    except NotImplementedError:
        pass
    if isinstance(value, type) or inspect.isroutine(value):
        named = f"{own}.__name__"
        return None if value.__name__ == "<lambda>" else _Check(named, repr(value.__name__), named)
    text = repr(value)
    return None if " at 0x" in text else _Check(f"repr({own})", repr(text), own)


def _bases(owner: type) -> Iterator[ast.ClassDef]:
    """The source of a class, and that of its bases as far as PyTorch's own."""
    for each in owner.__mro__:
        if each is not owner and (each.__module__.startswith("torch.") or not issubclass(each, nn.Module)):
            continue
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(each))).body[0]
        except (OSError, TypeError, SyntaxError):
            continue
        if isinstance(tree, ast.ClassDef):
            yield tree


def _is_only_choice(owner: nn.Module, path: str, layer: nn.Module) -> bool:
    """Whether constructors say `self.act = nn.SiLU()` in any case, and nothing else of it."""
    name = path.rpartition(".")[2]
    unconditional: list[ast.stmt] = []
    assigned = []
    for tree in _bases(type(owner)):
        for each in tree.body:
            if isinstance(each, ast.FunctionDef) and each.name == "__init__":
                unconditional += each.body
        assigned += [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and any(_self_chain(target) == name for target in node.targets)
        ]
    if len(assigned) != 1 or assigned[0] not in unconditional or not isinstance(assigned[0].value, ast.Call):
        return False
    return ast.unparse(assigned[0].value.func).rpartition(".")[2] == type(layer).__name__


def _self_chain(node: ast.AST) -> str:
    """`a.b` of an expression `self.a.b`; empty for others."""
    if not isinstance(node, ast.Attribute):
        return ""
    if isinstance(node.value, ast.Name):
        return node.attr if node.value.id == "self" else ""
    before = _self_chain(node.value)
    return f"{before}.{node.attr}" if before else ""


def _names_read(owner: type) -> list[str]:
    """The attributes of self that a class and its bases read outside their constructors, in their order."""
    names: dict[str, None] = {}
    for tree in _bases(owner):
        for method in ast.walk(tree):
            if isinstance(method, ast.FunctionDef) and method.name != "__init__":
                names.update(dict.fromkeys(filter(None, map(_self_chain, ast.walk(method)))))
    return list(names)


def checked_constructor(text: str, lines: list[str]) -> str:
    """A class's text with statements at the end of its constructor; one that it inherits is called first."""
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.ClassDef)
    if not lines:
        return text
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            own = text.splitlines()
            # More than one statement may stand on its last line.
            indent = " " * min(each.col_offset for each in node.body)
            own[node.end_lineno : node.end_lineno] = [indent + line for line in lines]
            return "\n".join(own) + "\n"
    constructor = ["def __init__(self, *args, **kwargs):", "    super().__init__(*args, **kwargs)"]
    constructor += [f"    {line}" for line in lines]
    return text.rstrip() + "\n\n" + textwrap.indent("\n".join(constructor), "    ") + "\n"
