"""What the export says to models, values and files that it cannot take, and what it takes of unusual ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from export_support import CHECKOUT, CaseModel
from fuseblock.export import DEVICES, export_text, plan_model
from fuseblock.export.__main__ import main
from fuseblock.export.capture import CapturedModel, capture
from fuseblock.export.writer import example_text
from torch import Tensor, nn

PROBLEM = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.GroupNorm(2, channels)

    def forward(self, x):
        return torch.relu(self.norm(x))

def get_inputs():
    return [torch.rand(2, 4, 6, 8)]

def get_init_inputs():
    return [4]
"""
SHAPE = (4, 4, 6, 8)


def captured(function: Callable[..., Any], shape: tuple[int, ...] = SHAPE, **layers: Any) -> CapturedModel:
    """A function of a module with these layers, and of a tensor."""
    return capture(CaseModel(function, layers), [torch.rand(shape)])


def test_a_softmax_in_another_dtype_is_left() -> None:
    model = captured(lambda _, x: torch.softmax(x * 2.0, 1, torch.float64) + 1)
    assert {node.name: reason for node, reason in model.left.items()}["softmax"].endswith("with a dtype")
    assert (
        captured(lambda module, x: module.softmax(x * 2.0), softmax=nn.Softmax(1))
        .blocks[0]
        .notation.endswith("return softmax")
    )


def test_operands_are_aligned_from_the_right() -> None:
    """Extents that agree by chance do not make a mean over positions one for each sample and channel."""
    model = captured(lambda _, x: x + F.silu(x * 2.0).mean((2, 3)), (8, 8, 8, 8))
    assert "axes nc and nchw, which PyTorch aligns from the right" in model.left.values()
    model = captured(lambda _, x: x + F.silu(x * 2.0).mean(1), (8, 8, 12, 12))
    assert "axes nhw and nchw, which PyTorch aligns from the right" in model.left.values()
    assert not captured(lambda _, x: x + F.silu(x * 2.0).mean(1, keepdim=True)).left


def test_asserts_are_passed_and_branches_are_named() -> None:
    def asserting(module: Any, x: Tensor) -> Tensor:
        assert x.shape[1] == 4, f"expected 4 channels, got {x.shape[1]}"
        assert (
            x.dim()
            > 2
        )  # fmt: skip
        return F.silu(module.norm(x))

    def branching(module: Any, x: Tensor) -> Tensor:
        if x.shape[0] > 1:
            x = x * 2
        return F.silu(module.norm(x))

    assert len(captured(asserting, norm=nn.GroupNorm(2, 4)).blocks) == 1
    message = r"test_export_refusals\.py:\d+: `if x\.shape\[0\] > 1:` branches on a tensor or its extents"
    with pytest.raises(NotImplementedError, match=message):
        captured(branching, norm=nn.GroupNorm(2, 4))


def test_numbers_out_of_tensors_and_wrong_inputs_are_named() -> None:
    with pytest.raises(NotImplementedError, match=r"CaseModel\.forward takes a number out of a tensor"):
        captured(lambda _, x: x * x.sum().item())
    with pytest.raises(ValueError, match=r"CaseModel\.forward fails with the example inputs: .*weight"):
        captured(lambda module, x: module.norm(x), norm=nn.GroupNorm(2, 6))
    with pytest.raises(ValueError, match=r"CaseModel\.forward with 2 inputs: too many positional arguments"):
        capture(CaseModel(lambda _, x: x, {}), [torch.rand(2), torch.rand(2)])


def test_layers_and_parameters_that_were_refused() -> None:
    scales = nn.ParameterList([nn.Parameter(torch.rand(4, 1, 1))])
    model = captured(lambda module, x: F.silu(x) * module.scales[0], scales=scales)
    assert list(model.blocks[0].types()) == ["scales"]
    model = captured(lambda module, x: F.silu(module.norm(x)), (4, 8), norm=nn.RMSNorm(8))
    assert f"eps={torch.finfo(torch.float32).eps!r}" in model.blocks[0].notation
    with pytest.raises(NotImplementedError, match=r"no block that .*; relu, tanh: a single call"):
        plan_model(nn.Sequential(nn.ReLU(), nn.Conv2d(4, 4, 1), nn.Tanh()), [torch.rand(SHAPE)], "h200")


def test_channels_last_inputs_are_copied_where_kernels_do_not_take_them() -> None:
    x = torch.rand(SHAPE).to(memory_format=torch.channels_last)
    model = CaseModel(lambda module, x: F.silu(module.norm(x)), {"norm": nn.GroupNorm(2, 4)})
    _, planned, _ = plan_model(model, [x], DEVICES["sm_90a"])
    assert planned[0].explanation[0].startswith("Inputs in channels_last are copied first")
    assert not planned[0].inputs[0]["type"].endswith(":cl")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("torch.relu", "torch.relu("), "problem.py: SyntaxError: "),
        (
            ("from torch import nn", "from torch import nn\nimport absent"),
            "problem.py: ModuleNotFoundError: ",
        ),
        (("return [4]", "return [5]"), "Model(5) fails: ValueError: num_channels"),
        (("return [4]", "return {}"), "expected the constructor's arguments as a list, got dict"),
        (("return [torch.rand", "return [absent"), "get_inputs() fails: NameError: name 'absent'"),
        (("return [torch.rand(2, 4, 6, 8)]", "return torch.rand(2, 4, 6, 8)"), "as a list, got Tensor"),
        (("Model(nn.Module)", "Model"), "expected a class of torch.nn.Module, got <class"),
        (("2, 4, 6, 8", "2, 6, 6, 8"), "Model.forward fails with the example inputs: "),
        (("", ""), "Is a directory"),
    ],
)
def test_the_command_says_what_is_wrong(
    change: tuple[str, str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = tmp_path / "problem.py"
    problem.write_text(PROBLEM.replace(*change))
    assert main([str(problem), "-o", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("python -m fuseblock.export: ")
    assert message in said.err


def test_examples_of_inputs_run() -> None:
    inputs = [
        torch.rand(2, 3),
        torch.tensor(0.5),
        (torch.arange(6, dtype=torch.int64).view(2, 3), [torch.tensor([True, False])]),
        torch.rand(2, dtype=torch.float64),
        torch.tensor(3),
        float("inf"),
        None,
    ]
    known: dict[str, Any] = {"torch": torch}
    exec(example_text(inputs, [8, nn.SiLU, (1,)]), known)
    assert known["get_init_inputs"]() == [8, nn.SiLU, (1,)]
    made = torch.utils._pytree.tree_leaves(known["get_inputs"]())
    for given, each in zip(torch.utils._pytree.tree_leaves(inputs), made, strict=True):
        if isinstance(given, Tensor):
            assert (each.shape, each.dtype) == (given.shape, given.dtype)
        else:
            assert each == given


def test_arguments_that_are_no_plain_values_are_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"cannot write PosixPath"):
        example_text([], [CHECKOUT])
    with pytest.raises(ValueError, match="keep: expected conv or linear, got norm"):
        export_text(nn.GroupNorm, (2, 4), [torch.rand(SHAPE)], keep="norm")
