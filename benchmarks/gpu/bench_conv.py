#!/usr/bin/env python3
"""The reference blocks, and blocks of real networks, on a GPU beside PyTorch in the same precision mode, and
beside the floor.

    tools/on_gpu benchmarks/gpu/bench_conv.py --only kernels module            # ours
    tools/on_gpu benchmarks/gpu/bench_conv.py --only peers --peers compiled    # PyTorch, both layouts
    tools/on_gpu benchmarks/gpu/bench_conv.py --only peers --peers max-autotune --cases conv3d_gn_mean
    tools/on_gpu benchmarks/gpu/bench_conv.py --only starts --modes tf32       # first calls
    tools/on_gpu benchmarks/gpu/bench_conv.py --missing                        # what the file has not yet

Needs the build folder, a GPU and torch. A row is a block in a mode and a layout: tf32 and strict (f32
tensors, PyTorch with TF32 on and off), bf16 and f16. Times are medians, L2 emptied before each run, gamma
and beta random. `fuseblock_ms` is our own kernels throughout, `module_ms` fuseblock.nn called as a user calls
it, which may leave the convolution to PyTorch (`module_plan`). PyTorch runs eagerly and compiled, in both
layouts, `cudnn.benchmark` on. The floor is the convolution's operations at the rate of PyTorch's matrix
product in the same mode (strict: three products in tf32) or the bytes of input and output at that of its
copy, whichever takes longer, both measured here. Errors are the largest against float64 on the CPU, of some
samples, ours beside PyTorch's. `starts` are the seconds of a block's first call in a process with an empty
cache of kernels, and in a second process from the disk.

Each row is written when it is done; figures that the file has of it and that were not asked for stay. --sweep
times every row under each of several values of FUSEBLOCK_CONV (docs/environment.md), --force adds one. What
needs compilation is compiled beforehand by as many processes as there are cores, but for max-autotune, which
measures on the GPU.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import itertools
import json
import math
import multiprocessing
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT)]

import torch  # noqa: E402
from fuseblock._capi import version  # noqa: E402

from benchmarks.gpu import conv_contenders, gpu_timing  # noqa: E402
from benchmarks.gpu.conv_contenders import (  # noqa: E402
    CASES,
    CHECKED,
    LAYOUTS,
    PEERS,
    Row,
    compile_ahead,
    error,
    make_plan,
    peer_name,
    work_of,
)
from benchmarks.gpu.gpu_timing import MODES, Timer  # noqa: E402
from benchmarks.reference_blocks import BLOCKS, NETWORKS  # noqa: E402

RECORD = ROOT / "benchmarks" / "results" / "h200" / "conv.json"
# The parts of a row.
KERNELS, MODULE, PEER_TIMES, STARTS = PARTS = ("kernels", "module", "peers", "starts")
# Of the reference blocks those whose gains are averaged; the other is a variant.
FOUR = tuple(name for name in BLOCKS if not name.endswith("_k3"))

# Values of FUSEBLOCK_CONV for --sweep.
SHAPES = ("threads=256,blocks=2", "threads=256,blocks=1", "threads=128,blocks=4", "threads=128,blocks=3")
SWEEP = [
    "fold=0",
    "fold=1",
    *(f"{shape},rows={rows}" for shape in SHAPES for rows in (1, 2, 4)),
    *(
        f"roll=0,{shape},rows={rows},stages={stages}"
        for shape in SHAPES
        for rows in (1, 2, 4)
        for stages in (1, 2)
    ),
]
ROW_KEY = ("case", "direction", "layout", "mode", "wish")


def head_of(name: str, mode: str, layout: str, wish: str = "") -> dict[str, Any]:
    """What a row begins with."""
    return {
        "case": name,
        "direction": "forward",
        "dtype": str(MODES[mode]).removeprefix("torch."),
        "layout": layout,
        "mode": mode,
        "wish": wish,
    }


def row_key(record: dict[str, Any]) -> tuple[str, ...]:
    """What tells a row from others."""
    return tuple(record[name] for name in ROW_KEY)


class Record:
    """The results file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        found = json.loads(path.read_text()) if path.exists() else {"rows": [], "rates": {}}
        self.rates: dict[str, float] = found["rates"]
        self.rows: dict[tuple[str, ...], dict[str, Any]] = {row_key(row): row for row in found["rows"]}

    def row(self, head: dict[str, Any]) -> dict[str, Any]:
        """What there is of a row."""
        return self.rows.get(row_key(head), {**head, "peers": {}})

    def put(self, row: dict[str, Any]) -> None:
        """Takes a row and writes the file."""
        self.rows[row_key(row)] = row
        digests = sorted(
            kernel["source_digest"] for each in self.rows.values() for kernel in each.get("kernels", [])
        )
        document = {
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "versions": {
                "fuseblock": version(),
                "torch": torch.__version__,
                "cuda": torch.version.cuda,
                "python": platform.python_version(),
            },
            "digest": hashlib.sha256("".join(digests).encode()).hexdigest(),
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "rates": self.rates,
            "rows": list(self.rows.values()),
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(document, indent=1) + "\n")


