"""One row on the GPU: outputs and gradients beside PyTorch's operators and float64, twice, with guards.

The bar, for each tensor, pooled over seeds: max|e| <= 2 max|e_torch| + 4 ulp(max|ref|), with e the engine's
error against float64, e_torch PyTorch's on the same data, and ulp that of the tensor's type. In f64 there is
nothing more exact to compare with than PyTorch on the CPU: in place of the ulps stands the bound of the
reference engine's tests.

Single pointwise operations are held to more, element by element: |e| is at most 4 ulp(ref), or PyTorch's own
error there. In f64 that is, as above, 2 e_torch and the bound, with the largest of PyTorch's errors around.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import traceback
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from fuseblock import aten
from fuseblock._capi import Plan, TensorInfo, aligned_bytes
from gpu_cases import RANGES, Row, with_casts_to
from torch import Tensor
from torch.nn import functional

F64_TOLERANCE = 1e-10
TORCH_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}
_GUARD = 64  # elements before and behind an output
_PATTERN = 0x5A
_NEAR = 100  # inputs on each side of one
# Operations whose formula in PyTorch cancels, in float64, too: 1 + erf, 1 + tanh.
_WITHOUT_CANCELLATION = {
    "gelu": lambda x: 0.5 * x * torch.special.erfc(-x * math.sqrt(0.5)),
    "gelu(approximate=tanh)": lambda x: x * torch.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3)),
}


@dataclass
class Measured:
    """Errors of one direction's tensors, pooled over seeds."""

    error: dict[str, float] = field(default_factory=dict)
    peer_error: dict[str, float] = field(default_factory=dict)
    size: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, got: Tensor, peer: Tensor, exact: Tensor) -> str:
        """Takes a tensor; what is wrong with it, empty where nothing is."""
        if got.shape != exact.shape:
            return f"{name}: the extents are {list(got.shape)}, PyTorch's {list(exact.shape)}"
        ours, theirs = got.double(), peer.double()
        agreed = exact.isfinite() & theirs.isfinite()
        if not bool(ours[agreed].isfinite().all()):
            return f"{name}: not finite where PyTorch is"
        for into, value in (
            (self.error, largest((ours - exact)[agreed])),
            (self.peer_error, largest((theirs - exact)[agreed])),
            (self.size, largest(exact)),
        ):
            into[name] = max(into.get(name, 0.0), value)
        return ""

    def verdict(self, dtype: torch.dtype) -> str:
        """The first tensor that misses the bar, in words."""
        for name, error in self.error.items():
            bar = 2 * self.peer_error[name] + 4 * ulp(self.size[name], dtype)
            if dtype == torch.float64:
                bar = 2 * self.peer_error[name] + F64_TOLERANCE * (1 + self.size[name])
            if not error <= bar:
                peer = f"PyTorch's error {self.peer_error[name]:.3g}, the largest value {self.size[name]:.3g}"
                return f"{name}: the error is {error:.3g}, the bar {bar:.3g}, {peer}"
        return ""


def exactly(measured: Measured, dtype: torch.dtype) -> str:
    """What is wrong with sums of small integers, which only the rounding of the result may change."""
    for name, error in measured.error.items():
        most = (
            ulp(measured.size[name], dtype) / 2 if measured.size[name] * torch.finfo(dtype).eps > 1 else 0.0
        )
        if error > most:
            return f"{name}: the error is {error:.3g} on small integers"
    return ""


def ulp(value: float, dtype: torch.dtype) -> float:
    """The distance of neighbouring numbers of a type around a value."""
    info = torch.finfo(dtype)
    return info.eps * 2.0 ** math.floor(math.log2(max(value, info.tiny)))


