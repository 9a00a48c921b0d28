"""Fixtures of the Python tests, and which of them may run at the same time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from case_support import run_cases

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

# The tensors are small: threads would only wait for each other.
torch.set_num_threads(1)

# One configures the build folder again, the other installs from it.
ONE_AFTER_THE_OTHER = ("test_docs.py", "test_wheel.py")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """With `--dist loadfile` the files above stay together."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.split("::", 1)[0]
            return "build folder" if file.endswith(ONE_AFTER_THE_OTHER) else file

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def case_results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the results of all cases, computed once, in float64, by the reference engine."""
    folder = tmp_path_factory.mktemp("cases")
    run_cases(folder)
    return folder
