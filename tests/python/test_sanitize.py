"""Rows of the sanitizer: groups of them in one process, and each by itself where a group finds anything."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
from cli_support import CHECKOUT, binary, environment_with, fuseblock_json

sys.path.insert(0, str(CHECKOUT / "tests" / "gpu"))

import gpu_cases
import gpu_record
import sanitize

CLEAN = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
WARNS = "========= RACECHECK SUMMARY: 11 hazards displayed (0 errors, 11 warnings)\n"


def rows() -> list[sanitize.Row]:
    cases = list(gpu_cases.read_cases(sanitize.CASES))
    return [sanitize.Row(case.name, tool, "conv" in case.block) for tool in sanitize.TOOLS for case in cases]


def test_divisions_are_rows() -> None:
    """Each once under a tool that it is for, by what gpu_runs takes."""
    keys = [row.key for row in sanitize.all_rows()]
    assert len(keys) == len(set(keys))
    asked = {(row.case, row.tool) for row in sanitize.all_rows()}
    for tool in sanitize.TOOLS:
        for name, division in gpu_cases.SLICES:
            assert (f"{name}[FUSEBLOCK_SLICES={division}]", tool) in asked
        for name, division in gpu_cases.ROWS:
            suits = ("barriers=1" in division) == (tool == "racecheck")
            assert ((f"{name}[FUSEBLOCK_ROWS={division}]", tool) in asked) == suits
    assert all(sanitize.kernels(row, "all") for row in sanitize.all_rows() if "FUSEBLOCK_" in row.case)


def test_lists_are_cleared_for_initcheck_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSEBLOCK_CLEARED", raising=False)
    file = tmp_path / "gpu_runs"
    file.write_text(f"#!{sys.executable}\nimport os\nprint(os.environ.get('FUSEBLOCK_CLEARED'))\n")
    file.chmod(0o700)
    told = {tool: sanitize._run([str(file)], 60, tool) for tool in sanitize.TOOLS}
    assert {tool: output.strip() for tool, (_, output) in told.items()} == {
        tool: "1" if tool == "initcheck" else "None" for tool in sanitize.TOOLS
    }


def test_groups_have_every_row_once_and_one_tool() -> None:
    everything = rows()
    seconds = {row.key: 1.0 for row in everything} | {everything[3].key: 1000.0}
    assert [sanitize.group_size(368, jobs) for jobs in (1, 16, 1000)] == [8, 5, 1]
    for size in (8, 5, 1):
        groups = sanitize.groups(everything, size, seconds)
        assert sorted(row.key for group in groups for row in group) == sorted(row.key for row in everything)
        assert all(len({row.tool for row in group}) == 1 for group in groups)
        assert everything[3] in groups[0]  # the longest of the first tool


def program(folder: Path, monkeypatch: pytest.MonkeyPatch, end: str, status: int = 0) -> None:
    """Stands in for gpu_runs: every case did well, then comes `end`."""
    file = folder / "gpu_runs"
    file.write_text(
        f"#!{sys.executable}\nimport sys\nfor word, name in zip(sys.argv, sys.argv[1:]):\n"
        f"  if word == '--case': print(name + ': 12 runs, 0 failures, 0.25 s')\n"
        f"print({end!r})\nsys.exit({status})\n"
    )
    file.chmod(0o700)
    monkeypatch.setattr(sanitize, "program", lambda: file)


@pytest.mark.parametrize(
    ("end", "status", "passes"), [(CLEAN, 0, True), (WARNS, 0, False), (CLEAN, 9, False)]
)
def test_verdicts(
    end: str, status: int, passes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning fails a row, and leaves the rows of a group to themselves."""
    program(tmp_path, monkeypatch, end, status)
    pair = rows()[:2]
    found = sanitize.run_group(pair, "emulated")
    assert [key for key, _ in found] == [row.key for row in pair]
    assert [[each["seconds"] for each in records] for _, records in found] == (
        [[0.25]] * 2 if passes else [[]] * 2
    )
    (record,) = sanitize.run_row(pair[0], "emulated")
    assert record["status"] == ("passed" if passes else "failed")


