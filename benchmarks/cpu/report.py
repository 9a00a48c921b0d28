"""What comes out: rows as the results files hold them, and the table."""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from fuseblock import _capi

from benchmarks.cpu.cases import DIRECTIONS, WANTED_TAILS_AND_NORMS
from benchmarks.cpu.overhead import OverheadRow
from benchmarks.cpu.timing import MachineRates

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Row:
    """One case in one direction. Times are medians in milliseconds, spreads the quartiles.

    error and peer_error: the largest error against float64 over the output and all gradients, each relative
    to the largest value of its tensor; that of the best peer. peak_bytes: fuseblock's workspace and what
    forward saves for backward; peer_peak_bytes: the peak of the best peer's allocations without its results.
    """

    case: str
    group: str
    direction: str
    dtype: str
    layout: str
    mode: str
    shape: list[int]
    fuseblock_ms: float
    fuseblock_spread_ms: list[float]
    peers: dict[str, float]
    peer_spreads_ms: dict[str, list[float]]
    best_peer: str
    ratio: float
    wanted_ratio: float | None
    floor_ms: float
    error: float
    peer_error: float
    peer_errors: dict[str, float]
    peak_bytes: int
    peer_peak_bytes: int
    convolution_flops: float
    border_bytes: float
    intermediate_bytes: int  # the convolution's output, or the input of a block that has none


def source_digest() -> str:
    """A digest of the C++ sources that the library is made of."""
    digest = hashlib.sha256()
    for folder in ("include", "src"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cc"):
                digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def device_name(threads: int) -> str:
    """The processor and the number of threads."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return f"{names[0] if names else platform.processor()}, {threads} threads"


def results_file(
    rows: Iterable[Row | OverheadRow], rates: MachineRates | None, threads: int
) -> dict[str, Any]:
    """A results file as an object; the rates of the machine where rows refer to them."""
    content = {
        "device": device_name(threads),
        "versions": {
            "fuseblock": _capi.version(),
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "digest": source_digest(),
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    if rates is not None:
        content["rates"] = {"gemm_gflops": rates.gemm_flops / 1e9, "copy_gb_per_s": rates.copy_bytes / 1e9}
    return content | {"rows": [asdict(row) for row in rows]}


def write_results(folder: Path, rows: Sequence[Row], rates: MachineRates, threads: int) -> list[Path]:
    """Writes one file a group of cases."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for group in dict.fromkeys(row.group for row in rows):
        content = results_file([row for row in rows if row.group == group], rates, threads)
        written.append(_write(folder / f"{group}.json", content))
    return written


def write_overhead(folder: Path, rows: Sequence[OverheadRow], threads: int) -> Path:
    """Writes the rows of tiny tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    return _write(folder / "overhead.json", results_file(rows, None, threads))


def _write(path: Path, content: dict[str, Any]) -> Path:
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


_HEADER = (
    "case",
    "direction",
    "type",
    "fuseblock",
    "best of PyTorch",
    "ratio",
    "wanted",
    "error",
    "PyTorch's",
    "GEMM",
    "copy",
    "memory",
)


def table_header() -> str:
    """The titles of the columns."""
    return _line(_HEADER)


def table_line(row: Row, rates: MachineRates) -> str:
    """One row of the table."""
    low, high = row.fuseblock_spread_ms
    seconds = row.fuseblock_ms * 1e-3
    flops = row.convolution_flops / seconds / rates.gemm_flops
    wanted = ""
    if row.wanted_ratio is not None:
        wanted = f"{row.wanted_ratio:.2f} {'ok' if row.ratio >= row.wanted_ratio else 'no'}"
    return _line(
        (
            row.case,
            row.direction,
            row.dtype + (":cl" if row.layout == "channels_last" else ""),
            f"{row.fuseblock_ms:.2f} ({low:.2f}-{high:.2f})",
            f"{row.peers[row.best_peer]:.2f} {row.best_peer}",
            f"{row.ratio:.2f}",
            wanted,
            f"{row.error:.1e}",
            f"{row.peer_error:.1e}",
            f"{flops:.0%}" if row.convolution_flops else "",
            f"{row.border_bytes / seconds / rates.copy_bytes:.0%}",
            f"{row.peak_bytes / row.intermediate_bytes:.1%}",
        )
    )


def _line(cells: Sequence[str]) -> str:
    widths = (42, 16, 7, 22, 30, 6, 8, 8, 9, 5, 5, 8)
    left = (True, True, True, False, True, False, False, False, False, False, False, False)
    return "  ".join(
        cell.ljust(width) if is_left else cell.rjust(width)
        for cell, width, is_left in zip(cells, widths, left, strict=True)
    ).rstrip()


def geometric_means(rows: Iterable[Row]) -> list[str]:
    """For each direction the geometric mean of the ratios of tails and norms, as lines of text.

    Beside it what it would be at the floor of every row: the bytes of the border at the rate of a copy.
    """
    lines = []
    all_rows = [row for row in rows if row.group in ("tails", "norms")]
    for direction, wanted in zip(DIRECTIONS, WANTED_TAILS_AND_NORMS, strict=True):
        chosen = [row for row in all_rows if row.direction == direction]
        if chosen:
            mean = _geometric_mean([row.ratio for row in chosen])
            at_floor = _geometric_mean([row.peers[row.best_peer] / row.floor_ms for row in chosen])
            verdict = "ok" if mean >= wanted else "no"
            lines.append(
                f"tails and norms, {direction}: geometric mean of {len(chosen)} ratios {mean:.2f}, "
                f"wanted {wanted:.2f} {verdict}; at the floor of every row {at_floor:.2f}"
            )
    return lines


def _geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def means_of_results(folder: Path) -> list[str]:
    """The same of results files that were written before."""
    rows = []
    for group in ("tails", "norms"):
        content = json.loads((folder / f"{group}.json").read_text())
        rows += [Row(**row) for row in content["rows"]]
    return geometric_means(rows)
