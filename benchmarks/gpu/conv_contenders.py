"""What bench_conv.py times on a block: fuseblock's kernels, its module as a user calls it, and PyTorch."""

from __future__ import annotations

import io
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import fuseblock
import torch
from fuseblock._capi import Plan, type_text
from torch import Tensor, nn

from benchmarks.gpu.gpu_timing import DEVICE, MODES, Timer, precision
from benchmarks.reference_blocks import BLOCKS, NETWORKS, ReferenceBlock, randomise

CASES = BLOCKS | NETWORKS
LAYOUTS = ("contiguous", "channels_last")
# PyTorch's ways, by the mode of torch.compile; none for eager.
PEERS = {
    "eager": None,
    "compiled": "default",
    "max-autotune": "max-autotune",
    "max-autotune-no-cudagraphs": "max-autotune-no-cudagraphs",
}
# Multiply-adds of the samples whose error is taken.
CHECKED = 2e9


@dataclass(frozen=True)
class Work:
    """What a block must do at least."""

    multiply_adds: float  # of a sample
    samples: int
    bytes: int


def peer_name(peer: str, layout: str) -> str:
    """What a peer is called in results: `compiled`, `compiled channels_last`."""
    return peer if layout == "contiguous" else f"{peer} {layout}"


def work_of(model: nn.Module, x: Tensor, output: Tensor) -> Work:
    """Operations of the block's convolution, and bytes of input and output."""
    conv = next(each for each in model.modules() if isinstance(each, nn.modules.conv._ConvNd))
    positions = x.shape[2:].numel() if conv.transposed else 1
    if not conv.transposed:
        windows = zip(conv.kernel_size, conv.stride, conv.padding, conv.dilation, strict=True)
        for extent, (size, stride, pad, dilation) in zip(x.shape[2:], windows, strict=True):
            assert isinstance(pad, int)
            positions *= (extent + 2 * pad - dilation * (size - 1) - 1) // stride + 1
    return Work(conv.weight.numel() * positions, x.shape[0], x.nbytes + output.nbytes)


def memory_format(layout: str, rank: int) -> torch.memory_format:
    """PyTorch's word for a layout."""
    if layout == "contiguous":
        return torch.contiguous_format
    return torch.channels_last_3d if rank == 5 else torch.channels_last


def make_plan(name: str, mode: str, layout: str, wish: str) -> Plan:
    """Our own kernels for a block in a mode and a layout, under a value of FUSEBLOCK_CONV."""
    os.environ.pop("FUSEBLOCK_CONV", None)
    if wish:
        os.environ["FUSEBLOCK_CONV"] = wish
    block = CASES[name]
    state = block.module().to(MODES[mode]).state_dict()
    kinds = {name: type_text(each) for name, each in state.items()}
    x = type_text(torch.empty(0, dtype=MODES[mode])).split("[")[0] + f"[{','.join(map(str, block.shape))}]"
    x += ":cl" if layout == "channels_last" else ""
    try:
        return Plan.make(block.notation, x, kinds, DEVICE, precision="tf32" if mode == "tf32" else "strict")
    finally:
        os.environ.pop("FUSEBLOCK_CONV", None)


def kernels_of(explained: str) -> list[str]:
    """The kernels that an explained plan launches; why not, where PyTorch's operators run."""
    if "PyTorch's operators run" in explained:
        return [explained.split("PyTorch's operators run", 1)[1].strip(": \n")]
    _, _, launches = explained.partition(", each launched once\n")
    names = re.findall(r"^ +\d+ +(\w+): ", launches, re.MULTILINE)
    calls = len(re.findall(r"^ +\d+ +.*host call", explained, re.MULTILINE))
    return ["PyTorch's convolution"] * calls + names


