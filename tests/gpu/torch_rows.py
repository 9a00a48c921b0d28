"""The rows of tests/gpu/test_torch.py: modules in every type and layout, and checks by name.

A module's row runs it three times on the same data: as it is, by PyTorch's operators, and by these in
float64 on the CPU. Outputs and every gradient keep to the bar of `gpu_row`; two runs give the same bits; the
layout of the output is the input's; and a plan ran, which `explain` tells.
"""

from __future__ import annotations

import copy
import io
import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch_call_checks  # noqa: F401
import torch_checks
import torch_conv_checks  # noqa: F401
import torch_large_checks  # noqa: F401
import torch_stream_checks  # noqa: F401
from fuseblock import nn
from fuseblock._blocks import pytorch_operators
from fuseblock._ops import is_channels_last
from gpu_row import TORCH_DTYPES, Measured
from torch import Tensor

Module = torch.nn.Module
DTYPES = ("f32", "bf16", "f16", "f64")
LAYOUTS = ("contiguous", "channels_last", "strided", "misaligned")
SEEDS = (1, 2)


@dataclass(frozen=True)
class ModuleCase:
    """A module, and the shapes of what it is called with."""

    make: Callable[[], Module]
    shapes: tuple[tuple[int, ...], ...]
    named: tuple[str, ...] = ()
    """Names of the inputs behind the first one, where they are given by name."""
    has_convolutions: bool = False
    """Whether some of what runs may be PyTorch's own, which need not repeat bit for bit."""


def _block(notation: str, in_channels: int, **options: Any) -> Callable[[], Module]:
    return lambda: nn.Block(notation, in_channels, **options)


def _reference(kind: str, *arguments: int, **options: Any) -> Callable[[], Module]:
    return lambda: getattr(nn, kind)(*arguments, **options)


