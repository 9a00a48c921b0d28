"""The record of the last run on a GPU: it passed, and its kernels are those that plans choose now.

No GPU is needed: plans for `h200` name the digest of each kernel's text, without comments and white space. A
digest that is not in the record means that device code changed without having run: run `make test-gpu` on a
GPU.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
RECORD = ROOT / "benchmarks" / "results" / "h200" / "tests.json"
sys.path[:0] = [str(ROOT / "tests" / "gpu"), str(ROOT)]

import gpu_cases  # noqa: E402
import gpu_row  # noqa: E402
import sanitize  # noqa: E402

from benchmarks.gpu import conv_tables  # noqa: E402


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    """The record."""
    document: dict[str, Any] = json.loads(RECORD.read_text())
    return document


def digests(kernels: list[dict[str, str]]) -> list[str]:
    """The digests of a plan's kernels, in order."""
    return [kernel["source_digest"] for kernel in kernels]


def test_all_rows_passed(record: dict[str, Any]) -> None:
    """Every row that there is now was run, and passed in every direction."""
    failed = [row for row in record["rows"] if row["status"] != "passed"]
    assert [f"{row['case']} {row['dtype']} {row['layout']}" for row in failed] == []
    known = {f"{row['case']} {row['dtype']} {row['layout']}" for row in record["rows"]}
    assert [row.key for row in gpu_cases.rows() if row.key not in known] == []


def changed_rows(rows: list[gpu_cases.Row], record: dict[str, Any]) -> list[str]:
    """Rows whose kernels, forward or backward, are not those that ran."""
    recorded = {
        (f"{row['case']} {row['dtype']} {row['layout']}", row["direction"]): digests(row["kernels"])
        for row in record["rows"]
    }
    changed = []
    for row in rows:
        with gpu_row.divided(row):
            plan = gpu_row.make_plan(row, "h200")
            plans = {"forward": plan}
            if (row.key, "backward") in recorded:
                plans["backward"] = plan.backward()
            for direction, each in plans.items():
                now = digests(json.loads(each.explain_json())["kernels"])
                if recorded.get((row.key, direction)) != now:
                    changed.append(f"{row.key} {direction}")
    return changed


def test_kernels_are_the_recorded_ones(record: dict[str, Any]) -> None:
    """Forward and backward of every row have the kernels that ran."""
    assert changed_rows(gpu_cases.rows(), record) == []


def test_plain_kernels_are_the_recorded_ones() -> None:
    """So have the rows of kernels on demand."""
    record = json.loads(RECORD.with_name("plain.json").read_text())
    assert changed_rows(gpu_cases.plain_rows(), record) == []


@pytest.mark.parametrize("name", ["random", "plain", "torch", "sanitizer"])
def test_other_records_passed(name: str) -> None:
    """Random blocks, kernels on demand, the PyTorch operations, the sanitizers, where recorded."""
    path = RECORD.with_name(f"{name}.json")
    if not path.exists():
        pytest.skip(f"there is no record {path.name}")
    failed = [row for row in json.loads(path.read_text())["rows"] if row["status"] == "failed"]
    assert [f"{row['case']} {row['dtype']} {row['layout']}" for row in failed] == []


def test_sanitized_kernels_are_the_recorded_ones() -> None:
    """compute-sanitizer has looked at every row that there is now, with the kernels of now."""
    record = json.loads(RECORD.with_name("sanitizer.json").read_text())
    recorded = {
        f"{row['case']} {row['dtype']} {row['layout']}": digests(row["kernels"]) for row in record["rows"]
    }
    changed = [
        row.key for row in sanitize.all_rows() if recorded.get(row.key) != sanitize.kernels(row, "all")
    ]
    assert changed == []


def test_figures_of_the_page_are_the_recorded_ones() -> None:
    """Every row of the results is in docs/norms-on-gpu.md as it was measured."""
    page = (ROOT / "docs" / "norms-on-gpu.md").read_text()
    for row in json.loads((ROOT / "benchmarks" / "results" / "h200" / "norms.json").read_text())["rows"]:
        ours, floor, peers = row["fuseblock_ms"], row["floor_ms"], row["peers"]
        compiled = f"{peers['torch.compile']:.3f}" if "torch.compile" in peers else "-"
        shape = ",".join(map(str, row["shape"]))
        cells = f"{floor:.4f} | {ours:.4f} | {ours / floor:.2f} | {peers['eager']:.3f} | {compiled}"
        assert f"| {row['case']} {shape} | {cells} |" in page


def test_figures_of_convolutions_are_on_their_page() -> None:
    """docs/conv-on-gpu.md has the tables that benchmarks/gpu/conv_tables.py makes of the records."""
    page = conv_tables.PAGE.read_text()
    assert conv_tables.renewed(page) == page
