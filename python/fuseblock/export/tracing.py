"""A model's forward as a graph of calls, and what tracing took from the model as constants.

The graph is torch.fx's, with norms, activations and pools of torch.nn as the functions they call, so that
modules and functions are equal. What a graph cannot hold is refused.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import operator
import re
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.fx
from torch import nn

from fuseblock.export.constants import LISTS, Constants
from fuseblock.export.graph_text import place

__all__ = ["IN_PLACE", "arguments", "trace"]

_INLINED = (
    nn.GroupNorm,
    nn.LayerNorm,
    nn.RMSNorm,
    nn.ReLU,
    nn.LeakyReLU,
    nn.ReLU6,
    nn.ELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Hardsigmoid,
    nn.Hardswish,
    nn.Hardtanh,
    nn.Tanh,
    nn.GELU,
    nn.Mish,
    nn.Softplus,
    nn.Softmax,
    nn.MaxPool1d,
    nn.MaxPool2d,
    nn.MaxPool3d,
    nn.AvgPool2d,
    nn.AvgPool3d,
)
_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
# `y += 1` and the like, by the names of their methods.
IN_PLACE = {
    f"__{name}__": getattr(operator, name)
    for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor")
}


class _Proxy(torch.fx.Proxy):
    """A value whose `+=` and so on are calls of their own: they change a tensor that may have other names."""


def _in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: _Proxy, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    return call


for _name, _function in IN_PLACE.items():
    setattr(_Proxy, _name, _in_place(_function))


class _Tracer(torch.fx.Tracer):
    def __init__(self) -> None:
        super().__init__()
        self.constants = Constants()
        self.proxy_buffer_attributes = True

    def proxy(self, node: torch.fx.Node) -> torch.fx.Proxy:
        return _Proxy(node, self)

    def to_bool(self, obj: torch.fx.Proxy) -> bool:
        """Asserts hold, and the file has none; other branches have no place in a graph."""
        del obj
        own = (__file__, str(Path(torch.fx.__file__).parent))
        stack = reversed(traceback.extract_stack())
        frame = next(each for each in stack if not each.filename.startswith(own))
        if _is_assert(frame.filename, frame.lineno or 0):
            return True
        line = f"{frame.filename}:{frame.lineno}: `{frame.line}`"
        raise NotImplementedError(f"{line} branches on a tensor or its extents")

    def create_node(self, *args: Any, **kwargs: Any) -> torch.fx.Node:
        if not torch.is_grad_enabled():
            raise NotImplementedError("it calls operators under torch.no_grad")
        return super().create_node(*args, **kwargs)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return super().is_leaf_module(m, module_qualified_name) and not isinstance(m, _INLINED)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        path = self.path_of_module(m)
        if not self.is_leaf_module(m, path) or (isinstance(m, _INSTANCE_NORMS) and not m.track_running_stats):
            if type(m).__module__.startswith("torch."):
                self.constants.add_layer(path, m, self.root.get_submodule(path.rpartition(".")[0]))
            else:
                self.constants.add_attributes(path, m)
        # Its forward branches on the rank of its input.
        if isinstance(m, _INSTANCE_NORMS) and not m.track_running_stats:
            own = {
                name: self.create_proxy("get_attr", f"{path}.{name}", (), {}) if m.affine else None
                for name in ("weight", "bias")
            }
            normed: Any = nn.functional.instance_norm
            return normed(*args, **kwargs, **own, eps=m.eps)
        return super().call_module(m, forward, args, kwargs)

    def add_counts(self, module: nn.Module, path: str = "") -> None:
        """How many layers the lists of a module have that no leaf of the graph has for itself."""
        self.constants.add_count(path, module)
        for name, each in module.named_children():
            own = f"{path}.{name}" if path else name
            if isinstance(each, LISTS) or not self.is_leaf_module(each, own):
                self.add_counts(each, own)


def _is_assert(file: str, line: int) -> bool:
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return False
    asserts = [each for each in ast.walk(tree) if isinstance(each, ast.Assert)]
    return any(each.lineno <= line <= (each.end_lineno or 0) for each in asserts)


def arguments(model: nn.Module, inputs: Sequence[Any]) -> dict[str, Any]:
    """Forward's arguments for these inputs, by their names. Raises ValueError for too many or too few."""
    try:
        bound = inspect.signature(model.forward).bind(*inputs)
    except TypeError as error:
        raise ValueError(f"{type(model).__name__}.forward with {len(inputs)} inputs: {error}") from error
    bound.apply_defaults()
    return dict(bound.arguments)


def trace(model: nn.Module, absent: Sequence[str] = ()) -> tuple[torch.fx.Graph, Constants]:
    """The graph of a model's forward, and what is constant in it; `absent` arguments are None.

    Raises NotImplementedError where forward cannot be traced: it branches on what its tensors hold, say, or
    on whether the model is being trained.
    """
    name = f"{type(model).__name__}.forward"
    modes = {module: module.training for module in model.modules()}
    graph, constants = _traced(model, absent)
    try:
        for training in (True, False):
            for module in modes:
                module.training = training
            if str(_traced(model, absent)[0]) != str(graph):
                raise NotImplementedError(f"{name} depends on self.training: the file has one forward")
    finally:
        for module, training in modes.items():
            module.training = training
    return graph, constants


def _traced(model: nn.Module, absent: Sequence[str]) -> tuple[torch.fx.Graph, Constants]:
    tracer = _Tracer()
    name = f"{type(model).__name__}.forward"
    before = _state(model)
    try:
        with torch.enable_grad(), mock.patch.object(torch.autocast, "__enter__", _refuse_autocast):
            graph = tracer.trace(model, dict.fromkeys(absent))
    except Exception as error:
        kind = "" if isinstance(error, NotImplementedError) else f"{type(error).__name__}: "
        raise NotImplementedError(f"{name} cannot be traced: {kind}{error}") from error
    _name_absent(graph, absent)
    made = [str(node.target) for node in graph.nodes if str(node.target).startswith("_tensor_constant")]
    if made:
        value = getattr(model, made[0])
        raise NotImplementedError(f"{name} makes a tensor, which would stay {value}: make it a buffer")
    after = _state(model)
    for own in {**before, **after}:
        if own not in before or own not in after or not _is_same(before[own], after[own]):
            raise NotImplementedError(f"{name} changes {own}, which the file's would not")
    tracer.constants.add_attributes("", model)
    tracer.add_counts(model)
    return graph, tracer.constants


def _name_absent(graph: torch.fx.Graph, absent: Sequence[str]) -> None:
    """Arguments that are None go by their own names again, and forward's text has its own check of them."""
    for node in list(graph.nodes):
        if node.op == "placeholder" and (name := re.sub(r"_\d+$", "", str(node.target))) in absent:
            node.target = name
            node.meta["absent"] = True
            for check in list(node.users):
                graph.erase_node(check)


def _refuse_autocast(_: Any) -> None:
    raise NotImplementedError("it calls operators under torch.autocast")


def _state(model: nn.Module) -> dict[str, list[Any]]:
    """The attributes of a model's modules; those that are lists and dictionaries with what is in them."""
    state = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            parts = list(value.values()) if isinstance(value, dict) else value
            state[f"{place(path)}.{name}"] = [value, *(parts if isinstance(parts, list) else ())]
    return state


def _is_same(before: list[Any], after: list[Any]) -> bool:
    return len(before) == len(after) and all(a is b for a, b in zip(before, after, strict=True))
