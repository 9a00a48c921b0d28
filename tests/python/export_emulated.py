"""An exported file's kernels and launches on the emulated GPU of tests/emulator, beside the original model:

    .venv/bin/python tests/python/export_emulated.py [problem...]

The kernels are compiled by the emulator, and the file's Python launches them on it; tensors are in the
program's own memory. What is left out is the build by nvcc. Two sets of extents run, of which neither is the
example's.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from export_support import CHECKOUT, EXAMPLES, PROBLEMS, device_texts, load_file
from torch import Tensor, nn

EMULATOR = CHECKOUT / os.environ.get("FUSEBLOCK_BUILD", "build") / "tests" / "emulator" / "libcuda.so.1"
MULTIPROCESSORS = 44
_COOPERATIVE = 2
_CLUSTER = 4
_MOST_SHARED_BYTES = 8
TOLERANCE = 2e-5


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint),
    )


class Emulated:
    """The library of an exported file: its kernels on the emulator."""

    def __init__(self, exported: Any) -> None:
        """Compiles all of them."""
        os.environ["FUSEBLOCK_EMULATED_MULTIPROCESSORS"] = str(MULTIPROCESSORS)
        self.driver = ctypes.CDLL(str(EMULATOR))
        context = ctypes.c_void_p()
        self.check(self.driver.cuInit(0))
        self.check(self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
        self.check(self.driver.cuCtxSetCurrent(context))
        self.kernels: list[tuple[str, ctypes.c_void_p, int]] = []
        self.threads = (
            int(found[1]) if (found := re.search(r"blocks, (\d+), parameters", exported.CUDA)) else 0
        )
        self.launched: list[str] = []
        for name, device in device_texts(exported).items():
            cluster = re.search(r"__cluster_dims__\((\d+)\) ", device)
            device = device.replace(cluster.group(), "") if cluster else device
            entries = re.findall(r"__global__ void (?:__launch_bounds__\([^)]*\)\s*)?(\w+)\(", device)
            entry = name if name in entries else entries[0]
            self.kernels.append((name, self.kernel(device, entry), int(cluster[1]) if cluster else 1))

    def check(self, error: int) -> None:
        """Raises RuntimeError for an error of the driver."""
        if error != 0:
            text = ctypes.c_char_p()
            self.driver.cuGetErrorString(error, ctypes.byref(text))
            raise RuntimeError((text.value or b"").decode())

    def kernel(self, text: str, entry: str) -> ctypes.c_void_p:
        """A kernel, compiled and loaded."""
        text = text.replace("__global__ void", 'extern "C" __global__ void')
        program = ctypes.c_void_p()
        self.driver.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None)
        status = self.driver.nvrtcCompileProgram(program, 0, None)
        size = ctypes.c_size_t()
        if status != 0:
            self.driver.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            self.driver.nvrtcGetProgramLog(program, log)
            raise RuntimeError(log.value.decode())
        self.driver.nvrtcGetCUBINSize(program, ctypes.byref(size))
        image = ctypes.create_string_buffer(size.value)
        self.driver.nvrtcGetCUBIN(program, image)
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.driver.cuModuleLoadData(ctypes.byref(module), image))
        self.check(self.driver.cuModuleGetFunction(ctypes.byref(function), module, entry.encode()))
        return function

    def launch(self, number: int, arguments: Any, blocks: int, *others: Any) -> int:
        """As the exported file's own function of that name; returns the driver's error."""
        if self.threads:  # parameters of their own, of eight bytes each
            shared_bytes = others[0] if len(others) > 1 else 0
            threads, cooperative = self.threads, shared_bytes > 0
            begin = ctypes.addressof(arguments)
            addresses = [begin + 8 * i for i in range(len(arguments))]
        else:
            threads, shared_bytes, cooperative, _ = others
            packed = ctypes.create_string_buffer(arguments, len(arguments))
            addresses = [ctypes.addressof(packed)]
        name, function, cluster = self.kernels[number]
        self.launched.append(name)
        self.check(self.driver.cuFuncSetAttribute(function, _MOST_SHARED_BYTES, shared_bytes))
        attributes = []
        if cooperative:
            attributes.append(_Attribute(_COOPERATIVE, 0, (ctypes.c_int * 16)(1)))
        if cluster > 1:
            attributes.append(_Attribute(_CLUSTER, 0, (ctypes.c_int * 16)(cluster, 1, 1)))
        config = _Config(
            (ctypes.c_uint * 3)(blocks, 1, 1),
            (ctypes.c_uint * 3)(threads, 1, 1),
            shared_bytes,
            None,
            (_Attribute * 2)(*attributes),
            len(attributes),
        )
        parameters = (ctypes.c_void_p * len(addresses))(*addresses)
        error: int = self.driver.cuLaunchKernelEx(ctypes.byref(config), function, parameters, None)
        if error != 0:
            text = ctypes.c_char_p()
            self.driver.cuGetErrorString(error, ctypes.byref(text))
            print((text.value or b"").decode(), file=sys.stderr)
        return error


class _Torch:
    """PyTorch with the emulated GPU in place of torch.cuda."""

    cuda = types.SimpleNamespace(
        device=lambda _: contextlib.nullcontext(),
        current_stream=lambda: types.SimpleNamespace(cuda_stream=None),
        get_device_properties=lambda _: types.SimpleNamespace(
            major=9, shared_memory_per_multiprocessor=233472, multi_processor_count=MULTIPROCESSORS
        ),
    )

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


class _OnGpu:
    """A tensor that says it is on a GPU."""

    is_cuda = True

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensor, name)


def _of_tensors_on_gpu(takes: Callable[..., bool]) -> Callable[..., bool]:
    return lambda *tensors: takes(*map(_OnGpu, tensors))


def on_emulator(exported: Any) -> list[str]:
    """Makes a file's kernels run on the emulator, for tensors of the CPU. What runs goes to the list."""
    emulated = Emulated(exported)
    exported.library = lambda: emulated
    exported.torch = _Torch()
    for name in [name for name in vars(exported) if re.fullmatch(r"(fused_)?takes\d*", name)]:
        setattr(exported, name, _of_tensors_on_gpu(getattr(exported, name)))
    return emulated.launched


