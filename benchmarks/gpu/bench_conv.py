#!/usr/bin/env python3
"""The reference blocks, and blocks of real networks, on a GPU beside PyTorch in the same precision mode, and
beside the floor.

    python3 benchmarks/gpu/bench_conv.py [--filter TEXT] [--modes NAMES] [--layout NAME] [--compile] [--sweep]
                                         [--out FILE]

Needs the build folder, a GPU and torch. A row is a block in a mode and a layout: tf32 and strict (f32
tensors, PyTorch with TF32 on and off), bf16 and f16. Times are medians, L2 emptied before each run, gamma
and beta random. The floor is the convolution's operations at the rate of PyTorch's matrix product in the
same mode (strict: three products in tf32) or the bytes of input and output at that of its copy, whichever
takes longer, both measured here. Errors are the largest against float64 on the CPU, of some samples, ours
beside PyTorch's. PyTorch is the faster of contiguous and channels_last.

--sweep times every row under each of several values of FUSEBLOCK_CONV (docs/environment.md), --force adds
one. Kernels are compiled beforehand by as many processes as there are cores.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import itertools
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
import types
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT)]

# Of the package only `_capi` is taken, which needs the C library alone.
_package = types.ModuleType("fuseblock")
_package.__path__ = [str(ROOT / "python" / "fuseblock")]
sys.modules.setdefault("fuseblock", _package)

import torch  # noqa: E402
from fuseblock._capi import Plan, type_text, version  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from benchmarks.reference_blocks import BLOCKS, NETWORKS, ReferenceBlock, randomise  # noqa: E402

DEVICE = "cuda"
RECORD = ROOT / "benchmarks" / "results" / "h200" / "conv.json"
CASES = BLOCKS | NETWORKS
MODES = {"tf32": torch.float32, "strict": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
# Multiply-adds of the samples whose error is taken.
CHECKED = 2e9
SLOW_MS = 20  # such calls are run fewer times

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


@dataclass(frozen=True)
class Work:
    """What a block must do at least."""

    multiply_adds: float  # of a sample
    samples: int
    bytes: int


class Timer:
    """Medians by events, with L2 emptied before each run."""

    def __init__(self) -> None:
        self.flush = torch.empty(256 * 1024 * 1024, dtype=torch.uint8, device=DEVICE)

    def once(self, function: Callable[[], object]) -> float:
        """Milliseconds of one run."""
        self.flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda._sleep(200_000)  # type: ignore[no-untyped-call]  # the host is then ahead
        start.record()
        function()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end))

    def __call__(self, function: Callable[[], object], runs: int = 15) -> float:
        """The median in milliseconds."""
        function()
        first = self.once(function)
        if first > SLOW_MS:
            return statistics.median([first, self.once(function)])
        self.once(function)
        return statistics.median(self.once(function) for _ in range(runs))


@contextmanager
def precision(mode: str) -> Iterator[None]:
    """PyTorch's switches for a mode."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = mode == "tf32"
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def product_rate(mode: str, timer: Timer) -> float:
    """Multiply-adds a second of a matrix product; of a third of tf32's for strict."""
    size = 8192
    a, b = (torch.randn(size, size, device=DEVICE, dtype=MODES[mode]) for _ in range(2))
    with precision("tf32" if mode == "strict" else mode):
        rate = size**3 / (timer(lambda: a @ b, 5) / 1e3)
    return rate / 3 if mode == "strict" else rate


