"""The reference blocks as their users write them in PyTorch: constructors, parameter names, inputs, notation.

`BLOCKS` has the blocks, `TAILS` the same on the output of a convolution that is computed elsewhere,
`NETWORKS` blocks of real networks. Inputs are uniform in [0, 1), those of tails normal.
`randomise` draws gamma and beta at random: with their defaults conv3d_gn_mean is 0 for every input. Each
notation names its stages so that parameters have PyTorch's names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


class Conv3dGnMean(nn.Module):
    """Convolution, group norm, mean over everything but the batch."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, num_groups: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)
        self.group_norm = nn.GroupNorm(num_groups, out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.mean(self.group_norm(self.conv(x)), dim=[1, 2, 3, 4])


class ConvTranspose3dReluGn(nn.Module):
    """Transposed convolution, ReLU, group norm."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, groups: int, bias: bool = False
    ) -> None:
        super().__init__()
        self.conv_transpose = nn.ConvTranspose3d(in_channels, out_channels, kernel_size, bias=bias)
        self.relu = nn.ReLU()
        self.group_norm = nn.GroupNorm(num_groups=groups, num_channels=out_channels)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.group_norm(self.relu(self.conv_transpose(x)))
        return result


class Conv3dHardswishGnMean(nn.Module):
    """Convolution, hardswish, group norm, mean over the positions."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, num_groups: int = 4, bias: bool = True
    ) -> None:
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size, bias=bias)
        self.group_norm = nn.GroupNorm(num_groups, out_channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.mean(self.group_norm(functional.hardswish(self.conv(x))), dim=[2, 3, 4])


class Conv2dGnTanhHardswishResidualLse(nn.Module):
    """Convolution, group norm, tanh, hardswish, residual, logsumexp over the channels."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, groups: int, eps: float = 1e-5
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.group_norm = nn.GroupNorm(groups, out_channels, eps=eps)
        self.tanh = nn.Tanh()
        self.hard_swish = nn.Hardswish()

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return torch.logsumexp(y + self.hard_swish(self.tanh(self.group_norm(y))), dim=1, keepdim=True)


class GnMean(nn.Module):
    """The tail of Conv3dGnMean."""

    def __init__(self, num_groups: int, channels: int) -> None:
        super().__init__()
        self.group_norm = nn.GroupNorm(num_groups, channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.mean(self.group_norm(x), dim=[1, 2, 3, 4])


class ReluGn(nn.Module):
    """The tail of ConvTranspose3dReluGn."""

    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.group_norm = nn.GroupNorm(groups, channels)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.group_norm(functional.relu(x))
        return result


class HardswishGnMean(nn.Module):
    """The tail of Conv3dHardswishGnMean."""

    def __init__(self, num_groups: int, channels: int) -> None:
        super().__init__()
        self.group_norm = nn.GroupNorm(num_groups, channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.mean(self.group_norm(functional.hardswish(x)), dim=[2, 3, 4])


class GnTanhHardswishResidualLse(nn.Module):
    """The tail of Conv2dGnTanhHardswishResidualLse."""

    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.group_norm = nn.GroupNorm(groups, channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.logsumexp(x + functional.hardswish(torch.tanh(self.group_norm(x))), dim=1, keepdim=True)


class GnSilu(nn.Module):
    """Group norm and SiLU: the half block of VAEs and U-Nets."""

    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.group_norm = nn.GroupNorm(groups, channels)

    def forward(self, x: Tensor) -> Tensor:
        return functional.silu(self.group_norm(x))


class Conv2dGnSilu(nn.Module):
    """Convolution, group norm, SiLU: image VAEs and U-Nets."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x: Tensor) -> Tensor:
        return functional.silu(self.norm(self.conv(x)))


class Conv3dInLeaky(nn.Module):
    """Convolution, instance norm, leaky ReLU: nnU-Net."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(channels, channels, 3, padding=1)
        self.norm = nn.InstanceNorm3d(channels, affine=True)

    def forward(self, x: Tensor) -> Tensor:
        return functional.leaky_relu(self.norm(self.conv(x)), 0.01)


class Conv2dGnRelu(nn.Module):
    """The first convolution of a residual network, with a group norm and ReLU."""

    def __init__(self, in_channels: int, channels: int, groups: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, channels, 7, stride=2, padding=3)
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.norm(self.conv(x)))


class GnSiluConv2dAdd(nn.Module):
    """Group norm, SiLU, convolution, residual: half a residual block of image VAEs."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.conv(functional.silu(self.norm(x))) + x
        return result


@dataclass(frozen=True)
class ReferenceBlock:
    """A block: how PyTorch's module is made, the same as notation, and the input its users have."""

    module: Callable[[], nn.Module]
    notation: str
    shape: tuple[int, ...]


BLOCKS = {
    "conv3d_gn_mean": ReferenceBlock(
        lambda: Conv3dGnMean(3, 24, 3, 8),
        "conv3d(24, k=3) as conv | group_norm(8) | mean(c,d,h,w)",
        (128, 3, 24, 32, 32),
    ),
    "conv_transpose3d_relu_gn": ReferenceBlock(
        lambda: ConvTranspose3dReluGn(64, 128, 3, 8, False),
        "conv_transpose3d(128, k=3, bias=false) as conv_transpose | relu | group_norm(8)",
        (16, 64, 32, 32, 32),
    ),
    "conv3d_hardswish_gn_mean": ReferenceBlock(
        lambda: Conv3dHardswishGnMean(3, 16, 4),
        "conv3d(16, k=4) as conv | hardswish | group_norm(4) | mean(d,h,w)",
        (1024, 3, 16, 32, 32),
    ),
    "conv3d_hardswish_gn_mean_k3": ReferenceBlock(
        lambda: Conv3dHardswishGnMean(3, 16, 3),
        "conv3d(16, k=3) as conv | hardswish | group_norm(4) | mean(d,h,w)",
        (1024, 3, 16, 32, 32),
    ),
    "conv2d_gn_tanh_hardswish_residual_lse": ReferenceBlock(
        lambda: Conv2dGnTanhHardswishResidualLse(8, 64, 3, 16),
        "conv2d(64, k=3) as conv | group_norm(16) | tanh | hardswish | add(conv) | logsumexp(c, keepdim)",
        (128, 8, 128, 128),
    ),
}

TAILS = {
    "conv3d_gn_mean_tail": ReferenceBlock(
        lambda: GnMean(8, 24), "group_norm(8) | mean(c,d,h,w)", (128, 24, 22, 30, 30)
    ),
    "conv_transpose3d_relu_gn_tail": ReferenceBlock(
        lambda: ReluGn(8, 128), "relu | group_norm(8)", (16, 128, 34, 34, 34)
    ),
    "conv3d_hardswish_gn_mean_tail": ReferenceBlock(
        lambda: HardswishGnMean(4, 16),
        "hardswish | group_norm(4) | mean(d,h,w)",
        (1024, 16, 13, 29, 29),
    ),
    "conv2d_gn_tanh_hardswish_residual_lse_tail": ReferenceBlock(
        lambda: GnTanhHardswishResidualLse(16, 64),
        "group_norm(16) | tanh | hardswish | add(x) | logsumexp(c, keepdim)",
        (128, 64, 126, 126),
    ),
}

NETWORKS = {
    "conv2d_gn_silu": ReferenceBlock(
        lambda: Conv2dGnSilu(128, 32),
        "conv2d(128, k=3, pad=1) as conv | group_norm(32) as norm | silu",
        (1, 128, 256, 256),
    ),
    "conv3d_in_leaky_relu": ReferenceBlock(
        lambda: Conv3dInLeaky(32),
        "conv3d(32, k=3, pad=1) as conv | instance_norm(affine=true) as norm | leaky_relu(0.01)",
        (2, 32, 64, 64, 64),
    ),
    "conv2d_k7_gn_relu": ReferenceBlock(
        lambda: Conv2dGnRelu(3, 64, 32),
        "conv2d(64, k=7, stride=2, pad=3) as conv | group_norm(32) as norm | relu",
        (64, 3, 224, 224),
    ),
    "gn_silu_conv2d_add": ReferenceBlock(
        lambda: GnSiluConv2dAdd(128, 32),
        "group_norm(32) as norm | silu | conv2d(128, k=3, pad=1) as conv | add(x)",
        (1, 128, 512, 512),
    ),
}


def randomise(model: nn.Module, seed: int = 0) -> nn.Module:
    """Draws gamma around 1 and beta around 0 in every group and instance norm, in place."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.GroupNorm | nn.InstanceNorm3d):
                module.weight.copy_(1 + 0.3 * torch.randn(module.weight.shape, generator=generator))
                module.bias.copy_(0.3 * torch.randn(module.bias.shape, generator=generator))
    return model