def largest(values: Tensor) -> float:
    """The largest absolute value among the finite ones."""
    finite = values[values.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0


def draw(name: str, info: TensorInfo, seed: int, row: Row, device: str) -> Tensor:
    """Random numbers for an argument, as tests/cases wants them, in the row's layout."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + zlib.crc32(name.encode()))
    normal = torch.randn(info.extents, generator=generator, dtype=torch.float64)
    last = name.rsplit(".", 1)[-1]
    if last == "running_var":
        normal = 0.5 + normal.abs()
    elif last == "weight":
        normal = 1 + 0.3 * normal
    elif "." in name:
        normal = 0.3 * normal
    elif not name.startswith("d_"):
        normal = 1.5 * normal
    if row.range and (name == "x" or (last == "weight" and normal.dim() > 1)):
        normal = in_range(normal, *RANGES[row.range], is_weight=name != "x")
    if row.integers:
        normal = torch.randint(-3, 4, info.extents, generator=generator).double()
    values = normal.to(device=device, dtype=info.dtype)
    if row.layout == "strided" and values.dim() > 0 and "." not in name:
        # Every second element of a tensor twice as wide, one element behind its beginning.
        wide = torch.zeros((*values.shape[:-1], 2 * values.shape[-1]), dtype=info.dtype, device=device)
        wide[..., 1::2] = values
        return wide[..., 1::2]
    placed = torch.empty_strided(info.extents, info.strides, dtype=info.dtype, device=device)
    return placed.copy_(values)


def in_range(
    normal: Tensor,
    elements: float,
    weights: float,
    input_channels: float,
    output_channels: float,
    *,
    is_weight: bool,
) -> Tensor:
    """Elements or weights in a range of tests/gpu/range.cases: each channel's by a power of its own."""
    in_powers = input_channels ** torch.arange(normal.shape[1], dtype=normal.dtype)
    in_powers = in_powers.reshape(1, -1, *[1] * (normal.dim() - 2))
    if not is_weight:
        return normal * elements * in_powers
    out_powers = output_channels ** (torch.arange(normal.shape[0]) // 4).to(normal.dtype)
    return normal * weights / in_powers * out_powers.reshape(-1, *[1] * (normal.dim() - 1))


class Guarded:
    """Outputs with a pattern around and in them, and a workspace full of it."""

    def __init__(self, plan: Plan, device: str) -> None:
        """Allocates for one run."""
        self.memory: dict[str, Tensor] = {}
        self.outputs: dict[str, Tensor] = {}
        for info in plan.outputs:
            bytes_ = info.bytes + 2 * _GUARD * info.dtype.itemsize
            memory = torch.full((bytes_,), _PATTERN, dtype=torch.uint8, device=device)
            self.memory[info.name] = memory
            self.outputs[info.name] = memory.view(info.dtype).as_strided(info.extents, info.strides, _GUARD)
        self.workspace = aligned_bytes(plan.workspace_bytes, device).fill_(_PATTERN)

    def broken(self) -> str:
        """The first output around which something was written."""
        for name, memory in self.memory.items():
            edge = _GUARD * self.outputs[name].element_size()
            if bool((memory[:edge] != _PATTERN).any() or (memory[-edge:] != _PATTERN).any()):
                return name
        return ""


def run_twice(plan: Plan, inputs: dict[str, Tensor], device: str) -> tuple[dict[str, Tensor], str]:
    """The outputs, and what is wrong with the run itself."""
    runs = []
    for _ in range(2):
        guarded = Guarded(plan, device)
        plan.bind(inputs, guarded.outputs, guarded.workspace)()
        if device == "cuda":
            torch.cuda.synchronize()
        if name := guarded.broken():
            return guarded.outputs, f"{name}: written outside of its memory"
        runs.append(guarded)
    for name, memory in runs[0].memory.items():
        if not torch.equal(memory, runs[1].memory[name]):
            return runs[0].outputs, f"{name}: two runs differ"
    return runs[0].outputs, ""


def torch_results(
    graph: dict[str, Any],
    arguments: dict[str, Tensor],
    axes: dict[str, str],
    wanted: list[str],
    dtype: torch.dtype,
) -> dict[str, Tensor]:
    """Outputs and gradients by PyTorch's operators and its autograd."""
    own = {name: each.detach().to(dtype) for name, each in arguments.items()}
    leaves = [own[name].requires_grad_() for name in wanted]
    outputs = aten.run(graph, own, axes)
    results = {name: each.detach() for name, each in outputs.items()}
    used = {name: own[f"d_{name}"].to(each.dtype) for name, each in outputs.items() if each.requires_grad}
    if not leaves:
        return results
    found: tuple[Tensor | None, ...] = (None,) * len(leaves)
    if used:
        found = torch.autograd.grad(
            [outputs[name] for name in used], leaves, list(used.values()), allow_unused=True
        )
    for name, leaf, gradient in zip(wanted, leaves, found, strict=True):
        results[f"d_{name}"] = torch.zeros_like(leaf) if gradient is None else gradient
    return results


def rounded_to_tf32(values: Tensor) -> Tensor:
    """What tensor cores make of f32 operands: ten bits of mantissa."""
    bits = values.contiguous().view(torch.int32)
    return ((bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFF).view(torch.float32)


def peer_results(
    graph: dict[str, Any],
    arguments: dict[str, Tensor],
    axes: dict[str, str],
    wanted: list[str],
    dtype: torch.dtype,
) -> dict[str, Tensor]:
    """PyTorch's results in a type; rounded from f32 where it has no such operator."""
    try:
        return torch_results(graph, arguments, axes, wanted, dtype)
    except (NotImplementedError, RuntimeError) as error:
        if "not implemented" not in str(error):
            raise
        wider = torch_results(graph, arguments, axes, wanted, torch.float32)
        return {name: each.to(dtype) for name, each in wider.items()}


def make_plan(row: Row, device: str) -> Plan:
    """The forward plan of a row; on the emulator the GPU's, with tensors of the CPU."""
    engine = "cuda" if device == "emulated" else device
    others = {name: row.type_of(name) for name in row.case.types if name != "x"}
    notation = row.case.block
    if "cast" in notation:
        graph = json.loads(Plan.make(notation, row.type_of("x"), others, "reference").explain_json())["graph"]
        notation = with_casts_to(graph, row.dtype)
    plan = Plan.make(notation, row.type_of("x"), others, engine, precision=row.mode, plain=row.plain or None)
    if device == "emulated":
        plan.device = "cpu"
    return plan


@contextlib.contextmanager
def divided(row: Row) -> Iterator[None]:
    """Plans that are made inside divide their work as the row says."""
    # PyTorch's in the row's mode. Where nothing is said of the mode, f32 is f32.
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = row.mode == "tf32"
    divisions = {
        "FUSEBLOCK_SLICES": row.slices,
        "FUSEBLOCK_ROWS": row.rows,
        "FUSEBLOCK_CONV": row.conv,
    }
    before = {name: os.environ.pop(name, None) for name in divisions}
    os.environ.update({name: division for name, division in divisions.items() if division})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def run_row(row: Row, device: str) -> list[dict[str, Any]]:
    """A record for each direction; `status` is passed, failed, unsupported or again."""
    common = {"case": row.name, "dtype": row.dtype, "layout": row.layout}
    try:
        with divided(row):
            return [{**common, **record} for record in _run_row(row, device)]
    except NotImplementedError as error:
        return [{**common, "direction": "all", "status": "unsupported", "message": str(error)}]
    except Exception as error:  # whatever it is belongs to the row
        told = "".join(traceback.format_exception_only(error)).strip()
        return [{**common, "direction": "all", "status": "failed", "message": told}]


def _wide(seed: int, info: TensorInfo, device: str) -> Tensor:
    """Inputs of both signs: half of them spread evenly, half of them over all magnitudes."""
    generator = torch.Generator().manual_seed(seed)
    count = math.prod(info.extents)
    even = 40 * torch.rand(count // 2, generator=generator, dtype=torch.float64) - 20
    sizes = 10 ** (6 * torch.rand(count - count // 2, generator=generator, dtype=torch.float64) - 4.1)
    signs = torch.randint(2, sizes.shape, generator=generator) * 2 - 1
    return torch.cat([even, sizes * signs]).reshape(info.extents).to(device=device, dtype=info.dtype)


def _each_element(row: Row, plan: Plan, seeds: Iterable[int]) -> dict[str, Any]:
    """The record of a pointwise operation, its outputs compared one by one."""
    dtype = TORCH_DTYPES[row.dtype]
    (info,) = plan.inputs
    document = json.loads(plan.explain_json())
    axes = {each["name"]: each["axes"] for each in document["inputs"]}
    told, worst, worst_peer = "", 0.0, 0.0
    for seed in seeds:
        x = _wide(seed, info, plan.device)
        if exactly := _WITHOUT_CANCELLATION.get(row.case.block):
            exact = exactly(x.cpu().double())
        else:
            found = torch_results(document["graph"], {"x": x.cpu()}, axes, [], torch.float64)
            exact = next(iter(found.values()))
        peer = next(iter(peer_results(document["graph"], {"x": x}, axes, [], dtype).values()))
        outputs, trouble = run_twice(plan, {"x": x}, plan.device)
        told = told or trouble
        order = x.cpu().flatten().argsort()
        inputs, exact = x.cpu().flatten()[order], exact.flatten()[order]
        ours, theirs = (each.cpu().double().flatten()[order] for each in (next(iter(outputs.values())), peer))
        agreed = exact.isfinite() & theirs.isfinite()
        error = torch.where(agreed, (ours - exact).abs(), 0.0)
        peer_error = torch.where(agreed, (theirs - exact).abs(), 0.0)
        limits = torch.finfo(dtype)
        size = torch.where(agreed, exact.abs(), 1.0).clamp(min=limits.tiny)
        bar = torch.maximum(4 * limits.eps * torch.exp2(size.log2().floor()), peer_error)
        if dtype == torch.float64:
            # The largest of PyTorch's errors at neighbouring inputs.
            near = functional.max_pool1d(peer_error[None], 2 * _NEAR + 1, 1, _NEAR)[0]
            bar = 2 * near + F64_TOLERANCE * (1 + size)
        missed = (~(error <= bar)).nonzero().flatten()
        if len(missed) and not told:
            at = int(missed[(error / bar)[missed].argmax()])
            told = (
                f"{row.case.block} of {float(inputs[at])!r}: got {float(ours[at])!r}, exactly "
                f"{float(exact[at])!r}, PyTorch {float(theirs[at])!r}; {len(missed)} such, seed {seed}"
            )
        worst, worst_peer = max(worst, float(error.max())), max(worst_peer, float(peer_error.max()))
    return {
        "direction": "forward",
        "status": "failed" if told else "passed",
        "error": worst,
        "peer_error": worst_peer,
        "kernels": document.get("kernels", []),
        **({"message": told} if told else {}),
    }


def _infinite(row: Row, plan: Plan, seeds: Iterable[int]) -> dict[str, Any]:
    """The record of a convolution of infinities and NaN: where its outputs have them.

    What is infinite in f32 arithmetic may be NaN in strict mode, whose numbers are sums of two.
    """
    document = json.loads(plan.explain_json())
    axes = {each["name"]: each["axes"] for each in document["inputs"] + document["parameters"]}
    exact_graph = json.loads(with_casts_to(document["graph"], "f64"))
    told = ""
    for seed in seeds:
        arguments = {info.name: draw(info.name, info, seed, row, plan.device) for info in plan.inputs}
        some = torch.randperm(arguments["x"].numel(), generator=torch.Generator().manual_seed(seed))[:3]
        flat = arguments["x"].view(-1)
        for at, value in zip(some.tolist(), (math.inf, -math.inf, math.nan), strict=True):
            flat[at] = value
        on_cpu = {name: tensor.cpu() for name, tensor in arguments.items()}
        exact = next(iter(torch_results(exact_graph, on_cpu, axes, [], torch.float64).values()))
        outputs, trouble = run_twice(plan, arguments, plan.device)
        ours = next(iter(outputs.values())).cpu().double()
        told = told or trouble
        same = ours.isfinite() == exact.isfinite()
        if row.dtype != "f32" or row.mode == "tf32":
            same &= (ours.isnan() == exact.isnan()) & (ours.isposinf() == exact.isposinf())
        if not same.all() and not told:
            at = (~same).nonzero()[0].tolist()
            told = f"at {at}: got {float(ours[*at])}, exactly {float(exact[*at])}; {int((~same).sum())} such"
    return {
        "direction": "forward",
        "status": "failed" if told else "passed",
        "error": 0.0,
        "peer_error": 0.0,
        "kernels": document.get("kernels", []),
        **({"message": f"{told}, seed {list(seeds)}"} if told else {}),
    }


def _run_row(row: Row, device: str) -> list[dict[str, Any]]:
    dtype = TORCH_DTYPES[row.dtype]
    plan = make_plan(row, device)
    seeds = range(1, 2 if device == "emulated" else 1 + row.seeds)
    if row.each_element:
        return [_each_element(row, plan, seeds)]
    if row.infinite:
        return [_infinite(row, plan, seeds)]
    device = plan.device
    document = json.loads(plan.explain_json())
    axes = {each["name"]: each["axes"] for each in document["inputs"] + document["parameters"]}
    plans: dict[str, tuple[Plan, ...]] = {"forward": (plan,)}
    wanted: list[str] = []
    try:
        backward = plan.backward()
        plans["backward"] = (backward,)
        plans["training"] = plan.for_training()
        wanted = [info.name.removeprefix("d_") for info in backward.outputs]
    except NotImplementedError as error:
        # Forward runs alone where there is no kernel for a gradient.
        if "weight gradients" not in str(error) and "gradients of padding" not in str(error):
            raise
        plans = {"forward": (plan,)}
    except ValueError as error:
        if "gradient" not in str(error):
            raise
    exact_graph = json.loads(with_casts_to(document["graph"], "f64"))
    measured = {direction: Measured() for direction in plans}
    wrong = dict.fromkeys(plans, "")
    for seed in seeds:
        infos = list(plan.inputs)
        infos += [
            TensorInfo(f"d_{each.name}", each.type, each.dtype, each.extents, each.strides)
            for each in plan.outputs
        ]
        arguments = {info.name: draw(info.name, info, seed, row, device) for info in infos}
        # On the CPU: some of PyTorch's GPU kernels have constants in f32 (hardswish's sixth), also for f64.
        # Dense: its gradient of an instance norm is another one for channels_last tensors of one sample.
        on_cpu = {name: tensor.cpu().contiguous() for name, tensor in arguments.items()}
        found = torch_results(exact_graph, on_cpu, axes, wanted, torch.float64)
        exact = {name: tensor.to(device) for name, tensor in found.items()}
        peer_arguments = dict(arguments)
        # PyTorch does not round where a convolution is small or on the CPU, also where TF32 is allowed: the
        # error of the mode is that of rounded factors.
        if row.mode == "tf32":
            peer_arguments.update(
                {name: rounded_to_tf32(each) for name, each in arguments.items() if each.dim() > 1}
            )
        peer = peer_results(document["graph"], peer_arguments, axes, wanted, dtype)
        for direction, parts in plans.items():
            inputs = dict(arguments)
            for part in parts:
                outputs, trouble = run_twice(part, inputs, device)
                inputs.update(outputs)
                wrong[direction] = wrong[direction] or trouble
                for name, got in outputs.items():
                    if name in exact and not wrong[direction]:
                        told = measured[direction].add(name, got, peer[name], exact[name])
                        wrong[direction] = f"{told}, seed {seed}" if told else ""
    records = []
    for direction, parts in plans.items():
        told = wrong[direction] or measured[direction].verdict(dtype)
        if row.integers and direction == "forward" and not told:
            told = exactly(measured[direction], dtype)
        errors = measured[direction]
        kernels = [
            {name: kernel[name] for name in ("name", "source_digest")}
            for part in parts
            for kernel in json.loads(part.explain_json()).get("kernels", [])
        ]
        records.append(
            {
                "direction": direction,
                "status": "failed" if told else "passed",
                "error": max(errors.error.values(), default=0.0),
                "peer_error": max(errors.peer_error.values(), default=0.0),
                "kernels": kernels,
                **({"message": told} if told else {}),
            }
        )
    return records
