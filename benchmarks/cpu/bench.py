"""fuseblock beside PyTorch on the CPU, in one process, in turns, on the same threads.

    tools/bench [--filter REGEX] [--quick] [--no-compile] [--threads N] [--divide N] ...

Cases: the reference blocks with their batch divided, their tails, GroupNorm+SiLU. Directions: forward
(PyTorch under no_grad), and forward with the gradients of the weights, of tails and norms also of the input.
The peer of a row is the fastest of PyTorch eager and compiled, in both layouts. Then fuseblock.nn on tensors
of a few elements: what a call costs the host, beside PyTorch's modules run eagerly.

The table: medians in milliseconds with fuseblock's quartiles; ratio = PyTorch's time over fuseblock's; errors
against float64, relative to the largest value of each tensor; GEMM: the convolution's operations a second as
a share of what torch.mm reaches here; copy: the bytes of arguments and results a second as a share of what a
copy reaches here; memory: fuseblock's workspace as a share of the convolution's output (of a tail's input).
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from benchmarks.cpu.cases import DIRECTIONS, Case, cases
from benchmarks.cpu.contenders import (
    Contender,
    FuseblockContender,
    FuseblockPlans,
    PlanContender,
    TorchContender,
    exact_results,
    output_gradient,
    relative_error,
)
from benchmarks.cpu.overhead import (
    CASES,
    OverheadCase,
    OverheadRow,
    measure_overhead,
    overhead_header,
    overhead_line,
)
from benchmarks.cpu.report import (
    ROOT,
    Row,
    geometric_means,
    means_of_results,
    table_header,
    table_line,
    write_overhead,
    write_results,
)
from benchmarks.cpu.timing import MachineRates, allocated_peak_bytes, machine_rates, measure

RESULTS = ROOT / "benchmarks/results/cpu"
# float64 results are computed on as much of the batch as has this many elements behind the convolution.
MOST_EXACT_ELEMENTS = 1 << 26


def read_arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="tools/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--filter", default="", metavar="REGEX", help="only rows whose `case direction dtype layout` match"
    )
    parser.add_argument("--quick", action="store_true", help="a second a row, PyTorch eager only")
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile")
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="threads of both; all cores unless given"
    )
    parser.add_argument(
        "--divide", type=int, default=8, help="divides the batch of the reference blocks; 8 unless given"
    )
    parser.add_argument("--seconds", type=float, help="time for each row; 5 unless given, 1 with --quick")
    parser.add_argument(
        "--keep-outputs",
        action="store_true",
        help="fuseblock's plans through the C API, on their own threads, into the same memory each time; "
        "PyTorch allocates as ever: not a fair ratio",
    )
    parser.add_argument("--explain", action="store_true", help="print fuseblock's plans too")
    parser.add_argument("--list", action="store_true", help="name the rows and measure nothing")
    parser.add_argument(
        "--means", action="store_true", help="the means of the results that are there, and measure nothing"
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FOLDER",
        help="where results files go; benchmarks/results/cpu for a whole run, nowhere for a part of one",
    )
    arguments = parser.parse_args()
    if arguments.divide < 1 or arguments.threads < 1:
        parser.error("--divide and --threads must be at least 1")
    arguments.no_compile |= arguments.quick
    if arguments.seconds is None:
        arguments.seconds = 1.0 if arguments.quick else 5.0
    return arguments


def chosen(arguments: argparse.Namespace) -> Iterator[tuple[Case, str]]:
    """The cases and directions to measure."""
    for case in cases(arguments.divide):
        for direction in DIRECTIONS:
            if re.search(arguments.filter, f"{case.name} {direction} {case.dtype} {case.layout}"):
                yield case, direction


def chosen_overhead(arguments: argparse.Namespace) -> list[tuple[OverheadCase, str]]:
    """The cases and directions of tiny tensors to measure."""
    return [
        (case, direction)
        for case in CASES
        for direction in DIRECTIONS
        if re.search(arguments.filter, f"{case.name} {direction} f32 contiguous")
    ]


def make_contenders(case: Case, direction: str, arguments: argparse.Namespace) -> list[Contender]:
    """Those of a case, fuseblock first."""
    ways = ["eager"] if arguments.no_compile else ["eager", "compile"]
    d_output = output_gradient(case)
    ours: Contender
    if arguments.keep_outputs:
        ours = PlanContender(case, direction, d_output, arguments.threads)
    else:
        ours = FuseblockContender(case, direction, d_output, arguments.threads)
    return [
        ours,
        *(
            TorchContender(case, direction, d_output, how, layout)
            for layout in case.peer_layouts
            for how in ways
        ),
    ]


def convolution_of(case: Case) -> tuple[float, int]:
    """Operations of the convolution and the bytes of its output; without one 0 and the input's."""
    for module in case.module().modules():
        if isinstance(module, nn.Conv2d | nn.Conv3d | nn.ConvTranspose3d):
            with torch.no_grad():
                output = module(case.input()[:1])
            outputs = output.numel() * case.shape[0]
            if isinstance(module, nn.ConvTranspose3d):
                positions = case.input().numel() / case.shape[1]
            else:
                positions = outputs / module.out_channels
            return 2.0 * positions * module.weight.numel(), outputs * output.element_size()
    x = case.input()
    return 0.0, x.numel() * x.element_size()


def border_bytes(case: Case, direction: str, output_elements: int) -> float:
    """The bytes of arguments and results: what any implementation must move."""
    x = case.input()
    size = x.element_size()
    parameters = sum(value.numel() for value in case.module().parameters())
    forward = x.numel() + parameters + output_elements
    if direction == "forward":
        return float(forward * size)
    gradients = parameters + (x.numel() if case.input_has_gradient else 0)
    return float((2 * forward + gradients) * size)


