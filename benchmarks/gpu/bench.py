#!/usr/bin/env python3
"""Load-sourced blocks on a GPU beside PyTorch, eager and compiled, and beside the floor.

    python3 benchmarks/gpu/bench.py [--filter TEXT ...] [--skip TEXT ...] [--layouts NAMES] [--no-compile]
    python3 benchmarks/gpu/bench.py --directions forward --missing     # what the record has no figures of yet
    python3 benchmarks/gpu/bench.py --only do_bench     # one measure of modules, into rows of the record
    python3 benchmarks/gpu/bench.py --take FILE         # rows that it wrote into another file

Needs the build folder, a GPU and torch. A row is a block, a shape, a layout and a direction: the median of
ten runs, L2 emptied before each, weights and biases random, the error of the outputs checked in the same
run. `fuseblock_ms` and `peers` are times of the GPU alone: the host is kept ahead of it. `called_ms` and
`called_peers` of a row forward are what a module takes that its user calls under no_grad, the host's time
included: fuseblock.nn's, PyTorch's, and that compiled; medians of thirty runs (`Timer.called` of
benchmarks/gpu/gpu_timing.py says what lies between the events). Blocks with more inputs than x have none.
`do_bench_ms` and `do_bench_peers` are times of the same modules by `triton.testing.do_bench`, of GroupNorm
with SiLU alone. `copy_ms` is the GPU's time for PyTorch's copy of x.

What needs compilation is compiled beforehand, by a process for each case and layout, as many at once as there
are cores: compilation by PyTorch is most of the time that this takes. The floor is what the block must read
and write, each once, at the speed at which PyTorch copies 268 MB here. Rows of other cases that the file has
stay in it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import multiprocessing
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT)]

import torch  # noqa: E402
from fuseblock._capi import Plan, type_text, version  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

from benchmarks.gpu.called import CALLED, MEASURES, Called  # noqa: E402
from benchmarks.gpu.gpu_timing import DEVICE, Timer, copy_rate  # noqa: E402

FORWARD, TRAINING = DIRECTIONS = ("forward", "forward+backward")
COMPILED = "torch.compile"


@dataclass(frozen=True)
class Case:
    """A block, and the same computation by PyTorch."""

    name: str
    notation: str
    shape: tuple[int, ...]
    by_torch: Callable[..., Tensor]
    dtype: torch.dtype = torch.bfloat16
    parameters: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    groups: int = 0
    """Of a GroupNorm with SiLU, which is a module of its own."""

    def measures(self) -> tuple[str, ...]:
        """How modules that users would call are timed; not at all for a block with more inputs."""
        if self.extra:
            return ()
        return MEASURES if self.groups else (CALLED,)

    def called(self, arguments: list[Tensor]) -> Called:
        """These modules."""
        channels = self.shape[1]
        modules = (
            Called.group_norm_silu(self.groups, channels)
            if self.groups
            else Called.of_notation(self.notation, self.by_torch, len(self.parameters), channels)
        )
        return modules.with_parameters(arguments[1:])


def group_norm_silu(groups: int) -> Callable[..., Tensor]:
    """GroupNorm and SiLU as PyTorch's users write them."""
    return lambda x, w, b: functional.silu(functional.group_norm(x, groups, w, b))


