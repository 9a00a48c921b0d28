"""Norms with what stands around them: PyTorch's modules, and behind the norm scale, shift, residual and act.

Each computes `act(norm(x) * (1 + scale) + shift + residual)`; what is not given is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor

from fuseblock import _norms
from fuseblock._norms import Prepared, checked_act
from fuseblock.nn._explained import Explained, parameter


class _Norm(Explained):
    """The call: the input, perhaps a residual, scale and shift."""

    act: str | None

    def forward(
        self,
        input: Tensor,  # noqa: A002
        residual: Tensor | None = None,
        *,
        scale: Tensor | None = None,
        shift: Tensor | None = None,
    ) -> Tensor:
        """`act(norm(input) * (1 + scale) + shift + residual)`.

        residual: added before the activation; of a shape that broadcasts with the input's.
        scale, shift: [n,c], [c], or as many dimensions as the input has.
        """
        block, tensors = self._prepared(input, residual, scale, shift)
        output = block(*tensors)
        if self._seen is None and not torch.compiler.is_compiling():
            self._note(input, residual=residual, scale=scale, shift=shift)
        return cast(Tensor, output)

    def extra_repr(self) -> str:
        """PyTorch's, and the activation."""
        told = super().extra_repr()
        return told if self.act is None else f"{told}, act={self.act!r}"

    def __setstate__(self, state: dict[str, Any]) -> None:
        """A module that was pickled by torch.nn's class of the same name has no activation."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.__dict__.setdefault("act", None)


class GroupNorm(_Norm, torch.nn.GroupNorm):
    """torch.nn.GroupNorm with an activation behind it.

    act: an activation as the notation writes it ('silu', 'leaky_relu(0.2)'), or a module of torch.nn.

    >>> import torch, fuseblock
    >>> norm = fuseblock.nn.GroupNorm(4, 8, act="silu")
    >>> norm
    GroupNorm(4, 8, eps=1e-05, affine=True, act='silu')
    >>> x, embedding = torch.randn(2, 8, 6, 6), torch.randn(2, 16)
    >>> scale, shift = embedding.chunk(2, dim=1)
    >>> norm(x, scale=scale, shift=shift).shape
    torch.Size([2, 8, 6, 6])
    """

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        act: str | torch.nn.Module | None = None,
    ) -> None:
        torch.nn.GroupNorm.__init__(self, num_groups, num_channels, eps, affine, device, dtype)
        self.act = checked_act(act)

    def _prepared(  # type: ignore[override]
        self,
        x: Tensor,
        residual: Tensor | None = None,
        scale: Tensor | None = None,
        shift: Tensor | None = None,
    ) -> Prepared:
        weight, bias = parameter(self, "weight"), parameter(self, "bias")
        return _norms.group_norm(x, self.num_groups, weight, bias, self.eps, self.act, residual, scale, shift)


class _InstanceNorm(_Norm, torch.nn.modules.instancenorm._InstanceNorm):
    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        act: str | torch.nn.Module | None = None,
    ) -> None:
        if track_running_stats:
            raise NotImplementedError(f"{type(self).__name__}: running statistics are not supported")
        torch.nn.modules.instancenorm._InstanceNorm.__init__(
            self, num_features, eps, momentum, affine, track_running_stats, device, dtype
        )
        self.act = checked_act(act)

    def forward(
        self,
        input: Tensor,  # noqa: A002
        residual: Tensor | None = None,
        *,
        scale: Tensor | None = None,
        shift: Tensor | None = None,
    ) -> Tensor:
        """See the norms' own; one sample without the dimension of the batch is taken too."""
        if input.dim() == self._get_no_batch_dim():  # type: ignore[no-untyped-call]
            residual = residual if residual is None else residual[None]
            return super().forward(input[None], residual, scale=scale, shift=shift)[0]
        return super().forward(input, residual, scale=scale, shift=shift)

    def _prepared(  # type: ignore[override]
        self,
        x: Tensor,
        residual: Tensor | None = None,
        scale: Tensor | None = None,
        shift: Tensor | None = None,
    ) -> Prepared:
        self._check_input_dim(x)  # type: ignore[no-untyped-call]
        channels = x.shape[1]
        if channels != self.num_features:
            raise ValueError(
                f"{type(self).__name__}: expected {self.num_features} channels, got an input of shape "
                f"{list(x.shape)}"
            )
        weight, bias = parameter(self, "weight"), parameter(self, "bias")
        return _norms.instance_norm(x, weight, bias, self.eps, self.act, residual, scale, shift)


