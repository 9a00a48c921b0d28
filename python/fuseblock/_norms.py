"""Norms as blocks: the notation and the tensors of `norm -> scale, shift -> residual -> act`.

What `nn` and `functional` share. Each function returns a block and the tensors to call it with. The block is

    act(norm(x) * (1 + scale) + shift + residual)

where what is not given is left out: scale and shift as AdaGN has them, the residual as ResNets have it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from fuseblock import _ops
from fuseblock._blocks import Block, block
from fuseblock.aten import DEFAULT_AXES

Prepared: TypeAlias = tuple[Block, tuple[Tensor, ...]]
# An operation's name and its items, such as ("group_norm", 4, 1e-05).
Call: TypeAlias = tuple[str | float, ...]

# PyTorch's activations by name, with what the notation calls them and their arguments.
_MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "ReLU": ("relu", ()),
    "LeakyReLU": ("leaky_relu", ("negative_slope",)),
    "ReLU6": ("relu6", ()),
    "ELU": ("elu", ("alpha",)),
    "SiLU": ("silu", ()),
    "Sigmoid": ("sigmoid", ()),
    "Hardsigmoid": ("hardsigmoid", ()),
    "Hardswish": ("hardswish", ()),
    "Hardtanh": ("hardtanh", ("min_val", "max_val")),
    "Tanh": ("tanh", ()),
    "GELU": ("gelu", ("approximate",)),
    "Mish": ("mish", ()),
    "Softplus": ("softplus", ("beta", "threshold")),
}


def act_text(act: str | torch.nn.Module | None) -> str | None:
    """An activation in the notation: text as it is, PyTorch's modules by their class and arguments."""
    if act is None or isinstance(act, str):
        return act
    name = type(act).__name__
    if name == "Identity":
        return None
    if name not in _MODULES:
        known = ", ".join([*_MODULES, "Identity"])
        raise NotImplementedError(f"act: expected notation such as 'silu' or one of {known}, got {name}")
    operation, arguments = _MODULES[name]
    items = [f"{key}={getattr(act, key)}" for key in arguments]
    return f"{operation}({', '.join(items)})" if items else operation


def checked_act(act: str | torch.nn.Module | None) -> str | None:
    """The same for a module, which refuses at its construction what is no notation."""
    text = act_text(act)
    if text is not None:
        _ops.handle_of(text, False)
    return text


def group_norm(
    x: Tensor,
    groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    act: str | None,
    residual: Tensor | None,
    scale: Tensor | None,
    shift: Tensor | None,
) -> Prepared:
    """Over each group of channels."""
    if weight is None and bias is None:
        return _prepared(("group_norm", groups, eps, "affine=false"), x, (), act, residual, scale, shift)
    affine = _both(weight, bias)
    return _prepared(("group_norm", groups, eps), x, affine, act, residual, scale, shift)


def instance_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    act: str | None,
    residual: Tensor | None,
    scale: Tensor | None,
    shift: Tensor | None,
) -> Prepared:
    """Over the positions of each channel."""
    if weight is None and bias is None:
        return _prepared(("instance_norm", eps), x, (), act, residual, scale, shift)
    affine = _both(weight, bias)
    return _prepared(("instance_norm", eps, "affine"), x, affine, act, residual, scale, shift)


def layer_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    dim: int | Sequence[int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    act: str | None,
    residual: Tensor | None,
    scale: Tensor | None,
    shift: Tensor | None,
) -> Prepared:
    """Over some dimensions."""
    axes = _axes("layer_norm", x, normalized_shape, dim)
    if weight is None and bias is None:
        return _prepared(("layer_norm", *axes, eps, "affine=false"), x, (), act, residual, scale, shift)
    if bias is None and weight is not None:
        return _prepared(("layer_norm", *axes, eps, "bias=false"), x, (weight,), act, residual, scale, shift)
    affine = _both(weight, bias)
    return _prepared(("layer_norm", *axes, eps), x, affine, act, residual, scale, shift)


def rms_norm(
    x: Tensor,
    normalized_shape: Sequence[int],
    dim: int | Sequence[int],
    weight: Tensor | None,
    eps: float | None,
    act: str | None,
    residual: Tensor | None,
    scale: Tensor | None,
    shift: Tensor | None,
) -> Prepared:
    """Root mean square, over some dimensions."""
    axes = _axes("rms_norm", x, normalized_shape, dim)
    spacing = "none" if eps is None else eps
    if weight is None:
        return _prepared(("rms_norm", *axes, spacing, "affine=false"), x, (), act, residual, scale, shift)
    return _prepared(("rms_norm", *axes, spacing), x, (weight,), act, residual, scale, shift)


def _both(weight: Tensor | None, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """Weight and bias where at least one of them is given; the other changes nothing."""
    if weight is not None and bias is not None:
        return weight, bias
    if weight is not None:
        return weight, torch.zeros_like(weight)
    assert bias is not None
    return torch.ones_like(bias), bias


def _axes(name: str, x: Tensor, normalized_shape: Sequence[int], dim: int | Sequence[int]) -> list[str]:
    """The letters of some dimensions, which must have the extents of `normalized_shape`."""
    dims = (dim,) if isinstance(dim, int) else tuple(dim)
    rank = x.dim()
    if rank >= len(DEFAULT_AXES) or any(not -rank <= each < rank for each in dims):
        raise ValueError(f"{name}: the input has {rank} dimensions, which do not fit dim={dim}")
    found = tuple(x.shape[each] for each in dims)
    if found != tuple(normalized_shape):
        raise ValueError(
            f"{name}: expected {list(normalized_shape)} at dim={dim}, got an input of shape {list(x.shape)}"
        )
    return [DEFAULT_AXES[rank][each] for each in dims]


def _prepared(
    call: Call,
    x: Tensor,
    parameters: tuple[Tensor, ...],
    act: str | None,
    residual: Tensor | None,
    scale: Tensor | None,
    shift: Tensor | None,
) -> Prepared:
    if residual is None and scale is None and shift is None:
        return _norm_block(call, act), (x, *parameters)
    tail = ""
    others: tuple[Tensor, ...] = ()
    if scale is not None:
        tail += " | mul(scale) | add(norm)"
        others += (_per_channel("scale", scale, x),)
    if shift is not None:
        tail += " | add(shift)"
        others += (_per_channel("shift", shift, x),)
    if residual is not None:
        tail += " | add(residual)"
        others += (residual,)
    return _norm_block(call, act, tail), (x, *others, *parameters)


def _norm_block(call: Call, act: str | None, tail: str = "") -> Block:
    # torch.compile would warn that it looks through a cache.
    return _make_block(call, act, tail) if torch.compiler.is_compiling() else _cached(call, act, tail)


def _make_block(call: Call, act: str | None, tail: str) -> Block:
    name, *items = call
    stage = f"{name}({', '.join([str(item) for item in items])}) as norm"
    notation = stage + tail + (f" | {act}" if act is not None else "")
    return block(notation)


_cached = functools.cache(_make_block)


def _per_channel(name: str, value: Tensor, x: Tensor) -> Tensor:
    """A scale or shift: of x's rank as it is, or [n,c] or [c] with dimensions of 1 for the positions."""
    if value.dim() == x.dim():
        return value
    if value.dim() not in (1, 2):
        expected = f"[n,c], [c] or {x.dim()} dimensions"
        raise ValueError(f"{name}: expected {expected}, got a tensor of shape {list(value.shape)}")
    return value[(..., *(None,) * (x.dim() - 2))]
