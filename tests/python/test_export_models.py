"""Exported files compute what their models compute, and constructors and commands refuse what they cannot."""

from __future__ import annotations

import os
import subprocess
import sys

import torch
import torch.nn.functional as F  # noqa: N812
from export_support import CHECKOUT
from fuseblock.export.capture import capture
from fuseblock.export.forward_text import in_order
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