MODULES: dict[str, ModuleCase] = {
    "group_norm": ModuleCase(lambda: nn.GroupNorm(4, 12), ((3, 12, 7, 9),)),
    "group_norm_silu": ModuleCase(lambda: nn.GroupNorm(8, 64, act="silu"), ((2, 64, 24, 24),)),
    "group_norm_team": ModuleCase(lambda: nn.GroupNorm(8, 32, act="silu"), ((1, 32, 128, 128),)),
    "group_norm_residual": ModuleCase(
        lambda: nn.GroupNorm(3, 30, act="silu"), ((2, 30, 12, 16), (2, 30, 12, 16)), ("residual",)
    ),
    "adagn": ModuleCase(
        lambda: nn.GroupNorm(8, 32, affine=False, act="silu"),
        ((2, 32, 16, 16), (2, 32), (2, 32)),
        ("scale", "shift"),
    ),
    "instance_norm_3d": ModuleCase(
        lambda: nn.InstanceNorm3d(16, affine=True, act="leaky_relu(0.01)"), ((2, 16, 6, 12, 12),)
    ),
    "layer_norm": ModuleCase(lambda: nn.LayerNorm(64, act="gelu"), ((2, 64, 15, 16),)),
    "layer_norm_last": ModuleCase(lambda: nn.LayerNorm(96, dim=-1), ((3, 7, 96),)),
    "rms_norm": ModuleCase(lambda: nn.RMSNorm(96, act="silu"), ((1, 96, 4, 16, 12),)),
    "hardswish_gn_mean_tail": ModuleCase(
        _block("hardswish | group_norm(4) | mean(d,h,w)", 16), ((8, 16, 5, 9, 9),)
    ),
    "gn_mean_tail": ModuleCase(_block("group_norm(8) | mean(c,d,h,w)", 24), ((4, 24, 6, 10, 10),)),
    "relu_gn_tail": ModuleCase(_block("relu | group_norm(8)", 128), ((2, 128, 8, 8, 8),)),
    "gn_tanh_hardswish_residual_lse_tail": ModuleCase(
        _block("group_norm(16) | tanh | hardswish | add(x) | logsumexp(c, keepdim)", 64), ((2, 64, 30, 30),)
    ),
    "batch_norm": ModuleCase(_block("batch_norm | relu | add(skip)", 24), ((4, 24, 14, 14), (4, 24, 14, 14))),
    "softmax": ModuleCase(_block("softmax(c)", 19), ((2, 19, 32, 32),)),
    "pool": ModuleCase(_block("silu | max_pool(3, stride=2, pad=1)", 24), ((2, 24, 17, 20),)),
    "two_outputs": ModuleCase(
        _block("y = group_norm(x, 4); z = silu(y); m = mean(z, h,w); return z, m", 16), ((2, 16, 12, 12),)
    ),
    # Convolutions by the engine's kernels, or PyTorch's where the cost model says so; gradients PyTorch's.
    "conv3d_gn_mean": ModuleCase(
        _reference("Conv3dGnMean", 3, 24, 3, 8), ((4, 3, 8, 12, 12),), has_convolutions=True
    ),
    "conv_transpose3d_relu_gn": ModuleCase(
        _reference("ConvTranspose3dReluGn", 16, 32, 3, 8), ((2, 16, 6, 8, 8),), has_convolutions=True
    ),
    "conv3d_hardswish_gn_mean": ModuleCase(
        _reference("Conv3dHardswishGnMean", 3, 16, 4), ((4, 3, 8, 12, 12),), has_convolutions=True
    ),
    "conv2d_gn_tanh_hardswish_residual_lse": ModuleCase(
        _reference("Conv2dGnTanhHardswishResidualLse", 8, 64, 3, 16), ((2, 8, 20, 20),), has_convolutions=True
    ),
    "conv_pre_activation": ModuleCase(
        _block("group_norm(4) | silu | conv2d(16, k=3, pad=1) | add(x)", 16),
        ((2, 16, 14, 14),),
        has_convolutions=True,
    ),
    "conv_strided": ModuleCase(
        _block("conv2d(24, k=7, stride=2, pad=3) | group_norm(8) | relu", 3),
        ((2, 3, 37, 41),),
        has_convolutions=True,
    ),
    "conv_wide": ModuleCase(
        _block("conv2d(64, k=3, pad=1) | group_norm(8) | silu", 32), ((1, 32, 24, 24),), has_convolutions=True
    ),
    "conv_depthwise": ModuleCase(
        _block("conv2d(24, k=3, pad=1, groups=24) | group_norm(8) | silu", 24),
        ((2, 24, 15, 16),),
        has_convolutions=True,
    ),
    "conv_linear": ModuleCase(
        _block("linear(48) | layer_norm(c) | gelu", 32), ((37, 32),), has_convolutions=True
    ),
    "kept_conv3d_gn_mean": ModuleCase(
        _reference("Conv3dGnMean", 3, 24, 3, 8, keep=("conv",)), ((4, 3, 8, 12, 12),), has_convolutions=True
    ),
    "kept_conv_transpose3d_relu_gn": ModuleCase(
        _reference("ConvTranspose3dReluGn", 8, 32, 3, 8, keep=("conv",)),
        ((2, 8, 6, 8, 8),),
        has_convolutions=True,
    ),
    "kept_conv3d_hardswish_gn_mean": ModuleCase(
        _reference("Conv3dHardswishGnMean", 3, 16, 4, keep=("conv",)),
        ((4, 3, 8, 12, 12),),
        has_convolutions=True,
    ),
    "kept_conv2d_gn_tanh_hardswish_residual_lse": ModuleCase(
        _reference("Conv2dGnTanhHardswishResidualLse", 8, 64, 3, 16, keep=("conv",)),
        ((2, 8, 20, 20),),
        has_convolutions=True,
    ),
    "kept_pre_activation": ModuleCase(
        _block("group_norm(4) | silu | conv2d(16, k=3, pad=1) | add(x)", 16, keep=("conv",)),
        ((2, 16, 14, 14),),
        has_convolutions=True,
    ),
    "kept_linear": ModuleCase(
        _block("linear(48) | layer_norm(c) | gelu", 32, keep=("conv",)), ((37, 32),), has_convolutions=True
    ),
}


@dataclass(frozen=True)
class Row:
    """A module in one type and layout, or a check."""

    case: str
    dtype: str
    layout: str

    @property
    def key(self) -> str:
        """What tells it from other rows."""
        return f"{self.case} {self.dtype} {self.layout}"


def rows() -> list[Row]:
    """The checks, the longest first, then all modules in every type and layout."""
    found = [Row(name, check.dtype, check.layout) for name, check in torch_checks.CHECKS.items()]
    for name, case in MODULES.items():
        four = len(case.shapes[0]) in (4, 5)
        for dtype in DTYPES:
            # PyTorch's convolutions of f16 and f64 on 3-D data say nothing about fuseblock's part.
            if name.startswith("kept") and dtype == "f16":
                continue
            found += [Row(name, dtype, layout) for layout in LAYOUTS if four or layout != "channels_last"]
    return found


def run_row(row: Row, device: str) -> list[dict[str, Any]]:
    """The records of a row."""
    record = {"case": row.case, "dtype": row.dtype, "layout": row.layout, "direction": "all"}
    # Convolutions that stay PyTorch's own are compared with themselves: in true f32 and always the same way.
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    try:
        if row.case in MODULES:
            return [_run_module(row, device, record)]
        fields = torch_checks.CHECKS[row.case].run(device)
        return [{**record, **(fields or {}), "status": "passed"}]
    except torch_checks.NeedsGpu as error:
        return [{**record, "status": "unsupported", "message": str(error)}]
    except Exception as error:  # whatever it is belongs to the row
        told = "".join(traceback.format_exception(error)[-3:]).strip()
        # Records are the same wherever the checkout lies.
        return [{**record, "status": "failed", "message": re.sub(r'File "[^"]*/', 'File "', told)}]


