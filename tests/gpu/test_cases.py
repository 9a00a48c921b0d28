#!/usr/bin/env python3
"""Every case on the GPU beside PyTorch and float64; what passed is recorded.

    python3 tests/gpu/test_cases.py [--filter TEXT] [--out FOLDER] [--jobs N] [--again] [--device cuda]
    python3 tests/gpu/test_cases.py --random     # random blocks instead
    python3 tests/gpu/test_cases.py --plain      # kernels `plain`, which plans have on demand alone
    tools/emulated python3 tests/gpu/test_cases.py --device emulated

Needs the build folder, a GPU and torch, nothing else; under tools/emulated no GPU. Rows run in several
processes at once, so that kernels are compiled side by side. Results go row by row to tests.json (random.json
for --random, plain.json for --plain) in --out, benchmarks/results/h200 unless given, or to
build/tests_DEVICE.json for what is no GPU: what has passed there with the same library is not run again
unless --again is given. The exit status is 1 where a row fails, or is left when the time of --seconds is
over.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "python")]

import bare_package  # noqa: E402, F401
import gpu_cases  # noqa: E402
import gpu_record  # noqa: E402


def kernels(row: Any, direction: str) -> list[str]:
    """The digests of the kernels that a row has now."""
    import gpu_row

    with gpu_row.divided(row):
        plan = gpu_row.make_plan(row, "h200")
        if direction == "backward":
            plan = plan.backward()
        found = json.loads(plan.explain_json())["kernels"]
    return [kernel["source_digest"] for kernel in found]


def main() -> int:
    """Runs the rows and writes the record."""
    parser = gpu_record.parser("Every case on the GPU beside PyTorch and float64")
    parser.add_argument("--random", action="store_true", help="random blocks in place of the cases")
    parser.add_argument("--plain", action="store_true", help="kernels `plain` in place of the planner's")
    options = parser.parse_args()
    gpu_record.warm_up()
    from fuseblock._capi import library_path

    name, rows = ("random", gpu_cases.random_rows()) if options.random else ("tests", gpu_cases.rows())
    if options.plain:
        name, rows = "plain", gpu_cases.plain_rows()
    return gpu_record.main(options, name, rows, "gpu_row:run_row", library_path(), kernels)


if __name__ == "__main__":
    sys.exit(main())
