"""fuseblock.functional beside torch.nn.functional: each function, outputs and gradients; keep."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fuseblock import functional as ours
from fuseblock import nn as fused
from torch import Tensor, nn
from torch.nn import functional as theirs

from benchmarks import reference_blocks


def assert_same(got: Callable[..., Any], expected: Callable[..., Any], *tensors: Tensor) -> None:
    """Two functions of the same tensors: outputs and gradients."""
    wanted = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    one, two = got(*wanted), expected(*wanted)
    torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-4)
    incoming = torch.randn_like(two)
    for first, second in zip(
        torch.autograd.grad(one, wanted, incoming), torch.autograd.grad(two, wanted, incoming), strict=True
    ):
        torch.testing.assert_close(first, second, atol=1e-4, rtol=1e-3)


X = torch.randn(2, 8, 5, 6, generator=torch.Generator().manual_seed(0))
W, B = torch.randn(2, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("got", "expected", "tensors"),
    [
        (lambda x: ours.group_norm(x, 4), lambda x: theirs.group_norm(x, 4), (X,)),
        (
            lambda x, w, b: ours.group_norm(x, 4, w, b, 0.1),
            lambda x, w, b: theirs.group_norm(x, 4, w, b, 0.1),
            (X, W, B),
        ),
        (lambda x, w: ours.group_norm(x, 2, w), lambda x, w: theirs.group_norm(x, 2, w), (X, W)),
        (
            lambda x, b: ours.group_norm(x, 2, bias=b),
            lambda x, b: theirs.group_norm(x, 2) + b.view(8, 1, 1),  # its own backward needs a weight
            (X, B),
        ),
        (lambda x: ours.instance_norm(x), lambda x: theirs.instance_norm(x), (X,)),
        (
            lambda x, w, b: ours.instance_norm(x, None, None, w, b, True, 0.1, 0.01),
            lambda x, w, b: theirs.instance_norm(x, None, None, w, b, True, 0.1, 0.01),
            (X, W, B),
        ),
        (
            lambda x, w, b: ours.layer_norm(x, 8, w, b),
            lambda x, w, b: theirs.layer_norm(x.movedim(1, -1), (8,), w, b).movedim(-1, 1),
            (X, W, B),
        ),
        (
            lambda x, w: ours.layer_norm(x, (8,), w, eps=0.1),
            lambda x, w: theirs.layer_norm(x.movedim(1, -1), (8,), w, eps=0.1).movedim(-1, 1),
            (X, W),
        ),
        (
            lambda x: ours.layer_norm(x, (5, 6), dim=(2, 3)),
            lambda x: theirs.layer_norm(x, (5, 6)),
            (X,),
        ),
        (
            lambda x, w: ours.rms_norm(x, (8,), w, 1e-3, act="silu"),
            lambda x, w: theirs.silu(theirs.rms_norm(x.movedim(1, -1), (8,), w, 1e-3).movedim(-1, 1)),
            (X, W),
        ),
        (lambda x: ours.rms_norm(x, 6, dim=-1), lambda x: theirs.rms_norm(x, (6,)), (X,)),
        (
            lambda x, w, b: ours.group_norm(x, 4, act="silu", residual=x, scale=w, shift=b),
            lambda x, w, b: theirs.silu(
                theirs.group_norm(x, 4) * (1 + w.view(8, 1, 1)) + b.view(8, 1, 1) + x
            ),
            (X, W, B),
        ),
        (
            lambda x, w: ours.block(
                "group_norm(4, affine=false) | mul(s) | max_pool(2)", x, w[:, None, None]
            ),
            lambda x, w: theirs.max_pool2d(theirs.group_norm(x, 4) * w[:, None, None], 2),
            (X, W),
        ),
    ],
)
def test_functions(
    got: Callable[..., Tensor], expected: Callable[..., Tensor], tensors: tuple[Tensor, ...]
) -> None:
    assert_same(got, expected, *tensors)


@pytest.mark.parametrize("name", ["group_norm", "instance_norm", "layer_norm", "rms_norm"])
def test_arguments_are_those_of_torch_in_their_order(name: str) -> None:
    mine = inspect.signature(getattr(ours, name)).parameters.values()
    torchs = inspect.signature(getattr(theirs, name)).parameters.values()
    positional = [(each.name, each.default) for each in mine if each.kind is not each.KEYWORD_ONLY]
    assert positional == [(each.name, each.default) for each in torchs]


# Ours, PyTorch's module, the input's shape.
BLOCKS: dict[str, tuple[Callable[..., Tensor], nn.Module, tuple[int, ...]]] = {
    "conv3d_gn_mean": (ours.conv3d_gn_mean, reference_blocks.Conv3dGnMean(3, 8, 3, 4), (2, 3, 4, 5, 6)),
    "conv_transpose3d_relu_gn": (
        ours.conv_transpose3d_relu_gn,
        reference_blocks.ConvTranspose3dReluGn(3, 8, 3, 4),
        (2, 3, 4, 5, 6),
    ),
    "conv3d_hardswish_gn_mean": (
        ours.conv3d_hardswish_gn_mean,
        reference_blocks.Conv3dHardswishGnMean(3, 8, 3, 4),
        (2, 3, 4, 5, 6),
    ),
    "conv2d_gn_tanh_hardswish_residual_lse": (
        ours.conv2d_gn_tanh_hardswish_residual_lse,
        reference_blocks.Conv2dGnTanhHardswishResidualLse(3, 8, 3, 4),
        (2, 3, 5, 6),
    ),
}


@pytest.mark.parametrize("keep", [(), ("conv",)])
@pytest.mark.parametrize("name", BLOCKS)
def test_reference_blocks(name: str, keep: tuple[str, ...]) -> None:
    function, module, shape = BLOCKS[name]
    reference_blocks.randomise(module)
    parameters = dict(module.named_parameters())

    def call(x: Tensor, *given: Tensor) -> Tensor:
        named = dict(zip(parameters, given, strict=True))
        weight, bias = [named.get(f"conv{each}") for each in (".weight", ".bias")]
        if weight is None:
            weight, bias = named["conv_transpose.weight"], None
        return function(x, weight, bias, 4, named["group_norm.weight"], named["group_norm.bias"], keep=keep)

    def expected(x: Tensor, *given: Tensor) -> Tensor:
        result: Tensor = torch.func.functional_call(module, dict(zip(parameters, given, strict=True)), (x,))
        return result

    assert_same(call, expected, torch.randn(shape), *parameters.values())


@pytest.mark.parametrize("make", [fused.Conv3dGnMean, fused.Conv3dHardswishGnMean])
def test_modules_that_keep_their_convolution(
    make: Callable[..., nn.Module], capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    kept, whole = make(3, 8, 3, 4, keep=("conv",)), make(3, 8, 3, 4)
    whole.load_state_dict(kept.state_dict())
    x = torch.randn(2, 3, 4, 5, 6)
    torch.testing.assert_close(kept(x), whole(x), atol=1e-5, rtol=1e-4)
    explain: Any = kept.explain
    explain(x)
    assert "host" in capsys.readouterr().out
    explain = whole.explain
    explain(x)
    assert "host" not in capsys.readouterr().out


@pytest.mark.filterwarnings("error:Dynamo")
def test_compiled() -> None:
    torch.compiler.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def compiled(x: Tensor) -> Tensor:
        y = ours.group_norm(x, 4, act="silu", residual=x)
        result = ours.block("group_norm(2, affine=false) | relu", y)
        assert isinstance(result, Tensor)
        return result

    expected = theirs.relu(theirs.group_norm(theirs.silu(theirs.group_norm(X, 4) + X), 2))
    torch.testing.assert_close(compiled(X), expected, atol=1e-5, rtol=1e-4)
