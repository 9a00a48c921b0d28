"""Calls of a traced graph as statements of the notation.

`statement(node, values)` gives the text of one call over the values that it takes, or raises
`UnknownCallError` with the reason why the notation has no such operation. Values carry the axes of their
dimensions, letters of n c d h w, which reductions and norms name.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx
import torch.nn.functional as F  # noqa: N812

__all__ = ["Result", "UnknownCallError", "Value", "statement"]


class UnknownCallError(Exception):
    """A call that is no operation of the notation; the message says what about it is not."""


@dataclass(frozen=True)
class Value:
    """A value of the block: its name, and a letter for each of its dimensions."""

    name: str
    axes: str

    def letters(self, dims: int | Sequence[int] | None) -> str:
        """The axes of some dimensions, in order, as the notation lists them; of all where none are named."""
        if dims is None or (isinstance(dims, Sequence) and not dims):
            return self.axes
        chosen = {dim % len(self.axes) for dim in ([dims] if isinstance(dims, int) else dims)}
        return "".join(letter for i, letter in enumerate(self.axes) if i in chosen)

    def without(self, letters: str, keepdim: bool) -> str:
        """The axes that are left after a reduction."""
        return self.axes if keepdim else "".join(letter for letter in self.axes if letter not in letters)


@dataclass(frozen=True)
class Result:
    """The right side of a statement, the axes of what it gives, and the operands that are parameters."""

    text: str
    axes: str
    parameters: Mapping[str, torch.fx.Node] = field(default_factory=dict)


class _Call:
    """A call's arguments by name, whichever way they were given."""

    def __init__(self, node: torch.fx.Node, values: Mapping[torch.fx.Node, Value]) -> None:
        self.node = node
        self.values = values
        self.args: list[Any] = list(node.args)
        self.kwargs: dict[str, Any] = dict(node.kwargs)

    def bound(self, **defaults: Any) -> dict[str, Any]:
        """The arguments behind the first operand, with these names in this order."""
        names = list(defaults)
        given = self.args[1:]
        if len(given) > len(names):
            raise UnknownCallError(f"{len(given) + 1} arguments")
        result = {**defaults, **dict(zip(names, given, strict=False))}
        for name, value in self.kwargs.items():
            if name in ("input", "self"):
                continue
            if name not in defaults:
                raise UnknownCallError(f"the argument {name}")
            result[name] = value
        return result

    @property
    def first(self) -> Value:
        """The first operand."""
        operand = self.args[0] if self.args else self.kwargs.get("input", self.kwargs.get("self"))
        return self.value(operand)

    def value(self, operand: Any) -> Value:
        """A tensor operand."""
        if not isinstance(operand, torch.fx.Node) or operand not in self.values:
            raise UnknownCallError(f"the operand {operand}")
        return self.values[operand]


Converter = Callable[[_Call], Result]


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UnknownCallError(f"the argument {value}")
    if math.isinf(value) or math.isnan(value):
        return str(float(value))
    return repr(value)


def _unary(name: str, **arguments: Any) -> Converter:
    """A pointwise operation, with the names and defaults of PyTorch's arguments that the notation has too."""

    def convert(call: _Call) -> Result:
        given = call.bound(**arguments, **({} if "inplace" in arguments else {"inplace": False}))
        listed = "".join(f", {_number(given[key])}" for key in arguments if key != "inplace")
        return Result(f"{name}({call.first.name}{listed})", call.first.axes)

    return convert


def _gelu(call: _Call) -> Result:
    approximate = call.bound(approximate="none")["approximate"]
    extra = "" if approximate == "none" else f", approximate={approximate}"
    return Result(f"gelu({call.first.name}{extra})", call.first.axes)


def _clamp(call: _Call) -> Result:
    ends = call.bound(min=None, max=None)
    low = "-inf" if ends["min"] is None else _number(ends["min"])
    high = "inf" if ends["max"] is None else _number(ends["max"])
    return Result(f"clamp({call.first.name}, {low}, {high})", call.first.axes)


def _binary(name: str, operator_text: str = "", commutes: bool = True) -> Converter:
    """Two operands, of which one may be a number. One that the block computes comes first where it may."""

    def convert(call: _Call) -> Result:
        operands = [*call.args]
        for key, value in call.kwargs.items():
            if key == "other":
                operands.append(value)
            elif key != "input" and value not in (None, 1):
                raise UnknownCallError(f"the argument {key}={value}")
        if len(operands) != 2:
            raise UnknownCallError(f"{len(operands)} operands")
        if commutes:
            operands.sort(
                key=lambda each: isinstance(each, torch.fx.Node) + 2 * _is_computed(each), reverse=True
            )
        parts: list[str] = []
        axes: list[str] = []
        for operand in operands:
            if isinstance(operand, torch.fx.Node):
                parts.append(call.value(operand).name)
                axes.append(call.value(operand).axes)
            else:
                parts.append(_number(operand))
        together = "".join(letter for letter in "ncdhw" if any(letter in each for each in axes))
        if not all(together.endswith(each) for each in axes):
            raise UnknownCallError(f"axes {' and '.join(axes)}, which PyTorch aligns from the right")
        plain = isinstance(operands[0], torch.fx.Node) or not operator_text
        text = f"{name}({', '.join(parts)})" if plain else f"{parts[0]} {operator_text} {parts[1]}"
        return Result(text, together)

    return convert


