"""Everything that a first call would do, done ahead: plans are made, kernels compiled and loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

__all__ = ["prepare"]


def prepare(module: Callable[..., Any], *inputs: Any, **named: Any) -> None:
    """Makes ready what calls of a module with inputs like these need.

    module: a module that has blocks, or a function that calls some.
    inputs, named: what it is called with. Shapes, strides, dtypes, devices, and which of the inputs and
    parameters require gradients count, the numbers do not.

    It runs the module: without gradients, and where they are enabled and something requires them also with
    them, backward included. Buffers and the generators of random numbers are put back, no `.grad` changes.
    Hooks of the module run; a module that is wrapped for several processes is prepared inside its wrapper.

    Kernels are compiled and loaded at the first call with tensors of a kind, which takes seconds and cannot
    be done while a CUDA graph is captured. After this it is done, and a capture can begin.

    >>> import torch, fuseblock
    >>> norm = fuseblock.nn.GroupNorm(4, 8, act="silu")
    >>> fuseblock.prepare(norm, torch.randn(2, 8, 6, 6))
    """
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        raise RuntimeError("fuseblock.prepare: the capture of a CUDA graph has begun; call it before")
    leaves = [each for each in pytree.tree_leaves((inputs, named)) if isinstance(each, Tensor)]
    with _unchanged(module, leaves):
        with torch.no_grad():
            module(*inputs, **named)
        if not torch.is_grad_enabled():
            return
        if isinstance(module, torch.nn.Module):
            leaves += list(module.parameters())
        wanted = [each for each in leaves if each.requires_grad]
        outputs = [
            each
            for each in pytree.tree_leaves(module(*inputs, **named))
            if isinstance(each, Tensor) and each.requires_grad
        ]
        if not wanted or not outputs:
            return
        # The gradient of a loss is dense, that of a sum is one number for all elements.
        dense = [torch.zeros_like(each) for each in outputs]
        expanded = [each.new_zeros(()).expand(each.shape) for each in outputs]
        torch.autograd.grad(outputs, wanted, dense, retain_graph=True, allow_unused=True)
        torch.autograd.grad(outputs, wanted, expanded, allow_unused=True)


@contextlib.contextmanager
def _unchanged(module: Callable[..., Any], tensors: list[Tensor]) -> Iterator[None]:
    """Puts buffers and generators of random numbers back."""
    buffers = list(module.buffers()) if isinstance(module, torch.nn.Module) else []
    before = [each.detach().clone() for each in buffers]
    devices = sorted({each.device.index or 0 for each in (*tensors, *buffers) if each.is_cuda})
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, value in zip(buffers, before, strict=True):
                    buffer.copy_(value)
