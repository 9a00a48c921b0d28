"""Blocks with convolutions on CUDA tensors: which kernels run, in which precision, and what is around."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import fuseblock
import torch
from fuseblock import nn
from fuseblock._blocks import Block, block, pytorch_operators
from torch import Tensor
from torch_checks import Fields, check, close, needs_gpu

FEW = "conv2d(24, k=3) | group_norm(8) | silu"


def _arguments(device: str, channels: int = 5, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = [(2, channels, 33, 35), (24, channels, 3, 3), (24,), (24,), (24,)]
    return [torch.randn(shape, generator=generator).to(device) for shape in shapes]


def _error(ours: Tensor, exact: Tensor) -> float:
    return float((ours.double().cpu() - exact).abs().max() / exact.abs().max())


def _exact(made: Block, arguments: list[Tensor]) -> Tensor:
    with pytorch_operators():
        result = made(*[each.double().cpu() for each in arguments])
    assert isinstance(result, Tensor)
    return result


@contextlib.contextmanager
def _precision(text: str) -> Iterator[None]:
    """torch.backends.cudnn.conv.fp32_precision, for a while."""
    switches: Any = torch.backends.cudnn
    before = switches.conv.fp32_precision
    switches.conv.fp32_precision = text
    try:
        yield
    finally:
        switches.conv.fp32_precision = before


@check()
def conv_precision_switches(device: str) -> Fields:
    """PyTorch's switches choose tf32 or strict at each call, forward and for the gradients that follow."""
    needs_gpu(device)
    made, arguments = block(FEW), _arguments(device)
    exact = _exact(made, arguments)
    errors = {}
    for mode in ("tf32", "ieee", "tf32"):
        with _precision(mode):
            found = made(*arguments)
            assert isinstance(found, Tensor)
            errors[mode] = _error(found, exact)
            assert f"products in {'strict' if mode == 'ieee' else 'tf32'}" in made.explain(*arguments)
    assert errors["ieee"] < 3e-6 < errors["tf32"] < 3e-3, errors
    torch.backends.cudnn.allow_tf32 = True
    legacy = made(*arguments)
    torch.backends.cudnn.allow_tf32 = False
    assert isinstance(legacy, Tensor)
    assert _error(legacy, exact) == errors["tf32"]
    return {"error": errors["ieee"], "peer_error": errors["tf32"]}


@check()
def conv_strict_is_close(device: str) -> Fields:
    """In strict mode within atol = rtol = 1e-5 of PyTorch with TF32 off, for five seeds, half that of f64.

    PyTorch's convolutions are those that its switches choose by default: the deterministic one of the
    transposed convolution is by itself up to 1e-5 from float64, for which there would be nothing left.
    """
    needs_gpu(device)
    torch.backends.cudnn.deterministic = False
    modules = {
        (16, 3, 24, 32, 32): nn.Conv3dGnMean(3, 24, 3, 8),
        (4, 64, 16, 16, 16): nn.ConvTranspose3dReluGn(64, 128, 3, 8),
        (64, 3, 16, 32, 32): nn.Conv3dHardswishGnMean(3, 16, 4),
        (8, 8, 128, 128): nn.Conv2dGnTanhHardswishResidualLse(8, 64, 3, 16),
    }
    for shape, module in modules.items():
        module.to(device).requires_grad_(False)
        for seed in range(5):
            torch.manual_seed(seed)
            for parameter in module.parameters():
                if parameter.dim() == 1:
                    torch.nn.init.normal_(parameter, 1.0, 0.3)
            x = torch.rand(shape, device=device)
            ours = module(x)
            with pytorch_operators():
                theirs = module(x)
                exact = copy.deepcopy(module).double()(x.double())
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(ours.double(), exact, atol=5e-6, rtol=5e-6)
    return None


