"""Blocks as modules: any notation, and the reference blocks with the constructors their users have.

A block's parameters are held by layers of torch.nn, one for each stage that has some, called like the stage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fuseblock._blocks import Block as TensorBlock
from fuseblock._blocks import NamedType, block
from fuseblock._norms import Prepared
from fuseblock.nn._explained import Explained, parameter
from fuseblock.nn._stages import layer


class Block(Explained):
    """Any block as a module.

    notation: the block (docs/notation.md).
    in_channels: the channels of the input.
    input_size: the extents of the positions; only needed where shapes of parameters depend on them.
    types: types of extra inputs and parameters, as the notation writes them, where the block does not tell.
    keep: kinds of operations that stay PyTorch's own, such as ("conv",).

    A stage's parameters are those of torch.nn's layer: `conv2d.weight`, `group_norm2.bias`, with `as y`
    `y.weight`. They are drawn in the order of the stages, as the layers would be. batch_norm uses its running
    statistics, in training too.

    >>> import torch, fuseblock
    >>> notation = "conv2d(16, k=3, pad=1) as conv | group_norm(4) | add(skip) | silu"
    >>> m = fuseblock.nn.Block(notation, in_channels=8)
    >>> [name for name, _ in m.named_parameters()]
    ['conv.weight', 'conv.bias', 'group_norm.weight', 'group_norm.bias']
    >>> x, skip = torch.randn(2, 8, 6, 6), torch.randn(2, 16, 6, 6)
    >>> torch.equal(m(x, skip), m(x, skip=skip))
    True
    """

    def __init__(
        self,
        notation: str,
        in_channels: int,
        *,
        input_size: Sequence[int] | None = None,
        types: Mapping[str, str] | None = None,
        keep: Sequence[str] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self._block = block(notation, tuple(keep))
        input_type, arguments = _arguments(self._block, in_channels, input_size, types or {})
        self.input_names = tuple(each.name for each in arguments if not each.is_parameter)
        parameters = [each for each in arguments if each.is_parameter]
        self._slots = [(tuple(path), name) for *path, name in (each.name.split(".") for each in parameters)]
        rank = input_type.count(",") - 1
        graph = self._block.graph(input_type, types or {})
        self._add_stages(graph, parameters, rank, {"device": device, "dtype": dtype})

    @property
    def notation(self) -> str:
        """The block's text."""
        return self._block.notation

    @property
    def keep(self) -> tuple[str, ...]:
        """What stays PyTorch's own."""
        return self._block.keep

    def forward(
        self,
        input: Tensor,  # noqa: A002
        *others: Tensor,
        **named: Tensor,
    ) -> Any:
        """The output, a tuple where the block returns several.

        others, named: the block's extra inputs in the order of first use, or by name.
        """
        made, tensors = self._prepared(input, *others, **named)
        try:
            outputs = made(*tensors)
        except ValueError as error:
            # Where the rank is wrong dimension 1 need not be the channels: the library's message tells more.
            ranks = _convolution_ranks(self.notation)
            rank_fits = not ranks or input.dim() == 2 + ranks[0]
            if rank_fits and (input.dim() < 2 or input.shape[1] != self.in_channels):
                expected = f"{type(self).__name__}: expected an input with {self.in_channels} channels"
                raise ValueError(f"{expected}, got one of shape {list(input.shape)}") from error
            raise
        if self._seen is None and not torch.compiler.is_compiling():
            self._note(input, *others, **named)
        return outputs

    def extra_repr(self) -> str:
        """The arguments of the constructor."""
        keep = f", keep={self.keep}" if self.keep else ""
        return f"{self.notation!r}, in_channels={self.in_channels}{keep}"

    def _prepared(self, *inputs: Tensor, **named: Tensor | None) -> Prepared:  # type: ignore[override]
        if named or len(inputs) != len(self.input_names):
            inputs = self._ordered(inputs, named)
        return self._block, (*inputs, *[self._parameter(path, name) for path, name in self._slots])

    def _ordered(self, inputs: tuple[Tensor, ...], named: Mapping[str, Tensor | None]) -> tuple[Tensor, ...]:
        """The inputs in their order; a wrong number or name is a TypeError, as for a function."""
        expected = ", ".join(self.input_names)
        given = dict(zip(self.input_names, inputs, strict=False))
        wrong = [name for name in named if name not in self.input_names or name in given]
        given |= {name: each for name, each in named.items() if each is not None}
        if len(inputs) > len(self.input_names) or wrong or len(given) != len(self.input_names):
            got = ", ".join([*(f"tensor {i + 1}" for i in range(len(inputs))), *named])
            raise TypeError(f"{type(self).__name__} of `{self.notation}`: expected {expected}; got {got}")
        return tuple(given[name] for name in self.input_names)

    def _parameter(self, path: tuple[str, ...], name: str) -> Tensor:
        module: torch.nn.Module = self
        for each in path:
            module = module._modules[each]  # type: ignore[assignment]
        if module._forward_pre_hooks or module._forward_hooks:
            raise NotImplementedError(
                f"{'.'.join(path)} has hooks, which a block does not call: put them on the block, or use "
                "torch.nn.utils.parametrize"
            )
        tensor: Tensor = parameter(module, name)
        return tensor

    def _add_stages(
        self, graph: Mapping[str, Any], parameters: Sequence[NamedType], rank: int, factory: Mapping[str, Any]
    ) -> None:
        statements = {statement["name"]: statement for statement in graph["statements"]}
        shapes: dict[str, dict[str, tuple[int, ...]]] = {}
        for each in parameters:
            stage, _, name = each.name.rpartition(".")
            shapes.setdefault(stage, {})[name] = each.extents
        for stage, own in shapes.items():
            statement = statements.get(stage, {})
            made = layer(statement.get("op", ""), statement.get("args", {}), own, rank, factory)
            parent: torch.nn.Module = self
            *path, last = stage.split(".")
            for word in path:
                if word not in parent._modules:
                    parent.add_module(word, torch.nn.Module())
                parent = parent.get_submodule(word)
            parent.add_module(last, made)


