"""NaN, infinities, ties and kinks: values and slopes of the reference engine against PyTorch's, in float64.

Each test writes its own inputs for case_runner. At NaN PyTorch's scalar and vector loops do not always have
the same slope (relu6: 1 and 0); either one will do.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from case_support import CaseResult, assert_close, difference, program, run_cases, torch_results
from fuseblock import aten
from fuseblock.aten_operations import POINTWISE
from torch import Tensor

NAN, INF = float("nan"), float("inf")
TOLERANCE = 1e-12

# Every kink with its neighbours, zeros, numbers beyond the range of exp, numbers whose square overflows.
KINKS = [-6.0, -3.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 6.0, 20.0]
POINTS = [
    *(float(numpy.nextafter(kink, side)) for kink in KINKS for side in (-INF, kink, INF)),
    *(
        sign * size
        for sign in (-1.0, 1.0)
        for size in (0.0, 1e-300, 1e-8, 30.0, 40.0, 800.0, 1e10, 1e300, INF)
    ),
    NAN,
]

# The pointwise operations, as stages on x.
STAGES = {
    "relu": ["relu"],
    "leaky_relu": ["leaky_relu", "leaky_relu(0.2)", "leaky_relu(-0.5)", "leaky_relu(0)"],
    "relu6": ["relu6"],
    "elu": ["elu", "elu(0.5)", "elu(-1)", "elu(0)"],
    "sigmoid": ["sigmoid"],
    "silu": ["silu"],
    "hardsigmoid": ["hardsigmoid"],
    "hardswish": ["hardswish"],
    "hardtanh": ["hardtanh", "hardtanh(-0.5, 2)", "hardtanh(0, 6)", "hardtanh(1, 1)"],
    "clamp": ["clamp", "clamp(-1, 1)", "clamp(min=0)", "clamp(max=0.5)", "clamp(1, -1)", "clamp(1, 1)"],
    "tanh": ["tanh"],
    "gelu": ["gelu", "gelu(approximate=tanh)"],
    "softplus": ["softplus", "softplus(2, 6)", "softplus(0.5, 1000)"],
    "mish": ["mish"],
    "exp": ["exp"],
    "log": ["log"],
    "sqrt": ["sqrt"],
    "square": ["square"],
    "abs": ["abs"],
    "neg": ["neg"],
    "add": ["add(other)", "add(other, alpha=-2)", "add(other, alpha=0)", "add(inf)", "add(1)"],
    "sub": ["sub(other)", "sub(other, alpha=0.5)", "sub(inf)", "sub(1)"],
    "mul": ["mul(other)", "mul(0)", "mul(inf)", "mul(-2)"],
    "div": ["div(other)", "div(0)", "div(inf)", "div(-2)"],
    "minimum": ["minimum(other)", "minimum(0)", "minimum(inf)"],
    "maximum": ["maximum(other)", "maximum(0)", "maximum(-inf)"],
}


# Where `aten` does not use PyTorch's own function: that function, and how exact its slope is.
TORCH_ITSELF: dict[str, tuple[Callable[[dict[str, Tensor]], Tensor], float]] = {
    "hardsigmoid": (lambda point: F.hardsigmoid(point["x"]), 1e-8),
}


def run_case(folder: Path, line: str, tensors: Mapping[str, Tensor]) -> CaseResult:
    """Runs the case `special: ` + line on the given tensors."""
    given = folder / "given" / "special"
    given.mkdir(parents=True)
    for name, tensor in tensors.items():
        numpy.save(given / f"{name}.npy", tensor.numpy())
    cases = folder / "special.cases"
    cases.write_text(f"special: {line}\n")
    run_cases(folder / "out", "--load", folder / "given", cases)
    return CaseResult(folder / "out" / "special")


def in_both_loops(
    function: Callable[[dict[str, Tensor]], Tensor], tensors: Mapping[str, Tensor], d_y: Tensor
) -> list[dict[str, Tensor]]:
    """PyTorch's output and gradients, of each element by itself and of each among copies of itself."""
    found = []
    for copies in (1, 64):
        columns: dict[str, list[Tensor]] = {}
        for i in range(d_y.numel()):
            point = {
                name: tensor.flatten()[i].expand(1, copies).clone().requires_grad_()
                for name, tensor in tensors.items()
            }
            output = function(point)
            gradients = torch.autograd.grad(output, list(point.values()), d_y.flatten()[i].expand(1, copies))
            columns.setdefault("output", []).append(output[0, 0].detach())
            for name, gradient in zip(point, gradients, strict=True):
                columns.setdefault(f"d_{name}", []).append(gradient[0, 0])
        found.append({name: torch.stack(column) for name, column in columns.items()})
    return found


