#!/usr/bin/env python3
"""Writes the recorded times of norms on a GPU as tables into docs/norms-on-gpu.md.

    python3 benchmarks/gpu/tables.py

Rows are those of benchmarks/results/h200/norms.json, by direction and layout; the page has two marks, and
what stands between them is replaced.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "benchmarks" / "results" / "h200" / "norms.json"
PAGE = ROOT / "docs" / "norms-on-gpu.md"
BEGIN, END = "<!-- tables: begin -->\n", "<!-- tables: end -->"
TITLES = {"forward": "Forward", "forward+backward": "Forward and backward, all gradients"}
LAYOUTS = {"contiguous": "contiguous", "channels_last": "channels_last"}


def line(row: dict[str, Any]) -> str:
    """A row of a table."""
    ours, floor, peers = row["fuseblock_ms"], row["floor_ms"], row["peers"]
    compiled = f"{peers['torch.compile']:.3f}" if "torch.compile" in peers else "-"
    shape = ",".join(map(str, row["shape"]))
    cells = f"{floor:.4f} | {ours:.4f} | {ours / floor:.2f} | {peers['eager']:.3f} | {compiled}"
    return f"| {row['case']} {shape} | {cells} |"


def mean_gain(rows: list[dict[str, Any]]) -> float:
    """The geometric mean of the best peer's times over ours."""
    gains = [min(row["peers"].values()) / row["fuseblock_ms"] for row in rows]
    return math.exp(sum(map(math.log, gains)) / len(gains))


def tables(rows: list[dict[str, Any]]) -> str:
    """All tables, with the mean gain of each over the better of the peers."""
    parts = []
    for direction, title in TITLES.items():
        for layout, name in LAYOUTS.items():
            chosen = [row for row in rows if row["direction"] == direction and row["layout"] == layout]
            if not chosen:
                continue
            head = (
                "| | floor | fuseblock | times the floor | eager | torch.compile |\n|---|---|---|---|---|---|"
            )
            lines = "\n".join(map(line, chosen))
            both = [row for row in chosen if len(row["peers"]) == 2]
            gain = f"{title} against the better of the two, where both were timed: geometric mean "
            gain += f"{mean_gain(both):.2f} over {len(both)} rows."
            parts.append(f"{title}, {name}:\n\n{head}\n{lines}\n\n{gain}\n")
    return "\n".join(parts)


def main() -> None:
    """Replaces the tables of the page."""
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    rows = json.loads(RECORD.read_text())["rows"]
    PAGE.write_text(f"{before}{BEGIN}\n{tables(rows)}\n{END}{after}")


if __name__ == "__main__":
    main()