def _draw(shape: tuple[int, ...], dtype: torch.dtype, layout: str, seed: int, device: str) -> Tensor:
    """Random numbers in a layout."""
    generator = torch.Generator().manual_seed(seed)
    values = 1.5 * torch.randn(shape, generator=generator, dtype=torch.float64)
    values = values.to(dtype=dtype, device=device)
    if layout == "channels_last" and len(shape) in (4, 5):
        last = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
        return values.contiguous(memory_format=last)
    if layout == "strided":
        wide = torch.zeros((*shape[:-1], 2 * shape[-1]), dtype=dtype, device=device)
        wide[..., 1::2] = values
        return wide[..., 1::2]
    if layout == "misaligned":
        memory = torch.zeros(values.numel() + 1, dtype=dtype, device=device)
        return memory[1:].view(shape).copy_(values)
    return values


def _results(
    module: Module, case: ModuleCase, inputs: list[Tensor], gradients: list[Tensor]
) -> dict[str, Tensor]:
    """Outputs and all gradients by name."""
    leaves = [each.detach().requires_grad_() for each in inputs]
    outputs = torch_checks.as_tuple(_call(module, case, leaves))
    wanted = {f"d_input{i}": leaf for i, leaf in enumerate(leaves)}
    wanted |= {f"d_{name}": each for name, each in module.named_parameters()}
    incoming = [gradient.to(each) for each, gradient in zip(outputs, gradients, strict=False)]
    found = torch.autograd.grad(outputs, list(wanted.values()), incoming)
    results = {f"output{i}": each.detach() for i, each in enumerate(outputs)}
    return results | dict(zip(wanted, found, strict=True))


def _call(module: Module, case: ModuleCase, tensors: list[Tensor]) -> Any:
    count = len(tensors) - len(case.named)
    return module(*tensors[:count], **dict(zip(case.named, tensors[count:], strict=True)))


def _run_module(row: Row, device: str, record: dict[str, Any]) -> dict[str, Any]:
    dtype = TORCH_DTYPES[row.dtype]
    case = MODULES[row.case]
    torch.manual_seed(0)
    exact_module = case.make().double()
    for name, parameter in exact_module.named_parameters():
        around = 1.0 if name.endswith("weight") and parameter.dim() == 1 else 0.0
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, around, 0.3)
    module = copy.deepcopy(exact_module).to(device=device, dtype=dtype)
    # The parameters as they are in the type.
    exact_module.load_state_dict({k: v.double().cpu() for k, v in module.state_dict().items()})
    measured = Measured()
    for seed in SEEDS:
        inputs = [
            _draw(
                shape,
                dtype,
                row.layout if i == 0 or shape == case.shapes[0] else "contiguous",
                10 * seed + i,
                device,
            )
            for i, shape in enumerate(case.shapes)
        ]
        with torch.no_grad():
            shapes = [each.shape for each in torch_checks.as_tuple(_call(module, case, inputs))]
        generator = torch.Generator().manual_seed(seed + 99)
        gradients = [
            torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes
        ]
        with pytorch_operators():
            exact = _results(exact_module, case, [each.double().cpu() for each in inputs], gradients)
            peer = _peer(module, case, inputs, gradients)
        first = _results(module, case, inputs, gradients)
        second = _results(module, case, inputs, gradients)
        for name, reference in exact.items():
            told = measured.add(name, first[name], peer[name].to(dtype), reference.to(device))
            assert not told, told
            if not case.has_convolutions:  # PyTorch's own convolutions may differ from run to run
                assert torch.equal(_bits(first[name]), _bits(second[name])), f"{name}: two runs differ"
        if row.layout == "channels_last":
            for i, shape in enumerate(shapes):
                if len(shape) in (4, 5):
                    assert is_channels_last(first[f"output{i}"]), f"output {i} is not channels_last"
    told = measured.verdict(dtype)
    assert not told, told
    text = io.StringIO()
    module.explain(file=text)  # type: ignore[operator]
    planned = f"plan for {device}"
    assert planned in text.getvalue(), text.getvalue()[:300]
    return {
        **record,
        "status": "passed",
        "error": max(measured.error.values(), default=0.0),
        "peer_error": max(measured.peer_error.values(), default=0.0),
    }


def _peer(
    module: Module, case: ModuleCase, inputs: list[Tensor], gradients: list[Tensor]
) -> dict[str, Tensor]:
    """PyTorch's results; rounded from f32 where it has no such operator."""
    try:
        return _results(module, case, inputs, gradients)
    except (NotImplementedError, RuntimeError) as error:
        if "not implemented" not in str(error):
            raise
        wider = copy.deepcopy(module).float()
        return _results(wider, case, [each.float() for each in inputs], gradients)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).contiguous().view(torch.uint8)
