#!/usr/bin/env python3
"""How far the cost model's divisions of convolution kernels are from the fastest, on shapes nobody tunes for.

    tools/on_gpu benchmarks/gpu/bench_tune.py [--cases FILE] [--seconds N] [--within FACTOR] [--out FILE]
    tools/on_gpu benchmarks/gpu/bench_tune.py --write src/cuda/tuned.json --cases benchmarks/gpu/tuned.cases

Runs `fuseblock tune` of build/carry or build on the blocks of benchmarks/gpu/held_out.cases: the time with
the cost model's divisions beside the time with the fastest, the geometric mean of the ratios and the worst.
Nothing is written to a table of tuned divisions unless --write names one. Results go to --out,
benchmarks/results/h200/tune.json unless given. Exit status 1 where a ratio is above --within.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "benchmarks" / "results" / "h200" / "tune.json"
HELD_OUT = ROOT / "benchmarks" / "gpu" / "held_out.cases"
WITHIN = 1.3


def program() -> Path:
    """The command."""
    carried = ROOT / "build" / "carry" / "fuseblock"
    return carried if carried.exists() else ROOT / "build" / "fuseblock"


def line(row: dict[str, Any]) -> str:
    """A row for a person."""
    kernels = " + ".join(launch["kernel"] for launch in row["launches"])
    timed = sum(launch["timed"] for launch in row["launches"])
    return (
        f"{row['case']:<44} {row['by_cost_model_ms']:>9.4f} {row['tuned_ms']:>9.4f} {row['ratio']:>6.3f}  "
        f"{kernels}, {timed} divisions"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Times the cases and writes the results."""
    parser = argparse.ArgumentParser(description="The cost model's divisions beside the fastest")
    parser.add_argument("--cases", type=Path, default=HELD_OUT, help="a file of blocks, one a line")
    parser.add_argument("--seconds", type=float, default=0, help="compile nothing more after this long")
    parser.add_argument("--divisions", type=int, default=12, help="of a launch that are timed")
    parser.add_argument("--repeat", type=int, default=9, help="timed runs of each")
    parser.add_argument("--within", type=float, default=WITHIN, help="how often the fastest time is allowed")
    parser.add_argument("--write", type=Path, help="a table of tuned divisions to write them to")
    parser.add_argument("--out", type=Path, default=RECORD, help="the results file")
    options = parser.parse_args(arguments)
    command = [program(), "tune", "--json", "--cases", options.cases, "--seconds", options.seconds]
    command += ["--divisions", options.divisions, "--repeat", options.repeat]
    command += ["--out", options.write] if options.write else []
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=False)
    found = json.loads(done.stdout) if done.stdout.startswith("{") else {}
    if done.returncode != 0 or "rows" not in found:
        print(found.get("error", {}).get("message", done.stdout), file=sys.stderr)
        return 2
    version = subprocess.run([program(), "--version"], stdout=subprocess.PIPE, text=True, check=True)
    document = {
        "device": found["device"],
        "versions": {"fuseblock": version.stdout.removeprefix("fuseblock ").strip()},
        "digest": hashlib.sha256(program().read_bytes()).hexdigest(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cases": options.cases.name,
        "geometric_mean": found["geometric_mean"],
        "worst": found["worst"],
        "within": options.within,
        "rows": found["rows"],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{found['device']}\n{'case':<44} {'model, ms':>9} {'best, ms':>9} {'ratio':>6}")
    for row in found["rows"]:
        print(line(row))
    print(f"geometric mean {found['geometric_mean']:.3f}, worst {found['worst']:.3f}")
    return 1 if found["worst"] > options.within else 0


if __name__ == "__main__":
    sys.exit(main())
