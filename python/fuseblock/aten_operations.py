"""The operations of the catalogue on labelled tensors, by PyTorch's own functions wherever it has them.

`OPERATIONS` maps a name to a function of the operands, parameters included, and of the arguments as a block's
JSON has them. The gradients of linear maps (`conv2d_grad_input`, `avg_pool_grad`, ...) are taken by autograd
from the maps themselves, so that they cannot disagree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

AXES = "ncdhw"
DTYPES = {"f64": torch.float64, "f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}

Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class Value:
    """A tensor and the letters of its dimensions, always in the order n c d h w."""

    tensor: Tensor
    axes: str

    def dims(self, axes: Iterable[str]) -> tuple[int, ...]:
        """The dimensions of some axes."""
        return tuple(self.axes.index(axis) for axis in axes)

    def aligned(self, axes: str) -> Tensor:
        """The tensor with a dimension for each of `axes`, of extent 1 where the value has none."""
        tensor = self.tensor
        for i, axis in enumerate(axes):
            if axis not in self.axes:
                tensor = tensor.unsqueeze(i)
        return tensor

    @property
    def spatial_rank(self) -> int:
        """How many of d, h, w the value has."""
        return sum(axis in "dhw" for axis in self.axes)


Operation = Callable[[Sequence[Value], Arguments], Value]


def union(values: Iterable[Value]) -> str:
    """The axes that any of the values has."""
    present = {axis for value in values for axis in value.axes}
    return "".join(axis for axis in AXES if axis in present)


def _spread(argument: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """One whole number for each of `rank` spatial axes."""
    return (argument,) * rank if isinstance(argument, int) else tuple(argument)


def _tensors(values: Sequence[Value], count: int) -> list[Tensor | None]:
    """The tensors of `count` operands of which the last may be absent."""
    return [values[i].tensor if i < len(values) else None for i in range(count)]


def _adjoint(function: Callable[[Tensor], Tensor], at: Tensor, d_y: Tensor) -> Tensor:
    """The gradient of `function` at a point, itself differentiable by everything that goes in."""
    pull_back = torch.func.vjp(function, at)[1]
    gradient: Tensor = pull_back(d_y)[0]
    return gradient


# Pointwise operations: functions of tensors that broadcast and of the arguments. Infinities come as words.


def _hardsigmoid(x: Tensor) -> Tensor:
    # PyTorch's own gradient has the slope 1/6 in single precision, for tensors of doubles too.
    return F.hardtanh(x, -3, 3) / 6 + 0.5 if x.dtype == torch.float64 else F.hardsigmoid(x)


POINTWISE: dict[str, Callable[..., Tensor]] = {
    "relu": F.relu,
    "leaky_relu": F.leaky_relu,
    "relu6": F.relu6,
    "elu": F.elu,
    "sigmoid": torch.sigmoid,
    "silu": F.silu,
    "hardsigmoid": _hardsigmoid,
    "hardswish": F.hardswish,
    "hardtanh": lambda x, min_val, max_val: F.hardtanh(x, float(min_val), float(max_val)),
    "clamp": lambda x, **ends: torch.clamp(x, float(ends["min"]), float(ends["max"])),
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "softplus": lambda x, beta, threshold: F.softplus(x, float(beta), float(threshold)),
    "mish": F.mish,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "square": torch.square,
    "abs": torch.abs,
    "neg": torch.neg,
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
}


def _pointwise(function: Callable[..., Tensor]) -> Operation:
    def operation(operands: Sequence[Value], args: Arguments) -> Value:
        axes = union(operands)
        return Value(function(*(value.aligned(axes) for value in operands), **args), axes)

    return operation


# Convolutions: functions of input, weight, bias and arguments. The weight implies the argument `channels`.

Convolution = Callable[[Tensor, Tensor, Tensor | None, Arguments], Tensor]


def _convolution(rank: int, function: Callable[..., Tensor]) -> Convolution:
    def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, args: Arguments) -> Tensor:
        stride, dilation = _spread(args["stride"], rank), _spread(args["dilation"], rank)
        pad = args["pad"] if isinstance(args["pad"], str) else _spread(args["pad"], rank)
        if args["pad_mode"] != "zeros":
            x = F.pad(x, _pad_amounts(pad, weight.shape[2:], dilation), mode=args["pad_mode"])
            pad = "valid"
        return function(x, weight, bias, stride, pad, dilation, args["groups"])

    return convolve


def _pad_amounts(pad: str | Sequence[int], k: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Positions in front of and behind each spatial axis, the last axis first, as F.pad takes them."""
    amounts: list[int] = []
    for i in reversed(range(len(k))):
        around = dilation[i] * (k[i] - 1) if pad == "same" else 0
        in_front = around // 2 if isinstance(pad, str) else pad[i]
        behind = around - around // 2 if isinstance(pad, str) else pad[i]
        amounts += [in_front, behind]
    return amounts


