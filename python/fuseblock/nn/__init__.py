"""Modules: norms with what stands around them, the reference blocks, and any block.

Named and ordered as in torch.nn; parameters, `state_dict` and initialisation are PyTorch's.
"""

from fuseblock.nn.blocks import (
    Block,
    Conv2dGnTanhHardswishResidualLse,
    Conv3dGnMean,
    Conv3dHardswishGnMean,
    ConvTranspose3dReluGn,
)
from fuseblock.nn.norms import (
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    RMSNorm,
)

__all__ = [
    "Block",
    "Conv2dGnTanhHardswishResidualLse",
    "Conv3dGnMean",
    "Conv3dHardswishGnMean",
    "ConvTranspose3dReluGn",
    "GroupNorm",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "RMSNorm",
]
