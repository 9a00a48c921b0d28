"""The operations `torch.ops.fuseblock.*`: what bindings/torch does not define of them.

By handle, for eager mode: `forward` and `backward` run plans of a registered block; see bindings/torch.

By notation, for compiled graphs and exports, which outlive a process and its handles:

    run(str notation, bool keep_convolutions, Tensor[] arguments) -> Tensor[]
    run_backward(str notation, bool keep_convolutions, Tensor[] arguments, Tensor[] gradients, int wanted)
        -> Tensor[]

They have kernels for every device, fake kernels that run the block's ATen decomposition and so keep symbolic
sizes symbolic, autograd, and an autocast rule. `wanted` has bit i set where the gradient by argument i is
wanted.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fuseblock import _library, aten

__all__ = [
    "BACKWARD_ALONE",
    "TF32_ALLOWED",
    "Graph",
    "decomposed",
    "gradients_by_autograd",
    "graph_of",
    "wanted_mask",
]

_library.load_operations()

# Among the bits of wanted gradients: the plan of `backward_alone`.
BACKWARD_ALONE = 1 << 62
# And there too: convolutions of f32 tensors may round to tf32.
TF32_ALLOWED = 1 << 61

_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def _convolutions(statements: Sequence[dict[str, Any]]) -> tuple[bool, tuple[str, ...]]:
    """Whether there are some, and by which of PyTorch's switches those of f32 tensors may round to tf32.

    What autocast makes 16 bits of may do so in any case.
    """
    rounded = {
        each["name"]
        for each in statements
        if each.get("op") == "cast" and each["args"]["dtype"] in ("bf16", "f16")
    }
    found, switches = False, set()
    for each in statements:
        if not each.get("op", "").startswith(("conv", "linear")):
            continue
        found = True
        if each["operands"][1] not in rounded:
            switches.add("matmul" if each["op"].startswith("linear") else "conv")
    return found, tuple(sorted(switches))


class Graph:
    """What a block computes, without types: its JSON, parsed, and its names."""

    def __init__(self, text: str) -> None:
        self.block: dict[str, Any] = json.loads(text)
        self.inputs: list[str] = self.block["inputs"]
        self.names: list[str] = [*self.inputs, *self.block["parameters"]]
        self.outputs: list[str] = self.block["outputs"]
        self.convolves, self.switches = _convolutions(self.block["statements"])

    def named(self, arguments: Sequence[Tensor]) -> dict[str, Tensor]:
        """The arguments by name."""
        if len(arguments) != len(self.names):
            expected = f"{len(self.names)} tensors ({', '.join(self.names)})"
            raise ValueError(f"expected {expected}, got {len(arguments)}")
        return dict(zip(self.names, arguments, strict=True))


def _untraced() -> contextlib.AbstractContextManager[Any]:
    """Inside, torch.jit.trace does not look: it has no place for numbers and texts that operations return."""
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C._dispatch_key_parse("Tracer")))


@functools.cache
def handle_of(notation: str, keep_convolutions: bool) -> int:
    """The handle of a block. Raises ValueError where the notation is wrong."""
    try:
        with _untraced():
            handle: int = torch.ops.fuseblock.block(notation, keep_convolutions)
    except RuntimeError as error:  # what C++ throws has one type or the other by the version of PyTorch
        raise ValueError(str(error)) from None
    return handle


@functools.cache
def graph_of(handle: int) -> Graph:
    """The graph of a registered block."""
    with _untraced():
        return Graph(torch.ops.fuseblock.block_json(handle))


def decomposed(graph: Graph, arguments: Sequence[Tensor]) -> list[Tensor]:
    """The outputs by PyTorch's own operators."""
    return list(aten.run(graph.block, graph.named(arguments)).values())


def wanted_mask(arguments: Sequence[Tensor]) -> int:
    """A bit for each argument that requires a gradient."""
    return sum(1 << i for i, argument in enumerate(arguments) if argument.requires_grad)


def _chosen(tensors: Sequence[Tensor], wanted: int) -> list[Tensor]:
    return [tensor for i, tensor in enumerate(tensors) if wanted >> i & 1]


