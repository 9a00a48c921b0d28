"""Norms with what stands around them, the reference blocks, and any block, as functions.

Named and ordered as in torch.nn.functional; what fuseblock adds comes behind, by keyword.

>>> import torch, fuseblock
>>> x = torch.randn(2, 8, 16, 16)
>>> weight, bias = torch.ones(8), torch.zeros(8)
>>> y = fuseblock.functional.group_norm(x, 4, weight, bias, act="silu")
>>> expected = torch.nn.functional.silu(torch.nn.functional.group_norm(x, 4, weight, bias))
>>> torch.allclose(y, expected, atol=1e-5)
True
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from fuseblock import _norms
from fuseblock._blocks import block as shared_block
from fuseblock._norms import act_text

__all__ = [
    "block",
    "conv2d_gn_tanh_hardswish_residual_lse",
    "conv3d_gn_mean",
    "conv3d_hardswish_gn_mean",
    "conv_transpose3d_relu_gn",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "rms_norm",
]

Act = str | torch.nn.Module | None


def group_norm(
    input: Tensor,  # noqa: A002
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    act: Act = None,
    residual: Tensor | None = None,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
) -> Tensor:
    """`act(group_norm(input) * (1 + scale) + shift + residual)`; what is not given is left out.

    act: an activation as the notation writes it ('silu', 'leaky_relu(0.2)'), or a module of torch.nn.
    residual: added before the activation; of a shape that broadcasts with the input's.
    scale, shift: [n,c], [c], or as many dimensions as the input has.

    >>> x, skip = torch.randn(2, 8, 6, 6), torch.randn(2, 8, 6, 6)
    >>> group_norm(x, 4, act="relu", residual=skip).shape
    torch.Size([2, 8, 6, 6])
    """
    made, tensors = _norms.group_norm(
        input, num_groups, weight, bias, eps, act_text(act), residual, scale, shift
    )
    return cast(Tensor, made(*tensors))


def instance_norm(
    input: Tensor,  # noqa: A002
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,  # noqa: ARG001
    eps: float = 1e-5,
    *,
    act: Act = None,
    residual: Tensor | None = None,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
) -> Tensor:
    """`act(instance_norm(input) * (1 + scale) + shift + residual)`; see `group_norm`.

    Running statistics are not supported: NotImplementedError.

    >>> instance_norm(torch.randn(2, 3, 5, 5), act="leaky_relu(0.01)").shape
    torch.Size([2, 3, 5, 5])
    """
    if running_mean is not None or running_var is not None or not use_input_stats:
        raise NotImplementedError("instance_norm: running statistics are not supported")
    made, tensors = _norms.instance_norm(input, weight, bias, eps, act_text(act), residual, scale, shift)
    return cast(Tensor, made(*tensors))


def layer_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    dim: int | Sequence[int] = 1,
    act: Act = None,
    residual: Tensor | None = None,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
) -> Tensor:
    """`act(layer_norm(input) * (1 + scale) + shift + residual)`; see `group_norm`.

    dim: what is normalised: the channels unless given. `dim=-1` is what torch.nn.functional.layer_norm takes.

    >>> layer_norm(torch.randn(2, 8, 5, 5), 8, act="gelu").shape
    torch.Size([2, 8, 5, 5])
    """
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
    made, tensors = _norms.layer_norm(
        input, shape, dim, weight, bias, eps, act_text(act), residual, scale, shift
    )
    return cast(Tensor, made(*tensors))


def rms_norm(
    input: Tensor,  # noqa: A002
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
    *,
    dim: int | Sequence[int] = 1,
    act: Act = None,
    residual: Tensor | None = None,
    scale: Tensor | None = None,
    shift: Tensor | None = None,
) -> Tensor:
    """`act(rms_norm(input) * (1 + scale) + shift + residual)`; see `group_norm` and, for dim, `layer_norm`.

    >>> rms_norm(torch.randn(2, 8, 5, 5), 8, act="silu").shape
    torch.Size([2, 8, 5, 5])
    """
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else normalized_shape
    made, tensors = _norms.rms_norm(input, shape, dim, weight, eps, act_text(act), residual, scale, shift)
    return cast(Tensor, made(*tensors))


def conv3d_gn_mean(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor | None,
    num_groups: int,
    norm_weight: Tensor,
    norm_bias: Tensor,
    eps: float = 1e-5,
    *,
    keep: Sequence[str] = (),
) -> Tensor:
    """Convolution, group norm, mean over everything but the batch.

    >>> conv, norm = torch.nn.Conv3d(3, 8, 3), torch.nn.GroupNorm(2, 8)
    >>> x = torch.randn(2, 3, 5, 5, 5)
    >>> conv3d_gn_mean(x, conv.weight, conv.bias, 2, norm.weight, norm.bias).shape
    torch.Size([2])
    """
    tail = f"group_norm({num_groups}, eps={eps}) | mean(c,d,h,w)"
    return _after_convolution("conv3d", input, weight, bias, tail, norm_weight, norm_bias, keep)


def conv_transpose3d_relu_gn(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor | None,
    num_groups: int,
    norm_weight: Tensor,
    norm_bias: Tensor,
    eps: float = 1e-5,
    *,
    keep: Sequence[str] = (),
) -> Tensor:
    """Transposed convolution, ReLU, group norm.

    >>> conv, norm = torch.nn.ConvTranspose3d(3, 8, 3, bias=False), torch.nn.GroupNorm(2, 8)
    >>> x = torch.randn(2, 3, 5, 5, 5)
    >>> conv_transpose3d_relu_gn(x, conv.weight, None, 2, norm.weight, norm.bias).shape
    torch.Size([2, 8, 7, 7, 7])
    """
    tail = f"relu | group_norm({num_groups}, eps={eps})"
    return _after_convolution("conv_transpose3d", input, weight, bias, tail, norm_weight, norm_bias, keep)


def conv3d_hardswish_gn_mean(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor | None,
    num_groups: int,
    norm_weight: Tensor,
    norm_bias: Tensor,
    eps: float = 1e-5,
    *,
    keep: Sequence[str] = (),
) -> Tensor:
    """Convolution, hardswish, group norm, mean over the positions.

    >>> conv, norm = torch.nn.Conv3d(3, 8, 3), torch.nn.GroupNorm(2, 8)
    >>> x = torch.randn(2, 3, 5, 5, 5)
    >>> conv3d_hardswish_gn_mean(x, conv.weight, conv.bias, 2, norm.weight, norm.bias).shape
    torch.Size([2, 8])
    """
    tail = f"hardswish | group_norm({num_groups}, eps={eps}) | mean(d,h,w)"
    return _after_convolution("conv3d", input, weight, bias, tail, norm_weight, norm_bias, keep)


def conv2d_gn_tanh_hardswish_residual_lse(
    input: Tensor,  # noqa: A002
    weight: Tensor,
    bias: Tensor | None,
    num_groups: int,
    norm_weight: Tensor,
    norm_bias: Tensor,
    eps: float = 1e-5,
    *,
    keep: Sequence[str] = (),
) -> Tensor:
    """Convolution, group norm, tanh, hardswish, residual, logsumexp over the channels.

    >>> conv, norm = torch.nn.Conv2d(3, 8, 3), torch.nn.GroupNorm(2, 8)
    >>> x = torch.randn(2, 3, 5, 5)
    >>> y = conv2d_gn_tanh_hardswish_residual_lse(x, conv.weight, conv.bias, 2, norm.weight, norm.bias)
    >>> y.shape
    torch.Size([2, 1, 3, 3])
    """
    tail = f"group_norm({num_groups}, eps={eps}) | tanh | hardswish | add(conv) | logsumexp(c, keepdim)"
    return _after_convolution("conv2d", input, weight, bias, tail, norm_weight, norm_bias, keep)


def block(
    notation: str,
    input: Tensor,  # noqa: A002
    *others: Tensor,
    keep: Sequence[str] = (),
) -> Tensor | tuple[Tensor, ...]:
    """Any block (docs/notation.md); several outputs come as a tuple.

    others: the extra inputs, then the parameters, each kind in the order of first use.
    keep: kinds of operations that stay PyTorch's own, such as ("conv",).

    >>> x, skip = torch.randn(1, 4, 6, 6), torch.randn(1, 4, 6, 6)
    >>> block("group_norm(2, affine=false) | add(skip) | silu", x, skip).shape
    torch.Size([1, 4, 6, 6])
    """
    return shared_block(notation, keep)(input, *others)


def _after_convolution(
    convolution: str,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    tail: str,
    norm_weight: Tensor,
    norm_bias: Tensor,
    keep: Sequence[str],
) -> Tensor:
    """A convolution without stride and padding, by its weight, and what follows it."""
    channels = weight.shape[1 if "transpose" in convolution else 0]
    k = ",".join([str(extent) for extent in weight.shape[2:]])
    without_bias = ", bias=false" if bias is None else ""
    notation = f"{convolution}({channels}, k=({k}){without_bias}) as conv | {tail}"
    parameters = (weight, norm_weight, norm_bias) if bias is None else (weight, bias, norm_weight, norm_bias)
    return cast(Tensor, shared_block(notation, keep)(x, *parameters))
