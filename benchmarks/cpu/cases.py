"""What is measured: each case is a PyTorch module, the same block as notation, and an input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.reference_blocks import BLOCKS, TAILS, GnSilu, ReferenceBlock, randomise

LAYOUTS = ("contiguous", "channels_last")
DIRECTIONS = ("forward", "forward+backward")
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}

GN_SILU_SHAPES = ((1, 128, 256, 256), (2, 320, 64, 64), (1, 32, 64, 64, 64))

# How much faster than the best of PyTorch a block should be: forward, forward+backward. Tails and norms are
# judged together, by the geometric mean of their ratios.
WANTED = {
    "conv3d_gn_mean": (2.0, 2.0),
    "conv3d_hardswish_gn_mean": (2.0, 1.7),
    "conv_transpose3d_relu_gn": (0.95, 0.95),
    "conv2d_gn_tanh_hardswish_residual_lse": (2.5, 3.5),
}
WANTED_TAILS_AND_NORMS = (2.0, 2.0)


def memory_format(rank: int, layout: str) -> torch.memory_format:
    """PyTorch's name of a layout."""
    if layout == "contiguous":
        return torch.contiguous_format
    return torch.channels_last if rank == 4 else torch.channels_last_3d


@dataclass(frozen=True)
class Case:
    """One block on one input."""

    name: str
    group: str  # blocks, tails, norms
    notation: str
    make_module: Callable[[], nn.Module]
    shape: tuple[int, ...]
    dtype: str
    layout: str  # of fuseblock's input
    peer_layouts: tuple[str, ...]  # of PyTorch's
    input_has_gradient: bool
    uniform: bool  # the input is uniform in [0, 1), else normal

    def module(self) -> nn.Module:
        """PyTorch's module with random gamma and beta, the same at every call."""
        torch.manual_seed(0)
        return randomise(self.make_module()).to(DTYPES[self.dtype])

    def input(self) -> Tensor:
        """The input, the same at every call, contiguous."""
        generator = torch.Generator().manual_seed(1)
        draw = torch.rand if self.uniform else torch.randn
        return draw(self.shape, generator=generator).to(DTYPES[self.dtype])

    def wanted_ratio(self, direction: str) -> float | None:
        """The ratio asked of this case by itself."""
        wanted = WANTED.get(self.name)
        return wanted[DIRECTIONS.index(direction)] if wanted else None


def cases(divide: int) -> Iterator[Case]:
    """All cases, the batch of the reference blocks divided by a number."""

    def reference(name: str, group: str, block: ReferenceBlock) -> Case:
        return Case(
            name=name,
            group=group,
            notation=block.notation,
            make_module=block.module,
            shape=(max(1, block.shape[0] // divide), *block.shape[1:]),
            dtype="f32",
            layout="contiguous",
            peer_layouts=LAYOUTS,
            input_has_gradient=group == "tails",
            uniform=group == "blocks",
        )

    for name, block in BLOCKS.items():
        yield reference(name, "blocks", block)
    for name, block in TAILS.items():
        yield reference(name, "tails", block)
    for shape in GN_SILU_SHAPES:
        for dtype in DTYPES:
            for layout in LAYOUTS:
                yield Case(
                    name="gn_silu_" + "x".join(str(extent) for extent in shape),
                    group="norms",
                    notation="group_norm(32) | silu",
                    make_module=partial(GnSilu, 32, shape[1]),
                    shape=shape,
                    dtype=dtype,
                    layout=layout,
                    peer_layouts=(layout,),
                    input_has_gradient=True,
                    uniform=False,
                )
