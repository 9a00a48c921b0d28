"""Blocks for tensors: a notation that is called with tensors of any type and takes part in autograd.

    act = block("group_norm(4) | silu")
    y = act(x, weight, bias)          # the arguments in the order of act.arguments(type_text(x))
    print(act.explain(x, weight, bias))

`nn` and `functional` are made of these. A block is cheap to make: what depends on the types of the tensors is
made when they first come, and kept.

Which way a call takes:

- in a graph that is being compiled, exported or traced: the operation by notation (`_ops`);
- on the CPU and on CUDA devices: a plan of the device's engine, by handle, with one autograd.Function around
  it; on a GPU it is launched in PyTorch's current stream, and nothing waits for it;
  convolutions run there by the engine's kernels or by PyTorch's, whichever the cost model expects to be
  faster, and those of f32 tensors round to tf32 where PyTorch's own would;
- elsewhere, inside torch.func's transforms and forward-mode differentiation, for tensor subclasses, with
  FUSEBLOCK_DISABLE=1, and where there is no plan: PyTorch's own operators. `explain` says which and why.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from fuseblock import _ops, aten, aten_operations
from fuseblock._capi import Plan

__all__ = ["Block", "NamedType", "block", "disabled", "pytorch_operators"]

_DTYPES = aten_operations.DTYPES
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
# Whether PyTorch's operators run every block.
_disabled = os.environ.get("FUSEBLOCK_DISABLE", "0") not in ("", "0")
_PLAIN = {Tensor, torch.nn.Parameter}

_needed_by_handle: dict[int, dict[int, int]] = {}

_forward = torch.ops.fuseblock.forward.default
_backward = torch.ops.fuseblock.backward.default
_is_autocast_enabled = torch.is_autocast_enabled
_is_grad_enabled = torch.is_grad_enabled
_in_transform = torch._C._are_functorch_transforms_active
_is_tracing = torch._C._is_tracing
# What torch.backends.cudnn.conv.fp32_precision and torch.backends.cuda.matmul.fp32_precision come to, with
# allow_tf32 and torch.backends.fp32_precision.
_precision = torch._C._get_fp32_precision_getter


def _is_capturing(device: torch.device) -> bool:
    """Whether the current stream of a GPU is being captured."""
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


@dataclass(frozen=True)
class NamedType:
    """What a block takes under a name."""

    name: str
    type: str
    dtype: torch.dtype
    extents: tuple[int, ...]
    axes: str
    is_parameter: bool


class _NoPlan(Exception):  # noqa: N818
    """There is no plan for these tensors: by fuseblock's rules a mistake of the caller, or not supported."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.is_mistake = kind == "mistake"
        self.reason = reason


