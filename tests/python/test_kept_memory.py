"""Memory of large results on the CPU: used again when a tensor has gone, not before, within a limit."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from fuseblock import functional
from torch import Tensor

SHAPE = (1, 32, 512, 512)  # 32 MiB of f32
SMALL = (1, 32, 128, 128)  # 2 MiB
VARIABLE = "FUSEBLOCK_KEPT_MEMORY"

pytestmark = [
    pytest.mark.skipif(
        tuple(map(int, torch.__version__.split(".")[:2])) < (2, 11),
        reason="PyTorch tells nobody when a tensor goes",
    ),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is kept on Linux alone"),
]


def norm(shape: tuple[int, ...] = SHAPE, seed: int = 0) -> Tensor:
    """A result that fuseblock allocates."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return functional.group_norm(x, 8, act="silu")


def is_ours(tensor: Tensor) -> bool:
    """Whether the memory is not from PyTorch's allocator, which could make it larger."""
    return not tensor.untyped_storage().resizable()


def is_mapped(address: int) -> bool:
    """Whether the process has memory at an address."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
        if begin <= address < end:
            return True
    return False


def mapped_after_three_went() -> int:
    """How many of three results' memory is still there when they have gone."""
    results = [norm(seed=seed) for seed in range(3)]
    addresses = [result.data_ptr() for result in results]
    del results
    return sum(map(is_mapped, addresses))


def in_another_process(expression: str, variable: str | None = None) -> str:
    """What an expression of this file's names gives there, with the variable set or not."""
    environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
    if variable is not None:
        environment[VARIABLE] = variable
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    script = f"from test_kept_memory import *; print({expression})"
    return subprocess.run(
        [sys.executable, "-c", script], env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_memory_is_used_again_when_a_result_has_gone() -> None:
    """And not before: a result that is there keeps its values."""
    expected = norm().clone()
    first = norm()
    second = norm(seed=1)
    assert first.data_ptr() != second.data_ptr()
    assert torch.equal(first, expected)
    address = second.data_ptr()
    del second
    again = norm(seed=2)
    assert again.data_ptr() == address
    assert torch.equal(first, expected)


def test_views_and_graphs_keep_memory() -> None:
    """A view of a result, and a result that a graph has saved, are in use."""
    view = norm()[0, 3]
    expected = view.clone()
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(5), requires_grad=True)
    y = functional.group_norm(x, 8, act="silu").square()
    for seed in range(3):
        norm(seed=seed)
    assert torch.equal(view, expected)
    (d_x,) = torch.autograd.grad(y.sum(), x)
    z = x.detach().requires_grad_()
    (d_z,) = torch.autograd.grad(
        torch.nn.functional.silu(torch.nn.functional.group_norm(z, 8)).square().sum(), z
    )
    torch.testing.assert_close(d_x, d_z, rtol=1e-4, atol=1e-4)


def test_small_results_are_from_pytorch() -> None:
    """Below 4 MiB malloc keeps memory by itself."""
    assert not is_ours(norm(SMALL))


def test_the_variable_sets_the_limit() -> None:
    """256 MiB unless set, nothing with 0; what is no number counts as not set."""
    assert in_another_process("is_ours(norm()), mapped_after_three_went()") == "True 3"
    assert in_another_process("is_ours(norm()), mapped_after_three_went()", "64") == "True 2"
    assert in_another_process("is_ours(norm())", "0") == "False"
    assert in_another_process("is_ours(norm())", "16") == "False"  # would never be kept
    assert in_another_process("is_ours(norm())", "much") == "True"


def test_threads_do_not_share_memory() -> None:
    """Results of several threads at once, each compared with its own alone."""
    expected = [norm(seed=seed).double().sum() for seed in range(8)]

    def check(seed: int) -> bool:
        return all(bool(norm(seed=seed).double().sum() == expected[seed]) for _ in range(4))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(check, range(8)))
