"""A block of a model with the launches of its plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fuseblock.export.capture import CapturedBlock
from fuseblock.export.launches import tensor_name
from fuseblock.export.shapes import General

__all__ = ["FUNCTIONS", "PlannedBlock"]

FUNCTIONS = ("takes", "by_pytorch", "Block", "block")  # that a file has for each block


@dataclass
class PlannedBlock:
    """A block with its launches for any extents; without `backward` it runs where nothing needs gradients."""

    block: CapturedBlock
    forward: General
    backward: General | None
    explanation: Sequence[str]
    axes: str  # of x
    number: str = ""  # of the block in its file, where there are several
    owner: PlannedBlock | None = None  # an equal block whose functions this one calls
    prefixed: bool = False  # whether its functions have longer names, since the model has one of the short

    def name(self, base: str) -> str:
        """A name of the file with the block's number behind it."""
        if self.prefixed and base in FUNCTIONS:
            base = f"Fused{base}" if base[0].isupper() else f"fused_{base}"
        return f"{base}{self.number}"

    @property
    def inputs(self) -> list[dict[str, Any]]:
        """What forward takes."""
        return list(self.forward.plan["inputs"])

    def identifiers(self) -> dict[str, str]:
        """The Python names of forward's arguments, by their names in the notation."""
        return {each.get("notation", each["name"]): tensor_name(each["name"]) for each in self.inputs}

    def capability(self) -> int:
        """The least compute capability, by its first number: 9 has clusters."""
        clusters = any(launch["cluster"] > 1 for one in self.plans() for launch in one.plan["launches"])
        return 9 if clusters else 8

    def fixed(self) -> dict[str, int]:
        """Extents that the kernels are for."""
        return {axis: extent for one in self.plans() for axis, extent in one.fixed.items()}

    def plans(self) -> list[General]:
        """Forward, and backward where there is one."""
        return [self.forward] + ([self.backward] if self.backward else [])
