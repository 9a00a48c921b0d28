"""Times on a GPU: medians by events with L2 emptied before each run, with the host's time or without it, and
rates to hold them against.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

DEVICE = "cuda"
# Modes of convolutions, and the type of their tensors.
MODES = {"tf32": torch.float32, "strict": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
RUNS = 10
CALLED_RUNS = 30
SLOW_MS = 20  # such calls are run fewer times


class Timer:
    """Times of calls, each after L2 was emptied."""

    def __init__(self) -> None:
        # Several times the L2 of any GPU.
        self.flush = torch.empty(512 * 1024 * 1024, dtype=torch.uint8, device=DEVICE)

    def once(self, function: Callable[[], object], with_host: bool = False) -> float:
        """Milliseconds of one run, of the GPU alone or with what the host takes before the GPU has work."""
        self.flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        if with_host:
            torch.cuda.synchronize()
        else:
            torch.cuda._sleep(200_000)  # type: ignore[no-untyped-call]  # the host is then ahead
        start.record()
        function()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end))

    def measure(self, function: Callable[[], object], runs: int = RUNS) -> tuple[float, float]:
        """Milliseconds: the median and the distance of the quartiles."""
        function()
        first = self.once(function)
        if first > SLOW_MS:
            return statistics.median([first, self.once(function)]), 0.0
        self.once(function)
        times = [self.once(function) for _ in range(runs)]
        quarter = statistics.quantiles(times, n=4)
        return statistics.median(times), quarter[2] - quarter[0]

    def __call__(self, function: Callable[[], object], runs: int = RUNS) -> float:
        """The median in milliseconds."""
        return self.measure(function, runs)[0]

    def called(self, function: Callable[[], object], runs: int = CALLED_RUNS) -> float:
        """The median in milliseconds of a call as it is, the host's time included.

        L2 is emptied and the GPU waited for before each run; then an event is recorded, the function called,
        and another event recorded. The GPU is idle at the first, so that what passes until the second is what
        Python, PyTorch and the driver take until the last kernel is launched, and what is left of the
        kernels' own time then. Nobody waits for the GPU within.
        """
        for _ in range(3):
            first = self.once(function, with_host=True)
        if first > SLOW_MS:
            runs = 3
        return statistics.median(self.once(function, with_host=True) for _ in range(runs))

    def do_bench(self, function: Callable[[], object]) -> float:
        """The median in milliseconds by Triton's function for this.

        It empties L2, records an event, calls, and records another, waiting for nothing in between: the
        host's time counts as far as it is more than emptying takes.
        """
        from triton.testing import do_bench

        return float(do_bench(function, return_mode="median"))


@contextmanager
def precision(mode: str) -> Iterator[None]:
    """PyTorch's switches for a mode."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = mode == "tf32"
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def product_rate(mode: str, timer: Timer) -> float:
    """Multiply-adds a second of a matrix product; of a third of tf32's for strict."""
    size = 8192
    a, b = (torch.randn(size, size, device=DEVICE, dtype=MODES[mode]) for _ in range(2))
    with precision("tf32" if mode == "strict" else mode):
        rate = size**3 / (timer(lambda: a @ b, 5) / 1e3)
    return rate / 3 if mode == "strict" else rate


def copy_rate(timer: Timer) -> float:
    """Bytes a second of a copy of 268 MB, read and written ones together."""
    source = torch.randn(64 * 1024 * 1024, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * source.nbytes / (timer(lambda: target.copy_(source)) / 1e3)
