"""Models whose forward is more than a chain of calls, exported and compared with themselves:

    .venv/bin/python tests/python/export_models.py [model...]

compares outputs, gradients and buffers on the CPU and on the emulated GPU of tests/python/export_emulated.py.
"""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import export_emulated
import torch
import torch.nn.functional as F  # noqa: N812
from export_support import load_file
from fuseblock.export import export_module
from torch import Tensor, nn
from torch.utils import _pytree as pytree


class Branches(nn.Module):
    """Values of a block that are used before its last call, one of them twice by one call, and a scalar."""

    def __init__(self, channels: int) -> None:
        """For so many channels."""
        super().__init__()
        self.norm = nn.GroupNorm(2, channels)
        self.conv = nn.Conv2d(channels, channels, 1)
        self.gain = nn.Parameter(torch.tensor(0.5))

    def forward(self, x: Tensor) -> dict[str, Any]:
        """A sum, and a mean over everything."""
        h = self.norm(x)
        swish = h * torch.sigmoid(h)
        y = self.conv(swish)
        z = torch.tanh(h) * self.gain
        return {"sum": y + z, "others": [swish.mean(), None, 3]}


class InPlace(nn.Module):
    """Tensors that are changed in place and read behind that by another name."""

    def __init__(self, channels: int) -> None:
        """For so many channels."""
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 1)
        self.norm = nn.GroupNorm(2, channels)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """A residual block."""
        y = self.conv(x)
        z = self.norm(self.act(y))
        same = z
        z += 1.0
        out = F.silu(same) + y
        out.mul_(2.0)
        return torch.tanh(out) * 0.5


class Views(nn.Module):
    """Views, a buffer and an argument that are changed in place, read before and behind that."""

    mean: Tensor

    def __init__(self, channels: int) -> None:
        """For so many channels."""
        super().__init__()
        self.norm = nn.GroupNorm(2, channels)
        self.register_buffer("mean", torch.zeros(channels, 1, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Each read of a tensor between its changes."""
        y = self.norm(x)
        part = y[:, :2]
        part.mul_(3.0)
        before = torch.tanh(F.silu(self.norm(x)) + self.mean)
        self.mean.add_(1.0)
        total = F.silu(y) + 1 + before * self.mean
        x.relu_()
        z = self.norm(x)
        first, _ = z.chunk(2, 1)
        z += 1
        return total, F.silu(z) * 2, first


MODELS: Mapping[str, type[nn.Module]] = {each.__name__: each for each in (Branches, InPlace, Views)}
WITHOUT_GRADIENTS = ("Views",)  # what PyTorch would need for them is changed
CHANNELS = 4


def example() -> list[Tensor]:
    """The input that all are exported with."""
    return [torch.rand(2, CHANNELS, 6, 8)]


def results(model: nn.Module, inputs: list[Tensor]) -> dict[str, Tensor]:
    """Outputs, gradients, and what buffers and inputs are afterwards, by name."""
    leaves = [each.clone().requires_grad_() for each in inputs]
    given = [leaf * 1.0 for leaf in leaves]
    outputs = [each for each in pytree.tree_leaves(model(*given)) if isinstance(each, Tensor)]
    model.zero_grad()
    if torch.is_grad_enabled():
        weights = [torch.linspace(-1, 2, each.numel()).view_as(each).to(each) for each in outputs]
        torch.autograd.backward(outputs, weights)
    named: dict[str, Any] = {f"output{i}": each for i, each in enumerate(outputs)}
    named |= {f"d_input{i}": leaf.grad for i, leaf in enumerate(leaves)}
    named |= {f"input{i} afterwards": each for i, each in enumerate(given)}
    named |= {f"d_{name}": parameter.grad for name, parameter in model.named_parameters()}
    named |= dict(model.named_buffers())
    return {name: each.detach().double() for name, each in named.items() if each is not None}


def differences(model: nn.Module, new: nn.Module, inputs: list[Tensor], tolerance: float) -> list[str]:
    """What differs from the model by more than that, relative to the largest."""
    expected = results(copy.deepcopy(model).double(), [each.double() for each in inputs])
    new.load_state_dict(model.state_dict())
    got = results(new, inputs)
    if list(got) != list(expected):
        return [f"{list(got)} in place of {list(expected)}"]
    errors = {
        name: float((got[name] - each).abs().max() / (each.abs().max() + 1e-9))
        for name, each in expected.items()
    }
    return [f"{name}: relative error {error:.2g}" for name, error in errors.items() if not error <= tolerance]


def compare(name: str, folder: Path) -> list[str]:
    """What is wrong with a model's file."""
    torch.manual_seed(1)
    path = export_module(MODELS[name], [CHANNELS], example(), folder / f"{name}.py")
    model = MODELS[name](CHANNELS)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    inputs = [torch.randn(3, CHANNELS, 6, 8)]
    exported = load_file(path)
    wrong = []
    with torch.set_grad_enabled(name not in WITHOUT_GRADIENTS):
        for device in ("CPU", "GPU"):
            launched = export_emulated.on_emulator(exported) if device == "GPU" else []
            new = exported.ModelNew(CHANNELS)
            wrong += [f"{device}: {each}" for each in differences(model, new, inputs, 2e-5)]
    kernels = [each for each in exported.KERNELS if "forward" in each or name not in WITHOUT_GRADIENTS]
    if set(launched) != set(kernels):
        wrong.append(f"GPU: {sorted(set(kernels) - set(launched))} did not run")
    return [f"{name}: {each}" for each in wrong]


def main(names: list[str]) -> int:
    """Runs the program; the exit status."""
    with tempfile.TemporaryDirectory() as folder:
        wrong = [each for name in names or MODELS for each in compare(name, Path(folder))]
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
