"""Plain values as Python text that gives them again."""

from __future__ import annotations

import inspect
import math
import sys
from typing import Any

import torch

__all__ = ["public_module", "value_text"]

_PLAIN = (bool, int, str, bytes, complex, type(None))
_TORCH = (torch.dtype, torch.memory_format, torch.layout)


def value_text(value: Any) -> str:
    """The text; it needs `torch` at most. Raises NotImplementedError for what is no plain value."""
    if isinstance(value, float):
        return repr(float(value)) if math.isfinite(value) else f'float("{float(value)}")'
    if type(value) in _PLAIN or isinstance(value, _TORCH):
        return repr(value)
    if value is Ellipsis:
        return "..."
    if type(value) in (list, tuple):
        parts = ", ".join(value_text(each) for each in value)
        return f"[{parts}]" if type(value) is list else f"({parts}{',' if len(value) == 1 else ''})"
    if type(value) is set:
        return f"set({value_text(sorted(value, key=repr))})"
    if type(value) is dict:
        return "{" + ", ".join(f"{value_text(key)}: {value_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, torch.Size):
        return value_text(tuple(value))
    if isinstance(value, torch.device):
        return f"torch.{value!r}"
    if isinstance(value, type) or inspect.isroutine(value):
        owner = public_module(getattr(value, "__module__", None) or "", value)
        if owner.partition(".")[0] == "torch":
            return f"{owner}.{value.__name__}"
    raise NotImplementedError(f"cannot write {value!r} into a file of its own")


def public_module(owner: str, value: Any) -> str:
    """The module that a user imports a name from: torch.nn rather than torch.nn.modules.conv."""
    parts = owner.split(".")
    for length in range(1, len(parts) + 1):
        module = sys.modules.get(".".join(parts[:length]))
        if module is not None and getattr(module, value.__name__, None) is value:
            return ".".join(parts[:length])
    return owner