def gradients_by_autograd(
    graph: Graph, arguments: Sequence[Tensor], gradients: Sequence[Tensor], wanted: int, create_graph: bool
) -> list[Tensor]:
    """The wanted gradients by PyTorch's own operators and their derivatives."""
    with torch.enable_grad():
        # Another tensor for each argument: one may have been computed from another one.
        if create_graph:
            at = [argument.view_as(argument) for argument in arguments]
        else:
            at = [
                argument.detach().requires_grad_(bool(wanted >> i & 1))
                for i, argument in enumerate(arguments)
            ]
        chosen = [
            tensor if tensor.requires_grad else tensor.requires_grad_() for tensor in _chosen(at, wanted)
        ]
        outputs = decomposed(graph, at)
        used = [i for i, output in enumerate(outputs) if output.requires_grad]
        found = torch.autograd.grad(
            [outputs[i] for i in used],
            chosen,
            [gradients[i] for i in used],
            create_graph=create_graph,
            allow_unused=True,
        )
    return [
        torch.zeros_like(tensor) if gradient is None else gradient
        for tensor, gradient in zip(chosen, found, strict=True)
    ]


# Fake kernels.


def is_channels_last(tensor: Tensor) -> bool:
    """Whether the strides run as those of channels_last, by PyTorch's rule for outputs."""
    rank = tensor.dim()
    if rank not in _CHANNELS_LAST:
        return False
    extents, strides = tensor.shape, tensor.stride()
    if strides[1] == 0:
        return False
    least: Any = 0
    for axis in (1, *range(rank - 1, 1, -1), 0):
        if extents[axis] == 0 or strides[axis] < least or (axis == 0 and least == strides[1]):
            return False
        least = strides[axis] * extents[axis]
    return True


def _fresh(like: Tensor, channels_last: bool) -> Tensor:
    """A new tensor with the extents and dtype of another, dense in one of two formats."""
    format_ = _CHANNELS_LAST.get(like.dim()) if channels_last else None
    return torch.empty_like(like, memory_format=format_ or torch.contiguous_format, requires_grad=False)


