"""A traced graph as Python: the bodies of ModelNew.forward and of a block by PyTorch's operators."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.fx

from fuseblock.export.values import value_text

__all__ = ["expression", "place", "statements"]

_INFIX = {
    operator.add: "+",
    operator.sub: "-",
    operator.mul: "*",
    operator.truediv: "/",
    operator.iadd: "+",
    operator.isub: "-",
    operator.imul: "*",
    operator.itruediv: "/",
    operator.floordiv: "//",
    operator.mod: "%",
    operator.matmul: "@",
    operator.pow: "**",
    operator.lt: "<",
    operator.le: "<=",
    operator.gt: ">",
    operator.ge: ">=",
    operator.eq: "==",
    operator.ne: "!=",
    operator.and_: "&",
    operator.or_: "|",
}
_PREFIX = {operator.neg: "-", operator.pos: "+", operator.invert: "~"}


def place(path: str) -> str:
    """The expression of a model's submodule, parameter or buffer, by its path: self.blocks[0].weight."""
    text = "self"
    for part in path.split(".") if path else []:
        if part.isdigit():
            text += f"[{part}]"
        elif part.isidentifier():
            text += f".{part}"
        else:
            text = f"getattr({text}, {part!r})"
    return text


def _argument(value: Any, names: Mapping[torch.fx.Node, str]) -> str:
    if isinstance(value, torch.fx.Node):
        return names[value]
    if isinstance(value, tuple | list):
        parts = [_argument(each, names) for each in value]
        if isinstance(value, list):
            return f"[{', '.join(parts)}]"
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_argument(each, names)}" for key, each in value.items()) + "}"
    if isinstance(value, slice):
        ends = ["" if end is None else _argument(end, names) for end in (value.start, value.stop)]
        return ":".join(ends) + ("" if value.step is None else f":{_argument(value.step, names)}")
    return value_text(value)


def _function(target: Any) -> str:
    """How a function is called: by PyTorch's short names."""
    module = getattr(target, "__module__", None) or "torch"
    name = target.__name__
    if module in ("_operator", "math"):
        return f"{module.lstrip('_')}.{name}"
    if hasattr(torch.nn.functional, name) and module in ("torch.nn.functional", "torch._C._nn"):
        return f"F.{name}"
    if hasattr(torch, name):
        return f"torch.{name}"
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return f"torch.ops.{target}"
    return f"{module}.{name}"


def expression(node: torch.fx.Node, names: Mapping[torch.fx.Node, str]) -> str:
    """The right side of a call."""
    args = [_argument(each, names) for each in node.args]
    if node.op == "call_function":
        if node.target in _INFIX and len(args) == 2 and not node.meta.get("changes_others"):
            first = f"({args[0]})" if args[0].startswith("-") and node.target is operator.pow else args[0]
            return f"{first} {_INFIX[node.target]} {args[1]}"
        if node.target in _PREFIX:
            return f"{_PREFIX[node.target]}{args[0]}"
        if node.target is operator.getitem:
            inner = args[1][1:-1] if isinstance(node.args[1], tuple) else args[1]
            return f"{args[0]}[{inner}]"
        if node.target is getattr:
            return f"{args[0]}.{node.args[1]}"
        call = _function(node.target)
    elif node.op == "call_method":
        call = f"{args.pop(0)}.{node.target}"
    else:
        call = place(str(node.target))
    default = {"inplace": False, "_stacklevel": 3}
    for key, value in node.kwargs.items():
        if default.get(key, value is None and node.op == "call_function") in (value, True):
            continue
        args.append(f"{key}={_argument(value, names)}")
    return f"{call}({', '.join(args)})"


def statements(
    nodes: Iterable[torch.fx.Node], names: dict[torch.fx.Node, str], calls: Mapping[torch.fx.Node, str]
) -> list[str]:
    """One line a node; `calls` has the text for those that are written otherwise, empty for none."""
    lines = []
    for node in nodes:
        if node in calls:
            if calls[node]:
                lines.append(calls[node])
        elif node.op == "placeholder":
            names[node] = str(node.target).lstrip("*")
        elif node.op == "get_attr":
            names[node] = place(str(node.target))
        elif node.op == "output":
            lines.append(f"return {_argument(node.args[0], names)}")
        else:
            text = expression(node, names)
            names[node] = node.name
            lines.append(f"{node.name} = {text}")
    return lines
