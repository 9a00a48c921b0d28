#!/usr/bin/env python3
"""Samples of a convolution one after the other, in and out of the range of f16, by the same thread blocks.

    tools/on_gpu tests/gpu/samples_in_range.py
    tools/emulated .venv/bin/python tests/gpu/samples_in_range.py --device emulated

A block of f32, whose products `conv_roll` takes of pairs of f16 with powers of two, on a batch of samples of
several kinds in turn: usual numbers, large and small ones, a channel of zeros, one large element, infinities.
Every sample keeps to the error of its mode, those without infinities are finite, and samples that are the
same have the same bits, whatever a thread block has had before them.
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
from torch.nn import functional  # noqa: E402

_BLOCK = "conv3d(8, k=3, bias=false) | relu | group_norm(2, eps=1e-30) | mean(d,h,w)"
_EXTENTS = (3, 4, 8, 8)
_TYPES = {"conv3d.weight": "f32[8,3,3,3,3]", "group_norm.weight": "f32[8]", "group_norm.bias": "f32[8]"}
# Of results, which are around 1.
_BARS = {"strict": 1e-5, "tf32": 5e-3}
_FACTORS = (1.0, 3e6, 1.0, 2e-7, 1e-13, 1.0, 1.0, 1.0, 1e-3)
_ZEROS, _LARGE, _INFINITE = 5, 6, 7  # kinds that differ by more than a factor


def sample(kind: int) -> Tensor:
    """A sample of a kind; those of the first and the third are the same."""
    generator = torch.Generator().manual_seed(0 if kind == 2 else kind)
    values = (torch.rand(_EXTENTS, generator=generator) - 0.3) * _FACTORS[kind]
    if kind == _ZEROS:
        values[1] = 0
    if kind == _LARGE:
        values[0, 1, 3, 4] = 1e5
    if kind == _INFINITE:
        values[2, 2, 5, 5] = math.inf
    return values


def trouble(mode: str, samples: int, device: str) -> str:
    """What is wrong with the results."""
    plan = Plan.make(_BLOCK, f"f32[{samples},{','.join(map(str, _EXTENTS))}]", _TYPES, "cuda", precision=mode)
    place = "cpu" if device == "emulated" else device
    if device == "emulated":
        plan.device = "cpu"
    generator = torch.Generator().manual_seed(3)
    weight = torch.randn(8, 3, 3, 3, 3, generator=generator) * 0.2
    weight[3] *= 1e-6  # an output channel that is nearly dead
    gamma, beta = (torch.randn(8, generator=generator) for _ in range(2))
    kinds = len(_FACTORS)
    each = [sample(kind) for kind in range(kinds)]
    x = torch.stack([each[i % kinds] for i in range(samples)])
    arguments = {"x": x, "conv3d.weight": weight, "group_norm.weight": gamma, "group_norm.bias": beta}
    bound = plan.bind({name: tensor.to(place) for name, tensor in arguments.items()})
    bound()
    (results,) = (tensor.cpu() for tensor in bound.outputs.values())
    convolved = functional.conv3d(torch.stack(each).double(), weight.double()).relu()
    exact = functional.group_norm(convolved, 2, gamma.double(), beta.double(), 1e-30).mean(dim=(2, 3, 4))
    for i in range(samples):
        kind = 0 if i % kinds == 2 else i % kinds
        if not torch.equal(results[i], results[kind]) and kind != _INFINITE:
            return f"sample {i} has other bits than sample {kind}, which is the same"
        error = float((results[i].double() - exact[kind]).abs().max())
        if kind == _INFINITE:
            if results[i].isfinite().all():
                return f"sample {i} is finite"
        elif not error <= _BARS[mode]:
            return f"sample {i} of kind {kind}: the error is {error:.3g}, the bar {_BARS[mode]:.3g}"
    return ""


def main() -> int:
    """Runs the block in both modes."""
    parser = argparse.ArgumentParser(description="Samples in and out of the range of f16")
    parser.add_argument("--device", choices=("cuda", "emulated"), default="cuda")
    device = parser.parse_args().device
    failed = 0
    for mode in _BARS:
        told = trouble(mode, 45 if device == "emulated" else 4500, device)
        failed += bool(told)
        print(f"{_BLOCK}, {mode}: {told or 'passed'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
