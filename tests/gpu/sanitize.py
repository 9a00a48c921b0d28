#!/usr/bin/env python3
"""Every kernel variant under compute-sanitizer: memcheck, racecheck, synccheck, initcheck.

    python3 tests/gpu/sanitize.py [--filter TEXT] [--out FOLDER] [--jobs N] [--in-one N] [--seconds S] ...
    python3 tests/gpu/sanitize.py --list
    tools/emulated python3 tests/gpu/sanitize.py --device emulated     # the program without the sanitizer

A row is a case of tests/gpu/variants.cases and a tool: the program gpu_runs (tests/tools/gpu_runs.cc) runs
the case forward and backward in f32 and bf16, contiguous, channels_last and strided, and the tool must find
nothing, no warning either, within a minute and a half. Divisions of norms that tests/gpu/gpu_cases.py asks
for are rows, too. Two tools do not see all that holds, so that under them something is done for them alone:
- initcheck: lists that need not be zero are zero before each launch (FUSEBLOCK_CLEARED): a block asks for
  words there that nobody has written yet, and tells by their tags.
- racecheck: it knows barriers, and no counts that are released and acquired. Warps of `rows` without
  barriers hand units over by barriers at the same places (barriers=1, src/cuda/device/rows_ahead_barriers.cuh
  in place of rows_ahead_counts.cuh). So it sees whether what lies between these places is in order, and not
  those counts themselves; everything else is what plans have.
With --same-kernels a row is kept while the kernels that its plans name are those that ran; kernels for other
views, which plans do not name, do not count.

To start a program under the sanitizer takes longer than most rows, so that one process runs several cases of
a tool; where anything is found, or there is no end, each of them runs by itself. Groups of the first tool
come first: they compile what tools/carry --kernels has not, the others find it in the cache on disk. Within a
tool the longest come first, by an earlier record.
Results go to sanitizer.json in --out, benchmarks/results/h200 unless given.
The sanitizer is the machine's own, of the CUDA toolkit. The program finds the run-time compiler by
FUSEBLOCK_NVRTC, which tools/on_gpu sets.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
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
# Groups that each of the processes that run at once has, and the most rows of one.
_GROUPS_EACH = 4
_MOST_IN_GROUP = 8


@dataclass(frozen=True)
class Row:
    """A case under a tool."""

    case: str
    tool: str
    convolves: bool

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


def group_size(rows: int, jobs: int) -> int:
    """How many rows a process has: few enough that all processes are busy to the end."""
    return max(1, min(rows // (_GROUPS_EACH * jobs), _MOST_IN_GROUP))


def groups(rows: Sequence[Row], size: int, seconds: dict[str, float]) -> list[list[Row]]:
    """Rows of a tool that one process runs, each group about as long as the others of its tool.

    size: rows of a group, about.
    seconds: what rows take, by key.
    """
    usual = sum(seconds.values()) / len(seconds) if seconds else 1.0

    def cost(row: Row) -> float:
        return seconds.get(row.key, usual * (2 if row.convolves else 1))

    found: list[list[Row]] = []
    for tool in TOOLS:
        own = sorted((row for row in rows if row.tool == tool), key=cost, reverse=True)
        parts: list[list[Row]] = [[] for _ in range(-(-len(own) // size))]
        for row in own:
            min(parts, key=lambda part: sum(map(cost, part))).append(row)
        found += sorted(parts, key=lambda part: -sum(map(cost, part)))
    return found


def run_group(rows: Sequence[Row], device: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """The records of rows of one tool, of all or of none."""
    if device == "cuda" and sanitizer() is None:
        return [(row.key, []) for row in rows]
    tool = rows[0].tool
    status, output = _run(_call([row.case for row in rows], tool, device), _LONGEST_RUN_S[device], tool)
    verdicts = {row.case: _seconds_of(row.case, output) for row in rows}
    if status != 0 or not _finds_nothing(output, device) or None in verdicts.values():
        return [(row.key, []) for row in rows]
    return [(row.key, [{**_head(row), "status": "passed", "seconds": verdicts[row.case]}]) for row in rows]


def run_row(row: Row, device: str) -> list[dict[str, Any]]:
    """The record of a row."""
    if device == "cuda" and sanitizer() is None:
        return [{**_head(row), "status": "failed", "message": "there is no compute-sanitizer"}]
    limit = _LONGEST_RUN_S[device]
    status, output = _run(_call([row.case], row.tool, device), limit, row.tool)
    if status == 0 and _finds_nothing(output, device) and _seconds_of(row.case, output) is not None:
        return [{**_head(row), "status": "passed"}]
    told = f"no end within {limit} s: " if status is None else ""
    return [{**_head(row), "status": "failed", "message": told + output[-2000:]}]


def _head(row: Row) -> dict[str, Any]:
    return {
        "case": row.case,
        "dtype": "f32,bf16",
        "layout": row.tool,
        "direction": "all",
        "kernels": [{"source_digest": digest} for digest in _digests(row.case)],
    }


def kernels(row: Row, _direction: str) -> list[str]:
    """The digests of the kernels that a row has now."""
    return _digests(row.case)


@functools.cache
def _digests(case: str) -> list[str]:
    import gpu_row

    found: set[str] = set()
    for row in gpu_cases.rows():
        if asked_of(row) != case or row.dtype not in ("f32", "bf16"):
            continue
        with gpu_row.divided(row):
            plans = [gpu_row.make_plan(row, "h200")]
            # Of some there is no kernel for the gradients.
            with contextlib.suppress(NotImplementedError):
                plans.append(plans[0].backward())
            for plan in plans:
                found |= {
                    each["source_digest"] for each in json.loads(plan.explain_json()).get("kernels", [])
                }
    return sorted(found)


def asked_of(row: gpu_cases.Row) -> str:
    """What gpu_runs is asked for to have a row of gpu_cases; the row's own name where it does not have it."""
    divisions = {"FUSEBLOCK_SLICES": row.slices, "FUSEBLOCK_ROWS": row.rows}
    named = "".join(f"[{name}={division}]" for name, division in divisions.items() if division)
    return row.case.name + named if row.name.count("[") == named.count("[") else row.name


