"""`fuseblock tune` on the emulated GPU, tables of tuned divisions, and the benchmarks that use them."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest
from cli_support import CHECKOUT, fuseblock, fuseblock_json

from benchmarks.gpu import bench_tune

BUILD = Path(os.environ.get("FUSEBLOCK_BUILD", CHECKOUT / "build"))
EMULATOR = BUILD / "tests" / "emulator"
EMULATED = {"LD_LIBRARY_PATH": str(EMULATOR), "FUSEBLOCK_NVRTC": str(EMULATOR / "libcuda.so.1")}
TUNED = CHECKOUT / "benchmarks" / "gpu" / "tuned.cases"
HELD_OUT = CHECKOUT / "benchmarks" / "gpu" / "held_out.cases"
BLOCK = ("conv2d(8, k=3) | relu | mean(h,w)", "--input", "bf16[2,4,9,10]")


def lines_of(cases: Path) -> list[tuple[str, str, str, list[str]]]:
    """Name, block, type and modes of each line."""
    found = []
    for line in cases.read_text().splitlines():
        if line and not line.startswith("#"):
            name, rest = line.split(": ", 1)
            block, words = rest.rsplit(" @ ", 1)
            kind, *modes = words.split()
            found.append((name, block, kind, modes or ["strict"]))
    return found


def explained(cases: Path) -> list[list[dict[str, Any]]]:
    """The kernels of each line's plans on an H200."""
    return [
        fuseblock_json("explain", block, "--input", kind, "--precision", mode, "--device", "h200")["kernels"]
        for _, block, kind, modes in lines_of(cases)
        for mode in modes
    ]


def test_tune_measures_and_plans_take_what_it_found(tmp_path: Path) -> None:
    table, cache = tmp_path / "tuned.json", tmp_path / "cache"
    few = ("--divisions", "2", "--repeat", "1")
    found = fuseblock_json("tune", *BLOCK, *few, "--out", table, cache=cache, variables=EMULATED)
    (row,) = found["rows"]
    (launch,) = row["launches"]
    assert row["case"] == f"{BLOCK[0]} bf16"
    assert launch["timed"] >= 3
    assert launch["refused"] == []
    assert row["tuned_ms"] > 0
    assert found["geometric_mean"] == pytest.approx(row["by_cost_model_ms"] / row["tuned_ms"])
    document = json.loads(table.read_text())
    (entry,) = document["entries"]
    assert (entry["gpu"], entry["multiprocessors"], entry["problem"]) == ("h200", 4, launch["problem"])

    # Times of an emulated GPU mean nothing: a division that the cost model did not choose is put there.
    assert "by the cost model" in explain_emulated(cache, "none")
    entry["kernel"] = "conv"
    entry["division"] = "roll=0,threads=128,blocks=1,rows=1,stages=1,tile=1x3x8"
    table.write_text(json.dumps(document))
    assert "tiles of 1 x 3 x 8 positions" in (text := explain_emulated(cache, str(table)))
    assert "; tuned" in text
    checked = ("check", *BLOCK, "--device", "cuda", "--wanted", "x")
    fuseblock(*checked, cache=cache, variables={**EMULATED, "FUSEBLOCK_TUNED": str(table)})
    # What FUSEBLOCK_CONV asks for comes first.
    asked = fuseblock(
        "explain",
        *BLOCK,
        "--device",
        "cuda",
        cache=cache,
        variables={**EMULATED, "FUSEBLOCK_TUNED": str(table), "FUSEBLOCK_CONV": "threads=256"},
    )
    assert "; asked for" in asked.stdout

    # Another block's entry stands beside it.
    other = ("conv2d(8, k=3) | relu | mean(h,w)", "--input", "bf16[1,4,9,10]")
    printed = fuseblock("tune", *other, *few, "--out", table, cache=cache, variables=EMULATED).stdout
    assert f"{table} has 2 divisions now" in printed
    assert "times at worst" in printed


