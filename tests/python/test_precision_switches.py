"""Which of PyTorch's switches choose tf32 for the convolutions of a block on a GPU; no GPU is needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from fuseblock._blocks import Block
from fuseblock._ops import TF32_ALLOWED

backends: Any = torch.backends
cudnn: Any = torch.backends.cudnn
matmul: Any = torch.backends.cuda.matmul


@pytest.fixture(autouse=True)
def _switches() -> Iterator[None]:
    """The switches as they were."""
    before = (cudnn.conv.fp32_precision, matmul.fp32_precision, backends.fp32_precision)
    yield
    backends.fp32_precision = before[2]
    matmul.fp32_precision = before[1]
    cudnn.conv.fp32_precision = before[0]


def tf32(notation: str) -> bool:
    """Whether a block's convolutions would round to tf32 now."""
    made = Block(notation)
    made._register()
    assert made._graph.convolves
    return made._mode() == TF32_ALLOWED


def test_convolutions_follow_cudnn() -> None:
    """Each of its switches, the newer ones before the general one."""
    cudnn.allow_tf32 = False
    assert not tf32("conv2d(8, k=3) | relu")
    cudnn.allow_tf32 = True
    assert tf32("conv2d(8, k=3) | relu")
    cudnn.conv.fp32_precision = "ieee"
    assert not tf32("conv2d(8, k=3) | relu")
    backends.fp32_precision = "tf32"
    assert not tf32("conv_transpose3d(8, k=3)")
    cudnn.conv.fp32_precision = "none"
    assert tf32("conv_transpose3d(8, k=3)")
    backends.fp32_precision = "ieee"
    assert not tf32("conv1d(8, k=3)")


def test_linear_follows_matrix_products() -> None:
    """A block with both rounds where both switches say so."""
    cudnn.conv.fp32_precision = "tf32"
    matmul.fp32_precision = "ieee"
    assert not tf32("linear(8) | relu")
    assert tf32("conv2d(8, k=3)")
    assert not tf32("y = conv2d(x, 8, k=3); m = mean(y, h,w); z = linear(m, 4); return z")
    matmul.fp32_precision = "tf32"
    assert tf32("y = conv2d(x, 8, k=3); m = mean(y, h,w); z = linear(m, 4); return z")


def test_autocast_needs_no_more_than_tf32() -> None:
    """What would be rounded to 16 bits may be rounded to tf32."""
    cudnn.conv.fp32_precision = "ieee"
    made = Block("conv2d(8, k=3) | group_norm(2)")
    made._register()
    arguments = [torch.randn(1, 3, 6, 6), torch.randn(8, 3, 3, 3), *[torch.ones(8)] * 3]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = made._for_autocast(arguments)
    cast._register()
    assert made._mode() == 0
    assert cast._mode() == TF32_ALLOWED


def test_blocks_without_convolutions_ask_nothing() -> None:
    """A norm has no mode."""
    made = Block("group_norm(2) | silu")
    made._register()
    assert not made._graph.convolves
