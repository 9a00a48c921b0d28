#!/usr/bin/env python3
"""All tests that need a GPU, part by part; the last lines are a table and the verdict.

    tools/test_gpu [--only PART]... [--out FOLDER] [--filter TEXT] [--jobs N] [--seconds S] [--again]

Parts are `cases`, `random`, `plain`, `torch`, `exported` and `sanitizer`; tests/gpu/README.md says what each
one does. All options but --only are handed to each part; --seconds is the time of each. Records are kept in
--out, and a second run takes up what is left. With --device cpu or emulated the parts run that can run there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import gpu_record  # noqa: E402

# The program, its own options, the name of its record, and the devices that it runs on.
PARTS: dict[str, tuple[str, list[str], str, tuple[str, ...]]] = {
    "cases": ("test_cases.py", [], "tests", ("cuda", "cpu", "emulated")),
    "random": ("test_cases.py", ["--random"], "random", ("cuda", "cpu", "emulated")),
    "plain": ("test_cases.py", ["--plain"], "plain", ("cuda", "cpu", "emulated")),
    "torch": ("test_torch.py", [], "torch", ("cuda", "cpu")),
    "exported": ("test_exported.py", [], "exported", ("cuda",)),
    "sanitizer": ("sanitize.py", [], "sanitizer", ("cuda", "emulated")),
}


def main() -> int:
    """Runs the parts; 1 where one of them fails."""
    parser = argparse.ArgumentParser(description="All tests that need a GPU")
    parser.add_argument("--only", action="append", choices=PARTS, help="this part; may be given again")
    options, handed = parser.parse_known_args()
    known = gpu_record.parser("").parse_args(handed)
    lines = []
    failed = False
    for part, (program, own, name, devices) in PARTS.items():
        if known.device not in devices or (options.only and part not in options.only):
            continue
        print(f"== {part}", flush=True)
        begin = time.monotonic()
        run = subprocess.run([sys.executable, str(HERE / program), *own, *handed], check=False)
        failed = failed or run.returncode != 0
        lines.append(
            _line(part, gpu_record.record_path(known, name), time.monotonic() - begin, run.returncode)
        )
    print(f"\n{'part':<10} {'passed':>7} {'failed':>7} {'unsupported':>12} {'left':>6} {'seconds':>8}")
    print("\n".join(lines))
    print("FAILED" if failed else "PASSED")
    return 1 if failed else 0


def _line(part: str, path: Path, seconds: float, status: int) -> str:
    """A row of the table, from the part's record."""
    if status not in (0, 1) or not path.exists():
        return f"{part:<10} ended with status {status}"
    document = json.loads(path.read_text())
    count = Counter(row["status"] for row in document["rows"])
    cells = f"{count['passed']:>7} {count['failed']:>7} {count['unsupported']:>12}"
    return f"{part:<10} {cells} {document['rows_left']:>6} {seconds:>8.0f}"


if __name__ == "__main__":
    sys.exit(main())
