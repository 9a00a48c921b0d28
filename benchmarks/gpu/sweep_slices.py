#!/usr/bin/env python3
"""Divisions of the kernels `slices`, `slices_cluster` and `slices_whole` beside each other, on a GPU.

    tools/on_gpu benchmarks/gpu/sweep_slices.py [--filter TEXT] [--backward] [--choices CHOICE ...]
    tools/on_gpu benchmarks/gpu/sweep_slices.py --registers [--filter TEXT] [--seconds SECONDS]
    tools/on_gpu benchmarks/gpu/sweep_slices.py --packed [--filter TEXT] [--seconds SECONDS]
    tools/on_gpu benchmarks/gpu/sweep_slices.py --whole [--filter TEXT] [--seconds SECONDS]

GroupNorm and SiLU over channels_last tensors. A table for each shape: a line for each width of slices, a
column for each further choice, in each cell the median of ten runs in microseconds, L2 emptied before each,
and how many times the floor that is. The floor is one read and one write of x, or with --backward, which
times the gradients of a training pair, two reads and one write, at the speed at which PyTorch copies. Above
a table stands what the cost model chooses. A choice is what FUSEBLOCK_SLICES takes (docs/environment.md).
Outputs are compared with those of the model's choice.
With --registers divisions of the shapes above 60 MB forward, chunks in registers or not, the best first: the
mean of the medians of two turns through all of them, how many times the floor that is, the time of the
model's choice over it, and half of the distance of the two. With --packed the same for shapes whose vectors
of channels are no power of two, beside what they have without chunks in registers; with --whole for shapes
that are on chip as a whole, beside what they have without `slices_whole`.
Kernels that are not in the cache are compiled first, in several processes at once.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT)]

import torch  # noqa: E402
from fuseblock._capi import BoundCall, Plan  # noqa: E402

from benchmarks.gpu.bench import GROUP_NORMS  # noqa: E402
from benchmarks.gpu.gpu_timing import DEVICE, Timer, copy_rate  # noqa: E402

# For each width, beside what the model chooses for it.
CHOICES = (
    *("cluster=6", "cluster=8", "cluster=1", "cluster=1,pieces=1", "cluster=1,pieces=2"),
    *("cluster=1,pieces=4", "cluster=1,threads=512,blocks=1", "ahead=1"),
)
# Teams of so many times the blocks that the model chooses for a width.
TEAMS = (0.5, 2.0)
_VECTOR = 8  # elements of 16 bytes
# Blocks that have a multiprocessor to themselves: their threads, chunks of four vectors in registers, slots
# of the ring through which others pass, chunks that a block has again before it draws some.
BLOCKS = (
    *((512, 3, 2, 3), (512, 3, 3, 3), (512, 3, 2, 12), (512, 3, 3, 30), (512, 2, 2, 3)),
    *((384, 5, 3, 4), (384, 5, 4, 4), (384, 5, 3, 16)),
)
# Widths of slices and teams for these, by the shape.
WIDTHS = {
    (1, 512, 256, 256): ("channels=64,team=16",),
    (1, 128, 1024, 1024): ("channels=128,team=132",),
    (1, 128, 20, 256, 256): ("channels=128,team=132",),
    (1, 512, 16, 180, 320): ("channels=512,team=132",),
    (2, 32, 128, 128, 128): ("channels=32,team=66",),
}
# Units that are on chip, as channels, blocks of a team, threads, blocks of a multiprocessor, vectors of a
# chunk and chunks in registers.
ON_CHIP: dict[tuple[int, ...], tuple[tuple[int, ...], ...]] = {
    (64, 256, 56, 56): (
        *((32, 1, 512, 1, 4, 1), (32, 1, 512, 1, 4, 2), (32, 1, 512, 1, 4, 3), (32, 1, 384, 1, 4, 3)),
        *((32, 1, 384, 1, 4, 4), (32, 1, 384, 1, 4, 5), (32, 2, 256, 2, 4, 2), (32, 2, 256, 2, 4, 3)),
        *((32, 4, 128, 4, 2, 2), (32, 4, 128, 4, 2, 4)),
    ),
}
# Shapes whose positions follow each other through a block's warps.
PACKED: tuple[tuple[int, ...], ...] = (
    *((2, 320, 128, 128), (1, 320, 256, 256), (2, 320, 256, 256), (4, 320, 128, 128), (6, 320, 128, 128)),
    *((8, 320, 128, 128), (32, 320, 64, 64), (4, 640, 64, 64), (8, 640, 64, 64), (16, 640, 64, 64)),
    *((2, 960, 64, 64), (2, 1280, 64, 64), (1, 96, 512, 512), (1, 192, 512, 512), (2, 384, 128, 128)),
    *((8, 960, 64, 64), (64, 320, 64, 64)),
)
# Shapes that are on chip as a whole, and for these threads of a block and vectors of a thread in registers.
WHOLE: tuple[tuple[int, ...], ...] = (
    *((2, 320, 128, 128), (2, 320, 64, 64), (4, 640, 64, 64), (2, 960, 64, 64), (2, 1280, 64, 64)),
    *((2, 384, 128, 128), (1, 512, 128, 128), (1, 256, 128, 128), (4, 512, 64, 64), (2, 640, 64, 64)),
    *((8, 320, 64, 64), (1, 128, 256, 256), (4, 128, 128, 128), (8, 256, 56, 56), (2, 1280, 32, 32)),
)
WHOLE_THREADS = (384, 480, 512, 640)
WHOLE_REGISTERS = (1, 4, 8)
TURNS = 2


@dataclass(frozen=True)
class Cell:
    """A shape and a choice."""

    shape: tuple[int, ...]
    groups: int
    choice: str
    backward: bool

    def plan(self) -> Plan:
        """The plan, forward or of the gradients."""
        os.environ["FUSEBLOCK_SLICES"] = self.choice
        x_type = f"bf16[{','.join(map(str, self.shape))}]:cl"
        block = f"group_norm({self.groups}) | silu"
        names = ("group_norm.weight", "group_norm.bias")
        plan = Plan.make(block, x_type, dict.fromkeys(names, f"bf16[{self.shape[1]}]"), DEVICE)
        return plan.for_training()[1] if self.backward else plan

    def division(self) -> dict[str, int] | None:
        """How the plan's kernel `slices` or `slices_cluster` divides its work; none where it is not alone."""
        kernels = json.loads(self.plan().explain_json())["kernels"]
        alone = len(kernels) == 1 and kernels[0]["name"].startswith("slices")
        return dict(kernels[0]["division"]) if alone else None


