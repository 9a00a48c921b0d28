"""Draws the figures of the documentation as SVG: boxes and arrows, and nothing else.

    python3 docs/figures/draw.py            writes the figures beside this file

What exists is a filled box, what is planned a dashed one. All colours are readable on a light and on a dark
page: text stands either on its own filled box or in a grey half-way between black and white.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

FILL = "#1f6feb"
ON_FILL = "#ffffff"
GREY = "#7d8590"
FONT = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"


@dataclass(frozen=True)
class Box:
    """A box with a title and a line below it, by its left upper corner."""

    title: str
    note: str
    x: int
    y: int
    width: int = 170
    height: int = 52
    planned: bool = False

    def svg(self) -> str:
        """The box and its text."""
        fill, stroke, colour = ("none", GREY, GREY) if self.planned else (FILL, FILL, ON_FILL)
        dashes = " stroke-dasharray='5 4'" if self.planned else ""
        middle = self.x + self.width // 2
        return (
            f"<rect x='{self.x}' y='{self.y}' width='{self.width}' height='{self.height}' rx='6' "
            f"fill='{fill}' stroke='{stroke}' stroke-width='1.5'{dashes}/>\n"
            f"<text x='{middle}' y='{self.y + 22}' fill='{colour}' font-size='15' font-weight='600' "
            f"text-anchor='middle'>{escape(self.title)}</text>\n"
            f"<text x='{middle}' y='{self.y + 40}' fill='{colour}' font-size='12' "
            f"text-anchor='middle'>{escape(self.note)}</text>\n"
        )

    @property
    def right(self) -> tuple[int, int]:
        """The middle of the right side."""
        return self.x + self.width, self.y + self.height // 2

    @property
    def left(self) -> tuple[int, int]:
        """The middle of the left side."""
        return self.x, self.y + self.height // 2

    @property
    def top(self) -> tuple[int, int]:
        """The middle of the upper side."""
        return self.x + self.width // 2, self.y

    @property
    def bottom(self) -> tuple[int, int]:
        """The middle of the lower side."""
        return self.x + self.width // 2, self.y + self.height


def arrow(*points: tuple[int, int], planned: bool = False) -> str:
    """A line through points with a head at its end."""
    path = " ".join(f"{'L' if i else 'M'}{x} {y}" for i, (x, y) in enumerate(points))
    dashes = " stroke-dasharray='5 4'" if planned else ""
    return (
        f"<path d='{path}' fill='none' stroke='{GREY}' stroke-width='1.5'{dashes} marker-end='url(#head)'/>\n"
    )


def label(text: str, x: int, y: int, anchor: str = "start") -> str:
    """A line of grey text."""
    return (
        f"<text x='{x}' y='{y}' fill='{GREY}' font-size='12' text-anchor='{anchor}'>{escape(text)}</text>\n"
    )


def legend(x: int, y: int) -> str:
    """What the two kinds of boxes mean."""
    return (
        f"<rect x='{x}' y='{y}' width='22' height='13' rx='3' fill='{FILL}'/>\n"
        + label("there today", x + 30, y + 11)
        + f"<rect x='{x + 118}' y='{y}' width='22' height='13' rx='3' fill='none' stroke='{GREY}' "
        f"stroke-width='1.5' stroke-dasharray='5 4'/>\n" + label("planned", x + 148, y + 11)
    )


def figure(title: str, width: int, height: int, *parts: str) -> str:
    """The whole document."""
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' width='{width}' "
        f"height='{height}' role='img' {FONT}>\n<title>{escape(title)}</title>\n"
        "<defs><marker id='head' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' "
        f"orient='auto'><path d='M0 0L8 4L0 8z' fill='{GREY}'/></marker></defs>\n"
        + "".join(parts)
        + "</svg>\n"
    )


def block_path() -> str:
    """From what a person writes to the engine that runs it."""
    ways = [
        Box("notation", "conv2d(64, k=3) | relu", 10, 10),
        Box("Builder", "the same in C++", 10, 72),
        Box("JSON", "from other programs", 10, 134),
        Box("captured graph", "PyTorch", 10, 196, planned=True),
    ]
    block = Box("Block", "what to compute", 220, 72)
    typed = Box("TypedBlock", "types known and checked", 430, 72)
    backward = Box("backward()", "gradients, a block again", 430, 196)
    plan = Box("Plan", "how, on one device", 640, 72)
    sweeps = Box("sweeps", "cut, rewrite, choose", 640, 196)
    engines = [
        Box("reference", "the oracle, in double", 850, 10, width=190),
        Box("cpu", "tiles, SIMD, threads", 850, 72, width=190),
        Box("cuda", "kernels compiled at run time", 850, 134, width=190),
    ]
    parts = [box.svg() for box in [*ways, block, typed, backward, plan, sweeps, *engines]]
    corner = 200
    for way in ways:
        x, y = way.right
        points = (
            [(x, y), (corner, y), (corner, block.left[1]), block.left]
            if y != block.left[1]
            else [(x, y), block.left]
        )
        parts.append(arrow(*points, planned=way.planned))
    parts += [arrow(block.right, typed.left), arrow(typed.right, plan.left)]
    x, top = typed.bottom
    parts += [arrow((x - 20, top), (x - 20, backward.y)), arrow((x + 20, backward.y), (x + 20, top))]
    x, top = plan.bottom
    parts += [
        arrow((x - 20, top), (x - 20, sweeps.y)),
        arrow((x + 20, sweeps.y), (x + 20, top)),
    ]
    corner = 830
    for engine in engines:
        x, y = engine.left
        points = (
            [plan.right, (corner, plan.right[1]), (corner, y), (x, y)]
            if y != plan.right[1]
            else [plan.right, (x, y)]
        )
        parts.append(arrow(*points, planned=engine.planned))
    parts.append(legend(836, 222))
    return figure("The path of a block", 1050, 258, *parts)


def folders() -> str:
    """Who may include whom."""
    public = Box("include/fuseblock", "the public API", 280, 10, width=210)
    block = Box("src/block", "words, types, adjoints", 190, 104)
    cli = Box("src/cli", "the command", 430, 104, width=120)
    c_api = Box("src/c_api", "for C", 580, 104, width=120)
    torch = Box("bindings/torch", "the only one to see torch", 740, 104, width=190)
    plan = Box("src/plan", "sweeps, plans, devices", 90, 198)
    reference = Box("src/reference", "the oracle", 290, 198)
    cpu = Box("src/cpu", "an engine", 10, 312, width=110)
    cuda = Box("src/cuda", "an engine", 140, 312, width=110)
    engines = Box("src/engines.cc", "lists the engines", 290, 312)
    x, y = plan.bottom
    parts = [box.svg() for box in (public, block, cli, c_api, torch, plan, reference, cpu, cuda, engines)]
    parts += [
        arrow((320, block.y), (320, public.bottom[1])),
        arrow((460, cli.y), (460, public.bottom[1])),
        arrow(c_api.top, (c_api.top[0], 30), (public.right[0], 30)),
        arrow(torch.top, (torch.top[0], 42), (public.right[0], 42)),
        arrow(
            plan.top, (plan.top[0], 177), (block.bottom[0] - 20, 177), (block.bottom[0] - 20, block.bottom[1])
        ),
        arrow(
            reference.top,
            (reference.top[0], 177),
            (block.bottom[0] + 20, 177),
            (block.bottom[0] + 20, block.bottom[1]),
        ),
        arrow(engines.top, reference.bottom),
        arrow((engines.x, 324), (270, 324), (270, 270), (x + 30, 270), (x + 30, y)),
        arrow(cpu.top, (cpu.top[0], 290), (x - 30, 290), (x - 30, y)),
        arrow(cuda.top, (cuda.top[0], 290), (x, 290), (x, y)),
        label("An arrow says: may include. Every folder of src/", 540, 324),
        label("may also include the public API and itself.", 540, 340),
    ]
    return figure("Who may include whom", 940, 374, *parts)


@dataclass(frozen=True)
class ConvPath:
    """How a kernel over a convolution moves its data: what stands in each place."""

    kernel: str
    brought: str  # by whom the input comes
    staged: tuple[str, str]
    weights: tuple[str, str]
    product: tuple[str, str]
    sums: str
    notes: tuple[str, str]

    def svg(self) -> str:
        """From memory through shared memory and registers to the sinks."""
        across = [10, 230, 450, 670, 890]
        width, upper, lower = 180, 34, 134
        source = Box("input", "with its halo", across[0], upper, width)
        parameters = Box("weights", "once a block or a tile", across[0], lower, width)
        staged = Box(*self.staged, across[1], upper, width)
        prepared = Box(*self.weights, across[1], lower, width)
        product = Box(*self.product, across[2], upper, width)
        sums = Box("sums", self.sums, across[3], upper, width)
        sinks = Box("program", "activation, norm, residual", across[4], upper, width)
        outputs = Box("sinks", "moments, reductions, stores", across[4], lower, width)
        boxes = (source, parameters, staged, prepared, product, sums, sinks, outputs)
        places = ("memory", "shared memory", "tensor cores", "registers", "registers")
        parts = [box.svg() for box in boxes]
        parts += [label(place, x + width // 2, 20, "middle") for place, x in zip(places, across, strict=True)]
        parts += [
            arrow(source.right, staged.left),
            arrow(parameters.right, prepared.left),
            arrow(staged.right, product.left),
            arrow(prepared.right, (product.bottom[0], prepared.right[1]), product.bottom),
            arrow(product.right, sums.left),
            arrow(sums.right, sinks.left),
            arrow(sinks.bottom, outputs.top),
            label(self.brought, across[1], 104),
            *(label(note, across[2] + 110, 156 + 18 * i) for i, note in enumerate(self.notes)),
        ]
        return figure(f"How the kernel {self.kernel} moves its data", 1080, 200, *parts)


CONV_PATHS = (
    ConvPath(
        "conv",
        "by all threads, a halo around each tile",
        ("halo tile", "[c][d][h][w], as in memory"),
        ("fragments", "in the lanes' order"),
        ("mma.sync", "16 positions x 8 channels"),
        "positions x channels of a lane",
        ("a tap is one offset for all positions;", "depth: channels and taps"),
    ),
    ConvPath(
        "conv_roll",
        "by all threads, the next beside this one",
        ("planes in turn", "rows of 16 bytes"),
        ("all filter depths", "rotated by the plane"),
        ("wgmma", "64 positions x all depths"),
        "a block for each depth",
        ("one plane is read for all depths of the filter;", "the depth that is done goes on"),
    ),
    ConvPath(
        "conv_wide",
        "by all threads, fetched beside products",
        ("two buffers", "cells of 16 bytes of channels"),
        ("stages ahead", "copied by cp.async"),
        ("ldmatrix, mma.sync", "positions x 128 channels"),
        "a warp's share of the tile",
        ("tap by tap, chunk of channels by chunk;", "tiles are full whatever the extents are"),
    ),
    ConvPath(
        "conv_deep",
        "by three warps, as far ahead as there are buffers",
        ("two to six stages", "cells of 16 bytes of channels"),
        ("rings of taps", "one warp, cp.async.bulk"),
        ("wgmma", "64 channels x 256 positions"),
        "of two warpgroups",
        ("consumers and producers meet at barriers", "in shared memory alone"),
    ),
)

FIGURES = {
    "block_path.svg": block_path,
    "folders.svg": folders,
    **{f"{path.kernel}.svg": path.svg for path in CONV_PATHS},
}


def main() -> None:
    """Writes the figures."""
    for name, draw in FIGURES.items():
        (Path(__file__).parent / name).write_text(draw())


if __name__ == "__main__":
    main()
