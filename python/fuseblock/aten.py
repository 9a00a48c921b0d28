"""The ATen decomposition of a block: its JSON, run with PyTorch's own operators.

    outputs = run(json.loads(block_json), {"x": x, "conv2d.weight": weight, ...})

It runs in whatever dtype the tensors have, on any device, and autograd works through it. `aten_operations`
has one function for each operation of the catalogue, `aten_formula` evaluates formulas.

The JSON of a block has no types, so axes are tracked here. A value is a tensor with one letter of n c d h w
for each of its dimensions. `x` is labelled by its rank, results by their operation, and the other arguments
where they are first used: what a convolution takes has its axes, a parameter of one dimension lies on c,
those of layer_norm and rms_norm on the normalised axes, and anything else is aligned from the right with the
first labelled operand (with `x` where there is none), as PyTorch broadcasts. Where that is not what is meant,
the caller names the axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fuseblock import aten_formula
from fuseblock.aten_operations import CONVOLUTIONS, DTYPES, OPERATIONS, Value, union

__all__ = ["DEFAULT_AXES", "OPERATIONS", "autocast_block", "run"]

DEFAULT_AXES = ("", "c", "nc", "ncw", "nchw", "ncdhw")

_DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}

# The first of the operands that lie on c, by operation.
_FIRST_PER_CHANNEL = {"group_norm": 1, "instance_norm": 1, "batch_norm": 1, **dict.fromkeys(CONVOLUTIONS, 2)}


def run(
    block: Mapping[str, Any], arguments: Mapping[str, Tensor], axes: Mapping[str, str] | None = None
) -> dict[str, Tensor]:
    """Runs a block.

    block: what Block::to_json writes, parsed.
    arguments: `x`, the extra inputs and the parameters by name.
    axes: the axes of arguments, such as {"d_y": "nhw"}, where the rules above do not find them.

    Returns the outputs in the block's order. Raises ValueError for a missing argument and for an operand that
    does not fit, NotImplementedError for an operation that is not in `OPERATIONS`, and what PyTorch raises
    with the operation in front of its message.
    """
    scope = _Scope(block, arguments, axes or {})
    for statement in block["statements"]:
        scope.values[statement["name"]] = _evaluate_named(statement, scope)
    return {name: scope.value(name).tensor for name in block["outputs"]}


def autocast_block(block: Mapping[str, Any], arguments: Mapping[str, Tensor], device: str) -> dict[str, Any]:
    """The block with a cast wherever PyTorch's autocast, which must be on, would put one for these arguments.

    Each statement runs under autocast and without. A convolution's operands are cast to the dtype of its
    result; so are those of another operation where its result would else have another dtype.
    """
    # Autocast keeps its casts of tensors that require gradients, and what it kept here would have none.
    detached = {name: argument.detach() for name, argument in arguments.items()}
    scope = _Scope(block, detached, {})
    statements: list[Mapping[str, Any]] = []
    for statement in block["statements"]:
        value = _evaluate_named(statement, scope)
        dtype = value.tensor.dtype
        cast = statement.get("op") in CONVOLUTIONS
        if not cast:
            with torch.autocast(device, enabled=False):
                cast = _dtype_without_autocast(statement, scope) != dtype
        names: dict[str, str] = {}
        for operand in statement["operands"]:
            if cast and not _is_number(operand) and scope.value(operand).tensor.dtype != dtype:
                name = f"{operand}_{_DTYPE_NAMES[dtype]}".replace(".", "_")
                names[operand] = name
                if all(name != each["name"] for each in statements):
                    args = {"dtype": _DTYPE_NAMES[dtype]}
                    statements.append({"name": name, "op": "cast", "operands": [operand], "args": args})
        statements.append(_renamed(statement, names))
        scope.values[statement["name"]] = value
    return {**block, "statements": statements}


def _renamed(statement: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The statement with other names for operands."""
    renamed = {**statement, "operands": [names.get(operand, operand) for operand in statement["operands"]]}
    if "formula" in statement:
        renamed["formula"] = aten_formula.rename(statement["formula"], names)
    return renamed


