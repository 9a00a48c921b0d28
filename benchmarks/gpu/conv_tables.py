#!/usr/bin/env python3
"""Writes the recorded times of convolution blocks on a GPU as tables into docs/conv-on-gpu.md.

    python3 benchmarks/gpu/conv_tables.py

Rows are those of benchmarks/results/h200/conv.json, by mode and layout, or what the program printed where it
was stopped before it wrote them, conv.txt; the page has two marks, and what stands between them is replaced.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "benchmarks" / "results" / "h200" / "conv.json"
PAGE = ROOT / "docs" / "conv-on-gpu.md"
BEGIN, END = "<!-- tables: begin -->\n", "<!-- tables: end -->"
HEAD = (
    "| | floor | fuseblock | times the floor | PyTorch's best | times as long | error | PyTorch's |\n"
    "|---|---|---|---|---|---|---|---|"
)
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
        gains = [min(row["peers"].values()) / row["fuseblock_ms"] for row in chosen]
        gain = math.exp(sum(map(math.log, gains)) / len(gains))
        peers = ", ".join(sorted({name for row in chosen for name in row["peers"]}))
        parts.append(
            f"{mode}, {layout}:\n\n{MODULE_HEAD}\n{lines}\n\n"
            f"Against the best of {peers}: geometric mean {gain:.2f} over {len(chosen)} rows.\n"
        )
    return "\n".join(parts) + starts(rows)


def printed(text: str) -> str:
    """What the program printed, as a table: times in us there, in ms here."""
    lines = []
    for line in text.splitlines()[2:]:
        name, mode, ours, floor, _, peer, _, *errors = line.split()
        cells = [f"{float(each) / 1e3:.4f}" for each in (floor, ours)]
        cells += [f"{float(ours) / float(floor):.2f}", f"{float(peer) / 1e3:.3f}"]
        cells += [f"{float(peer) / float(ours):.2f}", *errors]
        lines.append(f"| `{name}`, {mode} | {' | '.join(cells)} |")
    return f"{text.splitlines()[0]}.\n\n{HEAD}\n" + "\n".join(lines) + "\n"


def main() -> None:
    """Replaces the tables of the page."""
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    if RECORD.exists():
        text = tables(json.loads(RECORD.read_text())["rows"])
    else:
        text = printed(RECORD.with_suffix(".txt").read_text())
    PAGE.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


if __name__ == "__main__":
    main()
