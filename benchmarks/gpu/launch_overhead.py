#!/usr/bin/env python3
"""Host time of calls on a GPU: plans from C++ beside a bare launch, modules beside PyTorch's own.

    python3 benchmarks/gpu/launch_overhead.py [--out FILE]

Runs the program launch_overhead (benchmarks/gpu/launch_overhead.cc) of build/carry or build, then times
Python calls on small tensors the same way: batches that fit into the GPU's queue of launches, so that the
host never waits for the GPU, which is waited for between the batches; the median counts. Results go to
--out, benchmarks/results/h200/launch_overhead.json unless given.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import fuseblock  # noqa: E402
import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.nn import functional  # noqa: E402

BATCHES = 51
CALLS = 50  # of a few launches each


def program() -> Path:
    """What times plans from C++."""
    carried = ROOT / "build" / "carry" / "launch_overhead"
    return carried if carried.exists() else ROOT / "build" / "launch_overhead"


def median_us(call: Callable[[], object]) -> float:
    """Host time of a call."""
    for _ in range(CALLS):
        call()
    times = []
    for _ in range(BATCHES):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - begin) / CALLS)
    torch.cuda.synchronize()
    return 1e6 * statistics.median(times)


def python_rows() -> list[dict[str, Any]]:
    """Group norm and SiLU on a small tensor: by fuseblock, by PyTorch's modules."""
    norm = fuseblock.nn.GroupNorm(8, 64, act="silu").cuda().bfloat16()
    plain = torch.nn.GroupNorm(8, 64).cuda().bfloat16()
    x = torch.randn(2, 64, 16, 16, device="cuda", dtype=torch.bfloat16)
    gradient = torch.randn_like(x)
    leaf = x.clone().requires_grad_()

    def eager(value: Tensor) -> Tensor:
        return functional.silu(plain(value))

    def step(module: Callable[[Tensor], Tensor], parameters: list[Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(module(leaf), [leaf, *parameters], gradient)

    rows = []
    for direction, ours, theirs in (
        ("forward", lambda: norm(x), lambda: eager(x)),
        ("forward+backward", step(norm, list(norm.parameters())), step(eager, list(plain.parameters()))),
    ):
        with torch.set_grad_enabled(direction != "forward"):
            times = {"fuseblock_us": median_us(ours), "eager_us": median_us(theirs)}
        rows.append({"case": "python group_norm_silu", "direction": direction, **times})
    return rows


def main() -> int:
    """Measures and writes the results."""
    parser = argparse.ArgumentParser(description="Host time of calls on a GPU")
    default = ROOT / "benchmarks" / "results" / "h200" / "launch_overhead.json"
    parser.add_argument("--out", type=Path, default=default)
    options = parser.parse_args()
    run = subprocess.run([program()], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        print(run.stderr, file=sys.stderr)
        return 1
    found = json.loads(run.stdout)
    rows = found["rows"] + python_rows()
    document = {
        "device": torch.cuda.get_device_name(),
        "versions": {
            "fuseblock": fuseblock.__version__,
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "python": platform.python_version(),
        },
        "digest": hashlib.sha256(program().read_bytes()).hexdigest(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "bare_us": found["bare_us"],
        "rows": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print(f"a bare launch takes {found['bare_us']:.2f} us of the host's time")
    for row in rows:
        cells = "  ".join(f"{key} {value:.2f}" for key, value in row.items() if key.endswith("_us"))
        print(f"{row['case']:<28} {row['direction']:<17} {cells}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