def results(model: nn.Module, inputs: list[Tensor]) -> dict[str, Tensor]:
    """Output and gradients, by name."""
    leaves = [each.clone().requires_grad_() for each in inputs]
    output = model(*leaves)
    gradient = torch.linspace(-1, 2, output.numel(), dtype=torch.float64).reshape(output.shape)
    output.backward(gradient.to(output))
    named = {f"d_input{i}": leaf.grad for i, leaf in enumerate(leaves)}
    named |= {f"d_{name}": parameter.grad for name, parameter in model.named_parameters()}
    return {"output": output.detach()} | {name: each for name, each in named.items() if each is not None}


def compare(problem: str) -> list[str]:
    """What is wrong with a problem's file."""
    original = load_file(EXAMPLES / "problems" / f"{problem}.py")
    exported = load_file(EXAMPLES / f"{problem}.py")
    launched = on_emulator(exported)
    arguments = original.get_init_inputs()
    shapes = [each.shape for each in original.get_inputs()]
    wrong = []
    # Extents of the block: the convolutions in front of it, without padding, take some off.
    shrink = {"conv3d_gn_mean": 2, "conv3d_hardswish_gn_mean": 3, "conv2d_gn_tanh_hardswish_residual_lse": 2}
    shrink["conv_transpose3d_relu_gn"] = -2
    # Kernels for whole chunks take no others.
    whole = re.search(r"h \* w % (\d{3,}) == 0", (EXAMPLES / f"{problem}.py").read_text())
    chunk = int(whole[1]) if whole else 0
    chosen = ((6, 16, chunk // 16), (5, 32, chunk * 3 // 32)) if whole else ((6, 8, 10), (5, 7, 8))
    for batch, block_extents in zip((1, 3), chosen, strict=True):
        extents = [extent + shrink.get(problem, 0) for extent in block_extents]
        torch.manual_seed(batch)
        model = original.Model(*arguments)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        new = exported.ModelNew(*arguments)
        new.load_state_dict(model.state_dict())
        inputs = [
            torch.rand(batch, shape[1], *extents[5 - len(shape) :][: len(shape) - 2]) for shape in shapes
        ]
        launched.clear()
        got = results(new, inputs)
        assert set(launched) == set(exported.KERNELS), f"{problem}: the kernels did not run"
        expected = results(model.double(), [each.double() for each in inputs])
        for name, tensor in expected.items():
            error = float((got[name].double() - tensor).abs().max() / tensor.abs().max())
            if not error <= TOLERANCE:
                wrong.append(
                    f"{problem} {[list(each.shape) for each in inputs]}: {name}: relative error {error:.2g}"
                )
    return wrong


def main(problems: list[str]) -> int:
    """Runs the program; the exit status."""
    wrong = []
    for problem in problems or PROBLEMS:
        wrong += compare(problem)
        print(problem, "checked", flush=True)
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
