#!/usr/bin/env python3
"""Calls that find the workspace as the call before has left it, and must not take its statistics for theirs.

    tools/on_gpu tests/gpu/kept_workspace.py
    tools/emulated .venv/bin/python tests/gpu/kept_workspace.py --device emulated

Each block is bound once and called several times, every time on numbers of another size and mean, so that
statistics of the call before are far from right. On a GPU also as replays of a CUDA graph, and by two calls
at once on two streams.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python")]

import torch  # noqa: E402
from fuseblock._capi import BoundCall, Plan  # noqa: E402
from torch import Tensor  # noqa: E402

# Groups, extents of x, type, layout and FUSEBLOCK_SLICES, of contiguous tensors FUSEBLOCK_ROWS: teams in one
# round and in several, that hand over statistics of groups, or of channels, and deal out chunks; without
# barriers, and with chunks in registers, by words that nobody clears.
CASES = (
    (32, (2, 320, 24, 24), "bf16", ":cl", "channels=40,team=3,pieces=1"),
    (3, (2, 9, 40, 40), "f32", ":cl", "team=2,pieces=1"),
    (1, (3, 64, 33, 31), "f16", ":cl", "team=4,pieces=1"),
    (4, (40, 32, 16, 16), "bf16", ":cl", "team=2,pieces=1"),
    (4, (70, 32, 16, 16), "bf16", ":cl", "channels=16,team=2,pieces=1,threads=64,blocks=2,ahead=1"),
    (4, (40, 32, 16, 16), "bf16", ":cl", "channels=16,team=3,pieces=1,threads=32,blocks=1,ring=3"),
    (4, (9, 32, 33, 31), "bf16", ":cl", "channels=32,team=3,pieces=1,threads=64,blocks=1,ring=3,registers=2"),
    (4, (9, 32, 32, 32), "f16", ":cl", "channels=16,team=2,pieces=1,threads=32,blocks=1,ring=9,registers=3"),
    (4, (9, 40, 33, 31), "bf16", ":cl", "team=3,pieces=1,threads=64,blocks=1,ring=3,registers=2,packed=1"),
    (3, (5, 48, 33, 31), "f16", ":cl", "team=3,pieces=1,threads=64,blocks=1,ring=3,registers=2,packed=1"),
    (4, (5, 20, 33, 31), "bf16", ":cl", "team=3,pieces=1,threads=64,blocks=1,ring=3,registers=2,packed=1"),
    (4, (5, 40, 33, 31), "bf16", ":cl", "whole=1,team=3"),
    (4, (1, 32, 64, 64), "bf16", "", "registers=0"),
    (4, (9, 32, 32, 32), "bf16", "", "cluster=2,threads=64"),
    (4, (9, 32, 32, 32), "bf16", "", "ahead=2,team=3,blocks=1,pieces=1,threads=32,begun=2"),
    (3, (5, 9, 40, 40), "f32", "", "ahead=1,team=2,blocks=1,pieces=1,threads=32"),
)
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
_CALLS = 4


class Drawn(Protocol):
    """A call on numbers that can be drawn anew."""

    bound: BoundCall

    def draw(self, turn: int) -> None:
        """Other numbers for each turn."""

    def trouble(self) -> str:
        """What is wrong with the outputs; nothing where nothing is."""


class Call:
    """A block on tensors that stay where they are."""

    def __init__(self, case: tuple[int, tuple[int, ...], str, str, str], device: str) -> None:
        """Makes the plan and binds it."""
        groups, extents, type_name, layout, choice = case
        os.environ["FUSEBLOCK_SLICES" if layout else "FUSEBLOCK_ROWS"] = choice
        numbers = ",".join(map(str, extents))
        names = ("group_norm.weight", "group_norm.bias")
        types = dict.fromkeys(names, f"{type_name}[{extents[1]}]")
        plan = Plan.make(f"group_norm({groups}) | silu", f"{type_name}[{numbers}]{layout}", types, "cuda")
        divided = json.loads(plan.explain_json())["kernels"][0]["division"]
        for word, number in (("ahead", "ahead"), ("registers", "register_steps")):
            asked = re.search(rf"{word}=([1-9])", choice)
            if asked and divided.get(number) != int(asked[1]):
                raise ValueError(f"{case}: {number} is {divided.get(number)}")
        self.place = "cpu" if device == "emulated" else device
        if device == "emulated":
            plan.device = "cpu"
        order = torch.channels_last if layout else torch.contiguous_format
        generator = torch.Generator().manual_seed(1)
        self.groups, self.dtype = groups, DTYPES[type_name]
        self.x = torch.empty(extents, dtype=self.dtype, device=self.place, memory_format=order)
        self.weight, self.bias = (
            torch.randn(extents[1], generator=generator).to(self.place, self.dtype) for _ in names
        )
        inputs = {"x": self.x, names[0]: self.weight, names[1]: self.bias}
        self.bound: BoundCall = plan.bind(inputs)

    def draw(self, turn: int) -> None:
        """Other numbers: larger by a factor, around another mean."""
        generator = torch.Generator().manual_seed(turn)
        values = torch.randn(self.x.shape, generator=generator) * 3.0**turn + 5 * (-2) ** turn
        self.x.copy_(values.to(self.dtype))

    def trouble(self) -> str:
        """What is wrong with the outputs."""
        (output,) = self.bound.outputs.values()
        x, weight, bias = (each.cpu().double() for each in (self.x, self.weight, self.bias))
        exact: Tensor = torch.nn.functional.silu(torch.nn.functional.group_norm(x, self.groups, weight, bias))
        error = float((output.cpu().double() - exact).abs().max() / exact.abs().max())
        bar = 4 * torch.finfo(self.dtype).eps
        return "" if error <= bar else f"the error is {error:.3g} of the largest value, the bar {bar:.3g}"


def in_turn(call: Drawn) -> str:
    """One call behind the other."""
    for turn in range(_CALLS):
        call.draw(turn)
        call.bound()
        if told := call.trouble():
            return f"call {turn}: {told}"
    return ""


def replayed(call: Drawn) -> str:
    """The same by a CUDA graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call.bound()
    for turn in range(_CALLS):
        call.draw(turn)
        graph.replay()
        torch.cuda.synchronize()
        if told := call.trouble():
            return f"replay {turn}: {told}"
    return ""


def at_once(first: Drawn, second: Drawn) -> str:
    """Two calls of one kernel, each with its own workspace, on two streams."""
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]  # type: ignore[no-untyped-call]
    for turn in range(_CALLS):
        for call, size in ((first, turn), (second, turn + 1)):
            call.draw(size)
        torch.cuda.synchronize()
        for _ in range(20):
            for call, stream in zip((first, second), streams, strict=True):
                with torch.cuda.stream(stream):
                    call.bound()
        torch.cuda.synchronize()
        if told := first.trouble() or second.trouble():
            return f"at once, {turn}: {told}"
    return ""


def main() -> int:
    """Runs the cases."""
    parser = argparse.ArgumentParser(description="Calls that find the workspace of the call before")
    parser.add_argument("--device", choices=("cuda", "emulated"), default="cuda")
    device = parser.parse_args().device
    failed = 0
    for case in CASES:
        call = Call(case, device)
        told = in_turn(call)
        if device == "cuda":
            told = told or replayed(call) or at_once(call, Call(case, device))
        failed += bool(told)
        print(
            f"group_norm({case[0]}) | silu {case[2]}{list(case[1])}{case[3]} {case[4]}: {told or 'passed'}",
            flush=True,
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
