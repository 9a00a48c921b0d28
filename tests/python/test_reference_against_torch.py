"""The reference engine against PyTorch in float64: every case, all outputs and all gradients.

The bound for each tensor is max|e| <= 1e-10 (1 + max|ref|); NaN and infinities must stand in the same places.
Gradients that PyTorch reports as None count as zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from case_support import ROOT, CaseResult, axes_of
from fuseblock import aten
from torch import Tensor

TOLERANCE = 1e-10


def case_names() -> list[str]:
    """The names of all cases, in the order of the files."""
    lines = [line for file in sorted((ROOT / "tests/cases").glob("*.cases")) for line in file.open()]
    return [line.split(":")[0].strip() for line in lines if line.strip() and not line.startswith("#")]


def torch_results(case: CaseResult) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Outputs and gradients by PyTorch's operators and its autograd."""
    types = case.types
    arguments = {each["name"]: case.tensor(each["name"]) for each in types["arguments"]}
    wanted = [arguments[name].requires_grad_() for name in types["differentiable"]]
    outputs = aten.run(case.block, arguments, axes_of(types["arguments"]))
    incoming = {name: case.tensor(f"d_{name}") for name in outputs if outputs[name].requires_grad}
    found = torch.autograd.grad(
        [outputs[name] for name in incoming], wanted, list(incoming.values()), allow_unused=True
    )
    gradients = {
        f"d_{name}": torch.zeros_like(argument) if gradient is None else gradient
        for name, argument, gradient in zip(types["differentiable"], wanted, found, strict=True)
    }
    return {name: output.detach() for name, output in outputs.items()}, gradients


def difference(name: str, got: Tensor, expected: Tensor, tolerance: float) -> str:
    """What is wrong with a tensor; empty where nothing is."""
    if got.shape != expected.shape:
        return f"{name}: the extents are {list(got.shape)}, PyTorch's {list(expected.shape)}"
    finite = expected.isfinite()
    same = finite | (got == expected) | (got.isnan() & expected.isnan())
    error = torch.where(finite, (got - expected).abs(), torch.where(same, 0.0, torch.inf))
    if error.numel() == 0:
        return ""
    largest = expected[finite].abs().max().item() if finite.any() else 0.0
    bound = tolerance * (1 + largest)
    worst = int(error.nan_to_num(nan=torch.inf).argmax())
    if error.flatten()[worst] <= bound:
        return ""
    place = [int(i) for i in torch.unravel_index(torch.tensor(worst), error.shape)]
    pair = f"got {got.flatten()[worst].item()}, PyTorch has {expected.flatten()[worst].item()}"
    return f"{name} at {place}: {pair}, the bound is {bound:.3g}"


def assert_close(
    got: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    request: pytest.FixtureRequest,
    tolerance: float,
) -> None:
    """Compares tensors by name; a failure names the line that repeats it."""
    assert list(got) == list(expected)
    wrong = [difference(name, got[name], expected[name], tolerance) for name in expected]
    if any(wrong):
        told = "\n".join(each for each in wrong if each)
        pytest.fail(f"{told}\nrepeat with: .venv/bin/pytest '{request.node.nodeid}'", pytrace=False)


@pytest.mark.parametrize("name", case_names())
def test_case(name: str, case_results: Path, request: pytest.FixtureRequest) -> None:
    """Outputs and gradients of the reference engine."""
    case = CaseResult(case_results / name)
    outputs, gradients = torch_results(case)
    expected = {**outputs, **gradients}
    assert_close({each: case.tensor(each) for each in expected}, expected, request, TOLERANCE)


@pytest.mark.parametrize("name", case_names())
def test_backward_block(name: str, case_results: Path, request: pytest.FixtureRequest) -> None:
    """The block of the gradients, run with PyTorch's operators: `aten` on the operations that only it has."""
    case = CaseResult(case_results / name)
    types = case.types["backward_arguments"]
    arguments = {each["name"]: case.tensor(each["name"]) for each in types}
    got = aten.run(case.backward, arguments, axes_of(types))
    assert_close(got, torch_results(case)[1], request, TOLERANCE)
