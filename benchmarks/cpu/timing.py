"""How it is measured: contenders take turns, so that all see the same machine; medians, quartiles, rates."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks.cpu.contenders import Contender

# Between two runs: the threads of the one before have stopped spinning by then.
PAUSE_S = 0.005
FEWEST_ROUNDS = 5
MOST_ROUNDS = 60
# After this many rounds a peer that is slower than the best one by this factor is left out.
TRIAL_ROUNDS = 3
HOPELESS = 1.5


@dataclass
class Times:
    """The seconds of single runs."""

    seconds: list[float] = field(default_factory=list)

    @property
    def median_ms(self) -> float:
        """The median in milliseconds."""
        return statistics.median(self.seconds) * 1e3

    @property
    def quartiles_ms(self) -> tuple[float, float]:
        """The first and the third quartile in milliseconds."""
        if len(self.seconds) < 2:
            return self.median_ms, self.median_ms
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return low * 1e3, high * 1e3


def _once(contender: Contender) -> float:
    time.sleep(PAUSE_S)
    begin = time.perf_counter()
    results = contender.run()
    seconds = time.perf_counter() - begin
    del results
    contender.release()
    return seconds


def measure(contenders: list[Contender], budget_s: float) -> dict[str, Times]:
    """Runs the contenders in turn for about `budget_s` seconds; the first is never left out."""
    times = {contender.name: Times() for contender in contenders}
    running = list(contenders)
    for contender in contenders:
        _once(contender)
    begin = time.perf_counter()
    for round_ in range(MOST_ROUNDS):
        for contender in running:
            times[contender.name].seconds.append(_once(contender))
        if round_ + 1 == TRIAL_ROUNDS:
            best = min((times[peer.name].median_ms for peer in contenders[1:]), default=0.0)
            running = [
                contender
                for contender in running
                if contender is contenders[0] or times[contender.name].median_ms <= HOPELESS * best
            ]
        if round_ + 1 >= FEWEST_ROUNDS and time.perf_counter() - begin >= budget_s:
            break
    return times


def allocated_peak_bytes(run: Callable[[], dict[str, Tensor]]) -> int:
    """The peak of what a run takes from PyTorch's allocator, without what it returns.

    Memory that libraries below PyTorch take by themselves is not seen.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
        results = run()
    now = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return max(0, peak - sum(tensor.numel() * tensor.element_size() for tensor in results.values()))


@dataclass(frozen=True)
class MachineRates:
    """What this machine reaches on the same number of threads, measured in the same run."""

    gemm_flops: float  # per second, torch.mm in f32
    copy_bytes: float  # per second, read and written together


def _best_seconds(function: Callable[[], object], repeats: int = 7) -> float:
    function()
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - begin)
    return best


def machine_rates() -> MachineRates:
    """Measures the rates, the best of a few runs."""
    size = 2048
    a = torch.rand(size, size)
    b = torch.rand(size, size)
    product = torch.empty(size, size)
    gemm = _best_seconds(lambda: torch.mm(a, b, out=product))
    source = torch.rand(1 << 26)
    target = torch.empty_like(source)
    copy = _best_seconds(lambda: target.copy_(source))
    return MachineRates(2 * size**3 / gemm, 2 * source.numel() * 4 / copy)