def missing(row: dict[str, Any], parts: Sequence[str], peers: Sequence[str]) -> tuple[list[str], list[str]]:
    """Of the parts and peers those that a row has no figures of."""
    lacking = [
        peer for peer in peers if any(peer_name(peer, layout) not in row["peers"] for layout in LAYOUTS)
    ]
    figures = {KERNELS: "fuseblock_ms", MODULE: "module_ms", STARTS: "starts"}
    absent = [part for part in parts if part in figures and figures[part] not in row]
    return absent + ([PEER_TIMES] if PEER_TIMES in parts and lacking else []), lacking


def measure(
    row: Row,
    record: dict[str, Any],
    timer: Timer,
    rates: dict[str, float],
    parts: Sequence[str],
    peers: Sequence[str],
) -> dict[str, Any]:
    """The record of a row with new figures for these parts."""
    result = dict(record)
    theirs = row.by_torch()
    work = work_of(row.model, row.x, theirs)
    result["floor_ms"] = (
        max(work.multiply_adds * work.samples / rates[row.mode], work.bytes / rates["copy"]) * 1e3
    )
    if PEER_TIMES in parts:
        result["peers"] = {**record["peers"], **row.peers(timer, peers)}
    if not {KERNELS, MODULE} & set(parts):
        return result
    samples = max(1, min(work.samples, int(CHECKED / work.multiply_adds)))
    exact = row.exact(samples)
    result["peer_error"] = error(theirs, exact)
    if KERNELS in parts:
        plan = make_plan(row.name, row.mode, row.layout, record["wish"])
        call = plan.bind(row.inputs)
        result["fuseblock_ms"] = timer(call, 15)
        result["error"] = error(next(iter(call.outputs.values())), exact)
        result["workspace_bytes"] = plan.workspace_bytes
        result["kernels"] = json.loads(plan.explain_json()).get("kernels", [])
    if MODULE in parts and not record["wish"]:
        output, figures = row.by_module(timer)
        result |= figures
        result["module_error"] = error(output, exact)
    return result


HEAD = (
    f"{'block':<38} {'mode':<6} {'layout':<13} {'kernels':>8} {'floor':>7} {'/floor':>6} {'module':>8} "
    f"{'torch':>8} {'ratio':>6} {'module':>6} {'error':>8} {'torch':>8}"
)


def gain(record: dict[str, Any], ours: str) -> float | None:
    """How often our time PyTorch's best takes."""
    return min(record["peers"].values()) / record[ours] if ours in record and record["peers"] else None


