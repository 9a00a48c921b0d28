"""Exported files compute what their models compute, and constructors and commands refuse what they cannot."""

from __future__ import annotations

import dataclasses
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from export_support import CHECKOUT, load_file
from fuseblock.export import export_module
from fuseblock.export.capture import capture
from fuseblock.export.constants import checked_constructor
from fuseblock.export.forward_text import in_order
from fuseblock.export.source import model_source
from fuseblock.export.values import value_text
from torch import Tensor, nn


def test_models_on_the_cpu_and_the_emulated_gpu() -> None:
    """Values of blocks that are used early, twice, as scalars, and around changes in place."""
    command = [sys.executable, str(CHECKOUT / "tests" / "python" / "export_models.py")]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT / "python")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class Across(nn.Module):
    """Two norms of which each would wait for the other's block, were both joined with their sums."""

    def __init__(self, channels: int) -> None:
        """For so many channels."""
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(2, channels) for _ in range(2)])
        self.convs = nn.ModuleList([nn.Conv2d(channels, channels, 1) for _ in range(2)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Sums of the norms with convolutions of each other."""
        second = self.norms[1](x * 2.0)
        first = self.norms[0](x)
        other = F.silu(self.convs[0](first)) + second
        return first + self.convs[1](second), other


def test_blocks_do_not_wait_for_each_other() -> None:
    captured = capture(Across(4), [torch.rand(2, 4, 6, 6)])
    blocks = [block.nodes for block in captured.blocks]
    assert sorted(map(len, blocks)) == [1, 4]
    known: set[torch.fx.Node] = set()
    order = in_order(captured.graph, blocks)
    assert set(order) == set(captured.graph.nodes)
    for node in order:
        own = next((block for block in blocks if node in block), [node])
        assert all(each in known or each in own for mate in own for each in mate.all_input_nodes)
        known.add(node)


@dataclasses.dataclass
class Settings:
    """What a constructor keeps of its arguments."""

    groups: int


class Chosen(nn.Module):
    """Layers, their number, functions and numbers that the constructor chooses."""

    def __init__(
        self,
        channels: int,
        *,
        act: str = "silu",
        last: Any = F.relu,
        count: int = 2,
        groups: int = 2,
        low: Any = (),
    ) -> None:
        """For so many channels."""
        super().__init__()
        self.act = {"silu": nn.SiLU, "tanh": nn.Tanh}[act]()
        self.plain = nn.Sigmoid()
        self.last = last
        self.convs = nn.ModuleList([nn.Conv2d(channels, channels, 1) for _ in range(count)])
        self.settings = Settings(groups)
        self.config = {"low": float("-inf"), "high": 3.0, **dict(low)}

    def forward(self, x: Tensor) -> Tensor:
        """A norm of convolutions."""
        for conv in self.convs:
            x = conv(x)
        y = self.plain(self.act(F.group_norm(x, self.settings.groups)))
        return torch.clamp(self.last(y), self.config["low"], self.config["high"])


class Inherits(Chosen):
    """A constructor and a forward of its base."""


def test_constructors_refuse_what_forward_was_not_traced_with(tmp_path: Path) -> None:
    x = torch.rand(2, 4, 6, 8)
    path = export_module(Inherits, (4,), [x], tmp_path / "new.py")
    new = load_file(path).ModelNew
    assert "plain" not in path.read_text().partition("class ModelNew")[2].partition("def forward")[0]
    for options, message in (
        ({"act": "tanh"}, r"act: expected SiLU\(\), as exported, got Tanh\(\)"),
        ({"last": torch.tanh}, "last: expected <.*relu.*>, as exported, got <.*tanh.*>"),
        ({"count": 3}, r"len\(convs\): expected 2, as exported, got 3"),
        ({"groups": 4}, r"settings: expected .*Settings\(groups=2\), as exported, got .*\(groups=4\)"),
        ({"low": {"low": 0.5}}, "config: expected {'low': -inf, 'high': 3.0}, as exported, got {'low': 0.5"),
    ):
        with pytest.raises(ValueError, match=message):
            new(4, **options)
    model, other = Inherits(4), new(4)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x), model(x))


class Refused(nn.Module):
    """A norm, and in forward something that a graph cannot hold."""

    def __init__(self) -> None:
        """Four channels."""
        super().__init__()
        self.norm = nn.GroupNorm(2, 4)
        self.count = 0
        self.kept: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        """The norm and SiLU."""
        return self.more(F.silu(self.norm(x)))

    def more(self, x: Tensor) -> Tensor:
        """What is refused."""
        return x


class Dropping(Refused):
    """Dropout while it is trained."""

    def more(self, x: Tensor) -> Tensor:
        """A function."""
        return F.dropout(x, training=self.training)


class Training(Refused):
    """Another forward while it is trained."""

    def more(self, x: Tensor) -> Tensor:
        """A branch."""
        return x * 2 if self.training else x


class Counting(Refused):
    """Counts its calls."""

    def more(self, x: Tensor) -> Tensor:
        """An attribute."""
        self.count += 1
        return x


class Keeping(Refused):
    """Keeps what it returns."""

    def more(self, x: Tensor) -> Tensor:
        """An element of a list."""
        self.kept.append(x)
        return x


class WithoutGradients(Refused):
    """Calls that have no gradients."""

    def more(self, x: Tensor) -> Tensor:
        """A context."""
        with torch.no_grad():
            return x * 2


class Casting(Refused):
    """Calls in another dtype."""

    def more(self, x: Tensor) -> Tensor:
        """A context."""
        with torch.autocast("cpu", torch.bfloat16):
            return x * 2


class Making(Refused):
    """A tensor that forward makes of a number."""

    def more(self, x: Tensor) -> Tensor:
        """A limit."""
        return torch.minimum(x, torch.tensor(0.5))


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Dropping, r"Dropping\.forward depends on self\.training: the file has one forward"),
        (Training, r"Training\.forward depends on self\.training: the file has one forward"),
        (Counting, r"Counting\.forward changes self\.count, which the file's would not"),
        (Keeping, r"Keeping\.forward changes self\.kept, which the file's would not"),
        (WithoutGradients, r"cannot be traced: it calls operators under torch\.no_grad"),
        (Casting, r"cannot be traced: it calls operators under torch\.autocast"),
        (Making, r"makes a tensor, which would stay 0\.5: make it a buffer"),
    ],
)
def test_what_a_graph_cannot_hold_is_refused(model: type[Refused], message: str) -> None:
    built = model()
    for training in (True, False):
        with pytest.raises(NotImplementedError, match=message):
            capture(built.train(training), [torch.rand(2, 4, 6, 8)])
        assert all(module.training is training for module in built.modules())
    with torch.no_grad():
        assert capture(Across(4).eval(), [torch.rand(2, 4, 6, 6)]).blocks


LOW = float("-inf")
DEVICE = torch.device("cpu")


class Block(nn.Module):
    """A class with a name that files have for themselves."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(2, channels)

    def forward(self, x: Tensor) -> Tensor:
        """The norm and SiLU."""
        return F.silu(self.norm(x))


class Named(nn.Module):
    """Names of the file, and values that Python does not read as it prints them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.block = Block(Named.same(channels))
        self.low = LOW
        self.torch = nn.Conv2d(channels, channels, 1, device=DEVICE)

    @staticmethod
    def same(channels: int) -> int:
        """As many."""
        return channels

    def forward(
        this,  # noqa: N805
        x: Tensor,
        *takes: Tensor,
        size: tuple[int, int] = (1, 2),
        high: float = float("inf"),
        mask: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """A norm of a convolution, scaled and rolled."""
        if mask is not None and bias is not None:
            x = x * mask + bias
        y: Tensor = torch.clamp(this.block(this.torch(x)), this.low, high) * takes[0]
        scale: float = (-2) ** x.dim() / math.sqrt(x.size(-1))
        return torch.roll(y, -x.shape[2] + size[0], 2) * scale


class Launching(nn.Module):
    """Uses a function with a name that the file needs."""

    def __init__(self) -> None:
        """Four channels."""
        super().__init__()
        self.norm = launch(nn.GroupNorm(2, 4))

    def forward(self, x: Tensor) -> Tensor:
        """The norm."""
        return F.relu(self.norm(x))


def launch(norm: nn.GroupNorm) -> nn.GroupNorm:
    """The norm as it is."""
    return norm


class Bare(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.silu(F.group_norm(x, 2))


def test_names_of_the_model_and_of_the_file(tmp_path: Path) -> None:
    inputs = [torch.rand(2, 4, 6, 8), torch.rand(2, 4, 6, 8)]
    new = load_file(export_module(Named, (4,), inputs, tmp_path / "new.py"))
    assert new.FusedBlock is not new.Block
    model, other = Named(4), new.ModelNew(4)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(*inputs, high=0.5), model(*inputs, high=0.5))
    with pytest.raises(
        NotImplementedError, match="Launching: has launch, names that the file has for itself"
    ):
        export_module(Launching, (), inputs[:1], tmp_path / "launching.py")


def test_checks_stand_behind_a_constructor_of_one_line() -> None:
    text = "class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__(); self.a = 1\n"
    lines = ["if self.a != 1:", "    raise ValueError"]
    assert (
        checked_constructor(text, lines) == text + "        if self.a != 1:\n            raise ValueError\n"
    )


def test_a_class_may_have_a_forward_alone() -> None:
    _, text = model_source(Bare)
    assert text == 'class ModelNew(nn.Module):\n    """Bare with its blocks as kernels."""\n'


@pytest.mark.parametrize("value", [float("inf"), [-float("inf"), "inf"], {"a b": (1,)}, {1, 2}, (), "inf"])
def test_values_as_python_reads_them(value: Any) -> None:
    assert eval(value_text(value)) == value


def test_values_of_torch_and_others() -> None:
    values = (torch.device("cpu"), torch.float32, nn.SiLU, F.relu, torch.channels_last, ...)
    assert eval(value_text(values)) == values
    assert value_text(float("nan")) == 'float("nan")'
    with pytest.raises(NotImplementedError, match=r"cannot write .*tensor.* into a file of its own"):
        value_text([torch.zeros(1)])