class Block:
    """A block for inputs of any type; `block` makes the one of a notation that everybody shares.

    notation: the block as docs/notation.md describes, as text or as JSON.
    keep: kinds of operations that stay PyTorch's own; ("conv",) is the only one.

    Mistakes are ValueError, what is not supported is NotImplementedError, both with the library's message.
    """

    def __init__(self, notation: str, *, keep: tuple[str, ...] = ()) -> None:
        if unknown := set(keep) - {"conv"}:
            raise ValueError(f'keep: expected () or ("conv",), got {sorted(unknown)}')
        self.notation = notation
        self.keep = keep
        self._handle = -1
        self._all = 0  # a bit for each argument
        self._output_count = 0
        self._known: dict[Any, Mapping[str, Any]] = {}
        # Arguments that backward reads, as bits, by the bits of the wanted gradients; shared with the plans.
        self._needed: dict[int, int] = {}
        self._autocast: dict[Any, Block] = {}
        # By the dtypes of the arguments: those of PyTorch's outputs, or why it refuses.
        self._mixes: dict[tuple[torch.dtype, ...], list[torch.dtype] | str] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return block, (self.notation, self.keep)

    def __repr__(self) -> str:
        return f"Block({self.notation!r}" + (f", keep={self.keep!r})" if self.keep else ")")

    def arguments(self, input_type: str, others: Mapping[str, str] | None = None) -> list[NamedType]:
        """What the block takes for an input such as `f32[1,3,8,8]`: x, extra inputs, parameters.

        others: types of extra inputs and parameters by name, where they do not follow from the block.
        """
        described = self._described(input_type, others or {})
        return [
            NamedType(
                each["name"],
                each["type"],
                _DTYPES[each["dtype"]],
                tuple(each["extents"]),
                each["axes"],
                kind == "parameters",
            )
            for kind in ("inputs", "parameters")
            for each in described[kind]
        ]

    def graph(self, input_type: str, others: Mapping[str, str] | None = None) -> Mapping[str, Any]:
        """The block's JSON (docs/notation.md); the types are only checked."""
        graph: Mapping[str, Any] = self._described(input_type, others or {})["graph"]
        return graph

    def __call__(self, x: Tensor, *others: Tensor) -> Tensor | tuple[Tensor, ...]:
        """The outputs; a tuple where the block returns several."""
        if torch.compiler.is_compiling():
            return self._by_notation(x, *others)
        arguments = (x, *others)
        wanted = 0
        bit = 1
        usual = not (_disabled or _in_transform() or forward_ad._current_level >= 0)
        if usual and _is_tracing():
            return self._by_notation(*arguments)
        try:
            cpu = x.is_cpu
            if _is_autocast_enabled("cpu" if cpu else "cuda"):
                usual = False
            for argument in arguments:
                if not (argument.is_cpu if cpu else argument.is_cuda) or type(argument) not in _PLAIN:
                    usual = False
                if argument.requires_grad:
                    wanted |= bit
                bit <<= 1
        except AttributeError:
            self._check_tensors(arguments)
            raise
        if not usual or self._handle < 0:
            return _one_or_all(self._unusual(arguments))
        mode = 0 if cpu or not self._graph.convolves else self._mode()
        try:
            if wanted and _is_grad_enabled():
                wanted |= mode
                result: Tensor | tuple[Tensor, ...] = _apply(self, wanted, *arguments)
                return result
            outputs = _forward(self._handle, arguments, mode) or self._prepared(arguments, mode)
        except _NoPlan as refused:
            outputs = self._by_torch(arguments, refused)
        except NotImplementedError:  # no kernel for the kind of an argument
            if not self._why_not(arguments):
                raise
            outputs = self._decomposed(arguments)
        return _one_or_all(outputs)

    def _by_notation(self, *arguments: Tensor) -> Tensor | tuple[Tensor, ...]:
        """The outputs by the operation that graphs may keep: a handle means nothing in another process."""
        return _one_or_all(torch.ops.fuseblock.run(self.notation, bool(self.keep), arguments))

    def _check_tensors(self, arguments: Sequence[object]) -> None:
        self._register()
        for i, argument in enumerate(arguments):
            if not isinstance(argument, Tensor):
                name = self._graph.names[i] if i < len(self._graph.names) else f"argument {i + 1}"
                raise TypeError(f"{name}: expected a tensor, got {type(argument).__name__}")

    def explain(self, x: Tensor, *others: Tensor) -> str:
        """The plan that will run for these tensors, or that PyTorch's operators run and why."""
        arguments = (x, *others)
        self._register()
        if reason := self._why_not(arguments):
            return f"{self.notation}\nPyTorch's operators run: {reason}\n"
        kind = arguments[0].device.type
        if _is_autocast_enabled(kind):
            cast = self._for_autocast(arguments)
            with torch.autocast(kind, enabled=False):
                return cast.explain(*arguments)
        wanted = _ops.wanted_mask(arguments) if _is_grad_enabled() else 0
        wanted |= self._mode_for(arguments)
        try:
            self._prepare(arguments, wanted)
        except _NoPlan as refused:
            if refused.is_mistake:
                self._by_torch(arguments, refused)
            return f"{self.notation}\nPyTorch's operators run: {refused.reason}\n"
        text: str = torch.ops.fuseblock.explain(self._handle, arguments, wanted)
        return text

    def outputs(self, arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        """The outputs, without autograd and autocast."""
        self._register()
        if self._why_not(arguments):
            return self._decomposed(arguments)
        mode = self._mode_for(arguments)
        try:
            return _forward(self._handle, arguments, mode) or self._prepared(arguments, mode)
        except _NoPlan as refused:
            return self._by_torch(arguments, refused)

    def gradients(
        self, arguments: Sequence[Tensor], gradients: Sequence[Tensor], wanted: int
    ) -> Sequence[Tensor]:
        """The gradients by the arguments whose bits are set in `wanted`, from the arguments alone."""
        self._register()
        if not self._why_not(arguments):
            alone = torch.ops.fuseblock.backward_alone
            mode = self._mode_for(arguments)
            try:
                found: Sequence[Tensor] = alone(self._handle, arguments, gradients, wanted | mode)
                if not found:
                    self._prepare(arguments, wanted | mode | _ops.BACKWARD_ALONE)
                    found = alone(self._handle, arguments, gradients, wanted | mode)
                return found
            except _NoPlan:
                pass
        return _ops.gradients_by_autograd(self._graph, arguments, gradients, wanted, create_graph=False)

    def _mode(self) -> int:
        """The bit for convolutions that round to tf32, where PyTorch's switches say so."""
        for kind in self._graph.switches:
            if _precision("cuda", kind) != "tf32":
                return 0
        return _ops.TF32_ALLOWED

    def _mode_for(self, arguments: Sequence[Tensor]) -> int:
        return self._mode() if self._graph.convolves and arguments[0].is_cuda else 0

    def _register(self) -> None:
        if self._handle < 0:
            self._handle = _ops.handle_of(self.notation, bool(self.keep))
            self._graph = _ops.graph_of(self._handle)
            self._all = (1 << len(self._graph.names)) - 1
            self._output_count = len(self._graph.outputs)
            self._needed = _needed_by_handle.setdefault(self._handle, self._needed)

    def _unusual(self, arguments: Sequence[Tensor]) -> Sequence[Tensor]:
        """A first call, autocast, or tensors that no plan takes."""
        self._register()
        if self._why_not(arguments):
            return self._decomposed(arguments)
        kind = arguments[0].device.type
        if _is_autocast_enabled(kind):
            cast = self._for_autocast(arguments)
            with torch.autocast(kind, enabled=False):
                result = cast(*arguments)
        else:
            result = self(*arguments)
        return result if isinstance(result, tuple) else (result,)

    def _why_not(self, arguments: Sequence[Tensor]) -> str:
        """Why no plan is looked for; empty where one is."""
        if _disabled:
            return "they were asked for, by FUSEBLOCK_DISABLE or `pytorch_operators`"
        device = arguments[0].device if arguments else None
        for name, argument in zip(self._graph.names, arguments, strict=False):
            if not (argument.is_cpu or argument.is_cuda):
                return f"{name} is on {argument.device}, and plans run on the CPU and on CUDA devices"
            if argument.device != device:
                return f"{name} is on {argument.device}, {self._graph.names[0]} on {device}"
            if argument.layout != torch.strided:
                return f"{name} has the layout {argument.layout}"
            if type(argument) not in _PLAIN:
                return f"{name} is a {type(argument).__name__}"
        if forward_ad._current_level >= 0:
            return "inside a level of torch.autograd.forward_ad"
        return "inside a transform of torch.func" if _in_transform() else ""

    def _for_autocast(self, arguments: Sequence[Tensor]) -> Block:
        """The block with the casts that autocast would make."""
        dtypes = tuple(argument.dtype for argument in arguments)
        kind = arguments[0].device.type
        key = (kind, torch.get_autocast_dtype(kind), dtypes)
        if key not in self._autocast:
            few = self._graph.named(self._one_sample(arguments))
            cast = aten.autocast_block(self._graph.block, few, kind)
            self._autocast[key] = block(json.dumps(cast), self.keep)
        return self._autocast[key]

    def _one_sample(self, arguments: Sequence[Tensor]) -> list[Tensor]:
        """The arguments for the first sample alone; enough to see what PyTorch makes of their dtypes."""
        x = arguments[0]
        return [
            argument[:1]
            if name in self._graph.inputs
            and x.dim() > 0
            and argument.dim() == x.dim()
            and argument.shape[0] == x.shape[0]
            else argument
            for name, argument in zip(self._graph.names, arguments, strict=True)
        ]

    def _prepare(self, arguments: Sequence[Tensor], wanted: int) -> None:
        """Makes the plans for these tensors. Raises _NoPlan where there is none."""
        prepare = torch.ops.fuseblock.prepare
        for name, argument in self._graph.named(arguments).items():
            if argument.dtype not in _DTYPE_NAMES:
                expected = ", ".join(_DTYPES)
                raise _NoPlan(
                    "mistake", f"{name}: expected a tensor of {expected}, got one of {argument.dtype}"
                )
        capturing = arguments[0].is_cuda and _is_capturing(arguments[0].device)
        kind, *answer = prepare(self._handle, arguments, wanted, "", capturing)
        if kind == "unknown":
            raise RuntimeError(
                f"{self.notation}: the first call with tensors like these compiles kernels, and a CUDA graph "
                "is being captured: call fuseblock.prepare(module, *inputs) before the capture"
            )
        if kind == "ready" and not capturing:
            own = [_DTYPES[text.split("[")[0]] for text in answer[1:-2]]
            if reason := self._dtypes_differ(arguments, own):
                kind, *answer = prepare(self._handle, arguments, wanted, reason)
        if kind != "ready":
            raise _NoPlan(kind, answer[0])
        self._needed[wanted] = self._needed.get(wanted, 0) | int(answer[0])

    def _dtypes_differ(self, arguments: Sequence[Tensor], own: list[torch.dtype]) -> str:
        """What PyTorch makes of a mix of dtypes, where that is not what the plan does; empty where it is."""
        dtypes = tuple(argument.dtype for argument in arguments)
        if len(set(dtypes)) == 1:
            return ""
        if dtypes not in self._mixes:
            try:
                with torch.no_grad():
                    outputs = _ops.decomposed(self._graph, self._one_sample(arguments))
                self._mixes[dtypes] = [output.dtype for output in outputs]
            except (RuntimeError, ValueError, TypeError) as error:
                self._mixes[dtypes] = str(error)
        mix = self._mixes[dtypes]
        if isinstance(mix, str):
            return mix
        return "" if mix == own else f"for these dtypes PyTorch gives {mix}, the plan {own}"

    def _prepared(self, arguments: Sequence[Tensor], wanted: int) -> list[Tensor]:
        """The results of `forward` with plans that are made first."""
        self._prepare(arguments, wanted)
        results: list[Tensor] = _forward(self._handle, arguments, wanted)
        return results

    def _decomposed(self, arguments: Sequence[Tensor]) -> list[Tensor]:
        """The outputs by PyTorch's operators. These do not notice every mix of devices."""
        devices: dict[torch.device, str] = {}
        for name, argument in self._graph.named(arguments).items():
            if argument.dim() > 0:
                devices.setdefault(argument.device, name)
        if len(devices) > 1:
            places = " and ".join(f"{name} on {device}" for device, name in devices.items())
            raise RuntimeError(f"expected all tensors to be on the same device, got {places}")
        return _ops.decomposed(self._graph, arguments)

    def _by_torch(self, arguments: Sequence[Tensor], refused: _NoPlan) -> list[Tensor]:
        """The outputs by PyTorch's operators; where these refuse too, the library's message tells more."""
        try:
            return self._decomposed(arguments)
        except (RuntimeError, ValueError, TypeError, IndexError) as error:
            if refused.is_mistake:
                raise ValueError(refused.reason) from error
            raise

    def _described(self, input_type: str, others: Mapping[str, str]) -> Mapping[str, Any]:
        """What the library tells of the block for these types."""
        key = (input_type, *others.items())
        if key not in self._known:
            plan = Plan.make(self.notation, input_type, others, "reference")
            self._known[key] = json.loads(plan.explain_json())
        return self._known[key]


class _Apply(torch.autograd.Function):
    """A block by its plans, in autograd."""

    @staticmethod
    def forward(ctx: Any, owner: Block, wanted: int, *arguments: Tensor) -> Any:
        """The outputs; what the backward plan reads is saved."""
        results = _forward(owner._handle, arguments, wanted) or owner._prepared(arguments, wanted)
        ctx.owner = owner
        ctx.wanted = wanted & owner._all
        needed = owner._needed.get(wanted)
        if needed is None:  # somebody else had the plans made
            owner._prepare(arguments, wanted)
            needed = owner._needed[wanted]
        ctx.needed = needed
        kept = (
            arguments
            if needed == owner._all
            else [argument for i, argument in enumerate(arguments) if needed >> i & 1]
        )
        count = owner._output_count
        ctx.save_for_backward(*kept, *results[count:])
        return results[0] if count == 1 else tuple(results[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        """The wanted gradients; by PyTorch's operators where they may be differentiated again."""
        owner, wanted, needed = ctx.owner, ctx.wanted, ctx.needed
        *kept, saved = ctx.saved_tensors
        # What a GPU saved lies in a tensor of its own.
        values = kept.pop() if len(kept) > needed.bit_count() else None
        if _is_grad_enabled() or forward_ad._current_level >= 0:
            found = _differentiable_gradients(owner, kept, needed, gradients, saved)
        else:
            found = _backward(owner._handle, kept, needed, gradients, saved, values)
        if wanted == owner._all:
            return None, None, *found
        place = iter(found)
        return None, None, *[next(place) if wanted >> i & 1 else None for i in range(len(owner._graph.names))]


# Function.apply without what it does inside transforms of torch.func, where blocks do not come here.
_apply: Any = super(torch.autograd.Function, _Apply).apply


def _differentiable_gradients(
    owner: Block, kept: Sequence[Tensor], needed: int, gradients: Sequence[Tensor], saved: Tensor
) -> list[Tensor]:
    """The gradients with a graph behind them: the block of the gradients, run by PyTorch's operators."""
    text, *lines = torch.ops.fuseblock.backward_json(owner._handle, saved).split("\n")
    names = owner._graph.names
    arguments = dict(zip((n for i, n in enumerate(names) if needed >> i & 1), kept, strict=True))
    for name, gradient in zip(owner._graph.outputs, gradients, strict=True):
        arguments[f"d_{name}"] = gradient
    axes = dict(line.split(" ") for line in lines)
    return list(aten.run(json.loads(text), arguments, axes).values())


def _one_or_all(outputs: Sequence[Tensor]) -> Tensor | tuple[Tensor, ...]:
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


def block(notation: str, keep: Sequence[str] = ()) -> Block:
    """The block of a notation, made once."""
    if torch.compiler.is_compiling():  # which would warn that it looks through a cache
        return Block(notation, keep=tuple(keep))
    return _block(notation, tuple(keep))


@functools.cache
def _block(notation: str, keep: tuple[str, ...]) -> Block:
    return Block(notation, keep=keep)


def disabled() -> bool:
    """Whether PyTorch's operators run every block: FUSEBLOCK_DISABLE=1, or inside `pytorch_operators`."""
    return _disabled


@contextlib.contextmanager
def pytorch_operators() -> Iterator[None]:
    """Inside, PyTorch's operators run every block, in all threads: for comparison."""
    global _disabled
    before, _disabled = _disabled, True
    try:
        yield
    finally:
        _disabled = before
