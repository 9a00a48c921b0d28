#!/usr/bin/env python3
"""Writes the recorded times of convolution blocks on a GPU as tables into docs/conv-on-gpu.md.

    python3 benchmarks/gpu/conv_tables.py

The records are those of benchmarks/results/h200: conv.json, by mode and layout; tune.json and
tune_reference.json, the cost model's divisions beside the fastest. The page has marks around both, and what
stands between them is replaced.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.reference_blocks import NETWORKS  # noqa: E402

RECORDS = ROOT / "benchmarks" / "results" / "h200"
PAGE = ROOT / "docs" / "conv-on-gpu.md"
# With the module as a user calls it: its time, and what it runs.
MODULE_HEAD = (
    "| | floor | fuseblock | times the floor | PyTorch's best | times as long | error | PyTorch's "
    "| module | runs |\n"
    "|---|---|---|---|---|---|---|---|---|---|"
)


def line(row: dict[str, Any]) -> str:
    """A row of a table."""
    ours, floor, peer = row["fuseblock_ms"], row["floor_ms"], min(row["peers"].values())
    cells = f"{floor:.4f} | {ours:.4f} | {ours / floor:.2f} | {peer:.3f} | {peer / ours:.2f}"
    module = row.get("module_ms")
    called = "| |" if module is None else f"| {module:.4f} | {' + '.join(row['module_plan'])} |"
    return f"| `{row['case']}` | {cells} | {row['error']:.1e} | {row['peer_error']:.1e} {called}"


def starts(rows: list[dict[str, Any]]) -> str:
    """A table of first calls; nothing where none were timed."""
    lines = [
        f"| `{row['case']}`, {row['mode']} | {what} | {times['empty_cache_s']:.2f} | "
        f"{1e3 * times['disk_cache_s']:.1f} |"
        for row in rows
        for what, times in row.get("starts", {}).items()
    ]
    head = "| first call | of | empty cache, s | from the disk, ms |\n|---|---|---|---|\n"
    return "\n" + head + "\n".join(lines) + "\n" if lines else ""


def mean_gain(rows: list[dict[str, Any]]) -> str:
    """Geometric means over the best of the peers: of all rows, and without second forms of a block."""

    def mean(some: list[dict[str, Any]], ours: str = "fuseblock_ms") -> str:
        logarithms = [math.log(min(row["peers"].values()) / row[ours]) for row in some]
        return f"{math.exp(sum(logarithms) / len(logarithms)):.2f} over {len(some)} rows"

    called = [row for row in rows if row["case"] in NETWORKS and "module_ms" in row]
    rest = [row for row in rows if row["case"] not in NETWORKS]
    if called and rest:
        eager = "eager" if called[0]["layout"] == "contiguous" else f"eager {called[0]['layout']}"
        least = min(row["peers"][eager] / row["module_ms"] for row in called)
        told = (
            f"modules of blocks of networks {mean(called, 'module_ms')}, each at least {least:.2f} of {eager}"
        )
        return f"{mean_gain(rest)}; {told}"
    first = [row for row in rows if not row["case"].endswith("_k3")]
    return f"{mean(first)}, {mean(rows)} with `_k3`" if 0 < len(first) < len(rows) else mean(rows)


def tables(rows: list[dict[str, Any]]) -> str:
    """A table for each mode and layout, with the mean gain over the best of the peers."""
    parts = []
    for mode, layout in dict.fromkeys((row["mode"], row["layout"]) for row in rows):
        chosen = [
            row
            for row in rows
            if (row["mode"], row["layout"], row["wish"]) == (mode, layout, "")
            and "fuseblock_ms" in row
            and row["peers"]
        ]
        if not chosen:
            continue
        lines = "\n".join(map(line, chosen))
        peers = ", ".join(sorted({name for row in chosen for name in row["peers"]}))
        parts.append(
            f"{mode}, {layout}:\n\n{MODULE_HEAD}\n{lines}\n\n"
            f"Against the best of {peers}: geometric mean {mean_gain(chosen)}.\n"
        )
    return "\n".join(parts) + starts(rows)


def rates(record: dict[str, Any]) -> str:
    """What the GPU reached: products, a multiply-add being two operations, and copies."""
    products = ", ".join(
        f"{name} {2e-12 * rate:.0f}" for name, rate in record["rates"].items() if name != "copy"
    )
    return f"{record['device']}: TFLOP/s {products}; copies {record['rates']['copy'] / 1e12:.2f} TB/s.\n\n"


def division(launch: dict[str, Any]) -> str:
    """A launch with its fastest division."""
    return f"{launch['kernel']} {launch['division'] or 'as the cost model says'}"


def tuning(record: dict[str, Any]) -> str:
    """The cost model's divisions beside the fastest: whole blocks, then their launches."""
    lines = []
    for row in record["rows"]:
        launches = row["launches"]
        times = "; ".join(f"{each['by_cost_model_ms']:.4f}, {each['tuned_ms']:.4f}" for each in launches)
        lines.append(
            f"| `{row['case']}` | {row['by_cost_model_ms']:.4f} | {row['tuned_ms']:.4f} | "
            f"{row['ratio']:.3f} | {times} | {'; '.join(map(division, launches))} |"
        )
    head = (
        "| | by the cost model | fastest | ratio | launches, both | fastest division |\n"
        "|---|---|---|---|---|---|\n"
    )
    mean = f"geometric mean {record['geometric_mean']:.3f}, worst {record['worst']:.3f}"
    return f"{record['cases']}, {len(lines)} rows, {mean}:\n\n{head}" + "\n".join(lines) + "\n"


def renewed(page: str) -> str:
    """The page with the tables of the records."""
    conv, held_out, reference = (
        json.loads((RECORDS / f"{name}.json").read_text()) for name in ("conv", "tune", "tune_reference")
    )
    parts = {
        "tables": rates(conv) + tables(conv["rows"]),
        "tuning": f"{tuning(held_out)}\n{tuning(reference)}",
    }
    for name, text in parts.items():
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->"
        before, rest = page.split(begin)
        _, after = rest.split(end)
        page = f"{before}{begin}\n{text}\n{end}{after}"
    return page


def main() -> None:
    """Replaces the tables of the page."""
    PAGE.write_text(renewed(PAGE.read_text()))


if __name__ == "__main__":
    main()
