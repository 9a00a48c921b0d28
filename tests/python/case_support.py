"""The built programs, what case_runner writes for a case, and the comparison of that with PyTorch."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from fuseblock import aten
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("FUSEBLOCK_BUILD", "build")


def program(path: str) -> Path:
    """A program of the build folder; the test fails where it is not built."""
    found = BUILD / path
    if not found.exists():
        pytest.fail(f"{found} is missing: run `make build`, or set FUSEBLOCK_BUILD to the build folder")
    return found


@contextmanager
def build_folder_held() -> Iterator[None]:
    """While one process installs from the build folder or configures it, no other does.

    Test files may run at the same time.
    """
    folder = os.open(BUILD, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def run_cases(out: Path, *options: str | Path, dtype: str = "f64") -> None:
    """Runs case_runner; the cases that fail leave their message behind, see `CaseResult`."""
    command = [program("tests/tools/case_runner"), "--dtype", dtype, "--out", out, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        pytest.fail(f"case_runner ended with status {done.returncode}: {done.stderr}")


@dataclass(frozen=True)
class CaseResult:
    """What case_runner wrote for one case."""

    folder: Path

    def __post_init__(self) -> None:
        """Fails the test with what the engine said, where it refused the case."""
        error = self.folder / "error.txt"
        if error.exists():
            pytest.fail(error.read_text())

    def tensor(self, name: str) -> Tensor:
        """A tensor by name, in float64."""
        return torch.from_numpy(numpy.load(self.folder / f"{name}.npy"))

    @property
    def block(self) -> dict[str, Any]:
        """The block."""
        return self._json("block")

    @property
    def backward(self) -> dict[str, Any]:
        """The block of the gradients."""
        return self._json("backward")

    @property
    def types(self) -> dict[str, Any]:
        """The types of arguments and outputs."""
        return self._json("types")

    def _json(self, name: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / f"{name}.json").read_text())
        return content


def axes_of(types: list[Mapping[str, Any]]) -> dict[str, str]:
    """The axes of tensors by name."""
    return {each["name"]: each["axes"] for each in types}


def torch_results(
    case: CaseResult, dtype: torch.dtype = torch.float64
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Outputs and gradients by PyTorch's operators and its autograd."""
    types = case.types
    arguments = {each["name"]: case.tensor(each["name"]).to(dtype) for each in types["arguments"]}
    wanted = [arguments[name].requires_grad_() for name in types["differentiable"]]
    outputs = aten.run(case.block, arguments, axes_of(types["arguments"]))
    incoming = {
        name: case.tensor(f"d_{name}").to(outputs[name].dtype)
        for name in outputs
        if outputs[name].requires_grad
    }
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
