"""Every case of tests/cases as a fuseblock.nn.Block beside PyTorch: outputs and every gradient.

The bar of `fuseblock.verify`, errors pooled over seeds. A list of cases that has every operation runs in each
dtype and layout, the others in one of them, and as they are written where their dtypes are mixed. With
FUSEBLOCK_LONG=1 all run in all.
"""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch
from fuseblock import _blocks, aten
from fuseblock._verify import error_bar
from fuseblock.aten_operations import CONVOLUTIONS
from fuseblock.nn import Block
from test_reference_against_torch import CASES
from torch import Tensor

SEEDS = (1, 3, 5)
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}
LAYOUTS = ("contiguous", "channels_last")
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
COMBINATIONS = [f"{dtype}-{layout}" for dtype, layout in product(DTYPES, LAYOUTS)]

# PyTorch's gradient is rounded where the value is cast to f32, so in f64 it is no reference.
ROUNDED_IN_F64 = {"cast_and_back"}

# A tensor has no names for its axes, so these cannot be said by tensors.
WITH_NAMED_AXES = {"labelled_input", "labelled_reduction", "extra_input_into_linear", "adagn_from_embedding"}

pytestmark = [
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths"),
    pytest.mark.filterwarnings("ignore:var.*degrees of freedom is <= 0"),
]


@dataclass(frozen=True)
class Type:
    """A type of a case."""

    dtype: str
    extents: tuple[int, ...]
    axes: str

    @staticmethod
    def parse(text: str) -> Type:
        found = re.fullmatch(r"(\w+)\[(.*)\](?::cl)?", text)
        assert found, text
        items = [item.split("=") for item in found[2].split(",") if item]
        axes = "".join(item[0] for item in items if len(item) == 2)
        return Type(found[1], tuple(int(item[-1]) for item in items), axes)

    def shape(self, rank: int) -> tuple[int, ...]:
        """The extents, with dimensions of 1 for the axes that are not named where some are."""
        if not self.axes:
            return self.extents
        by_axis = dict(zip(self.axes, self.extents, strict=True))
        return tuple(by_axis.get(axis, 1) for axis in aten.DEFAULT_AXES[rank])


@dataclass(frozen=True)
class Case:
    """A line of tests/cases."""

    notation: str
    x: Type
    others: dict[str, Type]

    @property
    def is_mixed(self) -> bool:
        """Whether its tensors have several dtypes."""
        return any(each.dtype != self.x.dtype for each in self.others.values())


def parse_case(line: str) -> Case:
    """Reads a line."""
    notation, _, types = line.split(":", 1)[1].rpartition("@")
    x, *others = re.findall(r"(?:[\w.]+=)?\w+\[[^\]]*\](?::cl)?", types)
    named = (each.split("=", 1) for each in others)
    return Case(notation.strip(), Type.parse(x), {name: Type.parse(text) for name, text in named})


PARSED = {name: parse_case(line) for name, line in CASES.items() if name not in WITH_NAMED_AXES}


def type_text(dtype: str, extents: tuple[int, ...]) -> str:
    """A type in the notation."""
    return f"{dtype}[{','.join(str(extent) for extent in extents)}]"


def shape(name: str, other: str) -> tuple[int, ...]:
    """The shape of an extra input or a parameter as a tensor."""
    case = PARSED[name]
    type_ = case.others[other]
    # The weight of a norm is a tensor of one dimension; what broadcasts has a dimension for each axis.
    return (
        type_.extents
        if "." in other or name == "norm_weight_from_input"
        else type_.shape(len(case.x.extents))
    )


def given_types(name: str, n: int) -> dict[str, str]:
    """The types of a case's extra inputs and parameters, in f32, for a batch of n."""
    case = PARSED[name]
    types = {}
    for other in case.others:
        extents = shape(name, other)
        if "." in other and len(extents) == 1:
            types[other] = f"f32[c={extents[0]}]"
            continue
        if "." not in other and len(extents) == len(case.x.extents) and extents[0] == case.x.extents[0]:
            extents = (n, *extents[1:])
        types[other] = type_text("f32", extents)
    return types


