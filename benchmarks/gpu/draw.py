#!/usr/bin/env python3
"""Draws the recorded times of norms on a GPU as SVG: how many times the floor each takes.

    python3 benchmarks/gpu/draw.py            writes docs/figures/norms_on_gpu.svg

A row is a block, a shape and a layout of benchmarks/results/h200/norms.json; its bars are fuseblock's,
torch.compile's and PyTorch's eager times over the floor, forward on the left, forward and backward on the
right, on a logarithmic scale; `:cl` is channels_last. All colours are readable on a light and on a dark page.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "benchmarks" / "results" / "h200" / "norms.json"
PICTURE = ROOT / "docs" / "figures" / "norms_on_gpu.svg"

GREY = "#7d8590"
FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"
# By whom, in the order of the bars of a row.
COLOURS = {"fuseblock": "#1f6feb", "torch.compile": "#d29922", "eager": "#8b949e"}
DTYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "f32", "float64": "f64"}
DIRECTIONS = {"forward": "forward", "forward+backward": "forward and backward"}
TICKS = (1, 2, 5, 10, 20, 50, 100, 200)

BAR = 9  # the height of a bar
ROW = len(COLOURS) * BAR + 9
LABELS = 370  # the width of the rows' names
PANEL = 330
GAP = 66  # between panels: room for the figure behind a bar
TOP = 92
TITLE_HEIGHT = 24


@dataclass
class Row:
    """The bars of one block, shape and layout: by direction, by whom, times the floor."""

    name: str
    shape: str
    times: dict[str, dict[str, float]] = field(default_factory=dict)


def rows_of(record: dict[str, Any]) -> list[Row]:
    """The rows of a record: by name and layout, small tensors first."""
    rows: dict[tuple[str, str], Row] = {}
    for entry in sorted(
        record["rows"],
        key=lambda each: (each["case"], each["layout"] != "contiguous", math.prod(each["shape"])),
    ):
        extents = ",".join(str(extent) for extent in entry["shape"])
        layout = ":cl" if entry["layout"] == "channels_last" else ""
        shape = f"{DTYPES[entry['dtype']]}[{extents}]{layout}"
        row = rows.setdefault((entry["case"], shape), Row(entry["case"], shape))
        took = {"fuseblock": entry["fuseblock_ms"], **entry["peers"]}
        row.times[entry["direction"]] = {who: took[who] / entry["floor_ms"] for who in COLOURS if who in took}
    return list(rows.values())


def text(x: float, y: float, words: str, anchor: str = "start", size: int = 12, colour: str = GREY) -> str:
    """A line of text."""
    return (
        f"<text x='{x:.1f}' y='{y:.1f}' fill='{colour}' font-size='{size}' text-anchor='{anchor}'>"
        f"{escape(words)}</text>\n"
    )


def figure_text(times: float) -> str:
    """`1.58`, `13.6`: three digits."""
    return f"{times:.2f}" if times < 10 else f"{times:.1f}" if times < 100 else f"{times:.0f}"


@dataclass(frozen=True)
class Scale:
    """A logarithmic axis from 1, where the floor is, to `most`."""

    left: float
    most: float

    def at(self, times: float) -> float:
        """Where a number of times the floor stands."""
        return self.left + PANEL * math.log(max(times, 1)) / math.log(self.most)


def axis(scale: Scale, title: str, bottom: float) -> Iterator[str]:
    """The panel's title, its lines and their figures."""
    yield text(scale.left, TOP - 30, title, size=14)
    for tick in TICKS:
        if tick > scale.most:
            break
        x = scale.at(tick)
        width = 1.5 if tick == 1 else 0.5
        yield (
            f"<path d='M{x:.1f} {TOP - 6}V{bottom:.1f}' stroke='{GREY}' stroke-width='{width}' "
            f"stroke-opacity='{1 if tick == 1 else 0.5}'/>\n"
        )
        yield text(x, TOP - 12, "floor" if tick == 1 else f"{tick}x", "middle", 11)


def bars(scale: Scale, times: dict[str, float], top: float) -> Iterator[str]:
    """The bars of a row in one direction, each with its figure."""
    for i, who in enumerate(COLOURS):
        if who not in times:
            continue
        y = top + i * BAR
        end = scale.at(times[who])
        yield (
            f"<rect x='{scale.left:.1f}' y='{y:.1f}' width='{max(end - scale.left, 1):.1f}' "
            f"height='{BAR - 1}' fill='{COLOURS[who]}'/>\n"
        )
        yield text(end + 4, y + BAR - 1, figure_text(times[who]), size=9)


def picture(record: dict[str, Any]) -> str:
    """The whole document."""
    rows = rows_of(record)
    height = TOP + ROW * len(rows) + 16
    width = LABELS + len(DIRECTIONS) * (PANEL + GAP)
    every = [times for row in rows for by in row.times.values() for times in by.values()]
    most = next((tick for tick in TICKS if tick >= max(every)), max(every))
    scales = {direction: Scale(LABELS + i * (PANEL + GAP), most) for i, direction in enumerate(DIRECTIONS)}
    parts = [
        text(
            10,
            TITLE_HEIGHT,
            f"{record['device']}: times over the floor, cold L2, logarithmic; shorter is better",
            size=15,
        )
    ]
    x = 10.0
    for who, colour in COLOURS.items():
        parts.append(f"<rect x='{x:.1f}' y='{TITLE_HEIGHT + 16}' width='18' height='10' fill='{colour}'/>\n")
        parts.append(text(x + 24, TITLE_HEIGHT + 25, who))
        x += 40 + 7 * len(who)
    for direction, title in DIRECTIONS.items():
        parts += axis(scales[direction], title, height - 12)
    for i, row in enumerate(rows):
        top = TOP + i * ROW
        middle = top + len(COLOURS) * BAR / 2 + 4
        parts.append(text(10, middle, row.name))
        parts.append(text(LABELS - 10, middle, row.shape, "end", 11))
        for direction, scale in scales.items():
            parts += bars(scale, row.times.get(direction, {}), top)
    title = f"Norms on an {record['device']}: times over the floor"
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' "
        f"height='{height}' role='img' {FONT}>\n<title>{escape(title)}</title>\n"
        + "".join(parts)
        + "</svg>\n"
    )


def main() -> None:
    """Writes the picture."""
    PICTURE.write_text(picture(json.loads(RECORD.read_text())))


if __name__ == "__main__":
    main()