def _fake(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        torch.library.register_fake(f"fuseblock::{name}", function)
        return function

    return register


def _fake_outputs(graph: Graph, arguments: Sequence[Tensor]) -> list[Tensor]:
    channels_last = is_channels_last(arguments[0])
    return [_fresh(output, channels_last) for output in decomposed(graph, arguments)]


def _fake_gradients(arguments: Sequence[Tensor], wanted: int) -> list[Tensor]:
    return [_fresh(argument, is_channels_last(argument)) for argument in _chosen(arguments, wanted)]


@_fake("run")
def _run_fake(notation: str, keep_convolutions: bool, arguments: Sequence[Tensor]) -> list[Tensor]:
    return _fake_outputs(graph_of(handle_of(notation, keep_convolutions)), arguments)


@_fake("run_backward")
def _run_backward_fake(
    notation: str,
    keep_convolutions: bool,
    arguments: Sequence[Tensor],
    gradients: Sequence[Tensor],
    wanted: int,
) -> list[Tensor]:
    del notation, keep_convolutions, gradients
    return _fake_gradients(arguments, wanted)


@_fake("forward")
def _forward_fake(block: int, arguments: Sequence[Tensor], wanted: int) -> list[Tensor]:
    outputs = _fake_outputs(graph_of(block), arguments)
    if wanted == 0:
        return outputs
    # What is saved is the plan's choice: it is asked with tensors of these extents.
    with torch._subclasses.fake_tensor.unset_fake_temporarily():
        real = [
            torch.empty_strided(
                [int(e) for e in a.shape], [int(s) for s in a.stride()], dtype=a.dtype, device=a.device
            )
            for a in arguments
        ]
        kind, *answer = torch.ops.fuseblock.prepare(block, real, wanted, "")
    if kind != "ready":
        return []
    on_gpu, on_cpu = int(answer[-2]), int(answer[-1])
    if on_gpu > 0:
        outputs.append(arguments[0].new_empty([on_gpu], dtype=torch.uint8))
    outputs.append(arguments[0].new_empty([on_cpu], dtype=torch.uint8, device="cpu"))
    return outputs


@_fake("backward_alone")
def _backward_alone_fake(
    block: int, arguments: Sequence[Tensor], gradients: Sequence[Tensor], wanted: int
) -> list[Tensor]:
    del block, gradients
    return _fake_gradients(arguments, wanted)


# Kernels of the operations by notation.


def _owned(results: Sequence[Tensor], arguments: Sequence[Tensor]) -> list[Tensor]:
    """Results in memory of their own, as the schemas promise: an operator may return its operand."""
    taken = {argument.untyped_storage()._cdata for argument in arguments}
    owned = []
    for result in results:
        place = result.untyped_storage()._cdata
        owned.append(result.clone() if place in taken else result)
        taken.add(place)
    return owned


def _implement(name: str, key: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        torch.library.impl(f"fuseblock::{name}", key, function)
        return function

    return register


@_implement("run", "CompositeExplicitAutograd")
def _run(notation: str, keep_convolutions: bool, arguments: Sequence[Tensor]) -> list[Tensor]:
    from fuseblock._blocks import block

    outputs = block(notation, ("conv",) if keep_convolutions else ()).outputs(arguments)
    return _owned(outputs, arguments)


@_implement("run_backward", "CompositeExplicitAutograd")
def _run_backward(
    notation: str,
    keep_convolutions: bool,
    arguments: Sequence[Tensor],
    gradients: Sequence[Tensor],
    wanted: int,
) -> list[Tensor]:
    from fuseblock._blocks import block

    found = block(notation, ("conv",) if keep_convolutions else ()).gradients(arguments, gradients, wanted)
    return _owned(found, [*arguments, *gradients])


@_implement("run", "AutocastCPU")
@_implement("run", "AutocastCUDA")
def _run_autocast(notation: str, keep_convolutions: bool, arguments: Sequence[Tensor]) -> Any:
    device = arguments[0].device.type
    graph = graph_of(handle_of(notation, keep_convolutions))
    casted = json.dumps(aten.autocast_block(graph.block, graph.named(arguments), device))
    with torch.autocast(device, enabled=False):
        return torch.ops.fuseblock.run(casted, keep_convolutions, arguments)


# Autograd of the operations by notation.


def _run_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    del output
    ctx.notation, ctx.keep_convolutions, arguments = inputs
    ctx.save_for_backward(*arguments)


def _run_autograd(ctx: Any, gradients: Sequence[Tensor]) -> tuple[Any, ...]:
    arguments = ctx.saved_tensors
    wanted = sum(1 << i for i, needs in enumerate(ctx.needs_input_grad[2]) if needs)
    found = iter(
        torch.ops.fuseblock.run_backward(
            ctx.notation, ctx.keep_convolutions, arguments, list(gradients), wanted
        )
    )
    return None, None, [next(found) if wanted >> i & 1 else None for i in range(len(arguments))]


def _run_backward_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    del output
    ctx.notation, ctx.keep_convolutions, arguments, gradients, ctx.wanted = inputs
    ctx.count = len(arguments)
    ctx.save_for_backward(*arguments, *gradients)


def _run_backward_autograd(ctx: Any, seconds: Sequence[Tensor]) -> tuple[Any, ...]:
    """The derivative of the gradients, by PyTorch's own operators."""
    graph = graph_of(handle_of(ctx.notation, ctx.keep_convolutions))
    with torch.enable_grad():
        tensors = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
        arguments, gradients = tensors[: ctx.count], tensors[ctx.count :]
        first = gradients_by_autograd(graph, arguments, gradients, ctx.wanted, create_graph=True)
        used = [i for i, gradient in enumerate(first) if gradient.requires_grad]
        found = torch.autograd.grad(
            [first[i] for i in used], tensors, [seconds[i] for i in used], allow_unused=True
        )
    return None, None, list(found[: ctx.count]), list(found[ctx.count :]), None


torch.library.register_autograd("fuseblock::run", _run_autograd, setup_context=_run_setup)
torch.library.register_autograd(
    "fuseblock::run_backward", _run_backward_autograd, setup_context=_run_backward_setup
)