def _is_computed(operand: Any) -> bool:
    return isinstance(operand, torch.fx.Node) and "result" in operand.meta


def _pow(call: _Call) -> Result:
    exponent = call.bound(exponent=None)["exponent"]
    if exponent == 2:
        return Result(f"square({call.first.name})", call.first.axes)
    if exponent == 0.5:
        return Result(f"sqrt({call.first.name})", call.first.axes)
    raise UnknownCallError(f"the exponent {exponent}")


def _affine(call: _Call, names: Mapping[str, Any]) -> tuple[str, dict[str, torch.fx.Node]]:
    """The argument `affine` of a norm, and its weight and bias."""
    given = {key: value for key, value in names.items() if value is not None}
    if not given:
        return ", affine=false", {}
    if len(given) != len(names):
        raise UnknownCallError("a weight without a bias")
    for value in given.values():
        if not isinstance(value, torch.fx.Node):
            raise UnknownCallError(f"the operand {value}")
    del call
    return "", given


def _group_norm(call: _Call) -> Result:
    given = call.bound(num_groups=None, weight=None, bias=None, eps=1e-5)
    affine, parameters = _affine(call, {"weight": given["weight"], "bias": given["bias"]})
    text = f"group_norm({call.first.name}, {given['num_groups']}, eps={_number(given['eps'])}{affine})"
    return Result(text, call.first.axes, parameters)


def _instance_norm(call: _Call) -> Result:
    given = call.bound(
        running_mean=None,
        running_var=None,
        weight=None,
        bias=None,
        use_input_stats=True,
        momentum=0.1,
        eps=1e-5,
    )
    if given["running_mean"] is not None or given["use_input_stats"] is not True:
        raise UnknownCallError("running statistics")
    affine, parameters = _affine(call, {"weight": given["weight"], "bias": given["bias"]})
    affine = affine or ", affine=true"
    text = f"instance_norm({call.first.name}, eps={_number(given['eps'])}{affine})"
    return Result(text, call.first.axes, parameters)


def _last_axes(value: Value, shape: Sequence[int]) -> str:
    return ",".join(value.axes[len(value.axes) - len(shape) :])


def _layer_norm(call: _Call) -> Result:
    given = call.bound(normalized_shape=None, weight=None, bias=None, eps=1e-5)
    affine, parameters = _affine(call, {"weight": given["weight"], "bias": given["bias"]})
    axes = _last_axes(call.first, given["normalized_shape"])
    text = f"layer_norm({call.first.name}, {axes}, eps={_number(given['eps'])}{affine})"
    return Result(text, call.first.axes, parameters)


def _rms_norm(call: _Call) -> Result:
    given = call.bound(normalized_shape=None, weight=None, eps=None)
    if given["eps"] is None:
        dtype = call.node.meta["val"].dtype
        if dtype not in (torch.float32, torch.float64):
            raise UnknownCallError("an eps that PyTorch chooses for 16 bits")
        given["eps"] = torch.finfo(dtype).eps
    affine, parameters = _affine(call, {"weight": given["weight"]})
    axes = _last_axes(call.first, given["normalized_shape"])
    text = f"rms_norm({call.first.name}, {axes}, eps={_number(given['eps'])}{affine})"
    return Result(text, call.first.axes, parameters)


def _normalize(call: _Call) -> Result:
    given = call.bound(p=2.0, dim=1, eps=1e-12, out=None)
    if given["p"] != 2.0 or given["out"] is not None:
        raise UnknownCallError(f"the norm p={given['p']}")
    axes = ",".join(call.first.letters(given["dim"]))
    return Result(f"l2_normalize({call.first.name}, {axes}, eps={_number(given['eps'])})", call.first.axes)


def _softmax(call: _Call) -> Result:
    given = call.bound(dim=None, _stacklevel=3, dtype=None)
    # torch.softmax has the dtype where torch.nn.functional's has _stacklevel.
    if given["dtype"] is not None or not all(isinstance(given[key], int) for key in ("dim", "_stacklevel")):
        raise UnknownCallError("a softmax without dim, or with a dtype")
    return Result(f"softmax({call.first.name}, {call.first.letters(given['dim'])})", call.first.axes)


