"""Blocks for tensors: a notation that is called with tensors of any type and takes part in autograd.

    act = block("group_norm(4) | silu")
    y = act(x, weight, bias)          # the arguments in the order of act.arguments(type_text(x))
    print(act.explain(x, weight, bias))

`nn` and `functional` are made of these. A block is cheap to make: what depends on the types of the tensors is
made when they first come, and kept.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fuseblock import aten
from fuseblock._capi import Plan, type_text

__all__ = ["Block", "NamedType", "block"]

_DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


@dataclass(frozen=True)
class NamedType:
    """What a block takes under a name."""

    name: str
    type: str
    dtype: torch.dtype
    extents: tuple[int, ...]
    axes: str
    is_parameter: bool


class Block:
    """A block for inputs of any type; `block` makes the one of a notation that everybody shares.

    notation: the block as docs/notation.md describes, as text or as JSON.
    keep: kinds of operations that stay PyTorch's own, such as ("conv",).

    Mistakes are ValueError, what is not supported is NotImplementedError, both with the library's message.
    """

    def __init__(self, notation: str, *, keep: tuple[str, ...] = ()) -> None:
        self.notation = notation
        self.keep = keep
        self._known: dict[Any, Mapping[str, Any]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return block, (self.notation, self.keep)

    def __repr__(self) -> str:
        return f"Block({self.notation!r}" + (f", keep={self.keep!r})" if self.keep else ")")

    def arguments(self, input_type: str, others: Mapping[str, str] | None = None) -> list[NamedType]:
        """What the block takes for an input such as `f32[1,3,8,8]`: x, extra inputs, parameters.

        others: types of extra inputs and parameters by name, where they do not follow from the block.
        """
        described = self._described(input_type, others or {})
        return [
            NamedType(
                each["name"],
                each["type"],
                _DTYPES[each["dtype"]],
                tuple(each["extents"]),
                each["axes"],
                kind == "parameters",
            )
            for kind in ("inputs", "parameters")
            for each in described[kind]
        ]

    def graph(self, input_type: str) -> Mapping[str, Any]:
        """The block's JSON (docs/notation.md); the input's type is only checked."""
        graph: Mapping[str, Any] = self._described(input_type, {})["graph"]
        return graph

    def __call__(self, x: Tensor, *others: Tensor) -> Tensor | tuple[Tensor, ...]:
        """The outputs; a tuple where the block returns several."""
        described = self._described_for(x, *others)
        types = [*described["inputs"], *described["parameters"]]
        names = [each["name"] for each in types]
        arguments = dict(zip(names, (x, *others), strict=True))
        axes = {each["name"]: each["axes"] for each in types}
        outputs = tuple(aten.run(described["graph"], arguments, axes).values())
        return outputs[0] if len(outputs) == 1 else outputs

    def explain(self, x: Tensor, *others: Tensor) -> str:
        """The plan that will run for these tensors, or that PyTorch's operators run and why."""
        described = self._described_for(x, *others)
        return f"{described['block']}\nPyTorch's operators run, one after the other\n"

    def _described_for(self, x: Tensor, *others: Tensor) -> Mapping[str, Any]:
        names = [each.name for each in self.arguments(type_text(x))]
        if len(names) != 1 + len(others):
            expected = f"{len(names)} tensors ({', '.join(names)})"
            raise ValueError(f"{self.notation}: expected {expected}, got {1 + len(others)}")
        types = {name: type_text(other) for name, other in zip(names[1:], others, strict=True)}
        return self._described(type_text(x), types)

    def _described(self, input_type: str, others: Mapping[str, str]) -> Mapping[str, Any]:
        """What the library tells of the block for these types."""
        key = (input_type, *others.items())
        if key not in self._known:
            plan = Plan.make(self.notation, input_type, others, "reference")
            self._known[key] = json.loads(plan.explain_json())
        return self._known[key]


@functools.cache
def block(notation: str, keep: tuple[str, ...] = ()) -> Block:
    """The block of a notation, made once."""
    return Block(notation, keep=keep)