def check_points(
    stage: str, tensors: Mapping[str, Tensor], d_y: Tensor, folder: Path, request: pytest.FixtureRequest
) -> None:
    """Compares value and gradients of a stage at each point with those of either of PyTorch's loops."""
    operation = stage.split("(")[0]
    case = run_case(folder, f"{stage} @ f64[1,{d_y.numel()}]", {**tensors, f"d_{operation}": d_y})

    def aten_function(point: dict[str, Tensor]) -> Tensor:
        return next(iter(aten.run(case.block, point).values()))

    function, tolerance = TORCH_ITSELF.get(stage, (aten_function, TOLERANCE))
    scalar, vector = in_both_loops(function, tensors, d_y)
    told = []
    for name in scalar:
        got = case.tensor(operation if name == "output" else name).flatten()
        for i in range(got.numel()):
            choices = [loop[name][i] for loop in (scalar, vector)]
            if all(difference(name, got[i], choice, tolerance) for choice in choices):
                at = [tensor.flatten()[i].item() for tensor in tensors.values()]
                theirs = " or ".join(str(choice.item()) for choice in choices)
                told.append(f"{name} at {at}: got {got[i].item()}, PyTorch has {theirs}")
    if told:
        repeat = f"repeat with: .venv/bin/pytest '{request.node.nodeid}'"
        pytest.fail("\n".join([*told, repeat]), pytrace=False)


def test_catalogue_is_covered() -> None:
    """Every pointwise operation of the catalogue is among the stages here, every operation in `aten`."""
    listed = json.loads(subprocess.check_output([program("fuseblock"), "ops", "--json"]))["operations"]
    pointwise = {operation["name"] for operation in listed if "formula" in operation}
    assert pointwise == set(STAGES) == set(POINTWISE)
    assert {operation["name"] for operation in listed} == set(aten.OPERATIONS)


