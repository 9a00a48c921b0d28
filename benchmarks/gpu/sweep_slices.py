#!/usr/bin/env python3
"""Divisions of the kernel `slices` beside each other: GroupNorm and SiLU over channels_last tensors on a GPU.

    tools/on_gpu benchmarks/gpu/sweep_slices.py [--filter TEXT] [--choices CHOICE ...] [--out FILE]

A choice is what FUSEBLOCK_SLICES takes (docs/environment.md); the empty one is what the cost model chooses. A
row is a shape and a choice: the medians of ten runs forward and backward (of a training pair), L2 emptied
before each, beside the floor of one read and one write of x forward, and two reads and one write backward.
Outputs are compared with those of the empty choice. Kernels that are not in the cache are compiled first,
some seconds each.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT)]

import torch  # noqa: E402
from fuseblock._capi import Plan, type_text  # noqa: E402

from benchmarks.gpu.bench import DEVICE, GROUP_NORMS, Timer, measured_copy_rate  # noqa: E402

# Pieces and teams for all; widths of slices; blocks. Those that do not fit a shape are skipped.
CHOICES = (
    "",
    *(f"pieces={pieces}" for pieces in (1, 2, 4)),
    *(f"channels={channels}" for channels in (16, 32, 64, 80, 128, 160, 256, 320, 512)),
    *(f"channels={channels},ahead={ahead}" for channels in (32, 64) for ahead in (0, 1)),
    *(f"team={team}" for team in (1, 2, 4, 8, 16, 33, 66, 132, 264)),
    "threads=512,blocks=1",
    "threads=128,blocks=4",
)


def way_of(plan: Plan) -> str:
    """How the plan's kernels divide their work."""
    kernels = json.loads(plan.explain_json())["kernels"]
    return "; ".join(f"{kernel['name']}: {kernel['way']}" for kernel in kernels)


def sweep(shape: tuple[int, ...], groups: int, choices: list[str], timer: Timer) -> list[dict[str, Any]]:
    """The rows of a shape."""
    generator = torch.Generator(DEVICE).manual_seed(1)

    def draw(*extents: int) -> torch.Tensor:
        return torch.randn(extents, generator=generator, device=DEVICE).bfloat16()

    last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    x = draw(*shape).to(memory_format=last)
    gradient = draw(*shape).to(memory_format=last)
    inputs = {"x": x, "group_norm.weight": draw(shape[1]), "group_norm.bias": draw(shape[1])}
    types = {name: type_text(each) for name, each in inputs.items() if name != "x"}
    expected: list[torch.Tensor] = []
    known: set[str] = set()
    rows = []
    for choice in choices:
        os.environ["FUSEBLOCK_SLICES"] = choice
        plan = Plan.make(f"group_norm({groups}) | silu", type_text(x), types, DEVICE)
        forward, backward = plan.for_training()
        way = f"{way_of(forward)} | {way_of(backward)}"
        if way in known or "slices" not in way_of(forward):
            continue
        known.add(way)
        first = forward.bind(inputs)
        first()
        output = next(iter(first.outputs))
        second = backward.bind({**inputs, **first.outputs, f"d_{output}": gradient})
        second()
        results = [each.clone() for call in (first, second) for each in call.outputs.values()]
        expected = expected or results
        pairs = zip(results, expected, strict=True)
        differs = max(float((one.double() - other.double()).abs().max()) for one, other in pairs)
        rows.append(
            {
                "shape": list(shape),
                "choice": choice,
                "way": way,
                "forward_ms": timer(first)[0],
                "backward_ms": timer(second)[0],
                "differs": differs,
            }
        )
    return rows


def main() -> int:
    """Times the choices and prints them, the fastest forward first."""
    parser = argparse.ArgumentParser(description="Divisions of the kernel `slices` beside each other")
    parser.add_argument("--filter", default="", help="only shapes that contain the text, such as 2,320")
    parser.add_argument("--choices", nargs="+", default=list(CHOICES), help="values of FUSEBLOCK_SLICES")
    parser.add_argument("--out", type=Path, help="a file for the rows as JSON")
    options = parser.parse_args()
    timer = Timer()
    rate = measured_copy_rate(timer)
    rows: list[dict[str, Any]] = []
    for shape, groups in GROUP_NORMS:
        text = ",".join(map(str, shape))
        if options.filter not in text:
            continue
        found = sweep(shape, groups, options.choices, timer)
        elements = 2 * torch.Size(shape).numel()
        floors = (2 * elements / rate * 1e3, 3 * elements / rate * 1e3)
        print(f"{text}: floors {floors[0]:.4f} and {floors[1]:.4f} ms", flush=True)
        for row in sorted(found, key=lambda each: float(each["forward_ms"])):
            times = (row["forward_ms"], row["backward_ms"])
            cells = "  ".join(
                f"{ms:8.4f} ({ms / floor:5.2f})" for ms, floor in zip(times, floors, strict=True)
            )
            print(f"  {cells}  differs {row['differs']:.2g}  {row['choice'] or '(chosen)'}: {row['way']}")
        rows += found
        if options.out:
            options.out.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
