"""Names of a model beside those that its file has for itself."""

from __future__ import annotations

import ast
from collections.abc import Sequence

import torch.fx

from fuseblock.export.planned import FUNCTIONS, PlannedBlock
from fuseblock.export.source import ModelSource

__all__ = ["keep_apart"]

_MODULES = frozenset(
    ("ctypes", "functools", "hashlib", "inspect", "math", "operator", "struct", "torch", "F")
)
_OWN = frozenset(("CUDA", "HOST", "KERNELS", "lay_out", "launch", "library", "zeros", "divide_rows"))
_OWN_NAMES = _OWN | {"divide_tiles", "precision", "ModelNew"} | _MODULES


def keep_apart(
    graph: torch.fx.Graph, planned: Sequence[PlannedBlock], source: ModelSource, model: str
) -> None:
    """Renames what the file has for its blocks, and values of forward, where the model has such a name.

    Raises NotImplementedError where definitions or arguments of the model have a name that the file needs.
    """
    defined = {name for text in source.definitions for name in _defined(text)}
    arguments = {str(node.target).lstrip("*") for node in graph.nodes if node.op == "placeholder"}
    if taken := sorted((defined & _OWN_NAMES) | (arguments & (_MODULES | {"precision"}))):
        raise NotImplementedError(f"{model}: has {', '.join(taken)}, names that the file has for itself")
    for node in graph.nodes:
        if node.name in _MODULES | {"precision", "self"} and node.op != "placeholder":
            node._rename(f"{node.name}_")
    functions = {each.name(base) for each in planned for base in FUNCTIONS}
    if functions & (defined | arguments | {node.name for node in graph.nodes}):
        for each in planned:
            each.prefixed = True


def _defined(text: str) -> list[str]:
    """The names that a definition gives to the file."""
    names = []
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Assign):
            names += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return names
