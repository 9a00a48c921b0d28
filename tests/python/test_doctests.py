"""The examples in the docstrings of the package."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import fuseblock
import pytest

MODULES = [
    "fuseblock",
    *(each.name for each in pkgutil.walk_packages(fuseblock.__path__, "fuseblock.")),
]


@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize(
    "name", ["fuseblock", "fuseblock.nn.norms", "fuseblock.nn.blocks", "fuseblock.functional"]
)
def test_everything_public_has_an_example(name: str) -> None:
    module = importlib.import_module(name)
    names = getattr(module, "__all__", None) or [
        each
        for each, value in vars(module).items()
        if getattr(value, "__module__", "") == name and each[0] != "_"
    ]
    for each in names:
        value = getattr(module, each)
        if callable(value):
            assert ">>> " in (value.__doc__ or ""), f"{name}.{each}"