def _transposed_convolution(rank: int, function: Callable[..., Tensor]) -> Convolution:
    def convolve(x: Tensor, weight: Tensor, bias: Tensor | None, args: Arguments) -> Tensor:
        names = ("stride", "pad", "output_pad", "dilation")
        stride, pad, output_pad, dilation = (_spread(args[name], rank) for name in names)
        return function(x, weight, bias, stride, pad, output_pad, args["groups"], dilation)

    return convolve


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None, _args: Arguments) -> Tensor:
    return F.linear(x, weight, bias)


CONVOLUTIONS: dict[str, Convolution] = {
    "conv1d": _convolution(1, F.conv1d),
    "conv2d": _convolution(2, F.conv2d),
    "conv3d": _convolution(3, F.conv3d),
    "conv_transpose1d": _transposed_convolution(1, F.conv_transpose1d),
    "conv_transpose2d": _transposed_convolution(2, F.conv_transpose2d),
    "conv_transpose3d": _transposed_convolution(3, F.conv_transpose3d),
    "linear": _linear,
}


def _forward(convolve: Convolution) -> Operation:
    def operation(operands: Sequence[Value], args: Arguments) -> Value:
        x, weight, *rest = operands
        (bias,) = _tensors(rest, 1)
        return Value(convolve(x.tensor, weight.tensor, bias, args), x.axes)

    return operation


def _grad_input(convolve: Convolution) -> Operation:
    def operation(operands: Sequence[Value], args: Arguments) -> Value:
        d_y, weight, like = operands
        at = torch.zeros_like(like.tensor)
        return Value(_adjoint(lambda x: convolve(x, weight.tensor, None, args), at, d_y.tensor), like.axes)

    return operation


def _grad_weight(convolve: Convolution) -> Operation:
    def operation(operands: Sequence[Value], args: Arguments) -> Value:
        d_y, x, like = operands
        at = torch.zeros_like(like.tensor)
        return Value(
            _adjoint(lambda weight: convolve(x.tensor, weight, None, args), at, d_y.tensor), like.axes
        )

    return operation


# Norms and softmax.


def _group_norm(operands: Sequence[Value], args: Arguments) -> Value:
    x, *affine = operands
    weight, bias = _tensors(affine, 2)
    return Value(F.group_norm(x.tensor, args["groups"], weight, bias, args["eps"]), x.axes)


def _instance_norm(operands: Sequence[Value], args: Arguments) -> Value:
    x, *affine = operands
    weight, bias = _tensors(affine, 2)
    return Value(F.instance_norm(x.tensor, weight=weight, bias=bias, eps=args["eps"]), x.axes)


def _batch_norm(operands: Sequence[Value], args: Arguments) -> Value:
    x, mean, var, *affine = operands
    weight, bias = _tensors(affine, 2)
    return Value(F.batch_norm(x.tensor, mean.tensor, var.tensor, weight, bias, eps=args["eps"]), x.axes)


