#!/usr/bin/env python3
"""Sigmoids beside special numbers: where four elements share a reciprocal, none may touch its neighbours.

    tools/on_gpu tests/gpu/special_neighbours.py
    tools/emulated .venv/bin/python tests/gpu/special_neighbours.py --device emulated

Elements are NaN, infinities and numbers whose exponentials, or the products of these, overflow, among
ordinary ones. Each output is held to float64 by itself: within an ulp of its type, NaN and infinities where
PyTorch has them. What is below the smallest number of f32 may be 0.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python")]

import torch  # noqa: E402
from fuseblock._capi import Plan  # noqa: E402
from torch import Tensor  # noqa: E402

SPECIAL = (
    math.nan,
    math.inf,
    -math.inf,
    90.0,
    -90.0,
    -87.0,
    -60.0,
    -45.0,
    -30.0,
    -22.5,
    -16.0,
    16.0,
    0.0,
    -0.0,
)
EXTENTS = (2, 16, 32, 64)
BLOCKS = {
    "silu": torch.nn.functional.silu,
    "sigmoid": torch.sigmoid,
    "mul(2) | silu | add(1)": lambda x: torch.nn.functional.silu(2 * x) + 1,
}
_LOST = 1e-35  # what sigmoid of x below -87 loses, times x


def inputs(dtype: torch.dtype, seed: int) -> Tensor:
    """Ordinary numbers with none, one or several special ones in a vector."""
    generator = torch.Generator().manual_seed(seed)
    x = 4 * torch.randn(EXTENTS, generator=generator, dtype=torch.float64)
    which = torch.randint(len(SPECIAL), EXTENTS, generator=generator)
    # Vectors of eight neighbours, along positions and along channels, that have many special numbers or few.
    share = torch.tensor([0.0, 0.05, 0.5])[torch.randint(3, (2, 2, 32, 8), generator=generator)]
    share = share.repeat_interleave(8, 1).repeat_interleave(8, 3)
    special = torch.rand(EXTENTS, generator=generator) < share
    return torch.where(special, torch.tensor(SPECIAL, dtype=torch.float64)[which], x).to(dtype)


def trouble(got: Tensor, exact: Tensor) -> str:
    """The first element that is not what it should be."""
    rounded = exact.to(got.dtype).double()
    ours = got.double()
    info = torch.finfo(got.dtype)
    ulp = info.eps * torch.exp2(exact.abs().clamp(min=info.tiny).log2().floor())
    right = torch.where(
        rounded.isfinite(),
        (ours - exact).abs() <= ulp + _LOST,
        (ours == rounded) | (ours.isnan() & rounded.isnan()),
    )
    wrong = (~right).nonzero()
    if len(wrong) == 0:
        return ""
    at = wrong[0].tolist()
    return f"at {at}: got {float(ours[*at])}, exactly {float(exact[*at])}; {len(wrong)} such"


def run(block: str, type_name: str, dtype: torch.dtype, layout: str, device: str) -> str:
    """What is wrong with a block in a type and a layout."""
    extents = ",".join(map(str, EXTENTS))
    plan = Plan.make(block, f"{type_name}[{extents}]{layout}", {}, "cuda")
    place = "cpu" if device == "emulated" else device
    if device == "emulated":
        plan.device = "cpu"
    order = torch.channels_last if layout else torch.contiguous_format
    for seed in range(3):
        x = inputs(dtype, seed)
        call = plan.bind({"x": x.to(place).contiguous(memory_format=order)})
        call()
        (output,) = call.outputs.values()
        if told := trouble(output.cpu(), BLOCKS[block](x.double())):
            return f"{told}, seed {seed}"
    return ""


def main() -> int:
    """Runs the blocks in both types of 16 bits and both layouts."""
    parser = argparse.ArgumentParser(description="Sigmoids beside special numbers")
    parser.add_argument("--device", choices=("cuda", "emulated"), default="cuda")
    device = parser.parse_args().device
    failed = 0
    for block in BLOCKS:
        for type_name, dtype in (("bf16", torch.bfloat16), ("f16", torch.float16)):
            for layout in ("", ":cl"):
                told = run(block, type_name, dtype, layout, device)
                failed += bool(told)
                print(f"{block} {type_name}{layout}: {told or 'passed'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