def _reduction(name: str, needs_dim: bool = False) -> Converter:
    def convert(call: _Call) -> Result:
        given = call.bound(dim=None, keepdim=False, dtype=None)
        if given["dtype"] is not None or (needs_dim and given["dim"] is None):
            raise UnknownCallError("a reduction without dim, or with a dtype")
        letters = call.first.letters(given["dim"])
        keep = ", keepdim" if given["keepdim"] else ""
        text = f"{name}({call.first.name}, {','.join(letters)}{keep})"
        return Result(text, call.first.without(letters, given["keepdim"]))

    return convert


def _window(value: Any) -> str:
    return f"({','.join(str(each) for each in value)})" if isinstance(value, tuple | list) else str(value)


def _pool(name: str, **arguments: Any) -> Converter:
    def convert(call: _Call) -> Result:
        given = call.bound(kernel_size=None, stride=None, padding=0, **arguments)
        if given.get("return_indices"):
            raise UnknownCallError("return_indices")
        text = f"{name}({call.first.name}, {_window(given['kernel_size'])}"
        if given["stride"] not in (None, (), [], given["kernel_size"]):
            text += f", stride={_window(given['stride'])}"
        if given["padding"] != 0:
            text += f", pad={_window(given['padding'])}"
        if given.get("dilation", 1) != 1:
            text += f", dilation={_window(given['dilation'])}"
        if given.get("ceil_mode"):
            text += ", ceil_mode"
        if given.get("count_include_pad") is False:
            text += ", count_include_pad=false"
        if given.get("divisor_override") is not None:
            text += f", divisor_override={given['divisor_override']}"
        return Result(text + ")", call.first.axes)

    return convert


_MAX_POOL = _pool("max_pool", dilation=1, ceil_mode=False, return_indices=False)
_AVG_POOL = _pool("avg_pool", ceil_mode=False, count_include_pad=True, divisor_override=None)

# By the name of the function or of the tensor's method.
_CONVERTERS: dict[str, Converter] = {
    "relu": _unary("relu"),
    "relu_": _unary("relu"),
    "leaky_relu": _unary("leaky_relu", negative_slope=0.01),
    "relu6": _unary("relu6"),
    "elu": _unary("elu", alpha=1.0),
    "silu": _unary("silu"),
    "sigmoid": _unary("sigmoid"),
    "hardsigmoid": _unary("hardsigmoid"),
    "hardswish": _unary("hardswish"),
    "hardtanh": _unary("hardtanh", min_val=-1.0, max_val=1.0),
    "clamp": _clamp,
    "tanh": _unary("tanh"),
    "gelu": _gelu,
    "mish": _unary("mish"),
    "softplus": _unary("softplus", beta=1.0, threshold=20.0),
    "exp": _unary("exp"),
    "log": _unary("log"),
    "sqrt": _unary("sqrt"),
    "square": _unary("square"),
    "abs": _unary("abs"),
    "neg": _unary("neg"),
    "pow": _pow,
    "add": _binary("add"),
    "sub": _binary("sub", "-", commutes=False),
    "mul": _binary("mul"),
    "div": _binary("div", "/", commutes=False),
    "truediv": _binary("div", "/", commutes=False),
    "minimum": _binary("minimum"),
    "maximum": _binary("maximum"),
    "group_norm": _group_norm,
    "instance_norm": _instance_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "normalize": _normalize,
    "softmax": _softmax,
    "mean": _reduction("mean"),
    "sum": _reduction("sum"),
    "amax": _reduction("max"),
    "amin": _reduction("min"),
    "logsumexp": _reduction("logsumexp", needs_dim=True),
    "max_pool1d": _MAX_POOL,
    "max_pool2d": _MAX_POOL,
    "max_pool3d": _MAX_POOL,
    "avg_pool2d": _AVG_POOL,
    "avg_pool3d": _AVG_POOL,
}

_MODULES = ("torch", "torch.nn.functional", "torch._C._nn", "torch._C", "_operator")
_OPERATORS = {operator.iadd: "add", operator.imul: "mul", operator.isub: "sub", operator.itruediv: "div"}
# Functions that go by another name when they are called through torch.nn.functional.
_WRAPPED: dict[Any, str] = {
    F.max_pool1d: "max_pool1d",
    F.max_pool2d: "max_pool2d",
    F.max_pool3d: "max_pool3d",
}


def name_of(node: torch.fx.Node) -> str:
    """What a call calls, without its module; empty where it is no function of PyTorch's."""
    if node.op == "call_method":
        return str(node.target)
    if node.op != "call_function":
        return ""
    if node.target in _WRAPPED:
        return _WRAPPED[node.target]
    if node.target in _OPERATORS:
        return _OPERATORS[node.target]
    module = getattr(node.target, "__module__", None) or "torch"
    return str(getattr(node.target, "__name__", "")) if module in _MODULES else ""


def statement(node: torch.fx.Node, values: Mapping[torch.fx.Node, Value]) -> Result:
    """The right side of the statement for a call. Raises UnknownCallError where the notation has none."""
    converter = _CONVERTERS.get(name_of(node))
    if converter is None:
        raise UnknownCallError("no operation of the notation")
    return converter(_Call(node, values))
