"""Blocks and tensors for the tests of the PyTorch operations, and the same by PyTorch's operators."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from fuseblock._blocks import Block, block, pytorch_operators
from torch import Tensor

# A block, the type of its input, and types of extra inputs that do not follow from it.
BLOCKS: dict[str, tuple[str, str, dict[str, str]]] = {
    "norm": ("group_norm(4) | silu", "f32[2,8,5,7]", {}),
    "residual": ("conv2d(8, k=3, pad=1) as y | group_norm(4) | tanh | add(y)", "f32[3,4,6,5]", {}),
    "reduced": ("conv3d(4, k=2) | group_norm(2) | mean(c,d,h,w)", "f32[2,3,4,5,4]", {}),
    "scaled": (
        "group_norm(2, affine=false) | mul(scale) | add(shift) | silu",
        "f32[2,4,5,5]",
        {"scale": "f32[2,4,1,1]", "shift": "f32[4,1,1]"},
    ),
    "two_outputs": ("y = conv2d(x, 4, k=3); z = hardswish(y); return z, y", "f32[2,3,5,6]", {}),
    "before": ("group_norm(2) | silu | conv2d(4, k=3, pad=1) | add(x)", "f32[2,4,5,6]", {}),
    "transposed": ("conv_transpose2d(4, k=3, stride=2) | relu | group_norm(2)", "f32[2,3,4,5]", {}),
    "skip": ("conv1d(4, k=3, pad=1) | layer_norm(c) | add(skip) | gelu", "f32[2,3,9]", {}),
    "linear": ("linear(6) | rms_norm(c) | softplus", "f32[5,4]", {}),
}


def tensors(
    name: str,
    dtype: torch.dtype = torch.float32,
    *,
    requires_grad: bool = True,
    channels_last: bool = False,
    batch: int | None = None,
    seed: int = 0,
) -> tuple[Block, list[Tensor]]:
    """A block and tensors for it."""
    notation, input_type, others = BLOCKS[name]
    if batch is not None:
        rest = input_type.split(",", 1)[1]
        input_type = f"f32[{batch},{rest}"
        others = {key: text.replace("[2,", f"[{batch},") for key, text in others.items()}
    own = block(notation)
    generator = torch.Generator().manual_seed(seed)
    made = []
    for each in own.arguments(input_type, others):
        tensor = torch.randn(each.extents, generator=generator, dtype=torch.float64).to(dtype)
        if channels_last and len(each.extents) in (4, 5):
            last = torch.channels_last if len(each.extents) == 4 else torch.channels_last_3d
            tensor = tensor.contiguous(memory_format=last)
        made.append(tensor.requires_grad_(requires_grad))
    return own, made


def as_tuple(result: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The outputs of a block as a tuple."""
    return result if isinstance(result, tuple) else (result,)


def by_torch(own: Block, arguments: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The outputs by PyTorch's operators."""
    with pytorch_operators():
        return as_tuple(own(*arguments))


def gradients(outputs: Sequence[Tensor], arguments: Sequence[Tensor], seed: int = 1) -> list[Tensor]:
    """The gradients of all arguments that require one, for random gradients of the outputs."""
    generator = torch.Generator().manual_seed(seed)
    incoming = [
        torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output.dtype)
        for output in outputs
    ]
    wanted = [argument for argument in arguments if argument.requires_grad]
    found = torch.autograd.grad(outputs, wanted, incoming, allow_unused=True)
    return [
        torch.zeros_like(argument) if gradient is None else gradient
        for argument, gradient in zip(wanted, found, strict=True)
    ]


def assert_same(got: Sequence[Tensor], expected: Sequence[Tensor], factor: float = 64) -> None:
    """Extents and dtypes agree, and values up to rounding."""
    assert len(got) == len(expected)
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        if one.numel() == 0:
            continue
        bound = factor * torch.finfo(one.dtype).eps * (1 + other.abs().max().item())
        assert (one - other).abs().max().item() <= bound
