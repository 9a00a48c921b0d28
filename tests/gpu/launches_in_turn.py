#!/usr/bin/env python3
"""A block of two launches, of which the second begins beside the first.

    tools/on_gpu tests/gpu/launches_in_turn.py
    tools/emulated .venv/bin/python tests/gpu/launches_in_turn.py --device emulated

The block is bound once and called several times, every time on numbers of another size around another
mean: who takes the statistics of the call before, or those of a launch that is not done, is far from right.
On a GPU also as replays of a CUDA graph, and by two calls at once on two streams.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python")]

import torch  # noqa: E402
from fuseblock._capi import BoundCall, Plan  # noqa: E402
from kept_workspace import at_once, in_turn, replayed  # noqa: E402
from torch.nn import functional  # noqa: E402

_BLOCK = "conv2d(64, k=3) as y | group_norm(16) | tanh | hardswish | add(y) | logsumexp(c, keepdim)"
_TYPES = {
    "y.weight": "f32[64,8,3,3]",
    "y.bias": "f32[64]",
    "group_norm.weight": "f32[64]",
    "group_norm.bias": "f32[64]",
}
# Errors by the standard deviation of x.
_BARS = {"strict": 1e-5, "tf32": 1e-2}


class Call:
    """The block on tensors that stay where they are."""

    def __init__(self, mode: str, samples: int, device: str) -> None:
        """Makes the plan and binds it."""
        os.environ["FUSEBLOCK_CONV"] = "rounds=4"
        plan = Plan.make(_BLOCK, f"f32[{samples},8,20,38]", _TYPES, "cuda", precision=mode)
        place = "cpu" if device == "emulated" else device
        if device == "emulated":
            plan.device = "cpu"
        generator = torch.Generator().manual_seed(3)
        self.mode, self.size = mode, 1.0
        self.x = torch.empty(samples, 8, 20, 38, device=place)
        draws = ((64, 8, 3, 3), 0.1), ((64,), 0.1), ((64,), 1.0), ((64,), 0.3)
        drawn = [torch.randn(extents, generator=generator) * factor for extents, factor in draws]
        self.parameters = {name: each.to(place) for name, each in zip(_TYPES, drawn, strict=True)}
        self.bound: BoundCall = plan.bind({"x": self.x, **self.parameters})

    def draw(self, turn: int) -> None:
        """Other numbers: larger by a factor, around another mean."""
        generator = torch.Generator().manual_seed(turn)
        self.size = 3.0**turn
        self.x.copy_((torch.randn(self.x.shape, generator=generator) + 2 * (-1) ** turn) * self.size)

    def trouble(self) -> str:
        """What is wrong with the output."""
        (output,) = self.bound.outputs.values()
        x, weight, bias, gamma, beta = (each.cpu().double() for each in (self.x, *self.parameters.values()))
        y = functional.conv2d(x, weight, bias)
        added = functional.hardswish(functional.group_norm(y, 16, gamma, beta).tanh()) + y
        exact = added.logsumexp(1, keepdim=True)
        error = float((output.cpu().double() - exact).abs().max()) / self.size
        bar = _BARS[self.mode]
        return "" if error <= bar else f"the error is {error:.3g} of a standard deviation, the bar {bar:.3g}"


def main() -> int:
    """Runs the block in both modes."""
    parser = argparse.ArgumentParser(description="Launches of which the second begins beside the first")
    parser.add_argument("--device", choices=("cuda", "emulated"), default="cuda")
    device = parser.parse_args().device
    failed = 0
    for mode in _BARS:
        call = Call(mode, 2 if device == "emulated" else 16, device)
        told = in_turn(call)
        if device == "cuda":
            told = told or replayed(call) or at_once(call, Call(mode, 16, device))
        failed += bool(told)
        print(f"{_BLOCK}, {mode}: {told or 'passed'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