def exact_part(case: Case, intermediate_bytes: int) -> Case:
    """The case on as much of its batch as float64 results are computed for."""
    each = intermediate_bytes // case.input().element_size() // case.shape[0]
    batch = max(1, min(case.shape[0], MOST_EXACT_ELEMENTS // each))
    return replace(case, shape=(batch, *case.shape[1:]))


def errors_of(case: Case, direction: str, contenders: list[Contender]) -> dict[str, float]:
    """The error of each contender; one that torch.compile cannot compile here is told, and has none."""
    exact = exact_results(case, direction, output_gradient(case))
    errors = {}
    for contender in contenders:
        try:
            errors[contender.name] = relative_error(contender.run(), exact)
        except Exception as failure:
            if not contender.name.startswith("compile"):
                raise
            first_line = str(failure).partition("\n")[0]
            print(f"{case.name}: left out {contender.name}: {first_line}", file=sys.stderr)
        contender.release()
    return errors


def measure_row(case: Case, direction: str, arguments: argparse.Namespace, rates: MachineRates) -> Row:
    """Everything about one case in one direction."""
    torch._dynamo.reset()
    flops, intermediate_bytes = convolution_of(case)
    moved = border_bytes(case, direction, output_gradient(case).numel())
    ours, *peers = contenders = make_contenders(case, direction, arguments)
    assert isinstance(ours, FuseblockPlans)
    part = exact_part(case, intermediate_bytes)
    errors = errors_of(
        part,
        direction,
        contenders if part == case else make_contenders(part, direction, arguments),
    )
    peers = [peer for peer in peers if peer.name in errors]
    times = measure([ours, *peers], arguments.seconds)
    best = min(peers, key=lambda peer: times[peer.name].median_ms)
    peer_peak = allocated_peak_bytes(best.run)
    if arguments.explain:
        print("\n".join(ours.explain))
    if direction != "forward":
        flops *= 3 if case.input_has_gradient else 2
    fuseblock_ms = times[ours.name].median_ms
    return Row(
        case=case.name,
        group=case.group,
        direction=direction,
        dtype=case.dtype,
        layout=case.layout,
        mode="default",
        shape=list(case.shape),
        fuseblock_ms=fuseblock_ms,
        fuseblock_spread_ms=list(times[ours.name].quartiles_ms),
        peers={peer.name: times[peer.name].median_ms for peer in peers},
        peer_spreads_ms={peer.name: list(times[peer.name].quartiles_ms) for peer in peers},
        best_peer=best.name,
        ratio=times[best.name].median_ms / fuseblock_ms,
        wanted_ratio=case.wanted_ratio(direction),
        floor_ms=1e3 * max(flops / rates.gemm_flops, moved / rates.copy_bytes),
        error=errors[ours.name],
        peer_error=errors[best.name],
        peer_errors={peer.name: errors[peer.name] for peer in peers},
        peak_bytes=ours.workspace_bytes,
        peer_peak_bytes=peer_peak,
        convolution_flops=flops,
        border_bytes=moved,
        intermediate_bytes=intermediate_bytes,
    )


def measure_blocks(
    todo: list[tuple[Case, str]], arguments: argparse.Namespace, rates: MachineRates
) -> list[Row]:
    """The rows of blocks, tails and norms, printed as they come."""
    peers = "eager alone" if arguments.no_compile else "eager and compiled"
    print(
        f"{arguments.threads} threads, torch {torch.__version__} {peers}, batch of the reference blocks / "
        f"{arguments.divide}; torch.mm {rates.gemm_flops / 1e9:.0f} GFLOP/s, copy "
        f"{rates.copy_bytes / 1e9:.1f} GB/s. Milliseconds; more in tools/bench --help\n"
    )
    print(table_header(), flush=True)
    rows = []
    for case, direction in todo:
        row = measure_row(case, direction, arguments, rates)
        rows.append(row)
        print(table_line(row, rates), flush=True)
    means = geometric_means(rows)
    if means:
        print("\n" + "\n".join(means))
    return rows


def measure_tiny(todo: list[tuple[OverheadCase, str]], seconds: float) -> list[OverheadRow]:
    """The rows of tiny tensors, printed as they come."""
    print("\n" + overhead_header(), flush=True)
    rows = []
    for case, direction in todo:
        rows.append(measure_overhead(case, direction, seconds))
        print(overhead_line(rows[-1]), flush=True)
    return rows


def main() -> int:
    """Measures, prints and writes."""
    arguments = read_arguments()
    if arguments.means:
        print("\n".join(means_of_results(arguments.output or RESULTS)))
        return 0
    torch.set_num_threads(arguments.threads)
    warnings.filterwarnings("ignore", module="torch")
    todo = list(chosen(arguments))
    tiny = chosen_overhead(arguments)
    if not todo and not tiny:
        print(f"tools/bench: no row matches {arguments.filter}", file=sys.stderr)
        return 2
    if arguments.list:
        for case, direction in todo:
            print(case.name, direction, case.dtype, case.layout)
        for tiny_case, direction in tiny:
            print(tiny_case.name, direction, "f32 contiguous")
        return 0
    folder = arguments.output
    if folder is None and not (arguments.filter or arguments.quick or arguments.no_compile):
        folder = RESULTS
    written = []
    if todo:
        rates = machine_rates()
        rows = measure_blocks(todo, arguments, rates)
        if folder is not None:
            written += write_results(folder, rows, rates, arguments.threads)
    if tiny:
        torch.set_num_threads(1)
        overhead_rows = measure_tiny(tiny, arguments.seconds)
        if folder is not None:
            written.append(write_overhead(folder, overhead_rows, 1))
    for path in written:
        print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
