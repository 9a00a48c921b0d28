"""What tests of exported files share: the examples, NVRTC, and models for blocks of tests/cases."""

from __future__ import annotations

import concurrent.futures
import ctypes
import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

CHECKOUT = Path(__file__).resolve().parents[2]
EXAMPLES = CHECKOUT / "examples" / "exported"
PROBLEMS = sorted(path.stem for path in (EXAMPLES / "problems").glob("*.py"))


def load_file(path: Path) -> Any:
    """A Python file as a module of its own."""
    spec = importlib.util.spec_from_file_location(f"exported_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def device_texts(exported: Any) -> dict[str, str]:
    """The device code of each kernel of a file, by their names; all of it where they are one text."""
    if isinstance(exported.KERNELS, dict):
        return {name: "".join(parts) for name, parts in exported.KERNELS.items()}
    return dict.fromkeys(exported.KERNELS, exported.CUDA.partition("// Launches one of the kernels")[0])


@functools.cache
def nvrtc() -> ctypes.CDLL:
    """The run-time compiler of the wheels beside torch."""
    found = importlib.util.find_spec("nvidia")
    assert found is not None
    assert found.submodule_search_locations is not None
    libraries = [
        path
        for folder in found.submodule_search_locations
        for path in sorted(Path(folder).glob("*/lib/libnvrtc.so.*"))
        if "alt" not in path.name
    ]
    return ctypes.CDLL(str(libraries[-1]))


def compile_device(text: str, architecture: str) -> None:
    """Compiles device code. Raises AssertionError with the compiler's messages."""
    library = nvrtc()
    program = ctypes.c_void_p()
    assert library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernel.cu", 0, None, None) == 0
    options = (ctypes.c_char_p * 2)(f"--gpu-architecture={architecture}".encode(), b"--std=c++17")
    status = library.nvrtcCompileProgram(program, 2, options)
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    assert status == 0, log.value.decode()[:4000]


def compile_each(texts: Mapping[str, str]) -> None:
    """Compiles device code for the architectures it was planned for, all at once."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(compile_device, texts.values(), texts))


class CaseModel(nn.Module):
    """A block of tests/cases as a model: a function of the module and its inputs."""

    def __init__(self, function: Callable[..., Tensor], parameters: Mapping[str, Tensor | nn.Module]) -> None:
        """With these parameters and modules."""
        super().__init__()
        self.function = function
        for name, value in parameters.items():
            setattr(self, name, nn.Parameter(value) if isinstance(value, Tensor) else value)

    def forward(self, x: Tensor) -> Tensor:
        """The block."""
        return self.function(self, x)


class _ScaleShift(CaseModel):
    def forward(self, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:  # type: ignore[override]
        return self.function(self, x, scale, shift)


class _GammaBeta(CaseModel):
    def forward(self, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:  # type: ignore[override]
        return self.function(self, x, gamma, beta)


class _Skip(CaseModel):
    def forward(self, x: Tensor, skip: Tensor) -> Tensor:  # type: ignore[override]
        return self.function(self, x, skip)


@dataclass(frozen=True)
class Case:
    """How a case is written in PyTorch."""

    function: Callable[..., Tensor]
    inputs: Sequence[Sequence[int]]
    parameters: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    dtype: torch.dtype = torch.float32
    kind: type[CaseModel] = CaseModel

    def model(self) -> CaseModel:
        """The model."""
        built = {name: make() for name, make in self.parameters.items()}
        return self.kind(self.function, built).to(self.dtype)

    def arguments(self) -> list[Tensor]:
        """Its inputs."""
        return [torch.rand(*shape).to(self.dtype) for shape in self.inputs]


def _norm(groups: int, channels: int, **options: Any) -> dict[str, Callable[[], Any]]:
    return {"norm": lambda: nn.GroupNorm(groups, channels, **options)}


_PLANE = [(2, 6, 5, 7)]
_MODULATED = [(2, 6, 5, 7), (2, 6, 1, 1), (2, 6, 1, 1)]

# By the names of tests/cases; each must be captured as the block that stands there.
CASES: dict[str, Case] = {
    "conv3d_gn_mean_tail": Case(
        lambda m, x: m.norm(x).mean(dim=[1, 2, 3, 4]), [(2, 24, 2, 3, 4)], _norm(8, 24)
    ),
    "conv3d_gn_mean_tail_bf16": Case(
        lambda m, x: m.norm(x).mean(dim=[1, 2, 3, 4]), [(2, 24, 2, 3, 5)], _norm(8, 24), torch.bfloat16
    ),
    "conv_transpose3d_relu_gn_tail": Case(
        lambda m, x: m.norm(torch.relu(x)), [(2, 16, 3, 4, 5)], _norm(8, 16)
    ),
    "conv3d_hardswish_gn_mean_tail": Case(
        lambda m, x: torch.mean(m.norm(F.hardswish(x)), dim=(2, 3, 4)), [(3, 16, 2, 3, 5)], _norm(4, 16)
    ),
    "conv2d_gn_tanh_hardswish_residual_lse_tail": Case(
        lambda m, x: torch.logsumexp(x + F.hardswish(torch.tanh(m.norm(x))), dim=1, keepdim=True),
        [(2, 64, 3, 5)],
        _norm(16, 64),
    ),
    "adagn": Case(
        lambda m, x, scale, shift: F.silu(m.norm(x) * scale + shift),
        [(2, 8, 5, 5), (2, 8, 1, 1), (2, 8, 1, 1)],
        _norm(4, 8, affine=False),
        kind=_ScaleShift,
    ),
    "film": Case(lambda _, x, gamma, beta: torch.relu(x.mul(gamma) + beta), _MODULATED, kind=_GammaBeta),
    "adain": Case(
        lambda _, x, scale, shift: F.instance_norm(x) * scale + shift, _MODULATED, kind=_ScaleShift
    ),
    "wan_rms_norm": Case(
        lambda m, x: F.silu(F.normalize(x, dim=1) * m.gamma),
        [(1, 8, 3, 4, 5)],
        {"gamma": lambda: torch.rand(8, 1, 1, 1)},
    ),
    "group_norm_silu": Case(lambda m, x: F.silu(m.norm(x)), _PLANE, _norm(2, 6)),
    "group_norm_f16": Case(lambda m, x: m.norm(x), _PLANE, _norm(2, 6), torch.float16),
    "group_norm_f64": Case(lambda m, x: m.norm(x), _PLANE, _norm(2, 6), torch.float64),
    "group_norm_large_mean": Case(lambda m, x: m.norm(100 + x), _PLANE, _norm(2, 6)),
    "group_norm_scale_shift": Case(
        lambda m, x, scale, shift: m.norm(x) * scale + shift, _MODULATED, _norm(2, 6), kind=_ScaleShift
    ),
    "group_norm_ten_a_group": Case(lambda m, x: m.norm(x), [(1, 30, 4, 5)], _norm(3, 30)),
    "instance_norm_3d": Case(
        lambda m, x: m.norm(x), [(1, 4, 3, 4, 5)], {"norm": lambda: nn.InstanceNorm3d(4, affine=True)}
    ),
    "layer_norm_all": Case(lambda m, x: m.norm(x), [(2, 3, 5, 7)], {"norm": lambda: nn.LayerNorm([3, 5, 7])}),
    "layer_norm_channels_plain": Case(lambda m, x: m.norm(x), [(4, 6)], {"norm": lambda: nn.LayerNorm(6)}),
    "relu6_shifted": Case(lambda _, x: F.relu6(x * 3 + 3), [(2, 3, 9)], dtype=torch.float16),
    "sum_of_squares": Case(lambda _, x: x.square().sum(dim=1, keepdim=True).sqrt(), [(2, 6, 5)]),
    "min_pool": Case(lambda _, x: -F.max_pool2d(-x, 2), [(2, 3, 6, 8)]),
    "extra_input_used_twice": Case(
        lambda _, x, skip: F.silu(x.add(skip)) * skip, [(2, 3, 5, 7), (2, 3, 5, 7)], kind=_Skip
    ),
    "max_pool_all_tied": Case(
        lambda _, x: F.max_pool2d(F.hardtanh(x, -0.01, 0.01), 3, stride=2), [(1, 2, 7, 7)]
    ),
}