@check("bf16")
def conv_autocast(device: str) -> Fields:
    """Under autocast a block takes f32 arguments and gives what PyTorch's operators do, gradients too."""
    needs_gpu(device)
    for dtype in (torch.bfloat16, torch.float16):
        made = block(FEW)
        leaves = [each.requires_grad_() for each in _arguments(device)]
        with torch.autocast("cuda", dtype=dtype):
            ours = made(*leaves)
            with pytorch_operators():
                theirs = made(*leaves)
        assert isinstance(ours, Tensor)
        assert isinstance(theirs, Tensor)
        assert ours.dtype == theirs.dtype
        assert float((ours - theirs).abs().max()) < 16 * torch.finfo(dtype).eps * float(theirs.abs().max())
        gradient = torch.randn_like(theirs)
        for mine, other in zip(
            torch.autograd.grad(ours, leaves, gradient),
            torch.autograd.grad(theirs, leaves, gradient),
            strict=True,
        ):
            assert mine.dtype == other.dtype
            scale = float(other.abs().max()) + 1e-3
            assert float((mine - other).abs().max()) < 64 * torch.finfo(dtype).eps * scale
    return None


@check()
def conv_requires_grad_subsets(device: str) -> Fields:
    """Any subset of the arguments may want gradients."""
    made, arguments = block(FEW), _arguments(device)
    leaves = [each.clone().requires_grad_() for each in arguments]
    with pytorch_operators():
        expected_output = made(*leaves)
        assert isinstance(expected_output, Tensor)
        gradient = torch.randn(expected_output.shape, generator=torch.Generator().manual_seed(5)).to(device)
        expected = torch.autograd.grad(expected_output, leaves, gradient)
    for wanted in range(1, 1 << len(arguments)):
        own = [each.clone().requires_grad_(bool(wanted >> i & 1)) for i, each in enumerate(arguments)]
        chosen = [i for i in range(len(arguments)) if wanted >> i & 1]
        found = torch.autograd.grad(made(*own), [own[i] for i in chosen], gradient)
        for i, each in zip(chosen, found, strict=True):
            close(each, expected[i], 4096)
    return None


@check()
def conv_compiled(device: str) -> Fields:
    """In a compiled graph, whole, with gradients."""
    needs_gpu(device)
    module = nn.Conv3dHardswishGnMean(3, 16, 3).to(device)
    x = torch.randn(4, 3, 8, 12, 12, device=device)
    compiled = torch.compile(module, fullgraph=True)
    with pytorch_operators():
        theirs = module(x)
        expected = torch.autograd.grad(theirs.square().sum(), list(module.parameters()))
    ours = compiled(x)
    close(ours, theirs)
    for mine, other in zip(
        torch.autograd.grad(ours.square().sum(), list(module.parameters())), expected, strict=True
    ):
        close(mine, other, 4096)
    return None


@check()
def conv_captured(device: str) -> Fields:
    """A CUDA graph holds a prepared block with a convolution, and replays it on new numbers."""
    needs_gpu(device)
    module = nn.Conv3dGnMean(3, 24, 3, 8).to(device).requires_grad_(False)
    x = torch.randn(2, 3, 8, 12, 12, device=device)
    fuseblock.prepare(module, x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = module(x)
    x.copy_(torch.randn(x.shape, generator=torch.Generator().manual_seed(7)))
    graph.replay()
    assert torch.equal(y, module(x))
    return None


@check()
def conv_choice(device: str) -> Fields:
    """`explain` shows both estimates; plain arithmetic is never taken in place of PyTorch's."""
    needs_gpu(device)
    text = block("conv3d(24, k=3) | group_norm(8) | mean(c,d,h,w)").explain(
        torch.rand(128, 3, 24, 32, 32, device=device),
        torch.rand(24, 3, 3, 3, 3, device=device),
        *[torch.rand(24, device=device)] * 3,
    )
    assert "* own sweep" in text, text
    assert "host call" in text, text
    depthwise = block("conv2d(24, k=3, groups=24) | silu").explain(
        torch.rand(2, 24, 9, 9, device=device),
        torch.rand(24, 1, 3, 3, device=device),
        torch.rand(24, device=device),
    )
    assert "* host call" in depthwise, depthwise
    assert "conv_direct: " not in depthwise, depthwise
    return None
