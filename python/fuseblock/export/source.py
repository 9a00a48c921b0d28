"""The Python source that a model needs, in one piece: its class, what that uses, and the imports.

Imports of torch and of the standard library become imports; functions and classes of the same module come
along; plain values are written out. Anything else is refused, since the file is to need PyTorch alone.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import textwrap
import types
from collections.abc import Callable, Iterable
from typing import Any

from fuseblock.export.values import public_module, value_text

__all__ = ["ModelSource", "model_source"]


class ModelSource:
    """Imports, and definitions that the model uses."""

    def __init__(self) -> None:
        """Empty."""
        self.imports: list[str] = []
        self.definitions: list[str] = []
        self._known: set[int] = set()

    def add_names(self, text: str, scope: dict[str, Any], where: str) -> None:
        """Adds what a definition's global names stand for."""
        for name in _global_names(text):
            if name in scope and not hasattr(builtins, name):
                self.add(name, scope[name], scope, where)

    def add(self, name: str, value: Any, scope: dict[str, Any], where: str) -> None:
        """Adds one global name of a module."""
        if isinstance(value, types.ModuleType):
            self._import(value.__name__, name, where)
        elif isinstance(value, type) or inspect.isroutine(value):
            owner = getattr(value, "__module__", None) or ""
            if owner == scope.get("__name__") or owner.partition(".")[0] not in _allowed():
                self._define(name, value, where)
            else:
                own = f" as {name}" if name != value.__name__ else ""
                self._line(f"from {public_module(owner, value)} import {value.__name__}{own}")
        else:
            self._value(name, value, where)

    def _import(self, module: str, name: str, where: str) -> None:
        if module.partition(".")[0] not in _allowed():
            raise NotImplementedError(f"{where}: uses {module}, which is neither PyTorch nor Python's own")
        self._line(f"import {module}" if module in (name, name + ".") else f"import {module} as {name}")

    def _line(self, line: str) -> None:
        if line not in self.imports:
            self.imports.append(line)

    def _value(self, name: str, value: Any, where: str) -> None:
        try:
            text = f"{name} = {value_text(value)}"
        except NotImplementedError as error:
            raise NotImplementedError(f"{where}: {name}: {error}") from error
        if text not in self.definitions:
            self.definitions.append(text)
        if "torch." in text:
            self._line("import torch")

    def _define(self, name: str, value: Any, where: str) -> None:
        if id(value) in self._known:
            return
        self._known.add(id(value))
        if value.__name__ != name:
            raise NotImplementedError(f"{where}: {name} is another name for {value.__name__}")
        text = source_of(value)
        self.add_names(text, sys.modules[value.__module__].__dict__, name)
        self.definitions.append(text)


def _allowed() -> frozenset[str]:
    return sys.stdlib_module_names | {"torch"}


def _global_names(text: str) -> list[str]:
    """The names that a definition reads, in their order."""
    names: dict[str, None] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            names[node.id] = None
    return list(names)


def source_of(value: Callable[..., Any] | type) -> str:
    """The source of a function or a class. Raises NotImplementedError where there is none."""
    try:
        return textwrap.dedent(inspect.getsource(value)).rstrip() + "\n"
    except (OSError, TypeError) as error:
        raise NotImplementedError(f"{value.__name__}: its source cannot be found") from error


def _renamed(text: str, name: str) -> str:
    """A class's text with ModelNew for its name, and for each use of that."""
    lines = text.replace(f"class {name}", "class ModelNew", 1).splitlines()
    uses = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name) and node.id == name]
    for node in sorted(uses, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        line = lines[node.lineno - 1].encode()  # offsets count bytes
        changed = line[: node.col_offset] + b"ModelNew" + line[node.end_col_offset :]
        lines[node.lineno - 1] = changed.decode()
    return "\n".join(lines) + "\n"


def model_source(model_class: type, others: Iterable[Callable[..., Any]] = ()) -> tuple[ModelSource, str]:
    """What a model's class uses, and the class as ModelNew without its forward; `others` come along."""
    text = source_of(model_class)
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.ClassDef)
    lines = text.splitlines()
    gone: set[int] = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            gone.update(range(first - 1, node.end_lineno or node.lineno))
    kept = "\n".join(line for i, line in enumerate(lines) if i not in gone).rstrip() + "\n"
    if len(tree.body) == 1 and gone:
        kept += f'    """{model_class.__name__} with its blocks as kernels."""\n'
    kept = kept.replace(f"super({model_class.__name__}, self)", "super()")
    kept = _renamed(kept, model_class.__name__)
    scope = sys.modules[model_class.__module__].__dict__
    source = ModelSource()
    source._known.add(id(model_class))
    source.add_names(kept, scope, model_class.__name__)
    for other in others:
        source.add(other.__name__, other, scope, model_class.__name__)
    return source, kept