def _dtype_without_autocast(statement: Mapping[str, Any], scope: _Scope) -> torch.dtype | None:
    """The dtype of a statement's result; None where PyTorch refuses these operands."""
    try:
        return _evaluate(statement, scope).tensor.dtype
    except (RuntimeError, ValueError):
        return None


class _Scope:
    """The values known so far: results, and arguments with or still without labels."""

    def __init__(
        self, block: Mapping[str, Any], arguments: Mapping[str, Tensor], axes: Mapping[str, str]
    ) -> None:
        self.values: dict[str, Value] = {}
        self.unlabelled: dict[str, Tensor] = {}
        for name in [*block["inputs"], *block["parameters"]]:
            if name not in arguments:
                raise ValueError(f"argument `{name}` of the block is missing")
            # A number that lies on the CPU may stand beside tensors of a GPU.
            number = arguments[name].dim() == 0 and "x" in arguments
            self.unlabelled[name] = arguments[name].to(arguments["x"].device) if number else arguments[name]
            if name in axes:
                self.label(name, axes[name])
            elif name == "x":
                self.label(name, DEFAULT_AXES[arguments[name].dim()])

    def label(self, name: str, axes: str) -> None:
        """Gives an argument its axes."""
        tensor = self.unlabelled.pop(name)
        if tensor.dim() != len(axes):
            expected = ",".join(axes)
            raise ValueError(
                f"`{name}`: expected the axes [{expected}], got the extents {list(tensor.shape)}"
            )
        self.values[name] = Value(tensor, axes)

    def value(self, name: str) -> Value:
        """A value by name; an argument that still has no labels gets those of its rank."""
        if name in self.unlabelled:
            self.label(name, DEFAULT_AXES[self.unlabelled[name].dim()])
        return self.values[name]


def _evaluate_named(statement: Mapping[str, Any], scope: _Scope) -> Value:
    """As `_evaluate`; what PyTorch refuses is refused with the operation in front of the message."""
    try:
        return _evaluate(statement, scope)
    except Exception as error:
        # Not of subclasses, which carry more than a message.
        if type(error) in (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
            raise type(error)(f"{statement.get('op', 'formula')}: {error}") from error
        raise


def _evaluate(statement: Mapping[str, Any], scope: _Scope) -> Value:
    names = [operand for operand in statement["operands"] if not _is_number(operand)]
    _label_operands(statement, names, scope)
    if "formula" in statement:
        values = {name: scope.value(name) for name in names}
        axes = union(values.values())
        tensors = {name: value.aligned(axes) for name, value in values.items()}
        return Value(aten_formula.evaluate(statement["formula"], tensors), axes)
    operation = OPERATIONS.get(statement["op"])
    if operation is None:
        raise NotImplementedError(f"{statement['op']}: no operation of this name")
    like = scope.value(names[0]).tensor
    operands = [
        Value(like.new_tensor(float(operand)), "") if _is_number(operand) else scope.value(operand)
        for operand in statement["operands"]
    ]
    return operation(operands, statement["args"])


def _is_number(operand: str | float) -> bool:
    return not isinstance(operand, str) or operand in ("inf", "-inf", "nan", "-nan")


def _label_operands(statement: Mapping[str, Any], names: Sequence[str], scope: _Scope) -> None:
    """Labels the operands that have none yet, by the rules at the head of this file."""
    op = statement.get("op", "")
    labelled = [name for name in [*names, "x"] if name in scope.values]
    anchor = scope.values[labelled[0]].axes if labelled else ""
    for i, name in enumerate(names):
        if name not in scope.unlabelled:
            continue
        rank = scope.unlabelled[name].dim()
        if op in CONVOLUTIONS and i == 0:
            scope.label(name, DEFAULT_AXES[rank])
        elif op in _FIRST_PER_CHANNEL and i >= _FIRST_PER_CHANNEL[op]:
            scope.label(name, "c")
        elif op in ("layer_norm", "rms_norm") and i >= 1:
            scope.label(name, "".join(statement["args"]["axes"]))
        elif rank == 1 and "." in name:
            scope.label(name, "c")
        elif rank <= len(anchor):
            scope.label(name, anchor[len(anchor) - rank :])
        else:
            scope.label(name, DEFAULT_AXES[rank])