def line(record: dict[str, Any]) -> str:
    """A record for a person, times in microseconds."""

    def cell(value: float | None, width: int, text: str) -> str:
        return " " * (width - 1) + "-" if value is None else f"{value:>{width}{text}}"

    def us(name: str) -> float | None:
        return record[name] * 1e3 if name in record else None

    ours, floor = us("fuseblock_ms"), us("floor_ms")
    peer = min(record["peers"].values()) * 1e3 if record["peers"] else None
    cells = [
        cell(ours, 8, ".1f"),
        cell(floor, 7, ".1f"),
        cell(ours / floor if ours and floor else None, 6, ".2f"),
        cell(us("module_ms"), 8, ".1f"),
        cell(peer, 8, ".1f"),
        cell(gain(record, "fuseblock_ms"), 6, ".2f"),
        cell(gain(record, "module_ms"), 6, ".2f"),
        cell(record.get("error"), 8, ".1e"),
        cell(record.get("peer_error"), 8, ".1e"),
        " + ".join(record.get("module_plan", [])),
        record["wish"],
    ]
    return f"{record['case']:<38} {record['mode']:<6} {record['layout']:<13} {' '.join(cells)}".rstrip()


def geometric_mean(values: Iterable[float]) -> float:
    """Of numbers above 0."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms))


def means(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Lines with the mean gain over PyTorch's best, by mode and layout."""
    lines = []
    for mode, layout in itertools.product(MODES, LAYOUTS):
        for what, names in (("the four reference blocks", FOUR), ("blocks of networks", tuple(NETWORKS))):
            chosen = [
                row
                for row in rows
                if (row["mode"], row["layout"], row["wish"]) == (mode, layout, "") and row["case"] in names
            ]
            texts = []
            for ours, words in (("fuseblock_ms", "our kernels"), ("module_ms", "the module")):
                gains = [each for row in chosen if (each := gain(row, ours)) is not None]
                if gains:
                    texts.append(f"{words} {geometric_mean(gains):.2f} ({len(gains)} of {len(names)})")
            if texts:
                lines.append(f"{mode}, {layout}, {what}: geometric mean of gains: {', '.join(texts)}")
    return lines


def start_times(what: str, mode: str, names: Sequence[str]) -> list[dict[str, float]]:
    """Seconds of first calls by block: in a process with an empty cache, and in one that follows it."""
    command = [sys.executable, __file__, "--first-calls", what, "--modes", mode, "--cases", *names]
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "FUSEBLOCK_CACHE_DIR": cache, "FUSEBLOCK_CUBINS": ""}
        runs = []
        for _ in range(2):
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            runs.append(json.loads(done.stdout.splitlines()[-1]))
    return runs


def measure_starts(
    record: Record, kinds: Sequence[str], mode: str, layout: str, names: Sequence[str]
) -> None:
    """Adds the seconds of first calls to the rows of a mode."""
    for what in kinds:
        empty, disk = start_times(what, mode, names)
        for name in empty:
            row = record.row(head_of(name, mode, layout))
            row["starts"] = {
                **row.get("starts", {}),
                what: {"empty_cache_s": empty[name], "disk_cache_s": disk[name]},
            }
            record.put(row)
            print(f"{name:<38} {mode:<6} first call, {what}: {empty[name]:.2f} s, from the disk "
                  f"{1e3 * disk[name]:.1f} ms", flush=True)  # fmt: skip


