"""NaN, infinities, ties and kinks: values and slopes of the reference engine against PyTorch's, in float64.

Each test writes its own inputs for case_runner. At NaN PyTorch's scalar and vector loops do not always have the
same slope (relu6: 1 and 0); either one will do.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy
import pytest
import torch
from case_support import CaseResult, assert_close, difference, program, run_cases, torch_results
from fuseblock import aten
from fuseblock.aten_operations import POINTWISE
from torch import Tensor

NAN, INF = float("nan"), float("inf")
TOLERANCE = 1e-12

# Every kink there is with its neighbours, zeros, numbers beyond the range of exp, numbers whose square overflows.
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


def run_case(folder: Path, line: str, tensors: dict[str, Tensor]) -> CaseResult:
    """Runs the case `special: ` + line on the given tensors."""
    given = folder / "given" / "special"
    given.mkdir(parents=True)
    for name, tensor in tensors.items():
        numpy.save(given / f"{name}.npy", tensor.numpy())
    cases = folder / "special.cases"
    cases.write_text(f"special: {line}\n")
    run_cases(folder / "out", "--load", folder / "given", cases)
    return CaseResult(folder / "out" / "special")


def slopes_in_both_loops(case: CaseResult, tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """PyTorch's output and gradients, of every element alone and of every element among copies of itself."""
    found = []
    for copies in (1, 64):
        columns: dict[str, list[Tensor]] = {}
        for i in range(len(tensors["x"].flatten())):
            point = {
                name: tensor.flatten()[i].expand(1, copies).clone().requires_grad_()
                for name, tensor in tensors.items()
            }
            (output,) = aten.run(case.block, point).values()
            gradients = torch.autograd.grad(output.sum(), list(point.values()))
            columns.setdefault("output", []).append(output[0, 0].detach())
            for name, gradient in zip(point, gradients, strict=True):
                columns.setdefault(f"d_{name}", []).append(gradient[0, 0])
        found.append({name: torch.stack(column) for name, column in columns.items()})
    return found


def test_catalogue_is_covered() -> None:
    """Every pointwise operation of the catalogue is among the stages here and in `aten`."""
    listed = json.loads(subprocess.check_output([program("fuseblock"), "ops", "--json"]))["operations"]
    pointwise = {operation["name"] for operation in listed if "formula" in operation}
    assert pointwise == set(STAGES) == set(POINTWISE)
    assert {operation["name"] for operation in listed} <= set(aten.OPERATIONS)


@pytest.mark.parametrize("stage", [stage for stages in STAGES.values() for stage in stages])
def test_pointwise(stage: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Value and slope of a pointwise operation at every point, and at every pair of points."""
    points = torch.tensor(POINTS, dtype=torch.float64)
    tensors = {"x": points}
    if "other" in stage:
        few = torch.tensor([NAN, -INF, INF, -3.0, -0.0, 0.0, 1e-300, 0.5, 3.0, 1e300], dtype=torch.float64)
        tensors = {"x": few.repeat_interleave(len(few)), "other": few.repeat(len(few))}
    tensors = {name: tensor.reshape(1, -1) for name, tensor in tensors.items()}
    (count,) = tensors["x"].shape[1:]
    (output,) = [stage.split("(")[0]]
    given = {**tensors, f"d_{output}": torch.ones(1, count, dtype=torch.float64)}
    case = run_case(tmp_path, f"{stage} @ f64[1,{count}]", given)
    scalar, vector = slopes_in_both_loops(case, tensors)
    for name, expected in scalar.items():
        got = case.tensor(output if name == "output" else name).flatten()
        both = [
            (got == e) | (got.isnan() & e.isnan()) | ((got - e).abs() <= TOLERANCE * (1 + e.abs()))
            for e in (expected, vector[name])
        ]
        wrong = (~(both[0] | both[1])).nonzero().flatten().tolist()
        told = [
            f"{name} at {[tensor.flatten()[i].item() for tensor in tensors.values()]}: "
            f"got {got[i].item()}, PyTorch has {expected[i].item()} or {vector[name][i].item()}"
            for i in wrong
        ]
        if told:
            pytest.fail(
                "\n".join([*told, f"repeat with: .venv/bin/pytest '{request.node.nodeid}'"]), pytrace=False
            )


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
    [1e8, 1e8 + 1, 1e8 + 2, 1e8 - 1, 1e8 - 2],
]

STRUCTURAL = [
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
    "max_pool(3, stride=1, pad=1, dilation=1, ceil_mode=true)",
    "max_pool(2, stride=1, dilation=3)",
    "avg_pool(3, stride=1, pad=1)",
    "relu | max_pool(3, stride=1, pad=1)",
    "relu | max(w)",
    "neg | max(w) | neg",
]


def check_rows(
    rows: Sequence[Sequence[float]], stage: str, folder: Path, request: pytest.FixtureRequest
) -> None:
    """Runs a block on rows, one a sample, and compares with PyTorch."""
    x = torch.tensor(rows, dtype=torch.float64).unsqueeze(1)
    case = run_case(folder, f"{stage} @ f64[{len(rows)},1,{len(rows[0])}]", {"x": x})
    outputs, gradients = torch_results(case)
    expected = {**outputs, **gradients}
    got = {name: case.tensor(name) for name in expected}
    assert_close(got, expected, request, TOLERANCE)


@pytest.mark.parametrize("row", range(len(ROWS)))
@pytest.mark.parametrize("stage", STRUCTURAL)
def test_structural(stage: str, row: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Reductions and pools on rows with ties, NaN and infinities."""
    check_rows([ROWS[row]], stage, tmp_path, request)


@pytest.mark.parametrize("row", range(len(ROWS)))
@pytest.mark.parametrize(
    "stage",
    [
        "group_norm(1, affine=false)",
        "layer_norm(w)",
        "rms_norm(w)",
        "instance_norm",
        "l2_normalize(w)",
        "batch_norm",
    ],
)
def test_norms(stage: str, row: int, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Norms on the same rows beside an ordinary one, which NaN must not reach."""
    check_rows([ROWS[row], ROWS[0], [0.5, 1.5, -2.0, 3.0, 0.25]], stage, tmp_path, request)


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