def words(division: dict[str, int]) -> str:
    """A division in a line."""
    return ", ".join(f"{name} {number}" for name, number in division.items())


def bind(plan: Plan) -> BoundCall:
    """The plan on random numbers, the same for all plans of a shape."""
    generator = torch.Generator(DEVICE).manual_seed(1)
    inputs = {}
    for info in plan.inputs:
        values = torch.randn(info.extents, generator=generator, device=DEVICE)
        # What a forward plan saves for this one may be a variance.
        tensor = torch.empty_strided(info.extents, info.strides, dtype=info.dtype, device=DEVICE)
        inputs[info.name] = tensor.copy_(values if info.dtype == torch.bfloat16 else values.abs() + 0.5)
    return plan.bind(inputs)


def widths(shape: tuple[int, ...], groups: int) -> list[int]:
    """Channels of slices: whole groups and vectors, two of these at least, which memory moves at once."""
    channels = shape[1]
    found = range(channels // groups, channels + 1, channels // groups)
    return [each for each in found if channels % each == 0 and each % _VECTOR == 0 and each > _VECTOR]


def line(chosen: Cell) -> list[Cell]:
    """A line of the table: what the model chooses for the width, and teams of other sizes."""
    division = replace(chosen, choice=f"{chosen.choice},cluster=1").division()
    sizes = [max(1, round(division["team"] * factor)) for factor in TEAMS] if division else []
    return [chosen, *(replace(chosen, choice=f"{chosen.choice},team={size}") for size in sizes)]


def compile_cell(cell: Cell) -> None:
    """Makes a cell's plan, which leaves its kernels in the cache."""
    cell.plan()


def time_cell(cell: Cell, timer: Timer, expected: list[torch.Tensor]) -> dict[str, Any] | None:
    """A row; none where the choice does not fit. A shape's first call leaves its outputs in `expected`."""
    division = cell.division()
    if division is None:
        return None
    call = bind(cell.plan())
    call()
    results = list(call.outputs.values())
    if not expected:
        expected += [each.clone() for each in results]
    differs = max(
        float((one.float() - other.float()).abs().max()) for one, other in zip(results, expected, strict=True)
    )
    return {
        "shape": list(cell.shape),
        "choice": cell.choice,
        "division": division,
        "us": timer(call) * 1e3,
        "differs": differs,
    }


def table(lines: list[list[Cell]], rows: dict[str, dict[str, Any]], floor: float, heads: list[str]) -> None:
    """Prints a shape's rows."""
    best = min(row["us"] for row in rows.values())
    print(f"  {'channels':>8}" + "".join(f"{head:>16}" for head in heads))
    for cells in lines:
        texts = []
        for cell in cells:
            row = rows.get(cell.choice)
            mark = "*" if row and row["us"] == best else " "
            texts.append(f"{row['us']:8.1f}{mark}({row['us'] / floor:4.2f})" if row else "-")
        print(f"  {cells[0].choice.removeprefix('channels='):>8}" + "".join(f"{text:>16}" for text in texts))


def divisions(shape: tuple[int, ...]) -> list[str]:
    """Choices with chunks in registers and without, where the shape has some."""
    found = [
        f"{width},pieces=4,threads={threads},blocks=1,registers={held},spare={spare},lead={lead}"
        for width in WIDTHS.get(shape, ())
        for threads, held, spare, lead in BLOCKS
    ]
    names = ("channels", "team", "threads", "blocks", "pieces", "registers")
    for numbers in ON_CHIP.get(shape, ()):
        found.append(",".join(f"{name}={number}" for name, number in zip(names, numbers, strict=True)))
    return found


def time_divisions(options: argparse.Namespace) -> int:
    """Times divisions with chunks in registers beside others, shape by shape."""
    begun = time.monotonic()
    if options.packed:
        wanted = [(shape, 32, ["registers=0"]) for shape in PACKED]
    elif options.whole:
        choices = [f"whole=1,threads={t},registers={r}" for t in WHOLE_THREADS for r in WHOLE_REGISTERS]
        wanted = [(shape, 32, ["whole=0", "whole=1", *choices]) for shape in WHOLE]
    else:
        wanted = [(shape, groups, divisions(shape)) for shape, groups in GROUP_NORMS]
    cells = [
        [Cell(shape, groups, choice, False) for choice in ["", *others]]
        for shape, groups, others in wanted
        if options.filter in ",".join(map(str, shape)) and others
    ]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        pool.map(compile_cell, [cell for each in cells for cell in each], chunksize=1)
    timer = Timer()
    rate = copy_rate(timer)
    print(f"a copy: {rate / 1e12:.2f} TB/s; compiled in {time.monotonic() - begun:.0f} s")
    kept: list[dict[str, Any]] = []
    for each in cells:
        floor = 4 * torch.Size(each[0].shape).numel() / rate * 1e6
        expected: list[torch.Tensor] = []
        rows: dict[str, list[dict[str, Any]]] = {}
        for cell in each * TURNS:
            if time.monotonic() - begun > options.seconds and len(rows.get("", ())) == TURNS:
                break
            if row := time_cell(cell, timer, expected):
                rows.setdefault(cell.choice, []).append(row)
        print(f"{','.join(map(str, each[0].shape))}: floor {floor:.1f} us", flush=True)
        means = {choice: sum(row["us"] for row in of) / len(of) for choice, of in rows.items()}
        order = sorted(means, key=lambda which: means[which])
        for choice in [each for each in order if each in order[: options.lines] or not each]:
            of, us = rows[choice], means[choice]
            division = of[0]["division"]
            held, ring = division.get("register_steps", 0), division.get("ring", 0)
            spread = max(row["us"] for row in of) - min(row["us"] for row in of)
            print(
                f"  {us:7.1f} ({us / floor:4.2f}, {means[''] / us:5.3f}, +-{spread / 2:3.1f})"
                f" {ring:2}+{held:<2} of {division.get('steps', 0):<3} {choice or 'the model'}"
                + (f"; differs by {of[0]['differs']:.2g}" if of[0]["differs"] else "")
            )
        kept += [row for of in rows.values() for row in of]
        if options.out:
            options.out.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


def main() -> int:
    """Times the choices and prints them."""
    parser = argparse.ArgumentParser(description="Divisions of the kernel `slices` beside each other")
    parser.add_argument("--filter", default="", help="only shapes that contain the text, such as 2,320")
    parser.add_argument("--choices", nargs="*", default=list(CHOICES), help="values of FUSEBLOCK_SLICES")
    parser.add_argument("--backward", action="store_true", help="the gradients instead")
    parser.add_argument("--registers", action="store_true", help="chunks in registers, beside others")
    parser.add_argument("--packed", action="store_true", help="shapes without idle lanes, beside others")
    parser.add_argument("--whole", action="store_true", help="whole samples on chip, beside others")
    parser.add_argument("--seconds", type=float, default=120, help="with these three, about how long")
    parser.add_argument(
        "--lines", type=int, default=12, help="with these three, how many of a shape's, the best first"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that compile")
    parser.add_argument("--out", type=Path, help="a file for the rows as JSON")
    options = parser.parse_args()
    if options.registers or options.packed or options.whole:
        return time_divisions(options)
    shapes = [(s, g) for s, g in GROUP_NORMS if options.filter in ",".join(map(str, s))]
    chosen = [Cell(shape, groups, "", options.backward) for shape, groups in shapes]
    firsts = [
        replace(cell, choice=f"channels={width}")
        for cell in chosen
        for width in widths(cell.shape, cell.groups)
    ]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        lines = [
            [first, *(replace(first, choice=f"{first.choice},{more}") for more in options.choices), *teams]
            for first, *teams in pool.map(line, firsts, chunksize=1)
        ]
        pool.map(compile_cell, [*chosen, *(cell for each in lines for cell in each)], chunksize=1)

    timer = Timer()
    rate = copy_rate(timer)
    print(f"a copy: {rate / 1e12:.2f} TB/s; microseconds, and times the floor in brackets; * the least")
    heads = ["chosen"]
    heads += [
        choice.replace("cluster=1,", "").replace("threads=512,blocks=1", "512x1")
        for choice in options.choices
    ]
    heads += [f"team*{factor}" for factor in TEAMS]
    kept: list[dict[str, Any]] = []
    for best in chosen:
        expected: list[torch.Tensor] = []
        x_bytes = 2 * torch.Size(best.shape).numel()
        floor = (3 if options.backward else 2) * x_bytes / rate * 1e6
        rows: dict[str, dict[str, Any]] = {}
        its_lines = [each for each in lines if each[0].shape == best.shape]
        for cell in [best, *(cell for each in its_lines for cell in each)]:
            if row := time_cell(cell, timer, expected):
                rows[cell.choice] = row
        text = ",".join(map(str, best.shape))
        print(f"{text} (x has {x_bytes / 1e6:.0f} MB): floor {floor:.1f} us", flush=True)
        if first := rows.get(""):
            print(f"  chosen: {first['us']:.1f} us ({first['us'] / floor:.2f}), {words(first['division'])}")
        if rows:
            table(its_lines, rows, floor, heads)
            print(
                f"  outputs differ by {max(row['differs'] for row in rows.values()):.2g} at most", flush=True
            )
        kept += rows.values()
        if options.out:
            options.out.write_text(json.dumps(kept, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
