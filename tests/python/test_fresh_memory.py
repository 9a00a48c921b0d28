"""Large pages for fresh results: asked for, switched off by the environment, without a change of a bit."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fuseblock import functional
from fuseblock._capi import Plan, type_text
from torch import Tensor

LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
LARGE = (1, 32, 512, 512)  # 32 MiB of f32
SMALL = (1, 32, 128, 128)  # 2 MiB

pytestmark = pytest.mark.skipif(not LARGE_PAGES.exists(), reason="the system has no large pages")


def is_advised(tensor: Tensor) -> bool:
    """Whether large pages were asked for where the middle of a tensor lies: the flag `hg` of its mapping."""
    middle = tensor.data_ptr() + tensor.numel() * tensor.element_size() // 2
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(found[1], 16) <= middle < int(found[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return "hg" in line.split()
    raise AssertionError(f"no mapping holds {middle:x}")


def draw(shape: tuple[int, ...]) -> Tensor:
    """A tensor of random numbers that asks for a gradient."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return x.requires_grad_()


def operation(x: Tensor) -> tuple[Tensor, Tensor]:
    """The result of an operation of PyTorch's and its gradient by x."""
    y = functional.group_norm(x, 8, act="silu")
    (d_x,) = torch.autograd.grad(y.sum(), x)
    return y.detach(), d_x


def plan_run(x: Tensor) -> Tensor:
    """The result of a plan in memory that it made, as the benchmark takes it."""
    plan = Plan.make("group_norm(8, affine=false) | silu", type_text(x))
    call = plan.bind({"x": x.detach()})
    call.fresh_outputs()
    call()
    (result,) = call.outputs.values()
    return result


def digests() -> str:
    """What the tests in processes of their own print: whether results were advised, and their bits."""
    y, d_x = operation(draw(LARGE))
    lines = []
    for result in (y, d_x, plan_run(draw(LARGE))):
        digest = hashlib.sha256(result.contiguous().numpy().tobytes()).hexdigest()
        lines.append(f"{is_advised(result)} {digest}")
    return "\n".join(lines)


def in_another_process(expression: str, variable: str | None = None) -> str:
    """What an expression of this file's names gives there; `variable` is FUSEBLOCK_HUGE_PAGES."""
    environment = {key: value for key, value in os.environ.items() if key != "FUSEBLOCK_HUGE_PAGES"}
    if variable is not None:
        environment["FUSEBLOCK_HUGE_PAGES"] = variable
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    script = f"from test_fresh_memory import *; print({expression})"
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True
    ).stdout


def test_large_results_are_advised_and_keep_their_bits() -> None:
    """Results of operations, gradients and results of plans; none with the variable set to 0."""
    advised = [line.split() for line in in_another_process("digests()").splitlines()]
    plain = [line.split() for line in in_another_process("digests()", "0").splitlines()]
    assert [line[0] for line in advised] == ["True"] * 3
    assert [line[0] for line in plain] == ["False"] * 3
    assert [line[1] for line in advised] == [line[1] for line in plain]


def test_small_results_are_left_alone() -> None:
    """Below 4 MiB nothing is asked for."""
    assert in_another_process("is_advised(plan_run(draw(SMALL)))").split() == ["False"]
