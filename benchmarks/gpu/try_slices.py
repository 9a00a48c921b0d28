#!/usr/bin/env python3
"""Choices of FUSEBLOCK_SLICES side by side: a file of lines `shape:groups choice choice ...`."""

from __future__ import annotations

import argparse
import ctypes
import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT)]

import torch  # noqa: E402

from benchmarks.gpu.gpu_timing import DEVICE, Timer, copy_rate  # noqa: E402
from benchmarks.gpu.sweep_slices import Cell, compile_cell  # noqa: E402


def cells_of(path: Path) -> list[Cell]:
    found = []
    for text in path.read_text().split("\n"):
        if not text.strip() or text.startswith("#"):
            continue
        head, *choices = text.split()
        extents, groups = head.split(":")
        shape = tuple(int(each) for each in extents.split(","))
        for choice in choices:
            cell = Cell(shape, int(groups), "" if choice == "-" else choice, False)
            if cell not in found:
                found.append(cell)
    return found


def tensor_of(shape: tuple[int, ...]) -> torch.Tensor:
    strides = torch.empty(shape, device="meta").to(
        memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d).stride()
    x = torch.empty_strided(shape, strides, dtype=torch.bfloat16, device=DEVICE)
    return x.normal_(generator=torch.Generator(DEVICE).manual_seed(1))


def tracing(cells: list[Cell]) -> None:
    """Runs each and lets the kernel print its times."""
    libc = ctypes.CDLL(None)
    flush = torch.empty(512 * 1024 * 1024, dtype=torch.uint8, device=DEVICE)
    for number, cell in enumerate(cells):
        x = tensor_of(cell.shape)
        weight = torch.ones(cell.shape[1], device=DEVICE).bfloat16()
        call = cell.plan().bind({"x": x, "group_norm.weight": weight, "group_norm.bias": weight})
        for run in range(4):
            flush.zero_()
            torch.cuda.synchronize()
            libc.fflush(None)
            os.write(1, f"M {number} {run}\n".encode())
            call()
            torch.cuda.synchronize()
            libc.fflush(None)


def traces(path: Path) -> None:
    """Runs this in a process of its own, and prints what the kernels have printed."""
    cells = cells_of(path)
    out = subprocess.run([sys.executable, __file__, str(path), "--tracing"], stdout=subprocess.PIPE, text=True,
                         check=False, timeout=60).stdout
    number, run, rows = -1, -1, {}
    for text in out.split("\n"):
        words = text.split()
        if text.startswith("M "):
            number, run = int(words[1]), int(words[2])
        elif text.startswith("T ") and len(words) == 9:
            rows.setdefault((number, run), []).append([int(word) for word in words[1:]])
    for number, cell in enumerate(cells):
        for run in (2, 3):
            its = rows.get((number, run), [])
            if not its:
                print("no trace", cell.shape, cell.choice)
                continue
            zero = min(row[3] for row in its)
            rounds = sorted({row[2] for row in its})
            print(f"trace {cell.shape} {cell.choice}: {len(its)} rows, {len({row[1] for row in its})} multiprocessors, started within {max(row[3] for row in its) - zero} ns")
            for which in rounds:
                if which > 4:
                    break
                line = []
                for column in (4, 5, 6, 7):
                    times = sorted((row[column] - zero) / 1e3 for row in its if row[2] == which)
                    at = lambda q: times[min(len(times) - 1, int(q * len(times)))]  # noqa: B023, E731
                    line.append("/".join(f"{at(q):.1f}" for q in (0, 0.1, 0.5, 0.9, 1)))
                print(f"   round {which}: pass 0 {line[0]} to {line[1]}; pass 1 {line[2]} to {line[3]}")
            if run == 3:
                by_sm = {}
                for row in its:
                    if row[2] == 0:
                        by_sm.setdefault(row[1], []).append(((row[5] - zero) / 1e3, (row[7] - row[6]) / 1e3))
                print("   by multiprocessor, pass 0's end, pass 1's length:", " ".join(
                    f"{sm}:{max(t[0] for t in by_sm[sm]):.0f},{max(t[1] for t in by_sm[sm]):.0f}" for sm in sorted(by_sm)))


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("cells", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--tracing", action="store_true")
    parser.add_argument("--traces", type=Path)
    options = parser.parse_args()
    begun = time.monotonic()
    cells = cells_of(options.cells)
    if options.tracing:
        tracing(cells)
        return 0
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        pool.map(compile_cell, [*cells, *(cells_of(options.traces) if options.traces else [])], chunksize=1)
    print(f"compiled {len(cells)} in {time.monotonic() - begun:.0f} s", flush=True)
    if options.traces:
        try:
            traces(options.traces)
        except Exception as error:  # noqa: BLE001
            print("traces failed", error)
        print(f"{time.monotonic() - begun:.0f} s", flush=True)
    timer = Timer()
    rate = copy_rate(timer)
    print(f"copy {rate / 1e12:.2f} TB/s")
    shape = None
    for cell in cells:
        if time.monotonic() - begun > options.seconds:
            print("out of time")
            break
        if cell.shape != shape:
            shape = cell.shape
            x = tensor_of(shape)
            weight = torch.rand(shape[1], device=DEVICE).bfloat16() + 0.5
            bias = torch.rand(shape[1], device=DEVICE).bfloat16()
            expected = None
            floor = 4 * x.numel() / rate * 1e6
            print(f"== {','.join(map(str, shape))} floor {floor:.1f}", flush=True)
        try:
            plan = cell.plan()
            kernel = json.loads(plan.explain_json())["kernels"][0]
            division = kernel["division"]
            call = plan.bind({"x": x, "group_norm.weight": weight, "group_norm.bias": bias})
            call()
            out = next(iter(call.outputs.values()))
            if expected is None:
                expected = out.clone()
            wrong = 0.0 if torch.equal(out, expected) else float((out - expected).abs().max())
            ms, spread = timer.measure(call, options.runs)
            us = ms * 1e3
            names = ("slice_channels", "team", "teams", "pieces", "ring", "steps", "kept_steps", "cached_steps")
            words = ",".join(str(division.get(name, "-")) for name in names)
            print(f"{us:8.1f} {us / floor:5.2f} ~{spread * 1e3:4.1f}  {cell.choice or '-':60s} "
                  f"[{kernel['name']} {words}]" + (f" DIFFERS {wrong:.2g}" if wrong > 0.07 else ""), flush=True)
            del call, out
        except Exception as error:  # noqa: BLE001
            print(f"failed {cell.choice}: {error}", flush=True)
    print(f"{time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
