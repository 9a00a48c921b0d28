"""The reference engine against PyTorch in float64: every case, all outputs and all gradients.

The bound for each tensor is max|e| <= 1e-10 (1 + max|ref|); NaN and infinities must stand in the same places.
Gradients that PyTorch reports as None count as zeros.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from case_support import ROOT, CaseResult, assert_close, axes_of, torch_results
from fuseblock import aten

TOLERANCE = 1e-10

pytestmark = [
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths"),
    pytest.mark.filterwarnings("ignore:var.*degrees of freedom is <= 0"),
]


def case_names() -> list[str]:
    """The names of all cases, in the order of the files."""
    lines = [line for file in sorted((ROOT / "tests/cases").glob("*.cases")) for line in file.open()]
    return [line.split(":")[0].strip() for line in lines if line.strip() and not line.startswith("#")]


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
