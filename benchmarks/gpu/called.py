"""Blocks of bench.py as their users call them: modules of fuseblock.nn, and of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import fuseblock
import torch
from torch import Tensor, nn

from benchmarks.gpu.gpu_timing import Timer

# How a module's calls are timed: functions of Timer, and what the keys of a row begin with.
MEASURES = CALLED, DO_BENCH = "called", "do_bench"


class ByTorch(nn.Module):
    """A function of an input and parameters as a module."""

    def __init__(self, function: Callable[..., Tensor], parameters: int, channels: int) -> None:
        super().__init__()
        self.function = function
        self.names = [f"value{number}" for number in range(parameters)]
        for name in self.names:
            self.register_parameter(name, nn.Parameter(torch.empty(channels)))

    def forward(self, x: Tensor) -> Tensor:
        """The function's result."""
        return self.function(x, *[getattr(self, name) for name in self.names])


@dataclass(frozen=True)
class Called:
    """The same block as a module of both."""

    ours: nn.Module
    theirs: nn.Module

    @staticmethod
    def group_norm_silu(groups: int, channels: int) -> Called:
        """GroupNorm and SiLU."""
        theirs = nn.Sequential(nn.GroupNorm(groups, channels), nn.SiLU())
        return Called(fuseblock.nn.GroupNorm(groups, channels, act="silu"), theirs)

    @staticmethod
    def of_notation(notation: str, by_torch: Callable[..., Tensor], parameters: int, channels: int) -> Called:
        """A notation, and the function that does the same."""
        ours = fuseblock.nn.Block(notation, in_channels=channels)
        return Called(ours, ByTorch(by_torch, parameters, channels))

    def with_parameters(self, values: Sequence[Tensor]) -> Called:
        """The modules with these parameters, in their type and on their device."""
        for module in (self.ours, self.theirs):
            module.to(values[0].device, values[0].dtype)
            with torch.no_grad():
                for own, value in zip(module.parameters(), values, strict=True):
                    own.copy_(value)
        return self

    def compiled(self) -> Callable[[Tensor], Any]:
        """PyTorch's, compiled."""
        return torch.compile(self.theirs, dynamic=False)

    def figures(
        self, x: Tensor, timer: Timer, measure: str, compiled: Callable[[Tensor], Any] | None = None
    ) -> dict[str, Any]:
        """Milliseconds of calls under no_grad by a measure of MEASURES: ours and PyTorch's."""
        timed = getattr(timer, measure)
        with torch.no_grad():
            theirs = {"eager": timed(partial(self.theirs, x))}
            if compiled is not None:
                theirs["torch.compile"] = timed(partial(compiled, x))
            return {f"{measure}_ms": timed(partial(self.ours, x)), f"{measure}_peers": theirs}