class InstanceNorm1d(_InstanceNorm, torch.nn.InstanceNorm1d):
    """torch.nn.InstanceNorm1d, without running statistics, with an activation behind it.

    >>> import torch, fuseblock
    >>> fuseblock.nn.InstanceNorm1d(8, act="relu")(torch.randn(2, 8, 6)).shape
    torch.Size([2, 8, 6])
    """


class InstanceNorm2d(_InstanceNorm, torch.nn.InstanceNorm2d):
    """torch.nn.InstanceNorm2d, without running statistics, with an activation behind it.

    >>> import torch, fuseblock
    >>> fuseblock.nn.InstanceNorm2d(8, affine=True, act="relu")(torch.randn(2, 8, 6, 6)).shape
    torch.Size([2, 8, 6, 6])
    """


class InstanceNorm3d(_InstanceNorm, torch.nn.InstanceNorm3d):
    """torch.nn.InstanceNorm3d, without running statistics, with an activation behind it.

    >>> import torch, fuseblock
    >>> fuseblock.nn.InstanceNorm3d(8, affine=True, act="leaky_relu(0.01)")(torch.randn(2, 8, 3, 6, 6)).shape
    torch.Size([2, 8, 3, 6, 6])
    """


class LayerNorm(_Norm, torch.nn.LayerNorm):
    """torch.nn.LayerNorm over the channels of (N, C, ...), with an activation behind it.

    dim: what is normalised, of the extents `normalized_shape`: dimension 1 unless given. `dim=-1` is what
    torch.nn.LayerNorm does with a whole number.

    >>> import torch, fuseblock
    >>> fuseblock.nn.LayerNorm(8, act="gelu")(torch.randn(2, 8, 6, 6)).shape
    torch.Size([2, 8, 6, 6])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        dim: int | Sequence[int] = 1,
        act: str | torch.nn.Module | None = None,
    ) -> None:
        shape = normalized_shape if isinstance(normalized_shape, int) else list(normalized_shape)
        torch.nn.LayerNorm.__init__(self, shape, eps, elementwise_affine, bias, device, dtype)
        self.dim = dim if isinstance(dim, int) else tuple(dim)
        self.act = checked_act(act)

    def _prepared(  # type: ignore[override]
        self,
        x: Tensor,
        residual: Tensor | None = None,
        scale: Tensor | None = None,
        shift: Tensor | None = None,
    ) -> Prepared:
        return _norms.layer_norm(
            x,
            self.normalized_shape,
            self.dim,
            parameter(self, "weight"),
            parameter(self, "bias"),
            self.eps,
            self.act,
            residual,
            scale,
            shift,
        )

    def extra_repr(self) -> str:
        """PyTorch's, the dimensions and the activation."""
        return f"{super().extra_repr()}, dim={self.dim}"


class RMSNorm(_Norm, torch.nn.RMSNorm):
    """torch.nn.RMSNorm over the channels of (N, C, ...), with an activation behind it.

    dim: as in LayerNorm.

    >>> import torch, fuseblock
    >>> fuseblock.nn.RMSNorm(8, act="silu")(torch.randn(2, 8, 6, 6)).shape
    torch.Size([2, 8, 6, 6])
    """

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        dim: int | Sequence[int] = 1,
        act: str | torch.nn.Module | None = None,
    ) -> None:
        shape = normalized_shape if isinstance(normalized_shape, int) else list(normalized_shape)
        torch.nn.RMSNorm.__init__(self, shape, eps, elementwise_affine, device, dtype)
        self.dim = dim if isinstance(dim, int) else tuple(dim)
        self.act = checked_act(act)

    def _prepared(  # type: ignore[override]
        self,
        x: Tensor,
        residual: Tensor | None = None,
        scale: Tensor | None = None,
        shift: Tensor | None = None,
    ) -> Prepared:
        weight = parameter(self, "weight")
        return _norms.rms_norm(
            x, self.normalized_shape, self.dim, weight, self.eps, self.act, residual, scale, shift
        )

    def extra_repr(self) -> str:
        """PyTorch's, the dimensions and the activation."""
        return f"{super().extra_repr()}, dim={self.dim}"
