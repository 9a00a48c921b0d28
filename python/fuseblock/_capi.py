"""Plans from Python: a thin layer over the C API (include/fuseblock/c_api.h) that takes torch tensors.

    plan = Plan.make("group_norm(4) | silu", "f32[2,8,16,16]")
    outputs = plan.run({"x": x, "group_norm.weight": weight, "group_norm.bias": bias})
    call = plan.bind(inputs, outputs)   # prepared once,
    call()                              # then only a call by handle

Tensors are on the CPU, or on a GPU for the devices `cuda` and `cuda:1`, in any strides. The library is
$FUSEBLOCK_LIBRARY, or libfuseblock_c.so beside this file, or that of the checkout's build folder.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fuseblock import _library

__all__ = ["BoundCall", "Plan", "TensorInfo", "library", "library_path", "type_text", "version"]

_ALIGNMENT = 64
# In the order of FuseblockDType.
_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
_DTYPE_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}
_DTYPE_NAMES = {
    torch.float64: "f64",
    torch.float32: "f32",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
}
_REUSE = {"by_cost": 0, "store": 1, "recompute": 2}
_PRECISION = {"strict": 0, "tf32": 1}
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
# By FuseblockStatus.
_ERRORS: dict[int, type[Exception]] = {1: ValueError, 2: NotImplementedError, 3: RuntimeError, 4: MemoryError}


class _Options(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("threads", ctypes.c_int32),
        ("reuse", ctypes.c_int32),
        ("unfused", ctypes.c_int32),
        ("precision", ctypes.c_int32),
        ("plain", ctypes.c_int32),
    )


class _NamedType(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("type", ctypes.c_char_p))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("extents", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    )


class _TensorInfo(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_char_p),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("extents", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    )


def library_path() -> Path:
    """The shared library. Raises FileNotFoundError that says how to build it."""
    return _library.find("libfuseblock_c.so", "FUSEBLOCK_LIBRARY")


@functools.cache
def library() -> ctypes.CDLL:
    """The loaded library with the types of its functions."""
    loaded = ctypes.CDLL(str(library_path()))
    handle = ctypes.c_void_p
    size = ctypes.c_size_t
    text = ctypes.c_char_p
    out = ctypes.POINTER
    status = ctypes.c_int32
    signatures: dict[str, tuple[object, list[object]]] = {
        "c_api_version": (ctypes.c_int32, []),
        "version": (text, []),
        "last_error": (text, []),
        "set_compiler_folder": (status, [text]),
        "plan_make": (
            status,
            [text, text, out(_NamedType), size, text, out(_Options), out(handle)],
        ),
        "plan_backward": (status, [handle, out(text), size, out(handle)]),
        "plan_for_training": (status, [handle, out(text), size, out(handle), out(handle)]),
        "plan_free": (None, [handle]),
        "plan_input_count": (size, [handle]),
        "plan_output_count": (size, [handle]),
        "plan_input": (status, [handle, size, out(_TensorInfo)]),
        "plan_output": (status, [handle, size, out(_TensorInfo)]),
        "plan_workspace_bytes": (size, [handle]),
        "advise_fresh_memory": (None, [ctypes.c_void_p, size]),
        "plan_run": (status, [handle, out(_Tensor), size, out(_Tensor), size, ctypes.c_void_p, size]),
        "plan_run_on": (
            status,
            [handle, out(_Tensor), size, out(_Tensor), size, ctypes.c_void_p, size, ctypes.c_void_p],
        ),
        "plan_explain": (status, [handle, out(text)]),
        "plan_explain_json": (status, [handle, out(text)]),
        "plan_launches_json": (status, [handle, handle, out(text)]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(loaded, f"fuseblock_{name}")
        function.restype = result
        function.argtypes = arguments
    if wheels := _library.wheels_folder():
        loaded.fuseblock_set_compiler_folder(os.fsencode(wheels))
    return loaded


def version() -> str:
    """The library's version."""
    found: bytes = library().fuseblock_version()
    return found.decode()


