"""What a traced forward has taken from its model as constants, and a constructor that refuses other ones.

A norm's number of groups, its eps, an attribute such as self.scale: tracing leaves them in the kernels and in
the text of forward as they were. A ModelNew that is constructed with other ones would compute with the old.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

from torch import nn

from fuseblock.export.graph_text import place

__all__ = ["Constants", "checked_constructor"]

_PLAIN = (bool, int, float, str, type(None))


class Constants:
    """Expressions over a model's `self`, with their values as Python text."""

    def __init__(self) -> None:
        self.layers: dict[str, str] = {}  # by path: what a layer says of itself
        self.attributes: dict[str, str] = {}

    def add_layer(self, path: str, layer: nn.Module) -> None:
        """A layer whose call became functions."""
        if layer.extra_repr() not in ("", "inplace=True"):
            self.layers[place(path)] = repr(str(layer))

    def add_attributes(self, path: str, module: nn.Module) -> None:
        """The plain attributes that the methods of a module read, but for its constructor."""
        for name in _names_read(type(module)):
            value = vars(module).get(name)
            if name in vars(module) and _is_plain(value):
                self.attributes[f"{place(path)}.{name}"] = repr(value)

    def lines(self) -> list[str]:
        """Statements that refuse other values."""
        result = []
        for own, text in (*self.layers.items(), *self.attributes.items()):
            found = f"repr({own})" if own in self.layers else own
            name = own.removeprefix("self.").replace("'", "")
            shown = "another" if "'" in own else f"{{{own}}}"
            result += [
                f"if {found} != (exported := {text}):",
                f'    raise ValueError(f"{name}: expected {{exported}}, as exported, got {shown}")',
            ]
        return result


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(_is_plain(each) for each in value)
    return isinstance(value, _PLAIN)


def _names_read(owner: type) -> list[str]:
    """The attributes of self that a class reads outside its constructor, in their order."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(owner)))
    except (OSError, TypeError, SyntaxError):
        return []
    names: dict[str, None] = {}
    for method in ast.walk(tree):
        if not isinstance(method, ast.FunctionDef) or method.name == "__init__":
            continue
        for node in ast.walk(method):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "self"
            ):
                names[node.attr] = None
    return list(names)


def checked_constructor(text: str, lines: list[str]) -> str:
    """A class's text with statements at the end of its constructor, where it has one."""
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.ClassDef)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__" and lines:
            own = text.splitlines()
            indent = " " * node.body[-1].col_offset
            own[node.end_lineno : node.end_lineno] = [indent + line for line in lines]
            return "\n".join(own) + "\n"
    return text