class Conv3dGnMean(Block):
    """Convolution, group norm, mean over everything but the batch.

    >>> import torch, fuseblock
    >>> fuseblock.nn.Conv3dGnMean(3, 24, 3, 8)(torch.rand(2, 3, 6, 8, 8)).shape
    torch.Size([2])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        num_groups: int,
        *,
        keep: Sequence[str] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        conv = f"conv3d({out_channels}, k={_extents(kernel_size)}) as conv"
        notation = f"{conv} | group_norm({num_groups}) | mean(c,d,h,w)"
        super().__init__(notation, in_channels, keep=keep, device=device, dtype=dtype)


class ConvTranspose3dReluGn(Block):
    """Transposed convolution, ReLU, group norm.

    >>> import torch, fuseblock
    >>> fuseblock.nn.ConvTranspose3dReluGn(4, 16, 3, 8)(torch.rand(1, 4, 4, 4, 4)).shape
    torch.Size([1, 16, 6, 6, 6])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        groups: int,
        bias: bool = False,
        *,
        keep: Sequence[str] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        k = f"k={_extents(kernel_size)}"
        conv = f"conv_transpose3d({out_channels}, {k}{_without(bias)}) as conv_transpose"
        super().__init__(
            f"{conv} | relu | group_norm({groups})", in_channels, keep=keep, device=device, dtype=dtype
        )


class Conv3dHardswishGnMean(Block):
    """Convolution, hardswish, group norm, mean over the positions.

    >>> import torch, fuseblock
    >>> fuseblock.nn.Conv3dHardswishGnMean(3, 16, 4)(torch.rand(2, 3, 6, 8, 8)).shape
    torch.Size([2, 16])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        num_groups: int = 4,
        bias: bool = True,
        *,
        keep: Sequence[str] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        conv = f"conv3d({out_channels}, k={_extents(kernel_size)}{_without(bias)}) as conv"
        notation = f"{conv} | hardswish | group_norm({num_groups}) | mean(d,h,w)"
        super().__init__(notation, in_channels, keep=keep, device=device, dtype=dtype)


class Conv2dGnTanhHardswishResidualLse(Block):
    """Convolution, group norm, tanh, hardswish, residual, logsumexp over the channels.

    >>> import torch, fuseblock
    >>> fuseblock.nn.Conv2dGnTanhHardswishResidualLse(8, 64, 3, 16)(torch.rand(2, 8, 12, 12)).shape
    torch.Size([2, 1, 10, 10])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        groups: int,
        eps: float = 1e-5,
        *,
        keep: Sequence[str] = (),
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        conv = f"conv2d({out_channels}, k={_extents(kernel_size)}) as conv"
        tail = f"group_norm({groups}, eps={eps}) | tanh | hardswish | add(conv) | logsumexp(c, keepdim)"
        super().__init__(f"{conv} | {tail}", in_channels, keep=keep, device=device, dtype=dtype)


def _extents(kernel_size: int | Sequence[int]) -> str:
    """A filter's extent in the notation."""
    if isinstance(kernel_size, int):
        return str(kernel_size)
    return f"({','.join(str(extent) for extent in kernel_size)})"


def _without(bias: bool) -> str:
    return "" if bias else ", bias=false"


def _arguments(
    made: TensorBlock, in_channels: int, input_size: Sequence[int] | None, types: Mapping[str, str]
) -> tuple[str, list[NamedType]]:
    """An input type that the block accepts, and the arguments for it."""
    if in_channels < 0:
        raise ValueError(f"in_channels: expected a whole number from 0, got {in_channels}")
    if input_size is not None:
        only = _type(in_channels, input_size)
        return only, made.arguments(only, types)
    refused: ValueError | None = None
    for size in _sizes(made.notation):
        input_type = _type(in_channels, size)
        try:
            found = made.arguments(input_type, types)
        except ValueError as error:
            refused = refused or error
            continue
        _check_sizes(made, in_channels, size, types, found)
        return input_type, found
    assert refused is not None
    raise refused


def _type(in_channels: int, size: Sequence[int]) -> str:
    return f"f32[{','.join(str(extent) for extent in (1, in_channels, *size))}]"


def _convolution_ranks(notation: str) -> list[int]:
    """How many axes of positions each convolution has."""
    return [int(rank) for rank in re.findall(r"\bconv(?:_transpose)?([123])d\b", notation)]


def _sizes(notation: str) -> Iterator[tuple[int, ...]]:
    """Extents of positions to try: of the rank of the first convolution, without one of every rank."""
    for rank in _convolution_ranks(notation)[:1] or (2, 3, 1, 0):
        for extent in (32, 256) if rank else (0,):
            yield (extent,) * rank


def _check_sizes(
    made: TensorBlock,
    in_channels: int,
    size: Sequence[int],
    types: Mapping[str, str],
    found: Sequence[NamedType],
) -> None:
    """Refuses a block whose parameters have other shapes for other extents of the input."""
    other = made.arguments(_type(in_channels, [2 * extent for extent in size]), types)
    for one, two in zip(found, other, strict=True):
        if one.is_parameter and one.extents != two.extents:
            raise ValueError(
                f"{made.notation}: the shape of {one.name} depends on the extents of the input; "
                f"give the extents of its positions, such as input_size={tuple(size)}"
            )