def adagn(x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """GroupNorm whose scale and shift come from outside, and SiLU."""
    return functional.silu(functional.group_norm(x, 32) * scale + shift)


def layer_norm_channels(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """LayerNorm over the channels of each position."""
    return functional.layer_norm(x.movedim(1, -1), (x.shape[1],), w, b).movedim(-1, 1)


def rms_norm_channels_silu(x: Tensor, w: Tensor) -> Tensor:
    """RMS norm over the channels of each position, and SiLU."""
    return functional.silu(functional.rms_norm(x.movedim(1, -1), (x.shape[1],), w, 1e-6).movedim(-1, 1))


def instance_norm_leaky(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """InstanceNorm and LeakyReLU, as 3-D segmentation has them."""
    return functional.leaky_relu(functional.instance_norm(x, weight=w, bias=b), 0.01)


def hardswish_gn_mean(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """The tail of conv3d_hardswish_gn_mean."""
    return functional.group_norm(functional.hardswish(x), 4, w, b).mean((2, 3, 4))


GROUP_NORMS = [
    ((2, 320, 64, 64), 32),
    ((2, 320, 128, 128), 32),
    ((1, 512, 256, 256), 32),
    ((1, 128, 1024, 1024), 32),
    ((1, 128, 20, 256, 256), 32),
    ((1, 512, 16, 180, 320), 32),
    ((64, 256, 56, 56), 32),
    ((2, 32, 128, 128, 128), 8),
]
OTHERS = [(2, 320, 64, 64), (1, 512, 256, 256), (1, 128, 20, 256, 256)]


def cases() -> list[Case]:
    """What is timed."""
    gn = ("group_norm.weight", "group_norm.bias")
    result = [
        Case(
            "group_norm_silu",
            f"group_norm({groups}) | silu",
            shape,
            group_norm_silu(groups),
            parameters=gn,
            groups=groups,
        )
        for shape, groups in GROUP_NORMS
    ]
    result.append(
        Case(
            "conv3d_hardswish_gn_mean_tail",
            "hardswish | group_norm(4) | mean(d,h,w)",
            (1024, 16, 13, 29, 29),
            hardswish_gn_mean,
            torch.float32,
            gn,
        )
    )
    for shape in OTHERS:
        result += [
            Case(
                "rms_norm_silu",
                "rms_norm(c, eps=1e-6) | silu",
                shape,
                rms_norm_channels_silu,
                parameters=("rms_norm.weight",),
            ),
            Case(
                "layer_norm",
                "layer_norm(c)",
                shape,
                layer_norm_channels,
                parameters=("layer_norm.weight", "layer_norm.bias"),
            ),
            Case(
                "instance_norm_leaky_relu",
                "instance_norm(affine=true) | leaky_relu(0.01)",
                shape,
                instance_norm_leaky,
                parameters=("instance_norm.weight", "instance_norm.bias"),
            ),
            Case(
                "adagn_silu",
                "group_norm(32, affine=false) | mul(scale) | add(shift) | silu",
                shape,
                adagn,
                extra=("scale", "shift"),
            ),
        ]
    return result


def largest(values: Tensor) -> float:
    """The largest absolute value."""
    return float(values.abs().max())


def errors(
    case: Case, arguments: list[Tensor], got: Tensor, peer: Tensor
) -> tuple[float | None, float | None]:
    """The largest errors of both against float64, on the first sample; none where that is too large."""
    few = [each[:1].double() if each.dim() > 1 else each.double() for each in arguments]
    if few[0].numel() > 1 << 28:
        return None, None
    exact = case.by_torch(*few)
    return largest(got[:1].double() - exact), largest(peer[:1].double() - exact)


def draw_arguments(case: Case, layout: str) -> list[Tensor]:
    """Random tensors: x, then parameters and other inputs."""
    generator = torch.Generator(DEVICE).manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, device=DEVICE).to(case.dtype)

    x = draw(*case.shape)
    if layout == "channels_last":
        x = x.to(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
    one = (case.shape[0], case.shape[1], *[1] * (len(case.shape) - 2))
    return [x, *(draw(case.shape[1]) for _ in case.parameters), *(draw(*one) for _ in case.extra)]


def make_plan(case: Case, arguments: list[Tensor]) -> Plan:
    """The case's plan for tensors of these types."""
    names = [*case.parameters, *case.extra]
    types = {name: type_text(each) for name, each in zip(names, arguments[1:], strict=True)}
    return Plan.make(case.notation, type_text(arguments[0]), types, DEVICE)


def compile_ahead(
    number: int, layout: str, directions: list[str], with_compile: bool, only: list[str]
) -> None:
    """Leaves what a case needs in the caches on disk: its kernels, and what torch.compile makes of it."""
    case = cases()[number]
    try:
        arguments = draw_arguments(case, layout)
        plan = make_plan(case, arguments)
        called = case.called(arguments) if FORWARD in directions and case.measures() else None
        if called:
            with torch.no_grad():
                called.ours(arguments[0])
        if TRAINING in directions:
            plan.for_training()
        if not with_compile:
            return
        if FORWARD in directions and not only:
            torch.compile(case.by_torch, dynamic=False)(*arguments)
        if called:
            with torch.no_grad():
                called.compiled()(arguments[0])
        if TRAINING not in directions:
            return
        leaves = [each.detach().requires_grad_() for each in arguments]
        result = torch.compile(case.by_torch, dynamic=False)(*leaves)
        torch.autograd.grad(result, leaves, torch.ones_like(result))
    except (NotImplementedError, torch.OutOfMemoryError):
        pass  # the case itself says so, or has the memory for itself


def head_of(case: Case, layout: str, direction: str) -> dict[str, Any]:
    """What a row begins with."""
    return {
        "case": case.name,
        "shape": list(case.shape),
        "dtype": str(case.dtype).removeprefix("torch."),
        "layout": layout,
        "mode": "f32 arithmetic",
        "direction": direction,
    }


def named(case: Case, arguments: list[Tensor]) -> dict[str, Tensor]:
    """Arguments by their names."""
    return dict(zip(["x", *case.parameters, *case.extra], arguments, strict=True))


def module_figures(
    case: Case,
    arguments: list[Tensor],
    expected: Tensor,
    timer: Timer,
    with_compile: bool,
    measures: Sequence[str],
) -> dict[str, Any]:
    """Times of the modules that users would call, and the largest error of ours."""
    chosen = [each for each in case.measures() if each in measures]
    if not chosen:
        return {}
    x = arguments[0]
    called = case.called(arguments)
    compiled = called.compiled() if with_compile else None
    figures: dict[str, Any] = {}
    for measure in chosen:
        figures |= called.figures(x, timer, measure, compiled)
    with torch.no_grad():
        figures["called_error"], _ = errors(case, arguments, called.ours(x), expected)
    return figures


def run_modules(
    case: Case, layout: str, timer: Timer, with_compile: bool, measures: Sequence[str]
) -> dict[str, Any]:
    """What a row of a case forward has of its modules."""
    arguments = draw_arguments(case, layout)
    expected = case.by_torch(*arguments)
    return module_figures(case, arguments, expected, timer, with_compile, measures)


def run_forward(
    case: Case, layout: str, timer: Timer, bytes_a_second: float, with_compile: bool
) -> dict[str, Any]:
    """The row of a case forward."""
    arguments = draw_arguments(case, layout)
    plan = make_plan(case, arguments)
    call = plan.bind(named(case, arguments))
    call()
    expected = case.by_torch(*arguments)
    output = next(iter(call.outputs.values()))
    error, peer_error = errors(case, arguments, output, expected)
    peers = {"eager": timer(lambda: case.by_torch(*arguments))}
    if with_compile:
        compiled = torch.compile(case.by_torch, dynamic=False)
        peers[COMPILED] = timer(lambda: compiled(*arguments))
    ms, spread = timer.measure(call)
    kernels = [
        {name: kernel[name] for name in ("name", "source_digest")}
        for kernel in json.loads(plan.explain_json()).get("kernels", [])
    ]
    x = arguments[0]
    target = torch.empty_like(x)
    figures: dict[str, Any] = {"copy_ms": timer(lambda: target.copy_(x))}
    figures |= module_figures(case, arguments, expected, timer, with_compile, MEASURES)
    return {
        **head_of(case, layout, FORWARD),
        "fuseblock_ms": ms,
        "spread_ms": spread,
        "peers": peers,
        "floor_ms": (arguments[0].nbytes + output.nbytes) / bytes_a_second * 1e3,
        "error": error,
        "peer_error": peer_error,
        **figures,
        "kernels": kernels,
    }


def run_training(
    case: Case, layout: str, timer: Timer, bytes_a_second: float, with_compile: bool
) -> dict[str, Any]:
    """The row of a case forward and backward."""
    arguments = draw_arguments(case, layout)
    x = arguments[0]
    inputs = named(case, arguments)
    forward, backward = make_plan(case, arguments).for_training()
    first = forward.bind(inputs)
    first()
    result = next(iter(first.outputs.values()))
    gradient = torch.randn_like(result)
    name = next(iter(first.outputs))
    second = backward.bind({**inputs, **first.outputs, f"d_{name}": gradient})

    def both() -> None:
        first()
        second()

    leaves = [each.detach().requires_grad_() for each in arguments]

    def eager() -> object:
        return torch.autograd.grad(case.by_torch(*leaves), leaves, gradient)

    peers = {"eager": timer(eager)}
    if with_compile:
        trained = torch.compile(case.by_torch, dynamic=False)
        peers[COMPILED] = timer(lambda: torch.autograd.grad(trained(*leaves), leaves, gradient))
    ms, spread = timer.measure(both)
    alone = timer(second)
    return {
        **head_of(case, layout, TRAINING),
        "fuseblock_ms": ms,
        "spread_ms": spread,
        "backward_ms": alone,
        "peers": peers,
        "floor_ms": (3 * x.nbytes + result.nbytes + gradient.nbytes) / bytes_a_second * 1e3,
    }


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    """What tells a row from others."""
    return row["case"], tuple(row["shape"]), row["dtype"], row["layout"], row["direction"]


def table(rows: list[dict[str, Any]]) -> str:
    """The rows for a person."""
    lines = [f"{'case':<30} {'shape':<22} {'layout':<14} {'direction':<17} {'ms':>8} {'/floor':>7}  peers"]
    for row in rows:
        ours = row["fuseblock_ms"]
        peers = ", ".join(f"{name} {ms:.3f} ({ms / ours:.2f}x)" for name, ms in row["peers"].items())
        shape = ",".join(map(str, row["shape"]))
        lines.append(
            f"{row['case']:<30} {shape:<22} {row['layout']:<14} {row['direction']:<17} {ours:>8.4f} "
            f"{ours / row['floor_ms']:>7.2f}  {peers}"
        )
        for measure, name in (("called", "as called"), ("do_bench", "by do_bench")):
            if f"{measure}_ms" not in row:
                continue
            called = row[f"{measure}_ms"]
            theirs = ", ".join(
                f"{peer} {ms:.4f} ({ms / called:.2f}x)" for peer, ms in row[f"{measure}_peers"].items()
            )
            lines.append(f"  {name:<84} {called:>8.4f}          {theirs}")
    return "\n".join(lines)


def case_text(case: Case) -> str:
    """What --filter and --skip look at."""
    return f"{case.name} {case.shape}"


@dataclass(frozen=True)
class Wanted:
    """A case in one layout, and the directions of it that are timed."""

    number: int
    layout: str
    directions: list[str]


def is_whole(case: Case, row: dict[str, Any] | None, options: argparse.Namespace) -> bool:
    """Whether a row of the file has every time that the options ask for."""
    if row is None:
        return False
    peers = {"eager"} if options.no_compile else {"eager", COMPILED}
    wanted = [] if options.only else ["peers"]
    if row["direction"] == FORWARD:
        wanted += [f"{each}_peers" for each in case.measures() if each in (options.only or MEASURES)]
    return all(peers <= set(row.get(name, ())) for name in wanted)


def choose(options: argparse.Namespace, rows: list[dict[str, Any]]) -> list[Wanted]:
    """What the options ask for; `rows` are those of the file."""
    there = {key(row): row for row in rows}
    found = []
    for layout in options.layouts:
        for number, case in enumerate(cases()):
            text = case_text(case)
            if not any(each in text for each in options.filter) or any(each in text for each in options.skip):
                continue
            directions = []
            for each in options.directions:
                row = there.get(key(head_of(case, layout, each)))
                alone = each == FORWARD and row and set(case.measures()) & set(options.only)
                if options.only and not alone:
                    continue
                if not options.missing or not is_whole(case, row, options):
                    directions.append(each)
            if directions:
                found.append(Wanted(number, layout, directions))
    return found


def take(taken: Path, into: Path) -> int:
    """Rows of a file that this program wrote into another, in the place of what that has of them."""
    document, more = (json.loads(path.read_text()) for path in (into, taken))
    for name in ("device", "versions"):
        if document[name] != more[name]:
            print(f"{taken}: {name} is {more[name]}, in {into} {document[name]}", file=sys.stderr)
            return 2
    fresh = {key(row) for row in more["rows"]}
    document["rows"] = [row for row in document["rows"] if key(row) not in fresh] + more["rows"]
    into.write_text(json.dumps(document, indent=1) + "\n")
    print(table(more["rows"]))
    return 0


def main() -> int:
    """Times the cases and writes the results."""
    parser = argparse.ArgumentParser(description="Load-sourced blocks on a GPU beside PyTorch and the floor")
    parser.add_argument(
        "--filter", nargs="+", default=[""], help="only cases whose name and shape contain one of the texts"
    )
    parser.add_argument("--skip", nargs="+", default=[], help="but not those that contain one of these")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "h200" / "norms.json")
    parser.add_argument("--layouts", nargs="+", default=["contiguous", "channels_last"])
    parser.add_argument("--directions", nargs="+", default=list(DIRECTIONS), choices=DIRECTIONS)
    parser.add_argument(
        "--missing", action="store_true", help="only rows that the file has not, or not whole"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        choices=MEASURES,
        help="these times of modules, into rows of the file",
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes that compile ahead")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument(
        "--take", type=Path, help="a file of this program, whose rows are taken; nothing is timed"
    )
    options = parser.parse_args()
    if options.take:
        return take(options.take, options.out)
    start = time.monotonic()

    rows: list[dict[str, Any]] = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    chosen = choose(options, rows)
    if not chosen:
        print("no case is chosen", file=sys.stderr)
        return 2
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    with multiprocessing.get_context("spawn").Pool(min(options.jobs, len(chosen))) as pool:
        ahead = [
            (each.number, each.layout, each.directions, not options.no_compile, options.only)
            for each in chosen
        ]
        compiling = pool.starmap_async(compile_ahead, ahead, chunksize=1)
        timer = Timer()  # beside them: a process's first use of a GPU takes seconds
        compiling.get()
    print(f"compiled ahead after {time.monotonic() - start:.0f} s", flush=True)
    bytes_a_second = copy_rate(timer)
    print(f"{torch.cuda.get_device_name()}: copies at {bytes_a_second / 1e12:.2f} TB/s", flush=True)
    runs = {FORWARD: run_forward, TRAINING: run_training}
    for each in chosen:
        case = cases()[each.number]
        with_compile = not options.no_compile
        try:
            if options.only:
                (before,) = [row for row in rows if key(row) == key(head_of(case, each.layout, FORWARD))]
                found = [before | run_modules(case, each.layout, timer, with_compile, options.only)]
            else:
                found = [
                    runs[direction](case, each.layout, timer, bytes_a_second, with_compile)
                    for direction in each.directions
                ]
        except NotImplementedError as refused:
            print(f"{case.name} {case.shape} {each.layout}: {refused}")
            continue
        fresh = {key(row) for row in found}
        rows = [row for row in rows if key(row) not in fresh] + found
        print(table(found).split("\n", 1)[1], flush=True)
        document = {
            "device": torch.cuda.get_device_name(),
            "versions": {
                "fuseblock": version(),
                "torch": torch.__version__,
                "cuda": torch.version.cuda,
                "python": platform.python_version(),
            },
            "copy_bytes_per_second": bytes_a_second,
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "rows": rows,
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(document, indent=1) + "\n")
        torch._dynamo.reset()
    print(table(rows))
    print(f"{time.monotonic() - start:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
