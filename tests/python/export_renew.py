"""Writes examples/exported anew, where a file is not what the program writes:

.venv/bin/python tests/python/export_renew.py [problem...]
"""

from __future__ import annotations

import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "python"))

from fuseblock.export.__main__ import main as export  # noqa: E402

EXAMPLES = CHECKOUT / "examples" / "exported"


def main(names: list[str]) -> int:
    """Renews these problems, or all; the exit status."""
    for problem in sorted((EXAMPLES / "problems").glob("*.py")):
        if names and problem.stem not in names:
            continue
        path = EXAMPLES / problem.name
        before = path.read_text() if path.exists() else ""
        if export([str(problem), "-o", str(path)]) != 0:
            return 1
        if path.read_text() != before:
            print(f"{path.relative_to(CHECKOUT)} is new")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