def _over_last_axes(x: Value, axes: Sequence[str], function: Callable[[Tensor, list[int]], Tensor]) -> Value:
    """Moves axes to the end, applies a function of the tensor and their extents, and moves them back."""
    dims = x.dims(axes)
    order = [dim for dim in range(x.tensor.dim()) if dim not in dims] + list(dims)
    result = function(x.tensor.permute(order), [x.tensor.shape[dim] for dim in dims])
    return Value(result.permute([order.index(dim) for dim in range(len(order))]), x.axes)


def _layer_norm(operands: Sequence[Value], args: Arguments) -> Value:
    x, *affine = operands
    weight, bias = _tensors(affine, 2)

    def function(tensor: Tensor, shape: list[int]) -> Tensor:
        return F.layer_norm(tensor, shape, weight, bias, args["eps"])

    return _over_last_axes(x, args["axes"], function)


def _rms_norm(operands: Sequence[Value], args: Arguments) -> Value:
    x, *affine = operands
    (weight,) = _tensors(affine, 1)

    def function(tensor: Tensor, shape: list[int]) -> Tensor:
        return F.rms_norm(tensor, shape, weight, args["eps"])

    return _over_last_axes(x, args["axes"], function)


def _l2_normalize(operands: Sequence[Value], args: Arguments) -> Value:
    (x,) = operands
    dims: Any = x.dims(args["axes"])  # F.normalize takes several, though its type says one
    return Value(F.normalize(x.tensor, dim=dims, eps=args["eps"]), x.axes)


def _softmax(operands: Sequence[Value], args: Arguments) -> Value:
    (x,) = operands

    def function(tensor: Tensor, shape: list[int]) -> Tensor:
        flat = torch.softmax(tensor.flatten(-len(shape)), -1)
        return flat.reshape(tensor.shape)

    return _over_last_axes(x, args["axes"], function)


# Reductions: functions of (tensor, dim, keepdim).


def _reduction(function: Callable[..., Tensor]) -> Operation:
    def operation(operands: Sequence[Value], args: Arguments) -> Value:
        (x,) = operands
        reduced = args["axes"] or list(x.axes)
        if not reduced:
            return x
        if args.get("groups", 1) > 1:
            return _per_group(x, reduced, args["groups"], function)
        left = x.axes if args["keepdim"] else "".join(axis for axis in x.axes if axis not in reduced)
        return Value(function(x.tensor, dim=x.dims(reduced), keepdim=args["keepdim"]), left)

    return operation


def _per_group(x: Value, axes: Sequence[str], groups: int, function: Callable[..., Tensor]) -> Value:
    """A statistic of each group of channels, standing at every channel of its group."""
    c = x.axes.index("c")
    shape = x.tensor.shape
    size = shape[c] // groups
    split = x.tensor.reshape(*shape[:c], groups, size, *shape[c + 1 :])
    dims = [dim if dim < c else dim + 1 for dim in x.dims(axes)]
    statistic = function(split, dim=dims, keepdim=True)
    return Value(statistic.repeat_interleave(size, c + 1).flatten(c, c + 1), x.axes)


def _rstd(operands: Sequence[Value], args: Arguments) -> Value:
    (x,) = operands

    def function(tensor: Tensor, dim: Sequence[int], keepdim: bool) -> Tensor:
        return torch.rsqrt(torch.var(tensor, list(dim), correction=0, keepdim=keepdim) + args["eps"])

    if args["groups"] > 1:
        return _per_group(x, args["axes"], args["groups"], function)
    return Value(function(x.tensor, x.dims(args["axes"]), keepdim=True), x.axes)


# Pools.

_MAX_POOLS: dict[int, Callable[..., Any]] = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVG_POOLS: dict[int, Callable[..., Tensor]] = {2: F.avg_pool2d, 3: F.avg_pool3d}