def parsed_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="Convolution blocks on a GPU beside PyTorch and the floor")
    parser.add_argument("--filter", default="", help="only blocks whose name contains the text")
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES), help="only these")
    parser.add_argument("--modes", nargs="+", default=["tf32", "strict", "bf16"], choices=list(MODES))
    parser.add_argument("--layouts", nargs="+", default=["contiguous"], choices=LAYOUTS, help="of our input")
    parser.add_argument("--only", nargs="+", default=list(PARTS[:3]), choices=PARTS, help="parts of rows")
    parser.add_argument(
        "--peers", nargs="+", default=["eager", "compiled"], choices=list(PEERS), help="PyTorch's ways"
    )
    parser.add_argument("--missing", action="store_true", help="only what the file has no figures of")
    parser.add_argument(
        "--starts", nargs="+", default=["kernels"], choices=["kernels", "module"], help="whose first calls"
    )
    parser.add_argument("--sweep", action="store_true", help="under several values of FUSEBLOCK_CONV")
    parser.add_argument(
        "--force", action="append", default=[], help="also under this value of FUSEBLOCK_CONV"
    )
    parser.add_argument("--first-calls", choices=["kernels", "module"], help=argparse.SUPPRESS)
    parser.add_argument(
        "--out", type=Path, default=RECORD, help="benchmarks/results/h200/conv.json unless given"
    )
    return parser.parse_args(arguments)


def measure_rows(options: argparse.Namespace, record: Record, names: Sequence[str]) -> None:
    """Times the rows that are asked for, each written when it is done."""
    wishes = ["", *(SWEEP if options.sweep else []), *options.force]
    parts = [part for part in options.only if part != STARTS]
    wanted = []
    for name, mode, layout, wish in itertools.product(names, options.modes, options.layouts, wishes):
        own = [KERNELS] if wish else parts
        asked = own, options.peers
        if options.missing:
            asked = missing(record.row(head_of(name, mode, layout, wish)), own, options.peers)
        if asked[0]:
            wanted.append(((name, mode, layout, wish), *asked))
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # there are as many processes as cores
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        ahead = [
            pool.submit(compile_ahead, *row, peers if PEER_TIMES in which else [])
            for row, which, peers in wanted
        ]
        timer = Timer()  # beside them: a process's first use of a GPU takes seconds
        for each in ahead:
            each.result()
    for mode in options.modes:
        record.rates[mode] = gpu_timing.product_rate(mode, timer)
    record.rates["copy"] = gpu_timing.copy_rate(timer)
    shown = ", ".join(f"{mode} {2e-12 * record.rates[mode]:.0f}" for mode in options.modes)
    name = torch.cuda.get_device_name()
    print(f"{name}: TFLOP/s {shown}; copies {record.rates['copy'] / 1e12:.2f} TB/s\n{HEAD}", flush=True)
    row = None
    for (case, mode, layout, wish), which, peers in wanted:
        if row is None or (row.name, row.mode, row.layout) != (case, mode, layout):
            row = Row(case, mode, layout)
        try:
            head = head_of(case, mode, layout, wish)
            result = measure(row, record.row(head), timer, record.rates, which, peers)
        except (NotImplementedError, RuntimeError, ValueError) as refused:
            print(f"  {case} {mode} {layout} {wish}: {str(refused)[:100]}", flush=True)
            continue
        record.put(result)
        print(line(result), flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Times the blocks."""
    options = parsed_options(arguments)
    names = [name for name in options.cases if options.filter in name]
    if options.first_calls:
        print(json.dumps(conv_contenders.first_calls(options.first_calls, options.modes[0], names)))
        return 0
    torch.set_num_threads(os.cpu_count() or 1)
    torch.backends.cudnn.benchmark = True
    record = Record(options.out)
    if set(options.only) != {STARTS}:
        measure_rows(options, record, names)
    if STARTS in options.only:
        for mode in options.modes:
            measure_starts(record, options.starts, mode, options.layouts[0], names)
    if options.sweep or options.force:
        print("\nthe best of each:")
        timed = [row for row in record.rows.values() if "fuseblock_ms" in row and row["case"] in names]
        for case, mode in dict.fromkeys((each["case"], each["mode"]) for each in timed):
            own = [each for each in timed if (each["case"], each["mode"]) == (case, mode)]
            print(line(min(own, key=lambda each: float(each["fuseblock_ms"]))))
    print("\n" + "\n".join(means(list(record.rows.values()))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
