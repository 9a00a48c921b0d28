"""fuseblock.verify: its table, its verdict, the command that repeats a failure; FUSEBLOCK_DISABLE."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import fuseblock
import pytest
import torch
from cli_support import CHECKOUT
from fuseblock import _blocks
from torch import Tensor, nn

NOTATION = "conv2d(8, k=3) as conv | group_norm(4) | silu"


def block() -> fuseblock.nn.Block:
    torch.manual_seed(0)
    return fuseblock.nn.Block(NOTATION, in_channels=3)


def python(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs this Python with the package of the checkout."""
    return subprocess.run(
        [sys.executable, *words],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT / "python")} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


class WrongInPlan(nn.Module):
    """Right by PyTorch's operators, wrong otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight if _blocks.disabled() else x * self.weight * 1.001


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_table(dtype: torch.dtype, capsys: pytest.CaptureFixture[str]) -> None:
    result = fuseblock.verify(block().to(dtype), torch.randn(2, 3, 6, 7).to(dtype))
    assert result
    assert [row.name for row in result.rows] == [
        "output",
        "d_input",
        "d_conv.weight",
        "d_conv.bias",
        "d_group_norm.weight",
        "d_group_norm.bias",
    ]
    assert all(row.bar > 0 and row.dtype == dtype for row in result.rows)
    printed = capsys.readouterr().out
    assert printed == f"{result}\n"
    assert "Block: 6 of 6 tensors within the bar" in printed
    assert result.command is None


def test_a_whole_model_with_several_inputs_and_outputs() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = block()
            self.norm = fuseblock.nn.GroupNorm(2, 8, act="silu")
            self.drop = nn.Dropout(0.5)
            self.frozen = nn.Parameter(torch.ones(8, 1, 1), requires_grad=False)

        def forward(self, x: Tensor, which: Tensor, *, scale: Tensor) -> dict[str, Tensor]:
            y = self.drop(self.norm(self.block(x), scale=scale) * self.frozen)
            return {"all": y, "chosen": y[:, which]}

    model = Model()
    result = fuseblock.verify(model, torch.randn(2, 3, 6, 7), torch.tensor([1, 3]), scale=torch.randn(2, 8))
    assert result.ok, str(result)
    names = [row.name for row in result.rows]
    assert names[:4] == ["output1", "output2", "d_input1", "d_input2"]
    assert "d_block.conv.weight" in names
    assert "d_frozen" not in names
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_failure_says_how_to_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    x = torch.randn(2, 3)
    result = fuseblock.verify(WrongInPlan(), x)
    assert not result
    assert [row.ok for row in result.rows] == [False, False, False]
    printed = capsys.readouterr().out
    assert "WrongInPlan: 0 of 3 tensors within the bar" in printed
    assert printed.count("above the bar") == 3
    command = printed.splitlines()[-1].removeprefix("repeat with: ")
    assert result.command == command
    words = shlex.split(command)
    assert words[:4] == ["python", "-m", "fuseblock", "verify"]
    again = fuseblock._verify.repeat(words[4])
    assert again.rows == result.rows


def test_the_command_runs(tmp_path: Path) -> None:
    file = tmp_path / "saved.pt"
    saved = {"module": block(), "inputs": (torch.randn(1, 3, 5, 5),), "named": {}, "seed": 3}
    torch.save(saved, file)
    done = python("-m", "fuseblock", "verify", str(file))
    assert done.returncode == 0, done.stderr
    assert "6 of 6 tensors within the bar" in done.stdout
    assert python("-m", "fuseblock", "verify").returncode == 2


def test_a_module_that_fails_says_how_to_repeat_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fails(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if not _blocks.disabled():
                raise RuntimeError("no plan")
            return x

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RuntimeError, match="no plan") as caught:
        fuseblock.verify(Fails(), torch.randn(2))
    (note,) = caught.value.__notes__
    assert note.startswith("repeat with: fuseblock.verify(module, *inputs, seed=0) (not written to a file")


@pytest.mark.parametrize("value", ["1", "0"])
def test_disable(value: str) -> None:
    program = (
        "import torch, fuseblock\n"
        f"m = fuseblock.nn.Block({NOTATION!r}, in_channels=3)\n"
        "m.explain(torch.randn(1, 3, 5, 5))\n"
    )
    done = python("-c", program, FUSEBLOCK_DISABLE=value)
    assert done.returncode == 0, done.stderr
    assert ("PyTorch's operators run" in done.stdout) == (value == "1")
    assert ("FUSEBLOCK_DISABLE" in done.stdout) == (value == "1")
    assert ("plan for cpu" in done.stdout) == (value != "1")
