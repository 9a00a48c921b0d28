"""Bad use of fuseblock.nn: refused where PyTorch's layers refuse it, and the message names what is wrong."""

from __future__ import annotations

import fuseblock
import pytest
import torch
from fuseblock import nn as fused
from torch import Tensor, nn
from torch.nn import functional

NOTATION = "conv2d(8, k=3, pad=1) as conv | group_norm(4) | add(skip) | silu"


class Layers(nn.Module):
    """The same as NOTATION."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3, padding=1)
        self.group_norm = nn.GroupNorm(4, 8)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        return functional.silu(self.group_norm(self.conv(x)) + skip)


def good() -> tuple[Tensor, Tensor]:
    return torch.randn(2, 4, 5, 5), torch.randn(2, 8, 5, 5)


X, SKIP = good()
# The inputs, and what ours says.
BAD = {
    "channels": ((X[:, :3], SKIP), r"expected an input with 4 channels, got one of shape \[2, 3, 5, 5\]"),
    "rank": ((X[0], SKIP), r"expects a value with the axes n,c,h,w, got f32\[4,5,5\] with the axes n,c,w"),
    "dtype": ((X.double(), SKIP), r"Input type \(double\) and bias type \(float\) should be the same"),
    "16 bits": (
        (X.bfloat16(), SKIP),
        r"Input type \(.*BFloat16\) and bias type \(float\) should be the same",
    ),
    "whole numbers": (
        (X.int(), SKIP),
        r"x: expected a tensor of f64, f32, bf16, f16, got one of torch.int32",
    ),
    "complex": ((X.to(torch.complex64), SKIP), r"x: expected a tensor of .*, got one of torch.complex64"),
    "complex extra input": ((X, SKIP.to(torch.complex64).sum()), r"skip: expected a tensor of .*complex64"),
    "sparse": ((X.to_sparse(), SKIP), "[Ss]parse"),
    "another device": ((X.to("meta"), SKIP), "device"),
    "extra input on another device": ((X, SKIP.to("meta")), "device"),
    "extra input's shape": (
        (X, SKIP[:, :, :3]),
        r"add\(skip\): skip has the type f32\[2,8,3,5\] and does not",
    ),
    "extra input's channels": ((X, SKIP[:, :5]), r"skip .* does not broadcast .*: along c 5 meets 8"),
    "too small": ((X[:, :, :0], SKIP[:, :, :0]), "the filter reaches over 3 positions"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_torch_refuses_is_refused(name: str) -> None:
    inputs, message = BAD[name]
    if name != "complex extra input":
        with pytest.raises((RuntimeError, ValueError)):
            Layers()(*inputs)
    block = fused.Block(NOTATION, in_channels=4)
    for _ in range(2):  # a refusal is not remembered as anything else
        with pytest.raises((RuntimeError, ValueError), match=message):
            block(*inputs)
    assert block(*good()).shape == (2, 8, 5, 5)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.randn(2, 6, 5, 5), r"group_norm\(4\): 6 channels do not divide into 4 groups"),
        (torch.randn(2, 4, 5, 5), r"norm.weight: expected \[4\], got \[8\]"),
        (torch.randn(8), "expected a tensor of 2 to 5 dimensions"),
        (torch.randn(2, 8, 5).double(), "mixed dtype"),
        (torch.randn(2, 8, 5).to(torch.complex64), "got one of torch.complex64"),
        (torch.randn(2, 8, 5).to("meta"), "device"),
    ],
)
def test_norms(x: Tensor, message: str) -> None:
    with pytest.raises((RuntimeError, ValueError)):
        nn.GroupNorm(4, 8)(x)
    with pytest.raises((RuntimeError, ValueError), match=message):
        fused.GroupNorm(4, 8, act="silu")(x)


def test_scale_and_residual_of_a_norm() -> None:
    norm, x = fused.GroupNorm(4, 8), torch.randn(2, 8, 5, 5)
    with pytest.raises(
        ValueError, match=r"scale: expected \[n,c\], \[c\] or 4 dimensions, got .* \[2, 8, 1\]"
    ):
        norm(x, scale=torch.randn(2, 8, 1))
    with pytest.raises(ValueError, match=r"scale .*: along c 7 meets 8"):
        norm(x, scale=torch.randn(2, 7))
    with pytest.raises(ValueError, match=r"residual .*: along w 3 meets 5"):
        norm(x, x[..., :3])
    with pytest.raises(RuntimeError, match="device"):
        norm(x, x.to("meta"))


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: fused.GroupNorm(3, 8), ValueError, "divisible"),
        (lambda: fused.Conv3dGnMean(3, 24, 3, 7), ValueError, "24 channels do not divide into 7 groups"),
        (lambda: fused.Block("conv2d(8, k=3)", in_channels=0), ValueError, "1 or more input channels, got 0"),
        (lambda: fused.Block("conv2d(8, k=3)", 3, keep=("norm",)), ValueError, "keep: expected"),
        (
            lambda: fused.InstanceNorm2d(4, track_running_stats=True),
            NotImplementedError,
            "running statistics",
        ),
        (lambda: fused.GroupNorm(2, 4, act="sillu"), ValueError, "did you mean silu"),
        (lambda: fused.InstanceNorm2d(4, act="relu("), ValueError, "relu"),
        (lambda: fused.LayerNorm(4, act="sillu"), ValueError, "did you mean silu"),
        (lambda: fused.RMSNorm(4, act="sillu"), ValueError, "did you mean silu"),
    ],
)
def test_constructors(make: object, kind: type[Exception], message: str) -> None:
    assert callable(make)
    with pytest.raises(kind, match=message):
        make()


def test_instance_norm_and_layer_norm_check_their_shapes() -> None:
    with pytest.raises(ValueError, match="expected 4 channels"):
        fused.InstanceNorm2d(4)(torch.randn(1, 3, 5, 5))
    with pytest.raises(ValueError, match="expected 3D or 4D input"):
        fused.InstanceNorm2d(4)(torch.randn(1, 4))
    with pytest.raises(ValueError, match=r"layer_norm: expected \[4\] at dim=1, got .* \[2, 5, 4\]"):
        fused.LayerNorm(4)(torch.randn(2, 5, 4))
    with pytest.raises(ValueError, match="do not fit dim=1"):
        fused.RMSNorm(4)(torch.randn(4))


def test_functional() -> None:
    x = torch.randn(2, 4, 5, 5)
    with pytest.raises(NotImplementedError, match="running statistics"):
        fuseblock.functional.instance_norm(x, torch.zeros(4), torch.ones(4))
    with pytest.raises(ValueError, match=r"expected .*group_norm.weight"):
        fuseblock.functional.block("group_norm(2) | relu", x)
    with pytest.raises(ValueError, match="no operation"):
        fuseblock.functional.block("grup_norm(2)", x)


@pytest.mark.parametrize("value", [None, [1.0], 3.0, "x"])
def test_what_is_no_tensor(value: object) -> None:
    block = fused.Block(NOTATION, in_channels=4)
    x, skip = good()
    with pytest.raises(TypeError, match=f"x: expected a tensor, got {type(value).__name__}"):
        block(value, skip)
    with pytest.raises(TypeError, match=f"skip: expected a tensor, got {type(value).__name__}"):
        block(x, value)


def test_meta_tensors_with_a_module_on_meta_give_shapes() -> None:
    block = fused.Block(NOTATION, in_channels=4, device="meta")
    x, skip = (each.to("meta") for each in good())
    output = block(x, skip)
    assert output.is_meta
    assert output.shape == (2, 8, 5, 5)
    assert fused.GroupNorm(4, 8, act="silu", device="meta")(skip).shape == skip.shape
