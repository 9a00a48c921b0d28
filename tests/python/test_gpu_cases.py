"""Rows of tests/gpu/gpu_cases.py that ask for a division have it in an H200's plan, not another kernel."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from cli_support import fuseblock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import gpu_cases  # noqa: E402

CASES = {
    case.name: case
    for file in ("variants", "infinite")
    for case in gpu_cases.read_cases(ROOT / "tests" / "gpu" / f"{file}.cases")
}


def text_of(name: str, variable: str, wishes: str, dtype: str, layout: str) -> str:
    """The text of the kernels of a case's plan."""
    case = CASES[name]
    inputs = []
    for argument, type_ in case.types.items():
        extents = type_[type_.index("[") :].removesuffix(":cl")
        wide = extents.count(",") > 1 and "1,1" not in extents
        inputs += ["--input", ("" if argument == "x" else f"{argument}=") + dtype + extents + layout * wide]
    return fuseblock("source", case.block, "--device", "h200", *inputs, variables={variable: wishes}).stdout


@pytest.mark.parametrize(("name", "wishes"), gpu_cases.ROWS)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_rows_without_barriers(name: str, wishes: str, dtype: str) -> None:
    ahead = re.search(r"ahead=(\d)", wishes)
    assert ahead
    assert f"kAhead = {ahead[1]};" in text_of(name, "FUSEBLOCK_ROWS", wishes, dtype, "")


@pytest.mark.parametrize(("name", "wishes"), gpu_cases.REGISTERS)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_rows_in_registers(name: str, wishes: str, dtype: str) -> None:
    text = text_of(name, "FUSEBLOCK_ROWS", wishes, dtype, "")
    assert re.search(r"__global__ [^{]*\brows_registers\(", text)
    assert ("sigmoids(arguments" in text) == ("silu" in CASES[name].block and dtype == "bf16")


@pytest.mark.parametrize(("name", "wishes"), gpu_cases.SLICES)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_slices(name: str, wishes: str, dtype: str) -> None:
    text = text_of(name, "FUSEBLOCK_SLICES", wishes, dtype, ":cl")
    kernel = "slices_cluster" if re.search(r"cluster=[2-8]", wishes) else "slices"
    kernel = "slices_whole" if "whole=1" in wishes else kernel
    assert re.search(rf"__global__ [^{{]*\b{kernel}\(", text)
