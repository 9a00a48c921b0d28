"""Fixtures of the Python tests."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from case_support import run_cases

# The tensors are small: threads would only wait for each other.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def case_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the results of all cases, computed once, in float64, by the reference engine."""
    folder = tmp_path_factory.mktemp("cases")
    run_cases(folder)
    return folder