class Row:
    """A block in a mode and a layout, on the GPU."""

    def __init__(self, name: str, mode: str, layout: str) -> None:
        self.name, self.mode, self.layout = name, mode, layout
        self.block: ReferenceBlock = CASES[name]
        torch.manual_seed(1)
        self.model = randomise(self.block.module()).to(DEVICE, MODES[mode]).eval()
        x = torch.rand(self.block.shape, device=DEVICE).to(MODES[mode])
        self.x = x.to(memory_format=memory_format(layout, x.dim()))
        self.inputs = {"x": self.x, **dict(self.model.state_dict())}

    def module(self) -> nn.Module:
        """The block as a user of the package has it."""
        own = fuseblock.nn.Block(self.block.notation, in_channels=self.block.shape[1])
        own.load_state_dict(self.model.state_dict())
        return own.to(DEVICE, MODES[self.mode]).eval()

    def exact(self, samples: int) -> Tensor:
        """The first samples' results in float64, on the CPU: some GPU kernels have constants in f32."""
        own = self.block.module().double()
        own.load_state_dict({name: value.double().cpu() for name, value in self.model.state_dict().items()})
        with torch.no_grad():
            result: Tensor = own(self.x[:samples].double().cpu())
        return result

    def by_module(self, timer: Timer) -> tuple[Tensor, dict[str, Any]]:
        """Our module called as a user calls it: its result, its time, and what it chose to run."""
        own = self.module()
        with torch.no_grad(), precision(self.mode):
            result: Tensor = own(self.x)
            text = io.StringIO()
            own.explain(self.x, file=text)  # type: ignore[operator]
            ms = timer(partial(own, self.x))
        return result, {"module_ms": ms, "module_plan": kernels_of(text.getvalue())}

    def by_torch(self) -> Tensor:
        """PyTorch's result."""
        with torch.no_grad(), precision(self.mode):
            result: Tensor = self.model(self.x)
        return result

    def peers(self, timer: Timer, wanted: Sequence[str]) -> dict[str, float]:
        """PyTorch's times in both layouts; what it cannot do is told and left out."""
        times = {}
        for peer in wanted:
            for layout in LAYOUTS:
                try:
                    with torch.no_grad(), precision(self.mode):
                        times[peer_name(peer, layout)] = timer(self.peer(peer, layout), 7)
                except (RuntimeError, torch.OutOfMemoryError) as refused:
                    print(f"  {self.name} {self.mode} {peer} {layout}: {str(refused)[:100]}", flush=True)
        self.model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        return times

    def peer(self, peer: str, layout: str) -> Callable[[], object]:
        """A call of PyTorch's own in a layout."""
        like = memory_format(layout, self.x.dim())
        model = self.model.to(memory_format=like)  # type: ignore[call-overload]
        x = self.x.to(memory_format=like)
        mode = PEERS[peer]
        if mode is None:
            return partial(model, x)
        torch._dynamo.reset()
        return partial(torch.compile(model, dynamic=False, mode=mode), x)


def error(got: Tensor, exact: Tensor) -> float:
    """The largest difference, on the samples of `exact`."""
    return float((got[: len(exact)].double().cpu() - exact).abs().max())


def compile_ahead(name: str, mode: str, layout: str, wish: str, peers: Sequence[str]) -> None:
    """Leaves what a row needs in the caches on disk; what is refused is told when it is timed."""
    with suppress(NotImplementedError, RuntimeError, torch.OutOfMemoryError):
        make_plan(name, mode, layout, wish)
    if "compiled" not in peers or wish:
        return
    with suppress(RuntimeError, torch.OutOfMemoryError), torch.no_grad(), precision(mode):
        row = Row(name, mode, layout)
        for each in LAYOUTS:
            row.peer("compiled", each)()


def first_calls(what: str, mode: str, names: Sequence[str]) -> dict[str, float]:
    """Seconds of the first calls of this process, by block: of our `kernels` throughout, or of the `module`.

    The GPU is in use and tensors are made before; a plan, its kernels from the compiler or the disk, and the
    first run are what is timed.
    """
    torch.zeros(1, device=DEVICE)
    found = {}
    for name in names:
        row = Row(name, mode, "contiguous")
        own = row.module()
        synchronise()
        start = time.perf_counter()
        try:
            if what == "module":
                with torch.no_grad(), precision(mode):
                    own(row.x)
            else:
                make_plan(name, mode, "contiguous", "").bind(row.inputs)()
        except NotImplementedError as refused:
            print(f"  {name} {mode}: {str(refused)[:100]}", file=sys.stderr, flush=True)
            continue
        synchronise()
        found[name] = time.perf_counter() - start
    return found


def synchronise() -> None:
    """Waits for the GPU."""
    if DEVICE != "cpu":
        torch.cuda.synchronize()