def _call(cases: Sequence[str], tool: str, device: str) -> list[str]:
    named = [word for case in cases for word in ("--case", case)]
    call = [str(program()), *named, str(CASES)]
    if device != "cuda":
        return call
    return [str(sanitizer()), "--tool", tool, "--error-exitcode", "9", "--print-limit", "3", *call]


def _finds_nothing(output: str, device: str) -> bool:
    """Whether the tool's own summaries, which it writes on a GPU, are of no error and no warning."""
    summaries = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: .*", output)
    if device == "cuda" and not summaries:
        return False
    return all(re.search(r"[1-9]", line) is None for line in summaries)


def _seconds_of(case: str, output: str) -> float | None:
    """What a case's runs took that have all done well; none else."""
    found = re.search(rf"^{re.escape(case)}: [1-9]\d* runs, 0 failures, (\S+) s$", output, re.MULTILINE)
    return round(float(found[1]), 2) if found else None


def _run(call: list[str], limit: float, tool: str) -> tuple[int | None, str]:
    """Exit status, none where there is no end within `limit` seconds, and what was printed."""
    cleared = {"FUSEBLOCK_CLEARED": "1"} if tool == "initcheck" else {}
    # The sanitizer starts the program as a process of its own, which must not outlive it.
    with subprocess.Popen(
        call,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=os.environ | cleared,
    ) as process:
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return None, output
    return process.returncode, output


def _earlier_seconds(path: Path) -> dict[str, float]:
    """What rows took in an earlier run, of any library."""
    if not path.exists():
        return {}
    rows = json.loads(path.read_text())["rows"]
    return {f"{row['case']} {row['dtype']} {row['layout']}": row["seconds"] for row in rows}


def all_rows() -> list[Row]:
    """Cases under each tool, and divisions of norms."""
    cases = list(gpu_cases.read_cases(CASES))
    known = {case.name for case in cases}
    divided = [row for row in gpu_cases.rows() if (row.slices or row.rows) and row.case.name in known]
    divisions = dict.fromkeys(asked_of(row) for row in divided)
    return [
        *(Row(case.name, tool, "conv" in case.block) for tool in TOOLS for case in cases),
        *(Row(division, tool, False) for tool in TOOLS for division in divisions if _suits(division, tool)),
    ]


def _suits(division: str, tool: str) -> bool:
    """Whether a row is for a tool: of `rows` without barriers racecheck has those that it understands."""
    if not re.search(r"FUSEBLOCK_ROWS=.*\bahead=[1-9]", division):
        return True
    return ("barriers=1" in division) == (tool == "racecheck")


def main() -> int:
    """Runs the rows and writes the record; one line for each tool."""
    parser = gpu_record.parser("Every kernel variant under compute-sanitizer")
    parser.add_argument("--in-one", type=int, default=0, help="cases of a process, about; 0: as it fits")
    parser.add_argument("--list", action="store_true", help="print what gpu_runs is asked for, and end")
    options = parser.parse_args()
    if options.list:
        print("\n".join(dict.fromkeys(row.case for row in all_rows())))
        return 0
    rows = all_rows()
    seconds = _earlier_seconds(gpu_record.record_path(options, "sanitizer"))

    def grouped(left: Sequence[Row]) -> list[list[Row]]:
        return groups(left, options.in_one or group_size(len(left), options.jobs), seconds)

    return gpu_record.main(
        options, "sanitizer", rows, "sanitize:run_row", program(), kernels, (grouped, "sanitize:run_group")
    )


if __name__ == "__main__":
    sys.exit(main())