@cache
def module(name: str) -> Block:
    """The case as a module."""
    case = PARSED[name]
    size = case.x.extents[2:]
    return Block(case.notation, case.x.extents[1], input_size=size, types=given_types(name, 1))


def operations(name: str) -> set[str]:
    """The operations of a case by the words of its notation."""
    return set(re.findall(r"[a-z]\w*", PARSED[name].notation)) & set(aten.OPERATIONS)


def covering() -> list[str]:
    """Cases that have every operation between them, and those that have several outputs or extra inputs."""
    left, found = set(aten.OPERATIONS), []
    for name in PARSED:
        if operations(name) & left or name.startswith(("outputs_", "extra_input")):
            found.append(name)
            left -= operations(name)
    return found


def chosen() -> list[tuple[str, str]]:
    """The cases with the dtypes and layouts they run in."""
    everywhere = list(PARSED) if os.environ.get("FUSEBLOCK_LONG") else covering()
    pairs = []
    for i, (name, case) in enumerate(PARSED.items()):
        combinations = COMBINATIONS if name in everywhere else [COMBINATIONS[i % len(COMBINATIONS)]]
        pairs += [
            (name, combination)
            for combination in combinations
            if not (name in ROUNDED_IN_F64 and combination.startswith("f64"))
        ]
        if case.is_mixed:
            pairs.append((name, "mixed-contiguous"))
    return pairs


@dataclass(frozen=True)
class Data:
    """The tensors of a case, in float64 with the values of their dtypes."""

    names: list[str]
    tensors: list[Tensor]
    dtypes: list[torch.dtype]
    differentiable: list[bool]


def draw(name: str, dtype: str, seed: int) -> Data:
    """Draws the tensors of a case as tests/cpp/cases.cc does."""
    case, block = PARSED[name], module(name)
    generator = torch.Generator().manual_seed(1000 * seed + len(name))
    input_type, known = type_text("f32", case.x.extents), given_types(name, case.x.extents[0])
    arguments = block._block.arguments(input_type, known)
    convolutions = {
        statement["name"]
        for statement in block._block.graph(input_type, known)["statements"]
        if statement.get("op") in CONVOLUTIONS
    }
    names, tensors, dtypes, differentiable = [], [], [], []
    for each in arguments:
        stage, _, last = each.name.rpartition(".")
        noise = torch.randn(each.extents, generator=generator, dtype=torch.float64)
        if not each.is_parameter:
            noise = 1.5 * noise
        elif last == "running_var":
            noise = 0.5 + noise.abs()
        elif last != "weight":
            noise = 0.3 * noise
        elif stage in convolutions:
            noise = noise / math.sqrt(max(math.prod(each.extents[1:]), 1))
        else:
            noise = 1 + 0.3 * noise
        declared = case.x if each.name == "x" else case.others.get(each.name, case.x)
        used = DTYPES[declared.dtype if dtype == "mixed" else dtype]
        names.append(each.name)
        tensors.append(noise.to(used).double())
        dtypes.append(used)
        differentiable.append(not last.startswith("running_"))
    return Data(names, tensors, dtypes, differentiable)


def results(block: Block, data: Data, dtypes: list[torch.dtype], layout: str) -> dict[str, Tensor]:
    """Outputs and gradients of the module with these tensors as its parameters."""
    inputs = []
    replaced = {}
    wanted = {}
    for key, tensor, dtype, differentiable in zip(
        data.names, data.tensors, dtypes, data.differentiable, strict=True
    ):
        given = tensor.to(dtype)
        if layout == "channels_last" and given.dim() in FORMATS:
            given = given.contiguous(memory_format=FORMATS[given.dim()])
        given.requires_grad_(differentiable)
        if differentiable:
            wanted[f"d_{key}"] = given
        if key in block.input_names:
            inputs.append(given)
        else:
            replaced[key] = given
    if not _blocks.disabled() and len(set(dtypes)) == 1:
        arguments = iter(inputs)
        tensors = [replaced[key] if key in replaced else next(arguments) for key in data.names]
        assert "plan for cpu" in block._block.explain(*tensors)
    outputs = torch.func.functional_call(block, replaced, tuple(inputs))
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    generator = torch.Generator().manual_seed(7)
    incoming = [torch.randn(each.shape, generator=generator, dtype=torch.float64) for each in outputs]
    pairs = [
        (each, d.to(each.dtype)) for each, d in zip(outputs, incoming, strict=True) if each.requires_grad
    ]
    found: Any = [None] * len(wanted)
    if pairs:
        found = torch.autograd.grad(
            [each for each, _ in pairs], list(wanted.values()), [d for _, d in pairs], allow_unused=True
        )
    gradients = {
        key: torch.zeros_like(each) if gradient is None else gradient
        for (key, each), gradient in zip(wanted.items(), found, strict=True)
    }
    return {f"output{i}": each.detach() for i, each in enumerate(outputs)} | gradients


