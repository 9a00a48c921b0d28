"""What checks of the PyTorch operations on CUDA tensors have in common, and the list of them.

A check is a function of the device; it raises where something is wrong and may give fields for its record.
What needs a GPU raises NeedsGpu elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from fuseblock._blocks import block
from torch import Tensor
from torch.nn import functional

Fields = dict[str, Any] | None


class NeedsGpu(Exception):  # noqa: N818
    """The check says nothing on this device."""


@dataclass(frozen=True)
class Check:
    """A check, and the type and layout that its record names."""

    run: Callable[[str], Fields]
    dtype: str = "f32"
    layout: str = "contiguous"


CHECKS: dict[str, Check] = {}


def check(dtype: str = "f32", layout: str = "contiguous") -> Callable[[Callable[[str], Fields]], Any]:
    """Adds a function to the list."""

    def add(function: Callable[[str], Fields]) -> Callable[[str], Fields]:
        CHECKS[function.__name__] = Check(function, dtype, layout)
        return function

    return add


def as_tuple(result: Any) -> tuple[Tensor, ...]:
    """The outputs as a tuple."""
    return result if isinstance(result, tuple) else (result,)


def needs_gpu(device: str, count: int = 1) -> None:
    """Ends a check that says nothing here."""
    if device != "cuda":
        raise NeedsGpu("needs a GPU")
    if torch.cuda.device_count() < count:
        raise NeedsGpu(f"needs {count} GPUs")


def close(ours: Tensor, theirs: Tensor, ulps: float = 64) -> None:
    """A loose comparison, for checks of what runs rather than of how exact it is."""
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    ours, theirs = ours.detach(), theirs.detach()
    scale = float(theirs.abs().max())
    error = float((ours.double() - theirs.double()).abs().max())
    assert error <= ulps * torch.finfo(ours.dtype).eps * (1 + scale), (error, scale)


def of(notation: str) -> Callable[..., Any]:
    """A block, which may give one tensor or several."""
    return block(notation)


def gn(groups: int = 8, act: str = "silu") -> Callable[..., Any]:
    """A group norm and an activation, as a block."""
    return of(f"group_norm({groups}) | {act}")


def tensors(device: str, *shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> list[Tensor]:
    """An input with weight and bias of its channels."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator)
    weight, bias = (
        1 + 0.3 * torch.randn(shape[1], generator=generator),
        torch.randn(shape[1], generator=generator),
    )
    return [each.to(device=device, dtype=dtype) for each in (x, weight, bias)]


def group_norm_silu(x: Tensor, weight: Tensor, bias: Tensor, groups: int = 8) -> Tensor:
    """The same by PyTorch's functions."""
    return functional.silu(functional.group_norm(x, groups, weight, bias))
