"""Where the built programs are, and the tensors that case_runner writes for a case."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / os.environ.get("FUSEBLOCK_BUILD", "build")


def program(path: str) -> Path:
    """A program of the build folder; the test fails where it is not built."""
    found = BUILD / path
    if not found.exists():
        pytest.fail(f"{found} is missing: run `make build`, or set FUSEBLOCK_BUILD to the build folder")
    return found


def run_cases(out: Path, *options: str | Path) -> None:
    """Runs case_runner; the cases that fail leave their message behind, see `CaseResult`."""
    command = [program("tests/tools/case_runner"), "--dtype", "f64", "--out", out, *options]
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