def copy_rate(timer: Timer) -> float:
    """Bytes a second of a copy, read and written ones together."""
    source = torch.randn(64 * 1024 * 1024, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * source.nbytes / (timer(lambda: target.copy_(source)) / 1e3)


def work_of(model: nn.Module, x: Tensor, output: Tensor) -> Work:
    """Operations of the block's convolution, and bytes of input and output."""
    conv = next(each for each in model.modules() if isinstance(each, nn.modules.conv._ConvNd))
    positions = x.shape[2:].numel() if conv.transposed else 1
    if not conv.transposed:
        windows = zip(conv.kernel_size, conv.stride, conv.padding, conv.dilation, strict=True)
        for extent, (size, stride, pad, dilation) in zip(x.shape[2:], windows, strict=True):
            assert isinstance(pad, int)
            positions *= (extent + 2 * pad - dilation * (size - 1) - 1) // stride + 1
    return Work(conv.weight.numel() * positions, x.shape[0], x.nbytes + output.nbytes)


def exact_result(block: ReferenceBlock, model: nn.Module, x: Tensor, samples: int) -> Tensor:
    """The first samples' results in float64, on the CPU: some GPU kernels have constants in f32."""
    own = block.module().double()
    own.load_state_dict({name: value.double().cpu() for name, value in model.state_dict().items()})
    with torch.no_grad():
        result: Tensor = own(x[:samples].double().cpu())
    return result


def error(got: Tensor, exact: Tensor) -> float:
    """The largest difference, on the samples of `exact`."""
    return float((got[: len(exact)].double().cpu() - exact).abs().max())


def memory_format(layout: str, rank: int) -> torch.memory_format:
    """PyTorch's word for a layout."""
    if layout == "contiguous":
        return torch.contiguous_format
    return torch.channels_last_3d if rank == 5 else torch.channels_last


def make_plan(name: str, mode: str, layout: str, wish: str) -> Plan:
    """Ours for a block in a mode and a layout, under a value of FUSEBLOCK_CONV."""
    os.environ.pop("FUSEBLOCK_CONV", None)
    if wish:
        os.environ["FUSEBLOCK_CONV"] = wish
    block = CASES[name]
    state = block.module().to(MODES[mode]).state_dict()
    kinds = {name: type_text(each) for name, each in state.items()}
    x = type_text(torch.empty(0, dtype=MODES[mode])).split("[")[0] + f"[{','.join(map(str, block.shape))}]"
    x += ":cl" if layout == "channels_last" else ""
    try:
        return Plan.make(block.notation, x, kinds, DEVICE, precision="tf32" if mode == "tf32" else "strict")
    finally:
        os.environ.pop("FUSEBLOCK_CONV", None)


def compile_kernels(row: tuple[str, str, str, str]) -> None:
    """Compiles what a row needs into the cache of kernels; what is refused is told when it is timed."""
    with suppress(NotImplementedError, RuntimeError):
        make_plan(*row)


class Row:
    """A block in a mode and a layout."""

    def __init__(self, name: str, mode: str, layout: str) -> None:
        self.name, self.mode, self.layout, self.block = name, mode, layout, CASES[name]
        torch.manual_seed(1)
        self.model = randomise(self.block.module()).to(DEVICE, MODES[mode]).eval()
        x = torch.rand(self.block.shape, device=DEVICE).to(MODES[mode])
        self.x = x.to(memory_format=memory_format(layout, x.dim()))
        self.inputs = {"x": self.x, **dict(self.model.state_dict())}

    def by_torch(self, timer: Timer, with_compile: bool) -> tuple[Tensor, dict[str, float]]:
        """PyTorch's result, and its times."""
        times = {}
        layouts = {"eager": "contiguous", "eager channels_last": "channels_last"}
        with torch.no_grad(), precision(self.mode):
            result: Tensor = self.model(self.x)
            for name, layout in layouts.items():
                like = memory_format(layout, self.x.dim())
                model = self.model.to(memory_format=like)  # type: ignore[call-overload]
                x = self.x.to(memory_format=like)
                times[name] = timer(partial(model, x), 7)
                if with_compile:
                    compiled = torch.compile(model, dynamic=False)
                    times[name.replace("eager", "compiled")] = timer(partial(compiled, x), 7)
                    torch._dynamo.reset()
            self.model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        return result, times


def run(
    row: Row, timer: Timer, rates: dict[str, float], wishes: list[str], with_compile: bool
) -> list[dict[str, Any]]:
    """The records of a row, one for each value of FUSEBLOCK_CONV."""
    theirs, peers = row.by_torch(timer, with_compile)
    work = work_of(row.model, row.x, theirs)
    samples = max(1, min(work.samples, int(CHECKED / work.multiply_adds)))
    exact = exact_result(row.block, row.model, row.x, samples)
    floor = max(work.multiply_adds * work.samples / rates[row.mode], work.bytes / rates["copy"]) * 1e3
    records: list[dict[str, Any]] = []
    for wish in wishes:
        if wish and records and all(kernel["name"] != "conv" for kernel in records[0]["kernels"]):
            continue
        record: dict[str, Any] = {
            "case": row.name,
            "direction": "forward",
            "dtype": str(MODES[row.mode]).removeprefix("torch."),
            "layout": row.layout,
            "mode": row.mode,
            "wish": wish,
            "floor_ms": floor,
            "peers": peers,
            "peer_error": error(theirs, exact),
        }
        start = time.monotonic()
        try:
            plan = make_plan(row.name, row.mode, row.layout, wish)
            call = plan.bind(row.inputs)
            call()
            torch.cuda.synchronize()
        except (NotImplementedError, RuntimeError) as refused:
            print(f"  {row.name} {row.mode} {wish}: {str(refused)[:100]}", flush=True)
            continue
        record["first_call_s"] = round(time.monotonic() - start, 2)
        record["fuseblock_ms"] = timer(call)
        record["error"] = error(next(iter(call.outputs.values())), exact)
        record["workspace_bytes"] = plan.workspace_bytes
        record["kernels"] = json.loads(plan.explain_json()).get("kernels", [])
        records.append(record)
        print(line(record), flush=True)
    return records


HEAD = (
    f"{'block':<38} {'mode':<6} {'us':>8} {'floor':>7} {'/floor':>6} {'torch':>8} {'ratio':>6} "
    f"{'error':>8} {'torch':>8}"
)


def line(record: dict[str, Any]) -> str:
    """A record for a person."""
    ours, floor = record["fuseblock_ms"] * 1e3, record["floor_ms"] * 1e3
    peer = min(record["peers"].values()) * 1e3
    return (
        f"{record['case']:<38} {record['mode']:<6} {ours:>8.1f} {floor:>7.1f} {ours / floor:>6.2f} "
        f"{peer:>8.1f} {peer / ours:>6.2f} {record['error']:>8.1e} {record['peer_error']:>8.1e} "
        f"{record['wish']}"
    )


def row_key(record: dict[str, Any]) -> tuple[str, ...]:
    """What tells a row from others."""
    return tuple(record[name] for name in ("case", "direction", "layout", "mode", "wish"))


def write(path: Path, records: list[dict[str, Any]], rates: dict[str, float]) -> None:
    """The results file, with the rows of other cases and modes that it had."""
    before = json.loads(path.read_text()) if path.exists() else {"rows": [], "rates": {}}
    new = {row_key(record) for record in records}
    kept = [row for row in before["rows"] if row_key(row) not in new]
    document = {
        "device": torch.cuda.get_device_name(),
        "versions": {
            "fuseblock": version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "python": platform.python_version(),
        },
        "digest": hashlib.sha256(
            "".join(sorted(kernel["source_digest"] for row in records for kernel in row["kernels"])).encode()
        ).hexdigest(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "rates": {**before["rates"], **rates},
        "rows": kept + records,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def main() -> int:
    """Times the blocks."""
    parser = argparse.ArgumentParser(description="Convolution blocks on a GPU beside PyTorch and the floor")
    parser.add_argument("--filter", default="", help="only blocks whose name contains the text")
    parser.add_argument("--modes", nargs="+", default=["tf32", "strict", "bf16"], choices=list(MODES))
    parser.add_argument("--layout", default="contiguous", choices=["contiguous", "channels_last"])
    parser.add_argument("--compile", action="store_true", help="torch.compile too")
    parser.add_argument("--sweep", action="store_true", help="under several values of FUSEBLOCK_CONV")
    parser.add_argument(
        "--force", action="append", default=[], help="also under this value of FUSEBLOCK_CONV"
    )
    parser.add_argument(
        "--out", type=Path, help="benchmarks/results/h200/conv.json unless given; other rows that it has stay"
    )
    options = parser.parse_args()

    torch.set_num_threads(os.cpu_count() or 1)
    torch.backends.cudnn.benchmark = True
    timer = Timer()
    rates = {mode: product_rate(mode, timer) for mode in options.modes}
    rates["copy"] = copy_rate(timer)
    shown = ", ".join(f"{mode} {2e-12 * rates[mode]:.0f}" for mode in options.modes)
    print(f"{torch.cuda.get_device_name()}: TFLOP/s {shown}; copies {rates['copy'] / 1e12:.2f} TB/s\n{HEAD}")
    wishes = ["", *(SWEEP if options.sweep else []), *options.force]
    names = [name for name in CASES if options.filter in name]
    rows = list(itertools.product(names, options.modes, [options.layout], wishes))
    with ProcessPoolExecutor(os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compile_kernels, rows))
    records = []
    for name, mode in itertools.product(names, options.modes):
        records += run(Row(name, mode, options.layout), timer, rates, wishes, options.compile)
        write(options.out or RECORD, records, rates)
    if len(wishes) > 1:
        print("\nthe best of each:")
        for name, mode in dict.fromkeys((each["case"], each["mode"]) for each in records):
            own = [each for each in records if (each["case"], each["mode"]) == (name, mode)]
            print(line(min(own, key=lambda each: float(each["fuseblock_ms"]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
