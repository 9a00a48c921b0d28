"""Formulas of a block, such as `y * sigmoid(1.702 * y)`, evaluated on tensors.

The text is what a block's JSON has: infix notation over names (dots allowed), numbers, `inf`, `nan` and the
primitives. Python's own parser reads it, after each name has been replaced by one that Python accepts.
Comparisons are 1 where they hold and 0 elsewhere; `select(c, a, b)` is a where c is not 0.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache

import torch
from torch import Tensor

# A name that is no part of a number and no function's: no parenthesis follows it.
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*\b(?!\s*\()")

_OPERATORS: dict[type[ast.AST], Callable[[Tensor, Tensor], Tensor]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Lt: torch.lt,
    ast.LtE: torch.le,
    ast.Gt: torch.gt,
    ast.GtE: torch.ge,
    ast.Eq: torch.eq,
}

FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    "abs": torch.abs,
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "select": lambda c, a, b: torch.where(c != 0, a, b),
    "sqrt": torch.sqrt,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1pexp": lambda x: torch.logaddexp(x, torch.zeros_like(x)),
    "tanh": torch.tanh,
    "erf": torch.erf,
    "sigmoid": torch.sigmoid,
}


def evaluate(text: str, tensors: Mapping[str, Tensor]) -> Tensor:
    """The formula's value. The tensors, one or more of the same rank, broadcast; numbers take their dtype."""
    tree, names = _parse(text)
    values = list(tensors.values())
    like = values[0].new_empty((), dtype=_common_dtype(values))
    named = {
        stand_in: like.new_tensor(float(name)) if name in ("inf", "nan") else tensors[name]
        for stand_in, name in names.items()
    }
    # A formula that does not depend on all of its operands still has their common extents.
    return _evaluate(tree, named, like).expand(_common_shape(values))


def rename(text: str, names: Mapping[str, str]) -> str:
    """The formula with other names."""
    return _NAME.sub(lambda match: names.get(match.group(), match.group()), text)


def _common_shape(values: list[Tensor]) -> list[int]:
    shapes = zip(*(value.shape for value in values), strict=True)
    return [next((extent for extent in extents if extent != 1), 1) for extents in shapes]


def _common_dtype(values: list[Tensor]) -> torch.dtype:
    dtype = values[0].dtype
    for value in values[1:]:
        dtype = torch.promote_types(dtype, value.dtype)
    return dtype


@lru_cache(maxsize=1024)
def _parse(text: str) -> tuple[ast.expr, Mapping[str, str]]:
    """The syntax tree, and the formula's names by the names that stand for them in it."""
    names: dict[str, str] = {}

    def stand_in(match: re.Match[str]) -> str:
        return names.setdefault(match.group(), f"v{len(names)}")

    tree = ast.parse(_NAME.sub(stand_in, text), mode="eval").body
    return tree, {place: name for name, place in names.items()}


def _evaluate(node: ast.expr, values: Mapping[str, Tensor], like: Tensor) -> Tensor:
    match node:
        case ast.Constant(value=int() | float() as number):
            return like.new_tensor(float(number))
        case ast.Name(id=name):
            return values[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, values, like)
        case ast.BinOp(op=op, left=left, right=right):
            return _OPERATORS[type(op)](_evaluate(left, values, like), _evaluate(right, values, like))
        case ast.Compare(ops=[op], left=left, comparators=[right]):
            holds = _OPERATORS[type(op)](_evaluate(left, values, like), _evaluate(right, values, like))
            return holds.to(like.dtype)
        case ast.Call(func=ast.Name(id=name), args=operands):
            return FUNCTIONS[name](*(_evaluate(operand, values, like) for operand in operands))
    raise ValueError(f"a formula cannot contain `{ast.unparse(node)}`")
