"""Writes examples/exported anew, where a file is not what the program writes, and the table of figures:

.venv/bin/python tests/python/export_renew.py [problem...]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "python"))

from fuseblock.export.__main__ import main as export  # noqa: E402

EXAMPLES = CHECKOUT / "examples" / "exported"


RECORD = CHECKOUT / "benchmarks" / "results" / "h200" / "exported.json"
MARK = "<!-- figures: from benchmarks/results/h200/exported.json -->\n"


def readme() -> str:
    """examples/exported/README.md with the figures of the record behind its mark."""
    text = (EXAMPLES / "README.md").read_text().partition(MARK)[0] + MARK
    if not RECORD.exists():
        return text + "There is no record of an H200 yet.\n"
    record = json.loads(RECORD.read_text())
    text += (
        f"Blocks of the files on {record['device']}, PyTorch {record['versions']['torch']}, milliseconds; "
        "the error is the largest beside PyTorch's.\n\n"
        "| file | direction | exported | the library | eager | torch.compile | error / PyTorch's |\n"
        "|---|---|---|---|---|---|---|\n"
    )
    for row in record["rows"]:
        if "fuseblock_ms" not in row:
            continue
        worst = max(row["error"][name] / max(row["peer_error"][name], 1e-30) for name in row["error"])
        peers = " | ".join(f"{row['peers'][peer]:.4f}" for peer in ("eager", "torch.compile"))
        cells = f"{row['fuseblock_ms']:.4f} | {row['library_ms']:.4f} | {peers} | {worst:.2f}"
        text += f"| `{row['case']}.py` | {row['direction']} | {cells} |\n"
    return text


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
    (EXAMPLES / "README.md").write_text(readme())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
