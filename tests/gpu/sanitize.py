#!/usr/bin/env python3
"""Every kernel variant under compute-sanitizer: memcheck, racecheck, synccheck, initcheck.

    python3 tests/gpu/sanitize.py [--filter TEXT] [--out FOLDER] [--jobs N] [--again] [--seconds S]
    tools/emulated python3 tests/gpu/sanitize.py --device emulated     # the program without the sanitizer

A row is a case of tests/gpu/variants.cases and a tool: the program gpu_runs (tests/tools/gpu_runs.cc) runs
the case forward and backward in f32 and bf16, contiguous, channels_last and strided, and the tool must find
nothing, within a minute and a half. Rows of the first tool come first: they compile the kernels, the others
find them in the cache on disk. Results go to sanitizer.json in --out, benchmarks/results/h200 unless given.
The sanitizer is the machine's own, of the CUDA toolkit. The program finds the run-time compiler by
FUSEBLOCK_NVRTC, which tools/on_gpu sets.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "python")]

import bare_package  # noqa: E402, F401
import gpu_cases  # noqa: E402
import gpu_record  # noqa: E402

TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
CASES = HERE / "variants.cases"
_LONGEST_RUN_S = {"cuda": 90, "emulated": 1700}


@dataclass(frozen=True)
class Row:
    """A case under a tool."""

    case: str
    tool: str

    @property
    def key(self) -> str:
        """What tells it from other rows."""
        return f"{self.case} f32,bf16 {self.tool}"


def program() -> Path:
    """What is run."""
    carried = ROOT / "build" / "carry" / "gpu_runs"
    return carried if carried.exists() else ROOT / "build" / "tests" / "tools" / "gpu_runs"


def sanitizer() -> str | None:
    """compute-sanitizer, where the machine has one: its wheel lacks what it starts programs by."""
    if found := shutil.which("compute-sanitizer"):
        return found
    places = sorted(Path("/usr/local").glob("cuda*/*/compute-sanitizer"), reverse=True)
    return next((str(place) for place in places if os.access(place, os.X_OK)), None)


def run_row(row: Row, device: str) -> list[dict[str, Any]]:
    """The record of a row."""
    record = {"case": row.case, "dtype": "f32,bf16", "layout": row.tool, "direction": "all"}
    call = [str(program()), "--case", row.case, str(CASES)]
    if device == "cuda":
        tool = sanitizer()
        if tool is None:
            return [{**record, "status": "failed", "message": "there is no compute-sanitizer"}]
        call = [tool, "--tool", row.tool, "--error-exitcode", "9", "--print-limit", "3", *call]
    limit = _LONGEST_RUN_S[device]
    status, output = _run(call, limit)
    if status == 0 and "0 failures" in output:
        return [{**record, "status": "passed"}]
    told = f"no end within {limit} s: " if status is None else ""
    return [{**record, "status": "failed", "message": told + output[-2000:]}]


def _run(call: list[str], limit: float) -> tuple[int | None, str]:
    """Exit status, none where there is no end within `limit` seconds, and what was printed."""
    # The sanitizer starts the program as a process of its own, which must not outlive it.
    with subprocess.Popen(
        call, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return None, output
    return process.returncode, output


def main() -> int:
    """Runs the rows and writes the record; one line for each tool."""
    options = gpu_record.parser("Every kernel variant under compute-sanitizer").parse_args()
    rows = [Row(case.name, tool) for tool in TOOLS for case in gpu_cases.read_cases(CASES)]
    return gpu_record.main(options, "sanitizer", rows, "sanitize:run_row", program())


if __name__ == "__main__":
    sys.exit(main())