def _check(status: int) -> None:
    """Raises what a status means, with the library's message."""
    if status != 0:
        message: bytes = library().fuseblock_last_error()
        raise _ERRORS.get(status, RuntimeError)(message.decode(errors="replace"))


def type_text(tensor: Tensor) -> str:
    """A tensor's type as the notation writes it: `f32[2,8,16,16]`, with `:cl` where it is channels_last."""
    if tensor.dtype not in _DTYPE_NAMES:
        raise ValueError(f"expected a tensor of f64, f32, bf16 or f16, got {tensor.dtype}")
    extents = ",".join(str(extent) for extent in tensor.shape)
    format_ = _CHANNELS_LAST.get(tensor.dim())
    last = format_ is not None and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=format_)
    return f"{_DTYPE_NAMES[tensor.dtype]}[{extents}]{':cl' if last else ''}"


@dataclass(frozen=True)
class TensorInfo:
    """What a plan expects of a tensor; the strides are those of its layout, others will do."""

    name: str
    type: str
    dtype: torch.dtype
    extents: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """The bytes of its elements."""
        return torch.Size(self.extents).numel() * self.dtype.itemsize

    def empty(self, device: str = "cpu") -> Tensor:
        """A tensor for it, not filled."""
        tensor = torch.empty_strided(
            self.extents, self.strides, dtype=self.dtype, device=_device_of_torch(device)
        )
        _advise(tensor)
        return tensor