@pytest.mark.parametrize("stage", [stage for stages in STAGES.values() for stage in stages])
def test_pointwise(stage: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Value and slope of a pointwise operation at every point, or at every pair of some points."""
    tensors = {"x": torch.tensor([POINTS], dtype=torch.float64)}
    if "other" in stage:
        few = torch.tensor([NAN, -INF, INF, -3.0, -0.0, 0.0, 1e-300, 0.5, 3.0, 1e300], dtype=torch.float64)
        tensors = {"x": few.repeat_interleave(len(few))[None], "other": few.repeat(len(few))[None]}
    check_points(stage, tensors, torch.ones_like(tensors["x"]), tmp_path, request)


# Where a factor of the slope is the constant 0, the block of the gradients has no product at all.
WITHOUT_PRODUCT = ["leaky_relu(0)", "elu(0)", "add(other, alpha=0)", "mul(0)", "div(inf)"]


@pytest.mark.parametrize("d_y", [INF, NAN])
@pytest.mark.parametrize(
    "stage", [stage for stages in STAGES.values() for stage in stages if stage not in WITHOUT_PRODUCT]
)
def test_gradient_that_is_not_finite(
    stage: str, d_y: float, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A slope of 0 stops an infinite gradient where PyTorch selects, and gives NaN where it multiplies."""
    points = [-7.0, *KINKS, 2.5, 7.0]
    tensors = {"x": torch.tensor([points], dtype=torch.float64)}
    if "other" in stage:
        tensors["other"] = torch.tensor([points[::-1]], dtype=torch.float64)
    check_points(stage, tensors, torch.full_like(tensors["x"], d_y), tmp_path, request)


# Rows of five numbers: what a reduction, a norm or a window meets.
ROWS = [
    [1.0, 2.0, 2.0, -1.0, 2.0],
    [0.0, -0.0, 0.0, -0.0, -1.0],
    [3.0, 3.0, 3.0, 3.0, 3.0],
    [0.0, 0.0, 0.0, 0.0, 0.0],
    [NAN, 1.0, NAN, 2.0, NAN],
    [1.0, NAN, 3.0, 4.0, 5.0],
    [INF, 1.0, 2.0, INF, 0.0],
    [-INF, 1.0, 2.0, -INF, 0.0],
    [-INF, -INF, -INF, -INF, -INF],
    [INF, INF, INF, INF, INF],
    [INF, -INF, 0.0, 1.0, 2.0],
    [INF, NAN, -INF, 1.0, 2.0],
    [1e300, -1e300, 1e300, 0.0, 1.0],
    [1e-300, 0.0, -1e-300, 0.0, 0.0],
    [1e4, 1e4 + 1, 1e4 + 2, 1e4 - 1, 1e4 - 2],
]

STAGES_OF_ROWS = [
    "max(w)",
    "max(w, keepdim)",
    "min(w)",
    "mean(w)",
    "sum(w)",
    "logsumexp(w)",
    "logsumexp(w, keepdim)",
    "softmax(w)",
    "max_pool(2, stride=1)",
    "max_pool(3, stride=2, pad=1)",
    "max_pool(3, stride=1, pad=1, ceil_mode=true)",
    "max_pool(2, stride=1, dilation=3)",
    "avg_pool(3, stride=1, pad=1)",
    "group_norm(1, affine=false)",
    "layer_norm(w, affine=false)",
    "rms_norm(w, affine=false)",
    "instance_norm",
    "batch_norm(affine=false)",
    "l2_normalize(w)",
    "relu | max(w)",
    "relu | sqrt",
    "maximum(0.25) | sub(0.25) | sqrt",
    "relu | max_pool(3, stride=1, pad=1)",
    "neg | max(w) | neg",
]


@pytest.mark.parametrize("stage", STAGES_OF_ROWS)
def test_rows(stage: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Reductions, pools and norms on rows with ties, NaN and infinities, which stay in their rows."""
    x = torch.tensor(ROWS, dtype=torch.float64).unsqueeze(1)
    case = run_case(tmp_path, f"{stage} @ f64[{len(ROWS)},1,{len(ROWS[0])}]", {"x": x})
    outputs, gradients = torch_results(case)
    expected = {**outputs, **gradients}
    for i, row in enumerate(ROWS):
        got = {f"{name} of {row}": case.tensor(name)[i] for name in expected}
        assert_close(
            got, {f"{name} of {row}": tensor[i] for name, tensor in expected.items()}, request, TOLERANCE
        )


def test_difference_sees_everything() -> None:
    """The comparison itself: it must not pass over a wrong number, a missing NaN or a wrong extent."""
    ones = torch.ones(2, 3, dtype=torch.float64)
    for wrong in (1 + 1e-6, NAN, INF, -INF):
        other = ones.clone()
        other[1, 2] = wrong
        assert "at [1, 2]" in difference("y", other, ones, TOLERANCE)
        assert "at [1, 2]" in difference("y", ones, other, TOLERANCE) or wrong == 1 + 1e-6
        assert difference("y", other, other.clone(), TOLERANCE) == ""
    assert "extents" in difference("y", ones, torch.ones(3, 2, dtype=torch.float64), TOLERANCE)
