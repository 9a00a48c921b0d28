"""The reference engine against PyTorch in float64: every case, all outputs and all gradients.

The bound for each tensor is max|e| <= 1e-10 (1 + max|ref|); NaN and infinities must stand in the same places.
Gradients that PyTorch reports as None count as zeros.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from case_support import ROOT, CaseResult, assert_close, axes_of, torch_results
from fuseblock import aten

TOLERANCE = 1e-10

pytestmark = [
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths"),
    pytest.mark.filterwarnings("ignore:var.*degrees of freedom is <= 0"),
]


def case_lines() -> dict[str, str]:
    """The lines of all cases by name, in the order of the files."""
    lines = [line for file in sorted((ROOT / "tests/cases").glob("*.cases")) for line in file.open()]
    return {line.split(":")[0].strip(): line for line in lines if line.strip() and not line.startswith("#")}


CASES = case_lines()
# Those whose types have no labels of their own, such as `f32[n=2,h=5]`.
UNLABELLED_CASES = [name for name, line in CASES.items() if not re.search(r"\[[ncdhw]=", line)]


@pytest.mark.parametrize("name", CASES)
def test_case(name: str, case_results: Path, request: pytest.FixtureRequest) -> None:
    """Outputs and gradients of the reference engine."""
    case = CaseResult(case_results / name)
    outputs, gradients = torch_results(case)
    expected = {**outputs, **gradients}
    assert_close({each: case.tensor(each) for each in expected}, expected, request, TOLERANCE)


@pytest.mark.parametrize("name", CASES)
def test_backward_block(name: str, case_results: Path, request: pytest.FixtureRequest) -> None:
    """The block of the gradients, run with PyTorch's operators: `aten` on the operations that only it has."""
    case = CaseResult(case_results / name)
    types = case.types["backward_arguments"]
    arguments = {each["name"]: case.tensor(each["name"]) for each in types}
    got = aten.run(case.backward, arguments, axes_of(types))
    assert_close(got, torch_results(case)[1], request, TOLERANCE)


@pytest.mark.parametrize("name", UNLABELLED_CASES)
def test_axes_are_found(name: str, case_results: Path, request: pytest.FixtureRequest) -> None:
    """`aten` finds the axes of all arguments by itself."""
    case = CaseResult(case_results / name)
    arguments = {each["name"]: case.tensor(each["name"]) for each in case.types["arguments"]}
    got = aten.run(case.block, arguments)
    assert_close(got, {each: case.tensor(each) for each in got}, request, TOLERANCE)