class Plan:
    """A block made ready for one input type; see Plan in include/fuseblock/plan.h."""

    def __init__(self, handle: int, device: str = "cpu") -> None:
        """Takes over a handle of the library; tensors are on that device of PyTorch's."""
        self._handle = handle
        self.device = device
        self._workspace: Tensor | None = None
        self.inputs = self._tensors("input")
        self.outputs = self._tensors("output")
        self.workspace_bytes: int = library().fuseblock_plan_workspace_bytes(handle)

    def __del__(self) -> None:
        """Gives the handle back."""
        if handle := getattr(self, "_handle", None):
            library().fuseblock_plan_free(handle)
            self._handle = 0

    @classmethod
    def make(
        cls,
        notation: str,
        input_type: str,
        others: Mapping[str, str] | None = None,
        device: str | None = None,
        *,
        threads: int = 0,
        reuse: str = "by_cost",
        fuse: bool = True,
        precision: str = "strict",
        plain: bool | None = None,
    ) -> Plan:
        """Makes a plan.

        notation: the block as text or JSON.
        input_type: the type of x, such as `f32[2,8,16,16]`; see `type_text`.
        others: types of extra inputs and parameters by name, where they do not follow from the block.
        device: the name of an engine; the best one unless given.
        threads: 0 means as many as there are cores.
        reuse: what is done with a convolution's result that is needed twice: by_cost, store or recompute.
        fuse: False runs one operation after the other, for comparison.
        precision: of convolutions of f32 tensors on a GPU: strict (the error of f32) or tf32.
        plain: True for kernels on a GPU with a short text wherever there are some, for reading and export,
            False for none of them; where they take less time unless given.

        Raises ValueError for a mistake, NotImplementedError for what is not supported.
        """
        if reuse not in _REUSE:
            raise ValueError(f"reuse: expected one of {', '.join(_REUSE)}, got {reuse}")
        if precision not in _PRECISION:
            raise ValueError(f"precision: expected one of {', '.join(_PRECISION)}, got {precision}")
        given = others or {}
        types = (_NamedType * len(given))(
            *(_NamedType(name.encode(), text.encode()) for name, text in given.items())
        )
        options = _Options(
            ctypes.sizeof(_Options),
            threads,
            _REUSE[reuse],
            int(not fuse),
            _PRECISION[precision],
            0 if plain is None else 1 if plain else 2,
        )
        handle = ctypes.c_void_p()
        _check(
            library().fuseblock_plan_make(
                notation.encode(),
                input_type.encode(),
                types,
                len(given),
                device.encode() if device is not None else None,
                ctypes.byref(options),
                ctypes.byref(handle),
            )
        )
        return cls(handle.value or 0, device if device and device.startswith("cuda") else "cpu")

    def backward(self, wanted: Sequence[str] = ()) -> Plan:
        """The plan of the gradients of these arguments; of all that have one where none are named."""
        names = (ctypes.c_char_p * len(wanted))(*(name.encode() for name in wanted))
        handle = ctypes.c_void_p()
        _check(library().fuseblock_plan_backward(self._handle, names, len(wanted), ctypes.byref(handle)))
        return Plan(handle.value or 0, self.device)

    def for_training(self, wanted: Sequence[str] = ()) -> tuple[Plan, Plan]:
        """A forward and a backward plan that belong together.

        The forward plan may have outputs behind this plan's own; the backward plan takes them as inputs of
        the same names.
        """
        names = (ctypes.c_char_p * len(wanted))(*(name.encode() for name in wanted))
        forward = ctypes.c_void_p()
        backward = ctypes.c_void_p()
        _check(
            library().fuseblock_plan_for_training(
                self._handle, names, len(wanted), ctypes.byref(forward), ctypes.byref(backward)
            )
        )
        return Plan(forward.value or 0, self.device), Plan(backward.value or 0, self.device)

    def explain(self) -> str:
        """What runs and why."""
        return self._text("plan_explain")

    def explain_json(self) -> str:
        """The same as a JSON object."""
        return self._text("plan_explain_json")

    def launches_json(self, like: Plan | None = None) -> str:
        """The launches of a plan for a GPU; see Plan::launches_json in include/fuseblock/plan.h."""
        text = ctypes.c_char_p()
        other = None if like is None else like._handle
        _check(library().fuseblock_plan_launches_json(self._handle, other, ctypes.byref(text)))
        return (text.value or b"").decode()

    def empty_outputs(self) -> dict[str, Tensor]:
        """Tensors for the outputs, not filled."""
        return {info.name: info.empty(self.device) for info in self.outputs}

    def bind(
        self,
        inputs: Mapping[str, Tensor],
        outputs: Mapping[str, Tensor] | None = None,
        workspace: Tensor | None = None,
    ) -> BoundCall:
        """A call with these tensors, ready to be made many times; inputs may hold more than the plan takes.

        workspace: bytes aligned to 64, at least `workspace_bytes`; the plan's own unless given, which only
        one thread may use at a time.
        """
        own = self.empty_outputs() if outputs is None else outputs
        return BoundCall(self, inputs, own, self._own_workspace() if workspace is None else workspace)

    def run(
        self, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """Runs once and returns the outputs by name."""
        call = self.bind(inputs, outputs)
        call()
        return call.outputs

    def _own_workspace(self) -> Tensor:
        if self._workspace is None:
            self._workspace = aligned_bytes(self.workspace_bytes, self.device)
        return self._workspace

    def _text(self, function: str) -> str:
        text = ctypes.c_char_p()
        _check(getattr(library(), f"fuseblock_{function}")(self._handle, ctypes.byref(text)))
        return (text.value or b"").decode()

    def _tensors(self, which: str) -> tuple[TensorInfo, ...]:
        count: int = getattr(library(), f"fuseblock_plan_{which}_count")(self._handle)
        result = []
        for index in range(count):
            info = _TensorInfo(struct_size=ctypes.sizeof(_TensorInfo))
            _check(getattr(library(), f"fuseblock_plan_{which}")(self._handle, index, ctypes.byref(info)))
            result.append(
                TensorInfo(
                    info.name.decode(),
                    info.type.decode(),
                    _DTYPES[info.dtype],
                    tuple(info.extents[: info.rank]),
                    tuple(info.strides[: info.rank]),
                )
            )
        return tuple(result)


class BoundCall:
    """A plan with its tensors: calling it computes the outputs anew from what the inputs hold then."""

    def __init__(
        self, plan: Plan, inputs: Mapping[str, Tensor], outputs: Mapping[str, Tensor], workspace: Tensor
    ) -> None:
        """See Plan.bind."""
        self.plan = plan
        self.inputs = {info.name: _find(inputs, info, plan.device) for info in plan.inputs}
        self.outputs = {info.name: _find(outputs, info, plan.device) for info in plan.outputs}
        self.workspace = workspace
        self._inputs = _views(self.inputs.values())
        self._outputs = _views(self.outputs.values())
        self._arguments = (
            plan._handle,
            self._inputs,
            len(self.inputs),
            self._outputs,
            len(self.outputs),
            workspace.data_ptr(),
            workspace.numel() * workspace.element_size(),
        )
        self._run = library().fuseblock_plan_run_on

    def __call__(self) -> None:
        """Runs the plan, on a GPU in PyTorch's current stream; other Python threads may run meanwhile."""
        gpu = _gpu(self.plan.device)
        stream = torch.cuda.current_stream(gpu).cuda_stream if gpu is not None else None
        _check(self._run(*self._arguments, stream))

    def set_input(self, name: str, tensor: Tensor) -> None:
        """Puts another tensor in the place of an input; it is checked when the plan runs."""
        index = next(i for i, info in enumerate(self.plan.inputs) if info.name == name)
        self.inputs[name] = _find({name: tensor}, self.plan.inputs[index], self.plan.device)
        self._inputs[index] = _view(tensor)

    def fresh_outputs(self) -> None:
        """Puts new tensors in the place of the outputs, as a function that returns its results would."""
        for index, info in enumerate(self.plan.outputs):
            tensor = info.empty(self.plan.device)
            self.outputs[info.name] = tensor
            self._outputs[index] = _view(tensor)

    def release_outputs(self) -> None:
        """Lets the outputs go; `fresh_outputs` must come before the next call."""
        self.outputs.clear()
        for view in self._outputs:
            view.data = None


def aligned_bytes(count: int, device: str = "cpu") -> Tensor:
    """Memory for a workspace."""
    memory = torch.empty(count + _ALIGNMENT, dtype=torch.uint8, device=_device_of_torch(device))
    _advise(memory)
    begin = -memory.data_ptr() % _ALIGNMENT
    return memory[begin : begin + count]


def _advise(tensor: Tensor) -> None:
    """Tells the system that a tensor of the CPU was just made; see include/fuseblock/fresh_memory.h."""
    if tensor.device.type == "cpu":
        library().fuseblock_advise_fresh_memory(tensor.data_ptr(), tensor.untyped_storage().nbytes())


def _device_of_torch(device: str) -> str:
    """PyTorch's name of a plan's device; its `cuda` would be the current one."""
    gpu = _gpu(device)
    return device if gpu is None else f"cuda:{gpu}"


def _gpu(device: str) -> int | None:
    """The number of a GPU; `cuda` is the first one."""
    kind, _, number = device.partition(":")
    return int(number or 0) if kind == "cuda" else None


def _find(tensors: Mapping[str, Tensor], info: TensorInfo, device: str) -> Tensor:
    tensor = tensors.get(info.name)
    if tensor is None:
        raise ValueError(f"no tensor `{info.name}`, expected {info.type}")
    gpu = _gpu(device)
    kind, number = ("cpu", None) if gpu is None else ("cuda", gpu)
    if tensor.device.type != kind or (tensor.device.index if tensor.is_cuda else None) != number:
        raise ValueError(f"{info.name}: expected a tensor on {device}, got one on {tensor.device}")
    if tensor.dtype not in _DTYPE_CODES:
        raise ValueError(f"{info.name}: expected {info.type}, got {tensor.dtype}")
    return tensor


def _view(tensor: Tensor) -> _Tensor:
    rank = tensor.dim()
    return _Tensor(
        tensor.data_ptr(),
        _DTYPE_CODES[tensor.dtype],
        rank,
        (ctypes.c_int64 * rank)(*tensor.shape),
        (ctypes.c_int64 * rank)(*tensor.stride()),
    )


def _views(tensors: Collection[Tensor]) -> ctypes.Array[_Tensor]:
    return (_Tensor * len(tensors))(*(_view(tensor) for tensor in tensors))
