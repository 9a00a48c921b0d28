"""Large tensors, whose plans are others than those of the cases' small ones.

Tensors of 2^31 + 7 elements: samples of the results beside the formulas in float64. Tails of the reference
blocks at their real sizes: results and all gradients beside PyTorch's operators in float64.
"""

from __future__ import annotations

import copy

import fuseblock.functional as fb
import torch
from fuseblock import nn
from fuseblock._blocks import pytorch_operators
from gpu_row import Measured
from torch import Tensor
from torch.nn import functional
from torch_checks import Fields, check, needs_gpu

_CHANNELS, _POSITIONS = 45, 47_721_859  # 2^31 + 7 elements
_CHUNK = 1 << 26


def _large(device: str, *shape: int) -> Tensor:
    """Random numbers around 0.5, drawn piece by piece."""
    x = torch.empty(shape, dtype=torch.bfloat16, device=device)
    flat = x.view(-1)
    generator = torch.Generator(device).manual_seed(3)
    for begin in range(0, flat.numel(), _CHUNK):
        piece = flat[begin : begin + _CHUNK]
        piece.copy_(0.5 + torch.randn(piece.shape, generator=generator, device=device))
    return x


def _moments(values: Tensor) -> tuple[float, float]:
    """Mean and variance in float64, piece by piece."""
    flat = values.view(-1)
    total, square = 0.0, 0.0
    for begin in range(0, flat.numel(), _CHUNK):
        total += float(flat[begin : begin + _CHUNK].double().sum())
    mean = total / flat.numel()
    for begin in range(0, flat.numel(), _CHUNK):
        square += float((flat[begin : begin + _CHUNK].double() - mean).square().sum())
    return mean, square / flat.numel()


def _sample(count: int, extent: int, device: str) -> Tensor:
    """Places all over an extent, its ends among them, those around 2^31 too where there are such."""
    generator = torch.Generator().manual_seed(5)
    places = torch.randint(extent, (count,), generator=generator)
    ends = torch.tensor([0, 1, extent - 2, extent - 1])
    return torch.cat([places, ends]).to(device)


@check("bf16")
def large_group_norm_silu(device: str) -> Fields:
    """2^31 + 7 elements: forward and the gradient by the input, sampled, beside the formula in float64."""
    needs_gpu(device)
    x = _large(device, 1, _CHANNELS, _POSITIONS)
    weight = torch.linspace(0.5, 1.5, _CHANNELS, device=device, dtype=torch.bfloat16)
    bias = torch.linspace(-1, 1, _CHANNELS, device=device, dtype=torch.bfloat16)
    x.requires_grad_()
    y = fb.group_norm(x, 3, weight, bias, act="silu")
    gradient = torch.empty_like(y)
    gradient.view(-1).copy_(torch.ones((), device=device))
    gradient[:, ::2] = -0.5
    (d_x,) = torch.autograd.grad(y, x, gradient)
    places = _sample(20_000, _POSITIONS, device)
    worst = 0.0
    for group in range(3):
        channels = slice(15 * group, 15 * group + 15)
        with torch.no_grad():
            own = x[0, channels]
            mean, variance = _moments(own)
            rstd = (variance + 1e-5) ** -0.5
            # u = gamma d_norm; its mean and its mean with xhat, over the whole group, piece by piece.
            sums = torch.zeros(2, dtype=torch.float64, device=device)
            for channel in range(15 * group, 15 * group + 15):
                for begin in range(0, _POSITIONS, _CHUNK):
                    hat = (x[0, channel, begin : begin + _CHUNK].double() - mean) * rstd
                    u = _silu_slope(hat, weight[channel], bias[channel]) * gradient[0, channel, 0].double()
                    sums += torch.stack([u.sum(), (u * hat).sum()])
            sums /= 15 * _POSITIONS
            for channel in range(15 * group, 15 * group + 15):
                hat = (x[0, channel, places].double() - mean) * rstd
                v = hat * weight[channel].double() + bias[channel].double()
                expected = v * torch.sigmoid(v)
                u = _silu_slope(hat, weight[channel], bias[channel]) * gradient[0, channel, 0].double()
                by_x = rstd * (u - sums[0] - hat * sums[1])
                for ours, exact in ((y[0, channel, places], expected), (d_x[0, channel, places], by_x)):
                    error = (ours.double() - exact).abs() / (exact.abs().clamp(min=1e-2))
                    worst = max(worst, float(error.max()))
    eps = torch.finfo(torch.bfloat16).eps
    assert worst <= 2 * eps, worst
    return {"error": worst}