def _windows(args: Arguments, rank: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Window, stride and padding."""
    k = _spread(args["k"], rank)
    return k, k if args["stride"] is None else _spread(args["stride"], rank), _spread(args["pad"], rank)


def _max_pool_tensor(x: Tensor, rank: int, args: Arguments, return_indices: bool = False) -> Any:
    dilation = _spread(args["dilation"], rank)
    return _MAX_POOLS[rank](x, *_windows(args, rank), dilation, args["ceil_mode"], return_indices)


def _avg_pool_tensor(x: Tensor, rank: int, args: Arguments) -> Tensor:
    options = args["ceil_mode"], args["count_include_pad"], args["divisor_override"]
    if rank > 1:
        return _AVG_POOLS[rank](x, *_windows(args, rank), *options)
    # F.avg_pool1d has no divisor_override, so the axis becomes the one row of two.
    k, stride, pad = _windows(args, rank)
    return F.avg_pool2d(x.unsqueeze(-2), (1, *k), (1, *stride), (0, *pad), *options).squeeze(-2)


def _max_pool(operands: Sequence[Value], args: Arguments) -> Value:
    (x,) = operands
    return Value(_max_pool_tensor(x.tensor, x.spatial_rank, args), x.axes)


def _max_pool_take(operands: Sequence[Value], args: Arguments) -> Value:
    v, x = operands
    rank = x.spatial_rank
    _, indices = _max_pool_tensor(x.tensor, rank, args, return_indices=True)
    flat = v.aligned(x.axes).expand_as(x.tensor).flatten(-rank)
    return Value(flat.gather(-1, indices.flatten(-rank)).view_as(indices), x.axes)


def _max_pool_put(operands: Sequence[Value], args: Arguments) -> Value:
    d_y, x = operands
    gradient = _adjoint(lambda t: _max_pool_tensor(t, x.spatial_rank, args), x.tensor, d_y.tensor)
    return Value(gradient, x.axes)


def _avg_pool(operands: Sequence[Value], args: Arguments) -> Value:
    (x,) = operands
    return Value(_avg_pool_tensor(x.tensor, x.spatial_rank, args), x.axes)


def _avg_pool_grad(operands: Sequence[Value], args: Arguments) -> Value:
    d_y, like = operands
    at = torch.zeros_like(like.tensor)
    return Value(_adjoint(lambda t: _avg_pool_tensor(t, like.spatial_rank, args), at, d_y.tensor), like.axes)


# All else.


def _cast(operands: Sequence[Value], args: Arguments) -> Value:
    (x,) = operands
    return Value(x.tensor.to(DTYPES[args["dtype"]]), x.axes)


def _zeros(operands: Sequence[Value], _args: Arguments) -> Value:
    (like,) = operands
    return Value(torch.zeros_like(like.tensor), like.axes)


def _expand(operands: Sequence[Value], args: Arguments) -> Value:
    x, like = operands
    expanded = x.aligned(like.axes).expand_as(like.tensor)
    if args["share"] and x.tensor.numel() > 0:
        expanded = expanded / (math.prod(like.tensor.shape) / x.tensor.numel())
    return Value(expanded, like.axes)


OPERATIONS: dict[str, Operation] = {
    **{name: _pointwise(function) for name, function in POINTWISE.items()},
    **{name: _forward(convolve) for name, convolve in CONVOLUTIONS.items()},
    **{f"{name}_grad_input": _grad_input(convolve) for name, convolve in CONVOLUTIONS.items()},
    **{f"{name}_grad_weight": _grad_weight(convolve) for name, convolve in CONVOLUTIONS.items()},
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "batch_norm": _batch_norm,
    "l2_normalize": _l2_normalize,
    "softmax": _softmax,
    "mean": _reduction(torch.mean),
    "sum": _reduction(torch.sum),
    "max": _reduction(torch.amax),
    "min": _reduction(torch.amin),
    "logsumexp": _reduction(torch.logsumexp),
    "rstd": _rstd,
    "max_pool": _max_pool,
    "max_pool_take": _max_pool_take,
    "max_pool_put": _max_pool_put,
    "avg_pool": _avg_pool,
    "avg_pool_grad": _avg_pool_grad,
    "cast": _cast,
    "zeros": _zeros,
    "expand": _expand,
}