def test_a_tool_that_says_nothing_fails_on_a_gpu() -> None:
    assert not sanitize._finds_nothing("", "cuda")
    assert sanitize._finds_nothing(CLEAN, "cuda")
    assert sanitize._finds_nothing("", "emulated")


def test_a_case_without_a_line_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, monkeypatch, CLEAN)
    file = tmp_path / "gpu_runs"
    file.write_text(file.read_text().replace("12 runs, 0 failures", "12 runs, 10 failures"))
    assert sanitize.run_group(rows()[:2], "emulated")[0][1] == []
    assert sanitize.run_row(rows()[0], "emulated")[0]["status"] == "failed"


FAKE = """
def alone(row, device, alone=True):
    case, dtype, layout = row.key.split()
    head = {"case": case, "dtype": dtype, "layout": layout, "direction": "all"}
    return [{**head, "status": "passed", "alone": alone}]
def together(rows, device):
    bad = any("bad" in row.key for row in rows)
    return [(row.key, [] if bad else alone(row, device, False)) for row in rows]
"""


def test_rows_of_a_group_without_records_run_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fake_rows.py").write_text(FAKE)
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ["a", "b", "bad", "c"]
    chosen = [sanitize.Row(name, "memcheck", False) for name in names]
    options: argparse.Namespace = gpu_record.parser("").parse_args(
        ["--device", "emulated", "--jobs", "1", "--out", str(tmp_path)]
    )
    library = tmp_path / "fake_rows.py"
    grouped = (lambda some: [some[:2], some[2:]]), "fake_rows:together"
    assert gpu_record.main(options, "fake", chosen, "fake_rows:alone", library, grouped=grouped) == 0
    records = json.loads((tmp_path / "fake.json").read_text())["rows"]
    assert {record["case"]: record["alone"] for record in records} == {
        "a": False,
        "b": False,
        "bad": True,
        "c": True,
    }
    # With one row fewer nothing runs, and what the record says of its machine stays.
    document = json.loads((tmp_path / "fake.json").read_text())
    (tmp_path / "fake.json").write_text(json.dumps(document | {"device": "another", "date": "long ago"}))
    options.same_kernels = True
    assert gpu_record.main(options, "fake", chosen[:2], "fake_rows:none", library, lambda *_: []) == 0
    kept = json.loads((tmp_path / "fake.json").read_text())
    assert [kept["device"], kept["date"]] == ["another", "long ago"]
    assert [record["case"] for record in kept["rows"]] == ["a", "b"]


def test_kernels_for_a_gpu_are_compiled_without_one(tmp_path: Path) -> None:
    """As tools/carry --kernels does it: what an H200 will ask for is in the cache."""
    folder = binary().parent / "tests"
    idle = {
        "LD_LIBRARY_PATH": str(folder / "emulator"),
        "FUSEBLOCK_EMULATED_IDLE": "1",
        "FUSEBLOCK_EMULATED_MULTIPROCESSORS": "132",
    }
    call = [str(folder / "tools" / "gpu_runs"), "--case", "gpu_pointwise", str(sanitize.CASES)]
    done = subprocess.run(
        call, env=environment_with(tmp_path) | idle, capture_output=True, text=True, check=False
    )
    assert "gpu_pointwise: 12 runs, 0 failures" in done.stdout, done.stderr
    block = "gelu | mul(2) | add(skip)"
    for dtype in ("f32", "bf16"):
        found = fuseblock_json(
            "compile", block, "--input", f"{dtype}[2,24,20,20]", "--device", "h200", cache=tmp_path
        )
        assert [kernel["origin"] for kernel in found["kernels"]] == ["disk"]
