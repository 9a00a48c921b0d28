"""fuseblock: convolution blocks in one or two trips over memory.

    fuseblock.nn             modules: norms with what stands around them, the reference blocks, any block
    fuseblock.functional     the same as functions
    fuseblock.prepare        compiles ahead what calls of a module need
    fuseblock.verify         compares a module with PyTorch's operators and float64
    fuseblock.export_module  writes a model with its blocks as CUDA kernels into one file

>>> import torch, fuseblock
>>> block = fuseblock.nn.Block("conv2d(16, k=3) | group_norm(4) | silu", in_channels=3)
>>> block(torch.randn(1, 3, 8, 8)).shape
torch.Size([1, 16, 6, 6])
"""

from fuseblock import functional, nn
from fuseblock._capi import version
from fuseblock._prepare import prepare
from fuseblock._verify import verify

__all__ = ["__version__", "export_module", "functional", "nn", "prepare", "verify"]

__version__ = version()


def __getattr__(name: str) -> object:
    """What takes long to import, when it is first asked for."""
    if name == "export_module":
        from fuseblock.export import export_module

        return export_module
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
