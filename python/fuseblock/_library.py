"""The shared libraries: where they are, and loading that of the operations.

An installed package has them beside this file; in a checkout they are in its build folder.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from pathlib import Path

import torch

__all__ = ["find", "load_operations", "wheels_folder"]

_HERE = Path(__file__).resolve().parent


def find(name: str, variable: str) -> Path:
    """A shared library by its file name, or the one that the environment variable names.

    Raises FileNotFoundError that says how to build it.
    """
    if chosen := os.environ.get(variable):
        places = [Path(chosen)]
    else:
        places = [_HERE / name, _HERE.parents[1] / "build" / name]
    for place in places:
        if place.is_file():
            return place
    raise FileNotFoundError(f"{places[-1]} is missing: run `make build`, or set {variable}")


def wheels_folder() -> Path | None:
    """The folder of Python packages that holds NVIDIA's wheels, the run-time compiler among them."""
    found = importlib.util.find_spec("nvidia")
    places = found.submodule_search_locations if found else None
    return Path(next(iter(places))).parent if places else None


@functools.cache
def load_operations() -> None:
    """Makes `torch.ops.fuseblock.*` known to PyTorch."""
    path = find("libfuseblock_torch.so", "FUSEBLOCK_TORCH_LIBRARY")
    torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
    if wheels := wheels_folder():
        torch.ops.fuseblock.set_compiler_folder(str(wheels))
