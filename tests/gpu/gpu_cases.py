"""The cases of tests/cases and tests/gpu as rows to run: one for each type and layout of a case.

A case is a line of notation and types (tests/cases/README.md). Those of tests/gpu/variants.cases run in every
type and layout, those of tests/gpu/each_element.cases in every type; so do those of tests/gpu/conv.cases,
tests/gpu/integer.cases, tests/gpu/infinite.cases and tests/gpu/range.cases, f32 in both modes. Of the others
each runs in one type and one layout, in turn. Some run once more with divisions that a GPU chooses for much
larger tensors alone, or with kernels that it leaves to other architectures.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DTYPES = ("f32", "bf16", "f16", "f64")
LAYOUTS = ("contiguous", "channels_last", "strided")
# Divisions of the kernel `slices` (FUSEBLOCK_SLICES) by the case that they fit: chunks that are read
# again, in one block and in a team, dealt out forward in 16 bits, in one round and in several, with a ragged
# end; a team of more than 32 blocks that hands over groups; four blocks of a multiprocessor; a unit begun
# before the one before it is ended; one wide block. In 16 bits with chunks in registers: dealt out, with
# and without a lead, on chip in teams and alone, groups that are no whole vectors, rows packed into warps.
# Clusters (`slices_cluster`): statistics of groups and of channels, twice, of rows of several positions, in
# many clusters, blocks without a row, inputs that are read where they lie, sigmoids whose pairs do not hold.
# Whole samples (`slices_whole`): groups that begin inside of vectors and not, blocks without positions, one
# vector of a thread in registers, a scale and a shift.
SLICES = (
    ("gpu_group_norm_silu", "channels=320,team=3,ring=4,pieces=1"),
    ("gpu_group_norm_silu", "team=1,ring=3,pieces=1"),
    ("gpu_group_norm_silu", "channels=320,threads=512,blocks=1,cluster=1"),
    ("gpu_group_norm_team", "channels=16,team=40,pieces=2,threads=64,blocks=4,ring=3"),
    ("gpu_slices_batch", "channels=16,team=2,pieces=1,threads=32,blocks=2,ring=4"),
    ("gpu_slices_batch", "channels=16,team=3,pieces=1,threads=32,blocks=1,ring=3,own=1"),
    ("gpu_slices_batch", "channels=16,team=2,pieces=1,ahead=1"),
    ("gpu_slices_batch", "channels=16,team=1,pieces=1,ring=3,ahead=0"),
    ("gpu_slices_batch", "channels=16,team=2,pieces=1,threads=32,blocks=2,ring=3,registers=2,spare=1,lead=1"),
    ("gpu_slices_batch", "channels=16,team=2,pieces=1,threads=32,blocks=2,ring=9,registers=3"),
    ("gpu_group_norm_team", "channels=16,team=40,pieces=2,threads=64,blocks=4,ring=3,registers=1,lead=1"),
    ("gpu_slices_held", "channels=32,team=4,pieces=2,threads=64,blocks=1,ring=4,registers=2,spare=1,lead=30"),
    ("gpu_slices_held", "channels=32,team=4,pieces=2,threads=64,blocks=1,ring=4,registers=1,lead=1"),
    ("gpu_slices_held", "channels=32,team=4,pieces=1,threads=64,blocks=1,ring=4,registers=2,lead=0"),
    ("gpu_slices_held", "channels=32,team=1,pieces=4,threads=96,blocks=1,registers=5"),
    ("gpu_slices_held_three", "channels=24,team=3,pieces=1,threads=64,blocks=1,ring=3,registers=2,lead=1"),
    ("gpu_slices_held_ten", "channels=40,team=3,pieces=1,threads=64,blocks=1,ring=3,registers=2"),
    ("gpu_slices_held_ten", "channels=40,team=2,pieces=1,threads=64,blocks=1,ring=12,registers=2,packed=1"),
    ("gpu_slices_held_three", "channels=24,team=3,pieces=1,threads=64,blocks=1,ring=3,registers=2,packed=1"),
    ("gpu_group_norm_silu", "channels=320,team=3,pieces=2,threads=96,blocks=1,ring=3,registers=1,packed=1"),
    ("gpu_group_norm_silu", "cluster=8"),
    ("gpu_group_norm_twice", "cluster=2"),
    ("gpu_large_mean", "cluster=4,pieces=2"),
    ("gpu_slices_three", "cluster=4"),
    ("gpu_slices_batch", "cluster=2"),
    ("gpu_slices_mask", "cluster=8,pieces=1"),
    ("gpu_registers_far", "cluster=2"),
    ("gpu_group_norm_silu", "whole=1,team=5"),
    ("gpu_slices_held_ten", "whole=1,team=3"),
    ("gpu_slices_held_three", "whole=1,team=40,registers=1"),
    ("gpu_slices_held", "whole=1,team=4,threads=640,registers=1"),
    ("gpu_adagn", "whole=1,team=2"),
    ("gpu_relu_gn", "whole=1"),
    ("gpu_registers_far", "whole=1,team=3"),
)
# Divisions of the kernel `rows` (FUSEBLOCK_ROWS) without barriers by the case that they fit: a team of two
# blocks and one block, many rounds; chunks as they lie and far apart; some in registers; whole channels;
# few copies at the start; several warps. Each also as racecheck understands it (tests/gpu/sanitize.py).
_AHEAD = (
    ("gpu_slices_batch", "ahead=1,team=2,blocks=1,pieces=1,threads=32"),
    ("gpu_slices_batch", "ahead=2,team=1,blocks=2,pieces=1,threads=64,apart=0"),
    ("gpu_slices_batch", "ahead=3,team=2,blocks=1,pieces=1,threads=32"),
    ("gpu_slices_batch", "ahead=1,team=2,blocks=1,pieces=1,threads=32,ring=3"),
    ("gpu_group_norm_silu", "ahead=1,team=4,blocks=1,pieces=1,threads=32,ring=12"),
    ("gpu_group_norm_silu", "ahead=1,team=4,blocks=1,pieces=1,threads=32,ring=6"),
    ("gpu_group_norm_silu", "ahead=2,team=4,blocks=1,pieces=1,threads=32,ring=24"),
    ("gpu_slices_batch", "ahead=3,team=2,blocks=1,pieces=1,threads=32,ring=16,begun=2"),
    ("gpu_group_norm_silu", "ahead=1,team=4,blocks=1,pieces=1,threads=32,ring=6,begun=1"),
    ("gpu_group_norm_silu", "ahead=2,team=3,blocks=1,pieces=1,threads=32,ring=24,begun=3"),
    ("gpu_group_norm_silu", "ahead=2,team=2,blocks=1,pieces=1,threads=128,ring=16"),
)
ROWS = (*_AHEAD, *((name, f"{division},barriers=1") for name, division in _AHEAD))
# Divisions of the kernel `rows_registers` (FUSEBLOCK_ROWS) by the case that they fit: a block and clusters,
# threads with as many vectors as others and not, blocks without any, more units than are at work at once,
# sigmoids whose pairs do not hold. f64 has `rows` there.
REGISTERS = (
    ("gpu_group_norm_silu", "cluster=1,threads=96"),
    ("gpu_group_norm_silu", "cluster=2,threads=160"),
    ("gpu_group_norm_silu", "cluster=8,threads=128"),
    ("gpu_adagn", "cluster=2,threads=64"),
    ("gpu_instance_norm_leaky", "cluster=1,threads=64"),
    ("gpu_large_mean", "cluster=4,threads=64"),
    ("gpu_relu_gn", "cluster=2,blocks=2,threads=96"),
    ("gpu_registers_batch", "cluster=1,blocks=4,threads=96"),
    ("gpu_registers_batch", "cluster=2,blocks=2,threads=64"),
    ("gpu_registers_far", "cluster=1,threads=64"),
    ("gpu_registers_far", "cluster=2,threads=96"),
    ("infinite_group_norm_silu", "cluster=1,threads=64"),
    ("infinite_group_norm_silu", "cluster=2,threads=64"),
)
# What kernels `plain` are tested with: one sweep and several, one input and two, single elements around
# vectors, groups within a unit, a large mean, channels that several blocks share.
PLAIN = (
    "gpu_hardswish_gn_mean",
    "gpu_gn_mean_all",
    "gpu_relu_gn",
    "gpu_group_norm_odd",
    "gpu_group_norm_twice",
    "gpu_group_norm_team",
    "gpu_large_mean",
    "gpu_tanh_hardswish_residual_lse",
)
# Wishes of convolutions (FUSEBLOCK_CONV) by the case that they fit: `conv`, as other architectures have it,
# where `conv_roll` takes the convolution; rows of the image as depths and not; several products a warpgroup;
# `conv_wide` in place of `conv_deep`, whose products have few positions or many.
CONV = (
    ("gpu_conv3d_gn_mean", "roll=0"),
    ("gpu_conv3d_hardswish_gn_mean", "roll=0"),
    ("gpu_conv2d_gn_lse", "roll=0"),
    ("gpu_conv2d_residual", "roll=0"),
    ("gpu_conv1d_tiles", "roll=0"),
    ("gpu_roll_image", "fold=0"),
    ("gpu_roll_image", "fold=1"),
    ("gpu_roll_rows", "threads=128,rows=2"),
    ("gpu_roll_windows", "threads=256,rows=4"),
    ("gpu_roll_taps", "threads=256,rows=2,squads=2"),
    ("gpu_roll_taps_vectors", "threads=128,rows=2"),
    ("gpu_roll_rounds", "rounds=4"),
    ("gpu_roll_rounds_far", "rounds=4"),
    ("gpu_roll_rounds_flat", "rounds=4"),
    ("gpu_roll_rounds_flat", "threads=128,rounds=8"),
    ("gpu_roll_rounds_tangent", "rounds=4"),
    ("gpu_roll_rounds_tangent_less", "rounds=4"),
    ("gpu_roll_rounds_tangent_far", "rounds=4"),
    ("gpu_roll_rounds_pad", "threads=128,rounds=4"),
    ("gpu_roll_rounds_stored", "rounds=4"),
    ("integer_few_rounds", "rounds=4"),
    ("infinite_roll_rounds", "rounds=4"),
    ("infinite_roll_tangent", "rounds=4"),
    ("gpu_wide_conv3d_instance_norm", "deep=0"),
    ("gpu_wide_conv2d_gn_silu", "deep=0"),
    ("gpu_wide_conv2d_gn_mean", "deep=0"),
    ("gpu_deep_transpose3d_relu_gn", "deep=0"),
    ("gpu_deep_transpose3d_relu_gn", "columns=32"),
    ("gpu_deep_conv2d_blocks", "columns=144"),
)
# What inputs and weights of tests/gpu/range.cases are multiplied by, beyond the range of f16: all elements,
# all weights, those of each input channel and of each output channel.
RANGES = {
    "large": (3e6, 1.0, 1.0, 1.0),
    "small": (2e-7, 1.0, 1.0, 1.0),
    "tiny": (3e-12, 1.0, 1.0, 1.0),
    "weights": (1.0, 1e-9, 1.0, 1.0),
    "channels": (1.0, 1.0, 1e-5, 1e-3),
}
# Gradients without a kernel on a GPU: by a convolution's weight, and through padding that repeats elements.
_NO_KERNEL = re.compile(r"\b(conv\w*|linear)_grad_weight|_grad_input\(.*pad_mode")
_CONVOLUTIONS = re.compile(r"\b(conv|linear)")


@dataclass(frozen=True)
class Case:
    """A line of a .cases file."""

    name: str
    block: str
    types: dict[str, str]
    """By argument, `x` first."""


@dataclass(frozen=True)
class Row:
    """A case in one type and layout."""

    case: Case
    dtype: str
    layout: str
    each_element: bool = False
    """Whether the output is compared element by element, over a wide range of inputs, and nothing else."""
    slices: str = ""
    """What FUSEBLOCK_SLICES is."""
    rows: str = ""
    """What FUSEBLOCK_ROWS is."""
    conv: str = ""
    """What FUSEBLOCK_CONV is."""
    mode: str = "strict"
    """Of f32 convolutions: strict or tf32."""
    integers: bool = False
    """Whether the arguments are small integers, and results exact."""
    infinite: bool = False
    """Whether some elements of the input are infinite or NaN."""
    range: str = ""
    """A name of RANGES."""
    plain: bool = False
    """Whether kernels `plain` are wished for."""
    seeds: int = 2
    """Draws of random numbers over which errors are pooled."""

    @property
    def name(self) -> str:
        """The case, and the division and the mode where the row has one."""
        mode = "" if self.mode == "strict" else self.mode
        plain = "plain" if self.plain else ""
        parts = (self.slices, self.rows, self.conv, mode, self.range, plain)
        return self.case.name + "".join(f"[{part}]" for part in parts if part)

    @property
    def key(self) -> str:
        """What tells it from other rows."""
        return f"{self.name} {self.dtype} {self.layout}"

    def type_of(self, name: str) -> str:
        """The type of an argument, as the notation writes it."""
        text = re.sub(r"^[a-z0-9]+", self.dtype, self.case.types[name]).removesuffix(":cl")
        same = _extents(text) == _extents(self.case.types["x"])
        return text + (":cl" if self.layout == "channels_last" and same else "")


def _extents(text: str) -> str:
    return text[text.index("[") : text.index("]") + 1]


def _rank(case: Case) -> int:
    return _extents(case.types["x"]).count(",") + 1


def read_cases(path: Path) -> Iterator[Case]:
    """The cases of a file that have elements and kernels."""
    for line in path.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, rest = line.split(":", 1)
        block, types = rest.rsplit(" @ ", 1)
        parts = re.split(r",\s*(?![^\[]*\])", types)
        named = {"x": parts[0].strip()}
        named.update((part.split("=", 1)[0].strip(), part.split("=", 1)[1].strip()) for part in parts[1:])
        if not _NO_KERNEL.search(block) and not any(
            re.search(r"[\[,]0[,\]]", each) for each in named.values()
        ):
            yield Case(name.strip(), block.strip(), named)


def _tf32_rows(case: Case) -> list[Row]:
    layouts = ("contiguous", "channels_last") if _rank(case) in (4, 5) else ("contiguous",)
    return [Row(case, "f32", layout, mode="tf32") for layout in layouts]


def rows() -> list[Row]:
    """All rows, those of the variants first."""
    found = []
    for case in read_cases(ROOT / "tests" / "gpu" / "variants.cases"):
        layouts = LAYOUTS if _rank(case) in (4, 5) else ("contiguous", "strided")
        found += [Row(case, *pair) for pair in itertools.product(DTYPES, layouts)]
        for name, slices in SLICES:
            if name == case.name:
                found += [Row(case, dtype, "channels_last", slices=slices) for dtype in DTYPES]
        for name, division in (*ROWS, *REGISTERS):
            if name == case.name:
                found += [Row(case, dtype, "contiguous", rows=division) for dtype in DTYPES]
        for name, wishes in CONV:
            if name == case.name:
                pairs = itertools.product(("f32", "bf16", "f16"), layouts)
                found += [Row(case, *pair, conv=wishes) for pair in pairs]
                found.append(Row(case, "f32", "contiguous", conv=wishes, mode="tf32"))
        if _CONVOLUTIONS.search(case.block):
            found += _tf32_rows(case)
    for case in read_cases(ROOT / "tests" / "gpu" / "conv.cases"):
        layouts = LAYOUTS if _rank(case) in (4, 5) else ("contiguous", "strided")
        found += [Row(case, *pair) for pair in itertools.product(DTYPES, layouts)] + _tf32_rows(case)
    for case in read_cases(ROOT / "tests" / "gpu" / "integer.cases"):
        found += [Row(case, dtype, "contiguous", integers=True) for dtype in DTYPES]
        for wishes in ["", *(wishes for name, wishes in CONV if name == case.name)]:
            found.append(Row(case, "f32", "contiguous", mode="tf32", integers=True, conv=wishes))
    for case in read_cases(ROOT / "tests" / "gpu" / "infinite.cases"):
        found += [Row(case, dtype, "contiguous", infinite=True) for dtype in DTYPES]
        for wishes in ["", *(wishes for name, wishes in CONV if name == case.name)]:
            found.append(Row(case, "f32", "contiguous", mode="tf32", infinite=True, conv=wishes))
        for division in (division for name, division in REGISTERS if name == case.name):
            found += [Row(case, dtype, "contiguous", infinite=True, rows=division) for dtype in DTYPES]
    for case in read_cases(ROOT / "tests" / "gpu" / "range.cases"):
        for name, (dtype, mode) in itertools.product(
            RANGES, (("f32", "strict"), ("f32", "tf32"), ("bf16", "strict"))
        ):
            found.append(Row(case, dtype, "contiguous", mode=mode, range=name))
    each = list(read_cases(ROOT / "tests" / "gpu" / "each_element.cases"))
    found += [Row(case, dtype, "contiguous", each_element=True) for case in each for dtype in DTYPES]
    turns = {True: 0, False: 0}  # of blocks with convolutions, and of others
    for path in sorted((ROOT / "tests" / "cases").glob("*.cases")):
        for case in read_cases(path):
            convolves = bool(_CONVOLUTIONS.search(case.block))
            turn = turns[convolves]
            layout = LAYOUTS[turn % 2] if _rank(case) in (4, 5) else "contiguous"
            found.append(Row(case, DTYPES[turn // 2 % 4], layout))
            turns[convolves] += 1
    return found


def plain_rows() -> list[Row]:
    """Cases that kernels `plain` can do, by these; other layouts by those that stand in for them."""
    cases = {case.name: case for case in read_cases(ROOT / "tests" / "gpu" / "variants.cases")}
    found = [cases[name] for name in PLAIN] + list(read_cases(ROOT / "tests" / "gpu" / "plain.cases"))
    return [Row(case, "f32", layout, plain=True) for case in found for layout in LAYOUTS]


def random_rows() -> list[Row]:
    """The random blocks, without convolutions and with them, each in one type and layout, in turn."""
    found = []
    for name in ("random.cases", "random_conv.cases"):
        for turn, case in enumerate(read_cases(ROOT / "tests" / "gpu" / name)):
            layouts = LAYOUTS if _rank(case) in (4, 5) else ("contiguous", "strided")
            # Some of their tensors have one or two numbers, whose true value may be 0: of so few roundings
            # the largest error is a matter of luck, PyTorch's as ours.
            found.append(Row(case, DTYPES[turn % 4], layouts[turn // 4 % len(layouts)], seeds=8))
    return found


def with_casts_to(graph: dict[str, object], dtype: str) -> str:
    """A block's JSON with its casts to another type."""
    text = json.dumps(graph)
    copy = json.loads(text)
    for statement in copy["statements"]:
        if statement.get("op") == "cast":
            statement["args"]["dtype"] = dtype
    return json.dumps(copy)