def _silu_slope(hat: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The derivative of silu(weight hat + bias) by hat."""
    v = hat * weight.double() + bias.double()
    s = torch.sigmoid(v)
    return weight.double() * s * (1 + v * (1 - s))


@check("bf16")
def large_layer_norm(device: str) -> Fields:
    """2^31 + 7 elements: norms over channels, whose positions are far apart, and whose rows are many."""
    needs_gpu(device)
    worst = 0.0
    weight = torch.linspace(0.5, 1.5, _CHANNELS, device=device, dtype=torch.bfloat16)
    bias = torch.linspace(-1, 1, _CHANNELS, device=device, dtype=torch.bfloat16)
    for shape in ((1, _CHANNELS, _POSITIONS), (_POSITIONS, _CHANNELS)):
        x = _large(device, *shape)
        y = fb.layer_norm(x, (_CHANNELS,), weight, bias)
        places = _sample(50_000, _POSITIONS, device)
        picked = (x[0][:, places].T if len(shape) == 3 else x[places]).double()
        ours = (y[0][:, places].T if len(shape) == 3 else y[places]).double()
        exact = functional.layer_norm(picked, (_CHANNELS,), weight.double(), bias.double())
        error = (ours - exact).abs() / exact.abs().clamp(min=1e-2)
        worst = max(worst, float(error.max()))
        del x, y
    assert worst <= 2 * torch.finfo(torch.bfloat16).eps, worst
    return {"error": worst}


_TAILS = {
    "group_norm(8) | mean(c,d,h,w)": (128, 24, 22, 30, 30),
    "relu | group_norm(8)": (16, 128, 34, 34, 34),
    "hardswish | group_norm(4) | mean(d,h,w)": (1024, 16, 13, 29, 29),
    "group_norm(16) | tanh | hardswish | add(x) | logsumexp(c, keepdim)": (128, 64, 126, 126),
}


def _with_gradients(module: torch.nn.Module, x: Tensor, gradient: Tensor) -> dict[str, Tensor]:
    """The result, and the gradients by the input and the parameters."""
    leaf = x.detach().requires_grad_()
    y = module(leaf)
    names, leaves = zip(("x", leaf), *module.named_parameters(), strict=True)
    found = torch.autograd.grad(y, leaves, gradient.to(y))
    return {"y": y.detach(), **{f"d_{name}": each for name, each in zip(names, found, strict=True)}}


def _tails_at_real_size(device: str, dtype: torch.dtype) -> Fields:
    needs_gpu(device)
    errors: list[float] = []
    peers: list[float] = []
    for notation, shape in _TAILS.items():
        torch.manual_seed(0)
        module = nn.Block(notation, shape[1]).to(device=device, dtype=dtype)
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, 1.0, 0.3)
        x = torch.randn(shape, device=device, dtype=dtype)
        with torch.no_grad():
            gradient = torch.randn_like(module(x))
        ours, again = (_with_gradients(module, x, gradient) for _ in range(2))
        with pytorch_operators():
            peer = _with_gradients(module, x, gradient)
            exact = _with_gradients(copy.deepcopy(module).double(), x.double(), gradient)
        measured = Measured()
        for name, reference in exact.items():
            assert torch.equal(ours[name], again[name]), f"{notation}: {name}: two runs differ"
            told = measured.add(name, ours[name], peer[name], reference)
            assert not told, f"{notation}: {told}"
        told = measured.verdict(dtype)
        assert not told, f"{notation}: {told}"
        errors += measured.error.values()
        peers += measured.peer_error.values()
    return {"error": max(errors), "peer_error": max(peers)}


@check()
def tails_at_real_size(device: str) -> Fields:
    """Tails of the reference blocks at their real sizes, f32: results and all gradients by the error bar."""
    return _tails_at_real_size(device, torch.float32)


@check("bf16")
def tails_at_real_size_bf16(device: str) -> Fields:
    """The same in bf16."""
    return _tails_at_real_size(device, torch.bfloat16)