def explain_emulated(cache: Path, tuned: str) -> str:
    """The plan of BLOCK on the emulated GPU."""
    variables = {**EMULATED, "FUSEBLOCK_TUNED": tuned}
    return fuseblock("explain", *BLOCK, "--device", "cuda", cache=cache, variables=variables).stdout


def test_the_benchmark_of_held_out_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**EMULATED, "FUSEBLOCK_CACHE_DIR": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    cases, out = tmp_path / "few.cases", tmp_path / "tune.json"
    cases.write_text("# one\n\nsmall: conv1d(8, k=3) | relu @ f32[1,4,40] tf32\n")
    few = ["--divisions", "1", "--repeat", "1", "--cases", str(cases), "--out", str(out)]
    assert bench_tune.main([*few, "--within", "1e9"]) == 0
    record = json.loads(out.read_text())
    assert [row["case"] for row in record["rows"]] == ["small tf32"]
    assert record["worst"] >= record["geometric_mean"] > 0
    assert bench_tune.main([*few, "--within", "1e-9"]) == 1
    cases.write_text("small: conv1d(8, k=3) f32[1,4,40]\n")
    assert bench_tune.main(few) == 2


def test_tune_says_what_is_wrong() -> None:
    assert "there is no `cuda:7`" in fuseblock("tune", *BLOCK, "--device", "cuda:7", status=2).stderr
    assert "h200" in fuseblock("tune", *BLOCK, "--device", "h200", status=2).stderr
    assert "cpu" in fuseblock("tune", *BLOCK, "--device", "cpu", status=2).stderr
    assert "either a block or --cases" in fuseblock("tune", status=2).stderr


def test_a_table_that_is_none_is_named(tmp_path: Path) -> None:
    plan = ("explain", "conv2d(8, k=3) | relu", "--input", "f32[2,4,9,10]", "--device", "h200")
    table = tmp_path / "tuned.json"
    variables = {"FUSEBLOCK_TUNED": str(table)}
    assert f"cannot read {table}" in fuseblock(*plan, status=2, variables=variables).stderr
    table.write_text("{")
    assert f"{table}: no table of tuned divisions" in fuseblock(*plan, status=2, variables=variables).stderr
    table.write_text('{"format": "fuseblock tuned divisions 9", "entries": []}')
    assert "expected the format" in fuseblock(*plan, status=2, variables=variables).stderr
    # Entries for other GPUs and problems are nobody's business.
    entry = {"gpu": "h200", "multiprocessors": 7, "kernel": "conv", "problem": "p", "division": "rows=1"}
    entry |= {"us": 1, "us_by_cost_model": 1}
    table.write_text(json.dumps({"format": "fuseblock tuned divisions 1", "entries": [entry]}))
    assert "by the cost model" in fuseblock(*plan, variables=variables).stdout


def test_the_cases_are_blocks_and_ten_are_held_out() -> None:
    tuned, held_out = (lines_of(cases) for cases in (TUNED, HELD_OUT))
    assert len(held_out) == 10
    assert not {(block, kind) for _, block, kind, _ in held_out} & {
        (block, kind) for _, block, kind, _ in tuned
    }
    for kernels in explained(HELD_OUT):
        chosen = [kernel["chosen"] for kernel in kernels if "chosen" in kernel]
        assert chosen
        assert set(chosen) == {"by the cost model"}


def test_the_librarys_table_is_used() -> None:
    """Every entry of an H200 that has a division is one that a plan of the tuned cases takes."""
    entries = json.loads((CHECKOUT / "src" / "cuda" / "tuned.json").read_text())["entries"]
    wanted = sum(bool(entry["division"]) and entry["gpu"] == "h200" for entry in entries)
    taken = sum(kernel.get("chosen") == "tuned" for kernels in explained(TUNED) for kernel in kernels)
    assert taken >= wanted
    assert all(math.isfinite(entry["us"]) and entry["us"] > 0 for entry in entries)
