#!/usr/bin/env python3
"""Divisions of the kernels `rows` and `rows_registers` beside each other: GroupNorm and SiLU over contiguous
tensors on a GPU.

    tools/on_gpu benchmarks/gpu/sweep_rows.py [--filter TEXT ...] [--choices CHOICE ...] [--seconds SECONDS]
    tools/on_gpu benchmarks/gpu/sweep_rows.py --registers      # shapes whose units may fit into registers

A line for each shape and choice, which is what FUSEBLOCK_ROWS takes (docs/environment.md): the median of
ten runs in microseconds, L2 emptied before each, how many times the floor that is, and how the work is
divided. The floor is one read and one write of x at the speed at which PyTorch copies. Outputs are compared
with PyTorch's in float32, and two runs bit for bit. Kernels that are not in the cache are compiled first, in
several processes at once.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT)]

import torch  # noqa: E402
from fuseblock._capi import Plan  # noqa: E402

from benchmarks.gpu.bench import GROUP_NORMS  # noqa: E402
from benchmarks.gpu.gpu_timing import DEVICE, Timer, copy_rate  # noqa: E402

DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
# Units ahead and multiprocessors of a team that are tried without barriers, by the shape.
TEAMS = {
    (1, 512, 256, 256): (
        (1, 16),
        (2, 16),
        (1, 32),
        (2, 32),
        (3, 32),
        (2, 33),
        (3, 33),
        (2, 64),
        (3, 64),
        (3, 132),
    ),
    (2, 512, 256, 256): ((2, 32), (2, 33), (3, 64)),
    (1, 128, 1024, 1024): ((1, 64), (1, 66), (2, 66), (2, 128), (3, 128), (2, 132), (3, 132)),
    (1, 128, 20, 256, 256): ((1, 64), (1, 66), (1, 128), (2, 128), (1, 132), (2, 132), (3, 132)),
    (1, 512, 16, 180, 320): ((1, 129), (1, 132)),
    (64, 256, 56, 56): ((1, 1), (2, 1)),
    (2, 32, 128, 128, 128): ((1, 64), (1, 66), (1, 128), (1, 132), (2, 132)),
}
# Threads of a multiprocessor and vectors of a thread in a step.
THREADS = ((512, 1), (512, 2), (512, 4), (640, 2), (768, 1), (768, 2))
# Chunks of two vectors that stay in the ring, where they are not all: the others are in registers.
KEPT: dict[tuple[int, ...], tuple[int, ...]] = {
    (1, 128, 20, 256, 256): (9, 8),
    (1, 512, 16, 180, 320): (14, 13, 12),
    (2, 32, 128, 128, 128): (8, 7, 6),
}
# Copies of a thread at the start, of what the planner chooses; the last is all.
BEGUN = (1, 2, 3, 4, 6, 8, 99)
SHAPES = [*GROUP_NORMS, ((2, 512, 256, 256), 32)]
# Shapes for registers, with their groups and types.
REGISTERS = [
    *[
        (shape, 32, "bf16")
        for shape in [
            (2, 320, 64, 64),
            (2, 320, 128, 128),
            (64, 256, 56, 56),
            (2, 320, 32, 32),
            (2, 1280, 16, 16),
            (8, 320, 32, 32),
            (4, 320, 64, 64),
            (8, 320, 64, 64),
            (1, 512, 64, 64),
            (1, 512, 128, 128),
            (1, 256, 128, 128),
            (2, 640, 64, 64),
            (32, 320, 64, 64),
            (64, 512, 28, 28),
            (128, 512, 28, 28),
            (16, 64, 112, 112),
            (2, 960, 64, 64),
            (4, 640, 64, 64),
            (64, 256, 14, 14),
            (64, 512, 14, 14),
            (32, 256, 28, 28),
            (8, 1280, 8, 8),
            (4, 1280, 32, 32),
            (1, 128, 256, 256),
            (4, 128, 256, 256),
            (1, 256, 256, 256),
        ]
    ],
    *[
        (shape, shape[1], "bf16")
        for shape in [
            (1, 512, 256, 256),
            (2, 320, 64, 64),
            (4, 64, 128, 128),
            (16, 256, 56, 56),
            (8, 32, 256, 256),
        ]
    ],
    *[
        (shape, 32, "f32")
        for shape in [(2, 320, 64, 64), (64, 256, 56, 56), (32, 128, 64, 64), (1, 128, 128, 128)]
    ],
]
# Threads of a block, and the largest share of a division's places for vectors that may be empty.
REGISTER_THREADS = (32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024)
IDLE = 0.12
MULTIPROCESSORS = 132
SHOWN = 14  # choices of a shape


@dataclass(frozen=True)
class Cell:
    """A shape and a choice."""

    shape: tuple[int, ...]
    groups: int
    choice: str
    dtype: str = "bf16"

    def plan(self) -> Plan:
        """The plan; refuses a choice that does not fit."""
        os.environ["FUSEBLOCK_ROWS"] = self.choice
        x_type = f"{self.dtype}[{','.join(map(str, self.shape))}]"
        names = ("group_norm.weight", "group_norm.bias")
        types = dict.fromkeys(names, f"{self.dtype}[{self.shape[1]}]")
        return Plan.make(f"group_norm({self.groups}) | silu", x_type, types, DEVICE)


def choices(shape: tuple[int, ...]) -> list[str]:
    """What is tried of a shape, first what the planner chooses."""
    found = ["", "ahead=0", *(f"begun={count}" for count in BEGUN)]
    for (ahead, team), (threads, pieces), blocks in itertools.product(TEAMS[shape], THREADS, (1, 4)):
        if (blocks > 1) == (team == 1) and threads % (32 * blocks) == 0:
            found.append(
                f"ahead={ahead},team={team},blocks={blocks},threads={threads // blocks},pieces={pieces}"
            )
    for (ahead, team), lead in itertools.product(TEAMS[shape], (-2, 0, 1, 2)):
        if team > 1:
            found.append(f"ahead={ahead},team={team},blocks=1,pieces=2,lead={lead}")
    for (ahead, team), pieces in itertools.product(TEAMS[shape], (2, 4)):
        if team > 1:
            found.append(f"ahead={ahead},team={team},blocks=1,pieces={pieces},apart=0")
    for (ahead, team), kept in itertools.product(TEAMS[shape], KEPT.get(shape, ())):
        if ahead == 1:
            found.append(f"ahead=1,team={team},blocks=1,pieces=2,kept={kept}")
            found.append(f"ahead=1,team={team},blocks=1,threads=480,pieces=2,kept={kept}")
    return found


def register_choices(shape: tuple[int, ...], groups: int, dtype: str) -> list[str]:
    """Divisions of `rows_registers`: all units at work at once, or several blocks of a multiprocessor."""
    found = ["", "registers=0"]
    units = shape[0] * groups
    vectors = torch.Size(shape).numel() // units // (8 if dtype == "bf16" else 4)
    for cluster, blocks, threads in itertools.product((1, 2, 4, 8), (1, 2, 4, 8), REGISTER_THREADS):
        share = -(-vectors // (cluster * threads))
        at_once = units * cluster <= MULTIPROCESSORS * blocks
        too_many = blocks > 1 and units * cluster <= MULTIPROCESSORS * blocks // 2
        if share * cluster * threads > vectors * (1 + IDLE) or share > 32 or too_many:
            continue
        if at_once or blocks > 1:
            found.append(f"cluster={cluster},blocks={blocks},threads={threads}")
    return found


def compile_cell(cell: Cell) -> dict[str, Any] | None:
    """How a cell's plan divides its work; none where it does not fit. Its kernels are then in the cache."""
    try:
        kernels = json.loads(cell.plan().explain_json())["kernels"]
    except ValueError:
        return None
    if len(kernels) > 1 or kernels[0]["name"] != ("rows_registers" if "cluster" in cell.choice else "rows"):
        return None if cell.choice else dict(kernels[0]["division"])
    return dict(kernels[0]["division"])


