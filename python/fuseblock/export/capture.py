"""Blocks in a model's forward: the graph of its calls, and which of them become kernels together.

Extents come from a run on tensors without memory. Calls that the notation has are joined to blocks wherever
nothing outside of a block lies between two of its calls; the rest stays as it was, with the reason.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import operator
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils import _pytree as pytree

from fuseblock._capi import type_text
from fuseblock.aten import DEFAULT_AXES
from fuseblock.export.constants import Constants
from fuseblock.export.in_place import Propagation, follow_in_place, needs
from fuseblock.export.operations import Result, UnknownCallError, Value, statement
from fuseblock.export.tracing import arguments, trace

__all__ = ["CapturedBlock", "CapturedModel", "capture"]

# Calls without which a block is no more than what PyTorch's own operators do in one trip.
_REDUCING = ("group_norm", "instance_norm", "layer_norm", "rms_norm", "l2_normalize", "softmax")
_RESERVED = frozenset("ncdhwx")
_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@dataclass
class CapturedBlock:
    """A part of the graph as a block: its notation, and which nodes its arguments and outputs are."""

    nodes: list[torch.fx.Node]
    notation: str
    x: torch.fx.Node
    arguments: dict[str, torch.fx.Node]  # extra inputs and parameters, by their names in the notation
    outputs: list[torch.fx.Node]

    @property
    def input_type(self) -> str:
        """The type of x."""
        return type_text(example(self.x))

    def types(self) -> dict[str, str]:
        """The types of the other arguments, with the axes they lie on."""
        result = {}
        for name, node in self.arguments.items():
            tensor = example(node)
            text = type_text(tensor)
            if "." not in name:
                axes = _axes_of(tensor, example(self.x))
                extents = ",".join(
                    f"{axis}={extent}" for axis, extent in zip(axes, tensor.shape, strict=True)
                )
                text = f"{text[: text.index('[')]}[{extents}]"
            result[name] = text
        return result


@dataclass
class CapturedModel:
    """A traced forward: its graph, its blocks, why other calls are none, and what it took as constants."""

    graph: torch.fx.Graph
    blocks: list[CapturedBlock]
    constants: Constants
    left: dict[torch.fx.Node, str] = field(default_factory=dict)


def example(node: torch.fx.Node) -> Tensor:
    """The tensor without memory that a node gave."""
    value = node.meta["val"]
    assert isinstance(value, Tensor)
    return value


def capture(model: nn.Module, inputs: Sequence[Any]) -> CapturedModel:
    """Traces a model's forward and finds its blocks.

    Raises NotImplementedError where forward cannot be traced: it branches on what its tensors hold, say; and
    ValueError where it fails with these inputs.
    """
    given = arguments(model, inputs)
    graph, constants = trace(model, [name for name, value in given.items() if value is None])
    _name_unpacked(graph, type(model).forward)
    _propagate(model, graph, given)
    follow_in_place(graph)
    left: dict[torch.fx.Node, str] = {}
    groups = _groups(graph, left)
    blocks = []
    for group in groups:
        reason = _not_worth(group)
        if reason:
            left.update(dict.fromkeys(group, reason))
        else:
            blocks.append(_block(group))
    return CapturedModel(graph, blocks, constants, left)


def _propagate(model: nn.Module, graph: torch.fx.Graph, given: Mapping[str, Any]) -> None:
    """Runs a graph on tensors without memory; its nodes have what they gave."""
    name = f"{type(model).__name__}.forward"
    names = [str(node.target) for node in graph.nodes if node.op == "placeholder"]
    values = [given[each] for each in names if not each.startswith("*")]
    # What is left over stands last, in whichever place forward has it.
    values += [value for each in names if each[:1] == "*" and each[:2] != "**" for value in given[each[1:]]]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = pytree.tree_map(
            lambda each: mode.from_tensor(each) if isinstance(each, Tensor) else each, values
        )
        propagation: Any = Propagation(torch.fx.GraphModule(model, graph), mode)
        try:
            propagation.propagate_dont_convert_inputs(*fakes)
        except DataDependentOutputException as error:
            raise NotImplementedError(f"{name} takes a number out of a tensor ({error.func})") from error
        except Exception as error:
            reason = str(error).partition("\n\nWhile executing")[0]
            raise ValueError(f"{name} fails with the example inputs: {reason}") from error


def _name_unpacked(graph: torch.fx.Graph, forward: Callable[..., Any]) -> None:
    """Names the values of `scale, shift = ...` as forward does, where it has no other use of an index."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(forward)))
    except (OSError, TypeError, SyntaxError):
        return
    targets = [target for each in ast.walk(tree) if isinstance(each, ast.Assign) for target in each.targets]
    names = [
        [each.id for each in target.elts if isinstance(each, ast.Name)]
        for target in targets
        if isinstance(target, ast.Tuple)
    ]
    unpacked: dict[Any, list[torch.fx.Node]] = {}
    for node in graph.nodes:
        if node.target is operator.getitem and isinstance(node.args[1], int):
            unpacked.setdefault(node.args[0], []).append(node)
    groups = list(unpacked.values())
    if [len(each) for each in names] != [len(each) for each in groups]:
        return
    for node, name in zip(itertools.chain(*groups), itertools.chain(*names), strict=True):
        node._rename(name)


def _not_worth(group: Sequence[torch.fx.Node]) -> str:
    """Why a group of calls is left to PyTorch's operators; empty where it is a block."""
    results = [node.meta["result"].text for node in group]
    if any(text.startswith(_REDUCING) for text in results):
        return ""
    if len(results) > 1:
        return ""
    return "a single call that PyTorch's operator does in one trip"


