#!/usr/bin/env python3
"""Writes the recorded times of norms on a GPU as tables into docs/norms-on-gpu.md.

    python3 benchmarks/gpu/tables.py

Rows are those of benchmarks/results/h200/norms.json, by direction and layout; GroupNorm with SiLU forward
stands once more as its users call it, where that was timed, by each measure, with the means of its 16 rows,
which are printed, too. The page has two marks, and what stands between them is replaced.
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
# Of modules; benchmarks/gpu/gpu_timing.py says how each is taken.
MEASURES = {"called": "as called", "do_bench": "by triton.testing.do_bench"}
CALLED_TITLES = {
    "called": "As called, forward: modules under `no_grad`, the host's time included",
    "do_bench": "By `triton.testing.do_bench`, forward: medians of the same modules, the host's time "
    "included as far as it is more than emptying L2 takes",
}


def line(row: dict[str, Any]) -> str:
    """A row of a table."""
    ours, floor, peers = row["fuseblock_ms"], row["floor_ms"], row["peers"]
    compiled = f"{peers['torch.compile']:.3f}" if "torch.compile" in peers else "-"
    shape = ",".join(map(str, row["shape"]))
    cells = f"{floor:.4f} | {ours:.4f} | {ours / floor:.2f} | {peers['eager']:.3f} | {compiled}"
    return f"| {row['case']} {shape} | {cells} |"


def mean_gain(rows: list[dict[str, Any]], ours: str = "fuseblock_ms", peers: str = "peers") -> float:
    """The geometric mean of the best peer's times over ours."""
    gains = [min(row[peers].values()) / row[ours] for row in rows]
    return math.exp(sum(map(math.log, gains)) / len(gains))


def called_line(row: dict[str, Any], measure: str) -> str:
    """A row of a table of calls."""
    ours, peers = row[f"{measure}_ms"], row[f"{measure}_peers"]
    shape = ",".join(map(str, row["shape"]))
    cells = f"{ours:.4f} | {peers['eager']:.4f} | {peers['torch.compile']:.4f}"
    return f"| {row['case']} {shape}, {row['layout']} | {cells} | {min(peers.values()) / ours:.2f} |"


def called_means(rows: list[dict[str, Any]]) -> str:
    """Means of GroupNorm with SiLU forward over both layouts: as called, of the GPU alone, their limits."""
    chosen = [
        row
        for row in rows
        if (row["case"], row["direction"]) == ("group_norm_silu", "forward") and len(row["peers"]) == 2
    ]
    if not chosen:
        return ""
    told = []
    for measure, name in MEASURES.items():
        if called := with_calls(chosen, measure):
            gain = mean_gain(called, f"{measure}_ms", f"{measure}_peers")
            told.append(f"{name} {gain:.2f} over {len(called)} rows")
    limits = f"the floor {mean_gain(chosen, 'floor_ms'):.2f}"
    if all("copy_ms" in row for row in chosen):
        limits = f"PyTorch's copy of the input would reach {mean_gain(chosen, 'copy_ms'):.2f}, {limits}"
    else:
        limits = f"a copy at the floor would reach {mean_gain(chosen, 'floor_ms'):.2f}"
    told.append(f"in GPU times {mean_gain(chosen):.2f} over {len(chosen)} rows, where {limits}")
    what = "`group_norm_silu` forward, both layouts, against the better of eager and torch.compile"
    return f"{what}: geometric mean {'; '.join(told)}."


def with_calls(rows: list[dict[str, Any]], measure: str) -> list[dict[str, Any]]:
    """Rows of GroupNorm with SiLU whose calls were timed so, beside both peers."""
    return [
        row for row in rows if row["case"] == "group_norm_silu" and len(row.get(f"{measure}_peers", ())) == 2
    ]


def called_tables(rows: list[dict[str, Any]]) -> str:
    """Calls of modules, where they were timed, by each measure, and the means."""
    head = "| | fuseblock | eager | torch.compile | the better over fuseblock |\n|---|---|---|---|---|"
    parts = []
    for measure, title in CALLED_TITLES.items():
        if called := with_calls(rows, measure):
            lines = "\n".join(called_line(row, measure) for row in called)
            parts.append(f"{title}:\n\n{head}\n{lines}\n")
    if means := called_means(rows):
        parts.append(f"{means}\n")
    return "\n".join(parts)


def tables(rows: list[dict[str, Any]]) -> str:
    """All tables, with the mean gain of each over the better of the peers, then the calls."""
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
    return "\n".join([*parts, called_tables(rows)])


def main() -> None:
    """Replaces the tables of the page."""
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    rows = json.loads(RECORD.read_text())["rows"]
    rows.sort(key=lambda row: (row["case"], math.prod(row["shape"])))
    PAGE.write_text(f"{before}{BEGIN}\n{tables(rows)}\n{END}{after}")
    print(called_means(rows))


if __name__ == "__main__":
    main()
