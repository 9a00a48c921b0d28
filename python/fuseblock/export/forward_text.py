"""The text of ModelNew.forward: calls of the blocks, and what was left as it was."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

import torch.fx

from fuseblock.export import graph_text
from fuseblock.export.capture import CapturedModel
from fuseblock.export.in_place import needs
from fuseblock.export.planned import PlannedBlock
from fuseblock.export.values import value_text

__all__ = ["TF32", "forward_text", "in_order"]

TF32 = {"tf32": True, "strict": False}  # by modes that choose it


def in_order(graph: torch.fx.Graph, blocks: Sequence[list[torch.fx.Node]]) -> list[torch.fx.Node]:
    """The nodes with those of a block beside each other, behind all that they need.

    A block stands where its last call stood, and before that where one of its values is used earlier.
    """
    unit: dict[torch.fx.Node, list[torch.fx.Node]] = {node: [node] for node in graph.nodes}
    for block in blocks:
        unit.update(dict.fromkeys(block, block))
    done: dict[torch.fx.Node, None] = {}

    def visit(own: list[torch.fx.Node]) -> None:
        for node in own:
            for operand in needs(node):
                if operand not in done and operand not in own:
                    visit(unit[operand])
        done.update(dict.fromkeys(own))

    for node in graph.nodes:
        if node is unit[node][-1] and node not in done:
            visit(unit[node])
    return list(done)


def forward_text(model: CapturedModel, planned: Sequence[PlannedBlock], forward: Any, mode: str) -> str:
    """The method, with a call for each block."""
    names: dict[torch.fx.Node, str] = {}
    calls: dict[torch.fx.Node, str] = {}
    late: dict[torch.fx.Node, PlannedBlock] = {}
    for each in planned:
        calls.update(dict.fromkeys(each.block.nodes, ""))
        late[each.block.nodes[-1]] = each
    lines = _absent(model.graph)
    for node in in_order(model.graph, [each.block.nodes for each in planned]):
        lines += graph_text.statements([node], names, calls)
        if node in late:
            each = late[node]
            by_name = {"x": each.block.x, **each.block.arguments}
            arguments = ", ".join(names[by_name[name]] for name in each.identifiers())
            results = [output.name for output in each.block.outputs]
            names.update({output: output.name for output in each.block.outputs})
            lines.append(f"{', '.join(results)} = {each.name('block')}({arguments})")
    match = re.fullmatch(r"return (\w+)", lines[-1])
    if len(lines) > 1 and match and lines[-2].startswith(f"{match[1]} = "):
        lines[-2:] = ["return " + lines[-2].removeprefix(f"{match[1]} = ")]
    if mode in TF32:
        lines = ["with precision():", *(f"    {line}" for line in lines)]
    return f"    def forward{_signature(forward)}:\n" + textwrap.indent("\n".join(lines), "        ") + "\n"


def _absent(graph: torch.fx.Graph) -> list[str]:
    """Statements that refuse arguments which were None when forward was traced."""
    lines = []
    for node in graph.nodes:
        if node.meta.get("absent"):
            lines += [
                f"if {node.target} is not None:",
                f'    raise ValueError("{node.target}: expected None, as exported")',
            ]
    return lines


class _Default:
    """A default value, which a signature writes as Python reads it."""

    def __init__(self, value: Any) -> None:
        self.text = value_text(value)

    def __repr__(self) -> str:
        return self.text


def _signature(forward: Callable[..., Any]) -> str:
    """The arguments of forward without their types, the first of them called self."""
    signature = inspect.signature(forward)
    own: list[inspect.Parameter] = []
    for each in signature.parameters.values():
        name = each.name if own else "self"
        default = each.default if each.default is inspect.Parameter.empty else _Default(each.default)
        own.append(each.replace(name=name, default=default, annotation=inspect.Parameter.empty))
    return str(inspect.Signature(own))