def peer_results(block: Block, data: Data, layout: str) -> dict[str, Tensor]:
    """PyTorch's in the same dtypes; in f32 where it lacks an operator for 16 bits."""
    try:
        return results(block, data, data.dtypes, layout)
    except (NotImplementedError, RuntimeError) as error:
        if "not implemented" not in str(error):
            raise
        return results(block, data, [torch.float32] * len(data.dtypes), layout)


def refused_by_torch(block: Block, data: Data) -> bool:
    """Whether PyTorch's operators do not take these dtypes together."""
    try:
        with _blocks.pytorch_operators():
            results(block, data, data.dtypes, "contiguous")
    except RuntimeError:
        return True
    return False


# Missed so far, by what the engine does.
MISSED = {
    **{
        ("cast_wider", each): "arithmetic is f32 where no input is f64"
        for each in COMBINATIONS
        if "f64" not in each
    },
    ("conv_transpose3d_relu_gn_as_conv", "f32-contiguous"): "long sums in f32",
    ("conv_transpose3d_relu_gn_as_conv", "f32-channels_last"): "long sums in f32",
}


@pytest.mark.parametrize(("name", "combination"), chosen())
def test_case(name: str, combination: str, request: pytest.FixtureRequest) -> None:
    if reason := MISSED.get((name, combination)):
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    block = module(name)
    dtype, layout = combination.split("-")
    error: dict[str, float] = {}
    bars: dict[str, tuple[float, float, torch.dtype]] = {}
    for seed in SEEDS:
        data = draw(name, dtype, seed)
        if dtype == "mixed" and refused_by_torch(block, data):
            with pytest.raises(RuntimeError, match="same"):
                results(block, data, data.dtypes, layout)
            return
        ours = results(block, data, data.dtypes, layout)
        with _blocks.pytorch_operators():
            theirs = peer_results(block, data, layout)
            exact = results(block, data, [torch.float64] * len(data.dtypes), layout)
        assert list(ours) == list(exact)
        for key, reference in exact.items():
            got = ours[key]
            peer = theirs[key].to(got.dtype)
            assert got.shape == reference.shape, key
            assert got.dtype == theirs[key].dtype or theirs[key].dtype == torch.float32, key
            agreed = reference.isfinite() & peer.isfinite()
            assert bool(got[agreed].isfinite().all()), f"{key}: not finite where PyTorch is"
            error[key] = max(error.get(key, 0.0), largest((got.double() - reference)[agreed]))
            torch_error, size, _ = bars.get(key, (0.0, 0.0, None))
            torch_error = max(torch_error, largest((peer.double() - reference)[agreed]))
            bars[key] = torch_error, max(size, largest(reference)), got.dtype
    for key, found in error.items():
        torch_error, size, kind = bars[key]
        bar = error_bar(torch_error, size, kind)
        assert found <= bar, (
            f"{key}: the error is {found:.3g}, the bar {bar:.3g}, PyTorch's error {torch_error:.3g}; "
            f"repeat with: .venv/bin/pytest 'tests/python/test_nn_cases.py::test_case[{name}-{combination}]'"
        )


def largest(values: Tensor) -> float:
    """The largest absolute value among the finite ones."""
    finite = values[values.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0


def test_every_operation_runs_in_every_dtype_and_layout() -> None:
    found = {operation for name in covering() for operation in operations(name)}
    assert found == set(aten.OPERATIONS)
