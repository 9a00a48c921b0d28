#!/usr/bin/env python3
"""Choices of FUSEBLOCK_SLICES side by side: a file of lines `shape:groups[:b] choice choice ...`."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT)]

from benchmarks.gpu.gpu_timing import Timer, copy_rate  # noqa: E402
from benchmarks.gpu.sweep_slices import Cell, bind, compile_cell  # noqa: E402


def cells_of(path: Path, first: bool) -> list[Cell]:
    found = []
    for text in path.read_text().split("\n"):
        if not text.strip() or text.startswith("#"):
            continue
        head, *choices = text.split()
        extents, groups, *back = head.split(":")
        shape = tuple(int(each) for each in extents.split(","))
        for choice in choices[: 1 if first else None]:
            found.append(Cell(shape, int(groups), "" if choice == "-" else choice, bool(back)))
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("cells", type=Path)
    parser.add_argument("--first", action="store_true", help="each line's first choice alone")
    parser.add_argument("--compile", action="store_true", help="compile alone")
    parser.add_argument("--compiled", action="store_true", help="everything is compiled")
    parser.add_argument("--beside", default="", help="another library, timed before and after")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=55)
    options = parser.parse_args()
    begun = time.monotonic()
    cells = cells_of(options.cells, options.first)

    def beside(more: str) -> subprocess.Popen[bytes]:
        environment = dict(os.environ, FUSEBLOCK_LIBRARY=options.beside)
        command = [sys.executable, __file__, str(options.cells), "--first", "--runs", str(options.runs), more]
        print("#### main", flush=True)
        return subprocess.Popen(command, env=environment)

    compiling = beside("--compile") if options.beside else None
    if not options.compiled:
        with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
            pool.map(compile_cell, cells, chunksize=1)
    if compiling:
        compiling.wait()
    print(f"compiled {len(cells)} in {time.monotonic() - begun:.0f} s", flush=True)
    if options.compile:
        return 0
    if options.beside:
        beside("--compiled").wait()
        print("#### new", flush=True)
    timer = Timer()
    rate = copy_rate(timer)
    print(f"copy {rate / 1e12:.2f} TB/s")
    last = None
    for cell in cells:
        if time.monotonic() - begun > options.seconds:
            print("out of time")
            break
        try:
            if (cell.shape, cell.backward) != last:
                last = (cell.shape, cell.backward)
                expected = None
                elements = 1
                for each in cell.shape:
                    elements *= each
                floor = (6 if cell.backward else 4) * elements / rate * 1e6
                print(f"== {','.join(map(str, cell.shape))}{' backward' if cell.backward else ''} floor {floor:.1f}", flush=True)
            plan = cell.plan()
            kernels = json.loads(plan.explain_json())["kernels"]
            kernel = kernels[0]
            division = kernel["division"]
            call = bind(plan)
            call()
            outs = [each.clone() for each in call.outputs.values()]
            call()
            again = all(one.equal(other) for one, other in zip(outs, call.outputs.values()))
            if expected is None:
                expected = outs
            wrong = max(float((one.float() - other.float()).abs().max() / other.float().abs().max()) for one, other in zip(outs, expected))
            ms, spread = timer.measure(call, options.runs)
            us = ms * 1e3
            names = ("slice_channels", "team", "teams", "pieces", "ring", "steps", "kept_steps", "dealt")
            words = ",".join(str(division.get(name, "-")) for name in names)
            print(f"{us:8.1f} {us / floor:5.2f} ~{spread * 1e3:4.1f}  {cell.choice or '-':55s} [{kernel['name']}x{len(kernels)} {kernel['threads']} {words}]"
                  + ("" if again else " NOT REPEATED") + (f" DIFFERS {wrong:.2g}" if wrong > 0.02 else ""), flush=True)
            del call, outs
        except Exception as error:  # noqa: BLE001
            print(f"failed {cell.choice}: {error}", flush=True)
    if options.beside:
        beside("--compiled").wait()
    print(f"{time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
