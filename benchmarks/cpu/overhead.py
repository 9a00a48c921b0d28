"""What a call costs the host: modules of fuseblock.nn beside PyTorch's on tensors of a few elements.

The arithmetic is next to nothing there, so the times are those of Python, autograd and the dispatcher. Both
take turns in batches of calls, on one thread, as more would only wait for each other; a figure is the median
over the batches of the microseconds a call.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from fuseblock import nn as fused
from torch import Tensor, nn

from benchmarks import reference_blocks

DIRECTIONS = ("forward", "forward+backward")
# How much longer than PyTorch's a call may take.
WANTED = dict(zip(DIRECTIONS, (1.3, 1.5), strict=True))
# Calls of one batch, and the fewest batches of each contender.
CALLS = 20
FEWEST_BATCHES = 5


@dataclass(frozen=True)
class OverheadCase:
    """A block as a module of both, and the shape of a tiny input."""

    name: str
    ours: Callable[[], nn.Module]
    theirs: Callable[[], nn.Module]
    shape: tuple[int, ...]


CASES = (
    OverheadCase(
        "overhead_gn_silu",
        lambda: fused.GroupNorm(2, 4, act="silu"),
        lambda: nn.Sequential(nn.GroupNorm(2, 4), nn.SiLU()),
        (1, 4, 4, 4),
    ),
    OverheadCase(
        "overhead_conv2d_gn_silu",
        lambda: fused.Block("conv2d(4, k=1) | group_norm(2) | silu", in_channels=4),
        lambda: nn.Sequential(nn.Conv2d(4, 4, 1), nn.GroupNorm(2, 4), nn.SiLU()),
        (1, 4, 4, 4),
    ),
    OverheadCase(
        "overhead_conv3d_gn_mean",
        lambda: fused.Conv3dGnMean(1, 4, 1, 2),
        lambda: reference_blocks.Conv3dGnMean(1, 4, 1, 2),
        (1, 1, 2, 2, 2),
    ),
    OverheadCase(
        "overhead_conv_transpose3d_relu_gn",
        lambda: fused.ConvTranspose3dReluGn(2, 4, 2, 2),
        lambda: reference_blocks.ConvTranspose3dReluGn(2, 4, 2, 2),
        (1, 2, 2, 2, 2),
    ),
    OverheadCase(
        "overhead_conv3d_hardswish_gn_mean",
        lambda: fused.Conv3dHardswishGnMean(1, 4, 1, 2),
        lambda: reference_blocks.Conv3dHardswishGnMean(1, 4, 1, 2),
        (1, 1, 2, 2, 2),
    ),
    OverheadCase(
        "overhead_conv2d_gn_tanh_hardswish_residual_lse",
        lambda: fused.Conv2dGnTanhHardswishResidualLse(2, 4, 1, 2),
        lambda: reference_blocks.Conv2dGnTanhHardswishResidualLse(2, 4, 1, 2),
        (1, 2, 3, 3),
    ),
)


@dataclass
class OverheadRow:
    """One case in one direction: microseconds a call, medians and quartiles, and ours over PyTorch's."""

    case: str
    direction: str
    dtype: str
    layout: str
    shape: list[int]
    fuseblock_us: float
    fuseblock_spread_us: list[float]
    torch_us: float
    torch_spread_us: list[float]
    ratio: float
    wanted_ratio: float


def call_of(module: nn.Module, x: Tensor, direction: str) -> Callable[[], object]:
    """What is timed: forward under no_grad, or forward and the gradients of the input and the parameters."""
    if direction == "forward":

        def forward() -> object:
            with torch.no_grad():
                return module(x)

        return forward
    wanted = [x.requires_grad_(), *module.parameters()]
    d_output = torch.randn_like(module(x))
    return lambda: torch.autograd.grad(module(x), wanted, d_output)


def measure_overhead(case: OverheadCase, direction: str, seconds: float) -> OverheadRow:
    """Both contenders in turns for about `seconds` seconds, on as many threads as PyTorch is set to."""
    ours, theirs = case.ours(), case.theirs()
    x = torch.randn(case.shape)
    calls = [call_of(module, x.clone(), direction) for module in (ours, theirs)]
    times: list[list[float]] = [[], []]
    for call in calls:
        _batch(call)
    end = time.perf_counter() + seconds
    gc.collect()
    gc.disable()
    try:
        while len(times[0]) < FEWEST_BATCHES or time.perf_counter() < end:
            for call, of_call in zip(calls, times, strict=True):
                of_call.append(_batch(call))
    finally:
        gc.enable()
    ours_us, theirs_us = (statistics.median(of_call) for of_call in times)
    return OverheadRow(
        case=case.name,
        direction=direction,
        dtype="f32",
        layout="contiguous",
        shape=list(case.shape),
        fuseblock_us=ours_us,
        fuseblock_spread_us=_quartiles(times[0]),
        torch_us=theirs_us,
        torch_spread_us=_quartiles(times[1]),
        ratio=ours_us / theirs_us,
        wanted_ratio=WANTED[direction],
    )


def _batch(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - begin) / CALLS * 1e6


def _quartiles(values: Sequence[float]) -> list[float]:
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return [low, high]


def overhead_header() -> str:
    """The titles of the columns."""
    return _line(("tiny tensors, us a call", "direction", "fuseblock", "PyTorch eager", "ratio", "wanted"))


def overhead_line(row: OverheadRow) -> str:
    """One row of the table."""
    figures = (
        f"{median:.1f} ({low:.1f}-{high:.1f})"
        for median, (low, high) in (
            (row.fuseblock_us, row.fuseblock_spread_us),
            (row.torch_us, row.torch_spread_us),
        )
    )
    verdict = "ok" if row.ratio <= row.wanted_ratio else "no"
    return _line(
        (row.case, row.direction, *figures, f"{row.ratio:.2f}", f"<= {row.wanted_ratio:.2f} {verdict}")
    )


def _line(cells: Sequence[str]) -> str:
    widths = (48, 16, 24, 24, 6, 12)
    return "  ".join(
        cell.ljust(width) if i < 2 else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ).rstrip()