def inputs_of(shape: tuple[int, ...], dtype: str) -> dict[str, torch.Tensor]:
    """Random numbers."""
    generator = torch.Generator(DEVICE).manual_seed(1)
    extents = {"x": shape, "group_norm.weight": shape[1:2], "group_norm.bias": shape[1:2]}
    return {
        name: torch.randn(each, generator=generator, device=DEVICE, dtype=DTYPES[dtype])
        for name, each in extents.items()
    }


def expected_of(groups: int, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """What PyTorch makes of them in float32, rounded."""
    x, weight, bias = (each.float() for each in inputs.values())
    result = torch.nn.functional.silu(torch.nn.functional.group_norm(x, groups, weight, bias))
    return result.to(inputs["x"].dtype)


def time_cell(
    cell: Cell, timer: Timer, inputs: dict[str, torch.Tensor], expected: torch.Tensor
) -> dict[str, Any]:
    """Microseconds, the largest error, and whether two runs are the same."""
    call = cell.plan().bind(inputs)
    call()
    (output,) = call.outputs.values()
    error = float((output - expected).abs().max())
    first = output.clone()
    output.zero_()
    us = timer(call) * 1e3
    return {"us": us, "error": error, "same": torch.equal(first, output)}


def show(name: str, rows: list[dict[str, Any]], floor: float) -> None:
    """Prints what the planner chooses for a shape and the best of the others."""
    print(f"{name}: floor {floor:.1f} us, {len(rows)} choices")
    for row in sorted(rows, key=lambda row: (row["choice"] != "", row["us"]))[:SHOWN]:
        shown = ("team", "teams", "steps", "kept_steps", "cluster", "pieces")
        words = " ".join(f"{name} {row['division'][name]}" for name in shown if name in row["division"])
        print(f"  {row['us']:7.1f} ({row['us'] / floor:4.2f}) {row['choice'] or 'chosen':46} {words}")
    worst = max((row["error"] for row in rows), default=0.0)
    print(f"  errors up to {worst:.2g}, the same twice: {all(row['same'] for row in rows)}", flush=True)


def main() -> int:
    """Times the choices and prints them."""
    parser = argparse.ArgumentParser(description="Divisions of the kernel `rows` beside each other")
    parser.add_argument(
        "--filter", nargs="*", help="only shapes that contain one of the texts, such as 2,320"
    )
    parser.add_argument("--choices", nargs="*", help="values of FUSEBLOCK_ROWS")
    parser.add_argument("--registers", action="store_true", help="shapes whose units may fit into registers")
    parser.add_argument("--seconds", type=float, default=1e9, help="nothing is begun after these")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that compile")
    parser.add_argument("--out", type=Path, help="a file for the rows as JSON")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    known = REGISTERS if options.registers else [(s, g, "bf16") for s, g in SHAPES if s in TEAMS]
    names = {(s, g, d): f"{d} {','.join(map(str, s))} in {g} groups" for s, g, d in known}
    shapes = [each for each in known if any(text in names[each] for text in options.filter or [""])]
    cells = [
        Cell(s, g, each, d)
        for s, g, d in shapes
        for each in options.choices or (register_choices(s, g, d) if options.registers else choices(s))
    ]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        divisions = pool.map(compile_cell, cells, chunksize=1)

    timer = Timer()
    rate = copy_rate(timer)
    print(f"a copy: {rate / 1e12:.2f} TB/s; {len(cells)} cells, {end - time.monotonic():.0f} s left")
    kept: list[dict[str, Any]] = []
    for shape, groups, dtype in shapes:
        floor = 2 * DTYPES[dtype].itemsize * torch.Size(shape).numel() / rate * 1e6
        inputs = inputs_of(shape, dtype)
        expected = expected_of(groups, inputs)
        rows = []
        for cell, division in zip(cells, divisions, strict=True):
            same = (cell.shape, cell.groups, cell.dtype) == (shape, groups, dtype)
            if same and division is not None and time.monotonic() < end:
                row = {
                    "shape": shape,
                    "groups": groups,
                    "dtype": dtype,
                    "choice": cell.choice,
                    "floor": floor,
                    "division": division,
                }
                rows.append(row | time_cell(cell, timer, inputs, expected))
        show(names[shape, groups, dtype], rows, floor)
        kept += rows
        if options.out:
            options.out.write_text(json.dumps(kept) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