def _is_tensor(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, Tensor) and value.dtype in _DTYPES and value.dim() <= 5


def _axes_of(tensor: Tensor, like: Tensor) -> str:
    """The letters of a tensor that broadcasts with another from the right."""
    axes = DEFAULT_AXES[max(like.dim(), tensor.dim())]
    return axes[len(axes) - tensor.dim() :]


def _values(node: torch.fx.Node, known: dict[torch.fx.Node, str]) -> dict[torch.fx.Node, Value]:
    """The tensors that a call takes, with their axes; those from outside are aligned with the largest."""
    tensors = [each for each in node.all_input_nodes if _is_tensor(each)]
    if len(tensors) != len(node.all_input_nodes):
        raise UnknownCallError("an operand that is no tensor of a type that blocks have")
    largest = max(tensors, key=lambda each: (example(each).dim(), example(each).numel()))
    axes = known.get(largest, DEFAULT_AXES[example(largest).dim()])
    result = {}
    for each in tensors:
        own = known.get(each, axes[len(axes) - example(each).dim() :])
        result[each] = Value(_identifier(each), own)
    return result


def _identifier(node: torch.fx.Node) -> str:
    name = node.name
    return name + "_" if name in _RESERVED else name


def _groups(graph: torch.fx.Graph, left: dict[torch.fx.Node, str]) -> list[list[torch.fx.Node]]:
    """The calls that the notation has, joined as far as they may be, in the graph's order."""
    axes: dict[torch.fx.Node, str] = {}
    group_of: dict[torch.fx.Node, list[torch.fx.Node]] = {}
    for node in graph.nodes:
        if node.op not in ("call_function", "call_method", "call_module"):
            continue
        try:
            if node.op == "call_module":
                raise UnknownCallError("kept")
            if node.meta["changes_others"]:
                raise UnknownCallError("it changes a tensor in place that has other names")
            if not _is_tensor(node):
                raise UnknownCallError("no operation of the notation")
            result: Result = statement(node, _values(node, axes))
        except UnknownCallError as reason:
            left[node] = str(reason)
            continue
        node.meta["result"] = result
        axes[node] = result.axes
        own = [node]
        for operand in node.all_input_nodes:
            other = group_of.get(operand)
            if other is not None and other[0] not in own and _may_join(other + own, group_of):
                own = other + own
        for each in own:
            group_of[each] = own
    seen: list[list[torch.fx.Node]] = []
    for group in group_of.values():
        if not any(group is each for each in seen):
            seen.append(group)
    order = {node: i for i, node in enumerate(graph.nodes)}
    return [sorted(group, key=order.__getitem__) for group in seen]


def _may_join(nodes: list[torch.fx.Node], group_of: dict[torch.fx.Node, list[torch.fx.Node]]) -> bool:
    """Whether nothing outside stands between two of these nodes; a group stands there as a whole."""
    inside = set(nodes)
    seen: set[torch.fx.Node] = set()
    before = [each for node in nodes for each in needs(node) if each not in inside]
    while before:
        node = before.pop()
        if node in inside:
            return False
        if node not in seen:
            group = group_of.get(node, [node])
            seen.update(group)
            before += [operand for each in group for operand in needs(each) if operand not in seen]
    return True


def _outside(group: Sequence[torch.fx.Node]) -> Iterator[torch.fx.Node]:
    """What a group takes from outside, in the order of use."""
    inside = set(group)
    seen: set[torch.fx.Node] = set()
    for node in group:
        for operand in node.all_input_nodes:
            if operand not in inside and operand not in seen:
                seen.add(operand)
                yield operand


def _block(group: list[torch.fx.Node]) -> CapturedBlock:
    inside = set(group)
    outputs = [node for node in group if any(user not in inside for user in node.users)]
    parameters = [node for owner in group for node in owner.meta["result"].parameters.values()]
    candidates = [node for node in _outside(group) if node not in parameters]
    x = max(candidates, key=lambda node: (node.op != "get_attr", example(node).dim(), example(node).numel()))
    names = _names(group, x, [node for node in candidates if node is not x])
    arguments = {names[_identifier(node)]: node for node in candidates if node is not x}
    for owner in group:
        for role, node in owner.meta["result"].parameters.items():
            arguments[f"{names[_identifier(owner)]}.{role}"] = node
    word = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?![\w.(=])")
    statements = []
    for node in group:
        right = word.sub(lambda found: names.get(found.group(), found.group()), node.meta["result"].text)
        statements.append(f"{names[_identifier(node)]} = {right}")
    returned = ", ".join(names[_identifier(node)] for node in outputs)
    return CapturedBlock(group, "; ".join([*statements, f"return {returned}"]), x, arguments, outputs)


def _names(group: list[torch.fx.Node], x: torch.fx.Node, extra: list[torch.fx.Node]) -> dict[str, str]:
    """Names in the notation by those in the graph: the operation's, numbered where one occurs twice."""
    names = {_identifier(x): "x"}
    taken = {"x"}
    for node in [*extra, *group]:
        if node in extra:
            base = str(node.target).rpartition(".")[2] if node.op == "get_attr" else node.name
        else:
            base = re.split(r"\W", node.meta["result"].text)[0] if _is_call(node) else node.name
        base = base if base not in _RESERVED else f"{base}_"
        base = re.sub(r"_\d+$", "", base if base.isidentifier() else node.name)
        name, number = base, 2
        while name in taken:
            name, number = f"{base}{number}", number + 1
        taken.add(name)
        names[_identifier(node)] = name
    return names


def _is_call(node: torch.fx.Node) -> bool:
    return re.match(r"\w+\(", node.meta["result"].text) is not None
