"""The benchmark beside PyTorch: its blocks are those of the command, its rows are whole."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cli_support import CHECKOUT, fuseblock_json

from benchmarks.cpu import bench, report
from benchmarks.cpu.cases import DIRECTIONS, Case, cases
from benchmarks.cpu.contenders import (
    FuseblockContender,
    PlanContender,
    exact_results,
    output_gradient,
    relative_error,
)
from benchmarks.cpu.timing import MachineRates, Times
from benchmarks.gpu import bench as gpu_bench
from benchmarks.gpu import bench_conv, conv_contenders, conv_tables, gpu_timing
from benchmarks.gpu import tables as norm_tables
from benchmarks.reference_blocks import BLOCKS, TAILS

# What programs that read results files rely on.
ROW_KEYS = {
    "case",
    "direction",
    "dtype",
    "layout",
    "mode",
    "fuseblock_ms",
    "peers",
    "floor_ms",
    "error",
    "peer_error",
    "peak_bytes",
    "peer_peak_bytes",
}
RATES = MachineRates(1e11, 1e10)


def tiny(case: Case) -> Case:
    """The same case on a few positions."""
    positions = [5, 6, 7][: len(case.shape) - 2]
    return replace(case, shape=(2, case.shape[1], *positions))


def unique_cases() -> list[Case]:
    return [case for case in cases(8) if case.dtype == "f32"]


def test_blocks_are_those_of_the_command() -> None:
    known = {row["name"]: row for row in fuseblock_json("info")["reference_blocks"]}
    for name, block in {**BLOCKS, **TAILS}.items():
        assert "f32[" + ",".join(map(str, block.shape)) + "]" == known[name]["input"]


@pytest.mark.parametrize("contender", [FuseblockContender, PlanContender])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("case", unique_cases(), ids=lambda case: f"{case.name}-{case.layout}")
def test_fuseblock_computes_what_the_module_does(
    case: Case, direction: str, contender: type[FuseblockContender] | type[PlanContender]
) -> None:
    small = tiny(case)
    d_output = output_gradient(small)
    exact = exact_results(small, direction, d_output)
    results = contender(small, direction, d_output, threads=1).run()
    assert set(results) == set(exact)
    assert relative_error(results, exact) < 1e-3


def test_a_row_is_whole(tmp_path: Path) -> None:
    case = tiny(next(case for case in cases(8) if case.name == "conv3d_gn_mean"))
    arguments = argparse.Namespace(no_compile=True, threads=1, seconds=0.0, keep_outputs=False, explain=False)
    threads = torch.get_num_threads()
    row = bench.measure_row(case, "forward+backward", arguments, RATES)
    assert torch.get_num_threads() == threads
    assert set(row.peers) == {"eager contiguous", "eager channels_last"}
    assert row.ratio == pytest.approx(row.peers[row.best_peer] / row.fuseblock_ms)
    assert row.wanted_ratio == 2.0
    assert row.error < 1e-3
    # Two convolutions of 24 channels on 3 x 4 x 5 positions in two samples, 3 channels and 27 taps each.
    assert row.convolution_flops == 2 * 2 * 2 * 24 * 3 * 4 * 5 * 3 * 27
    assert row.intermediate_bytes == 2 * 24 * 3 * 4 * 5 * 4
    assert row.peer_peak_bytes >= row.intermediate_bytes
    (path,) = report.write_results(tmp_path, [row], RATES, 1)
    written = json.loads(path.read_text())
    assert set(written) >= {"device", "versions", "digest", "date", "rows"}
    assert set(written["rows"][0]) >= ROW_KEYS
    assert row.case in report.table_line(row, RATES)


def test_geometric_means() -> None:
    case = tiny(next(case for case in cases(8) if case.group == "tails"))
    arguments = argparse.Namespace(no_compile=True, threads=1, seconds=0.0, keep_outputs=False, explain=False)
    row = bench.measure_row(case, "forward", arguments, RATES)
    rows = [replace(row, ratio=1.0), replace(row, ratio=9.0), replace(row, ratio=100.0, group="blocks")]
    (line,) = report.geometric_means(rows)
    assert "forward: geometric mean of 2 ratios 3.00, wanted 2.00 ok" in line


def test_times() -> None:
    times = Times([0.004, 0.001, 0.002, 0.003, 0.1])
    assert times.median_ms == pytest.approx(3)
    assert times.quartiles_ms == pytest.approx((2, 4))


def test_the_command_lists_its_rows() -> None:
    environment = {**os.environ, "PYTHONPATH": ""}
    done = subprocess.run(
        [CHECKOUT / "tools/bench", "--list", "--filter", "_tail forward .*f32"],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert done.stdout.splitlines() == [f"{name} forward f32 contiguous" for name in TAILS]


def gpu_options(**changes: Any) -> argparse.Namespace:
    defaults: dict[str, Any] = {
        "filter": [""],
        "skip": [],
        "layouts": ["contiguous", "channels_last"],
        "directions": list(gpu_bench.DIRECTIONS),
        "missing": False,
        "no_compile": False,
        "only": [],
    }
    return argparse.Namespace(**{**defaults, **changes})


def test_rows_of_the_gpu_benchmark_can_be_chosen() -> None:
    everything = gpu_bench.choose(gpu_options(), [])
    assert len(everything) == 2 * len(gpu_bench.cases())
    few = gpu_bench.choose(
        gpu_options(filter=["layer_norm", "adagn"], skip=["256"], layouts=["contiguous"]), []
    )
    names = [gpu_bench.case_text(gpu_bench.cases()[each.number]) for each in few]
    assert names == ["layer_norm (2, 320, 64, 64)", "adagn_silu (2, 320, 64, 64)"]
    # A row that was timed beside eager PyTorch alone is missing; one that is whole is not.
    case = gpu_bench.cases()[few[0].number]
    both = {"eager": 1.0, "torch.compile": 1.0}
    rows: list[dict[str, Any]] = [
        {**gpu_bench.head_of(case, "contiguous", "forward"), "peers": both, "called_peers": both},
        {**gpu_bench.head_of(case, "contiguous", "forward+backward"), "peers": {"eager": 1.0}},
    ]
    options = gpu_options(filter=["layer_norm (2,"], layouts=["contiguous"], missing=True)
    assert [each.directions for each in gpu_bench.choose(options, rows)] == [["forward+backward"]]
    # Nor is one whole whose modules were not called.
    del rows[0]["called_peers"]
    assert [each.directions for each in gpu_bench.choose(options, rows)] == [["forward", "forward+backward"]]


def test_one_measure_of_the_gpu_benchmark_can_be_chosen() -> None:
    """Of GroupNorm with SiLU forward, in rows that the file has."""
    both = {"eager": 1.0, "torch.compile": 1.0}
    rows: list[dict[str, Any]] = [
        {**gpu_bench.head_of(case, "contiguous", direction), "peers": both, "called_peers": both}
        for case in gpu_bench.cases()[:2]
        for direction in gpu_bench.DIRECTIONS
    ]
    options = gpu_options(only=["do_bench"])
    assert [(each.number, each.directions) for each in gpu_bench.choose(options, rows)] == [
        (0, ["forward"]),
        (1, ["forward"]),
    ]
    assert gpu_bench.choose(gpu_options(only=["do_bench"], filter=["layer_norm"]), rows) == []
    rows[0]["do_bench_peers"] = both
    missing = gpu_options(only=["do_bench"], missing=True)
    assert [each.number for each in gpu_bench.choose(missing, rows)] == [1]
    # A row without it is not whole either where everything is wanted.
    whole = gpu_options(missing=True, filter=["group_norm_silu (2, 320"], layouts=["contiguous"])
    assert [each.number for each in gpu_bench.choose(whole, rows)] == [1]


class CallingTimer(gpu_timing.Timer):
    """Calls, and times nothing."""

    def __init__(self) -> None:
        pass

    def once(self, function: Callable[[], object], with_host: bool = False) -> float:
        function()
        return 2.0 if with_host else 1.0

    def do_bench(self, function: Callable[[], object]) -> float:
        function()
        return 3.0


def test_rows_of_another_file_are_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the place of those of the record, from the same kind of machine alone."""

    def write(name: str, device: str, *rows: tuple[str, float]) -> Path:
        made = [
            {
                "case": case,
                "shape": [2, 8],
                "dtype": "bfloat16",
                "layout": "contiguous",
                "direction": "forward",
            }
            | {"fuseblock_ms": ms, "floor_ms": 1.0, "peers": {}}
            for case, ms in rows
        ]
        path = tmp_path / name
        path.write_text(json.dumps({"device": device, "versions": {}, "rows": made}))
        return path

    record = write("record.json", "a GPU", ("one", 3.0), ("two", 4.0))
    assert gpu_bench.take(write("more.json", "a GPU", ("two", 2.0), ("three", 5.0)), record) == 0
    taken = {row["case"]: row["fuseblock_ms"] for row in json.loads(record.read_text())["rows"]}
    assert taken == {"one": 3.0, "two": 2.0, "three": 5.0}
    before = record.read_text()
    assert gpu_bench.take(write("other.json", "another", ("one", 1.0)), record) == 2
    assert record.read_text() == before
    assert "device is another" in capsys.readouterr().err


def test_rows_of_the_gpu_benchmark_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU engine, with a timer that only calls."""
    monkeypatch.setattr(gpu_bench, "DEVICE", "cpu")

    for number in (0, 9, 10, 11, 12):
        case = gpu_bench.cases()[number]
        case = replace(case, shape=(2, case.shape[1], 4, 5))
        for run in (gpu_bench.run_forward, gpu_bench.run_training):
            row = run(case, "contiguous", CallingTimer(), 1e12, False)
            assert ROW_KEYS - set(row) <= {"error", "peer_error", "peak_bytes", "peer_peak_bytes"}
            assert set(row["peers"]) == {"eager"}
            assert row.get("error", 0) <= 0.1


def test_modules_of_the_gpu_benchmark_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours and PyTorch's of each case compute the same, and their times are those with the host's."""
    monkeypatch.setattr(gpu_bench, "DEVICE", "cpu")
    cases = {case.name: case for case in gpu_bench.cases()}
    for name, case in cases.items():
        positions = [3, 4, 5][: len(case.shape) - 2]
        case = replace(case, shape=(2, case.shape[1], *positions))
        row = gpu_bench.run_forward(case, "contiguous", CallingTimer(), 1e12, False)
        assert row["copy_ms"] == 1.0
        if name == "adagn_silu":
            assert "called_ms" not in row
            continue
        assert (row["called_ms"], row["called_peers"]) == (2.0, {"eager": 2.0})
        assert row["called_error"] <= 0.1
        assert "as called" in gpu_bench.table([row])
        assert row.get("do_bench_ms") == (3.0 if name == "group_norm_silu" else None)
        assert ("by do_bench" in gpu_bench.table([row])) == (name == "group_norm_silu")
        alone = gpu_bench.run_modules(case, "contiguous", CallingTimer(), False, ["do_bench"])
        named = {"do_bench_ms", "do_bench_peers", "called_error"}
        assert set(alone) == (named if name == "group_norm_silu" else set())
        arguments = gpu_bench.draw_arguments(case, "contiguous")
        called = case.called(arguments)
        torch.testing.assert_close(called.ours(arguments[0]), called.theirs(arguments[0]), atol=0.1, rtol=0)


def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU benchmark's contenders on the CPU, on few positions."""
    monkeypatch.setattr(conv_contenders, "DEVICE", "cpu")
    few = {
        name: replace(block, shape=(2, block.shape[1], *[6, 7, 8][: len(block.shape) - 2]))
        for name, block in conv_contenders.CASES.items()
    }
    monkeypatch.setattr(conv_contenders, "CASES", few)


@pytest.mark.parametrize("name", list(conv_contenders.CASES))
def test_rows_of_the_convolution_benchmark_are_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    on_cpu(monkeypatch)
    rates = {"bf16": 1e12, "f16": 1e12, "strict": 1e12, "copy": 1e12}
    modes = {
        "conv2d_gn_silu": ("bf16", "channels_last"),
        "conv3d_gn_mean": ("f16", "contiguous"),
        "conv_transpose3d_relu_gn": ("f16", "channels_last"),
    }
    mode, layout = modes.get(name, ("strict", "contiguous"))
    row = conv_contenders.Row(name, mode, layout)
    head: dict[str, Any] = {**bench_conv.head_of(name, mode, layout), "peers": {"compiled": 2.0}}
    parts = ["kernels", "module", "peers"]
    found = bench_conv.measure(row, head, CallingTimer(), rates, parts, ["eager"])
    assert ROW_KEYS - set(found) <= {"peak_bytes", "peer_peak_bytes"}
    assert set(found["peers"]) == {"eager", "eager channels_last", "compiled"}
    assert found["module_ms"] == found["fuseblock_ms"] == 1.0
    bound = 1e-4 if mode == "strict" else 0.1
    assert max(found["error"], found["module_error"], found["peer_error"]) < bound
    assert bench_conv.missing(found, parts, ["eager"]) == ([], [])
    assert bench_conv.missing(found, ["starts", "peers"], ["compiled"]) == (["starts", "peers"], ["compiled"])
    assert name in bench_conv.line(found)


def test_the_convolution_benchmarks_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "conv.json"
    record = bench_conv.Record(file)
    record.rates["copy"] = 1e12
    times = {"floor_ms": 0.5, "error": 1e-6, "peer_error": 1e-6}
    for name, ours in (("conv3d_gn_mean", 1.0), ("conv3d_hardswish_gn_mean", 4.0)):
        head = bench_conv.head_of(name, "tf32", "contiguous")
        record.put({**head, **times, "fuseblock_ms": ours, "peers": {"eager": 8.0, "compiled": 9.0}})
    module = {"module_ms": 2.0, "module_plan": ["conv_roll"]}
    record.put(
        {**bench_conv.Record(file).row(bench_conv.head_of("conv3d_gn_mean", "tf32", "contiguous")), **module}
    )
    rows = list(bench_conv.Record(file).rows.values())
    assert len(rows) == 2
    # 8 / 1 and 8 / 4; the module was timed once, 8 / 2.
    (mean,) = bench_conv.means(rows)
    assert "our kernels 4.00 (2 of 4), the module 4.00 (1 of 4)" in mean
    monkeypatch.setattr(
        bench_conv, "start_times", lambda *_: [{"conv3d_gn_mean": 2.0}, {"conv3d_gn_mean": 0.01}]
    )
    bench_conv.measure_starts(bench_conv.Record(file), ["kernels"], "tf32", "contiguous", ["conv3d_gn_mean"])
    rows = json.loads(file.read_text())["rows"]
    assert rows[0]["starts"] == {"kernels": {"empty_cache_s": 2.0, "disk_cache_s": 0.01}}
    tables = conv_tables.tables(rows)
    assert "f16" not in tables
    head = bench_conv.head_of("conv3d_gn_mean", "f16", "contiguous")
    half = {**head, **times, "fuseblock_ms": 2.0, "peers": {"eager": 6.0}}
    assert "f16, contiguous:\n" in conv_tables.tables([*rows, half])
    assert "Against the best of eager: geometric mean 3.00 over 1 rows" in conv_tables.tables([*rows, half])
    assert "| `conv3d_gn_mean`, tf32 | kernels | 2.00 | 10.0 |" in tables
    assert "| 2.0000 | conv_roll |" in tables


def test_first_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    on_cpu(monkeypatch)
    for what in ("kernels", "module"):
        found = conv_contenders.first_calls(what, "strict", ["conv3d_gn_mean"])
        assert list(found) == ["conv3d_gn_mean"]
        assert found["conv3d_gn_mean"] > 0


def test_plans_of_modules_are_named() -> None:
    launches = (
        "\n3 kernels, each launched once\n  1  conv_weights: 1 block\n  2  conv_wide: x\n  3  rows: y\n"
    )
    assert conv_contenders.kernels_of(launches) == ["conv_weights", "conv_wide", "rows"]
    host = "plan\n  1  host call of conv2d\n  2  sweep over x\n" + launches
    assert conv_contenders.kernels_of(host)[0] == "PyTorch's convolution"
    assert conv_contenders.kernels_of("x\nPyTorch's operators run: no\n") == ["no"]


def test_tables_of_calls() -> None:
    """Means of the rows that have been called, beside those of the GPU's own times."""
    rows = [
        {
            **gpu_bench.head_of(gpu_bench.cases()[0], layout, "forward"),
            "fuseblock_ms": 1.0,
            "floor_ms": 0.5,
            "peers": {"eager": 9.0, "torch.compile": 2.0},
        }
        for layout in ("contiguous", "channels_last")
    ]
    means = norm_tables.called_means(rows)
    assert "geometric mean in GPU times 2.00 over 2 rows, where a copy at the floor would reach 4.00" in means
    assert "As called" not in norm_tables.tables(rows)
    calls = {"called_ms": 2.0, "called_peers": {"eager": 16.0, "torch.compile": 32.0}, "copy_ms": 0.8}
    rows = [{**row, **calls} for row in rows]
    told = norm_tables.tables(rows)
    assert "| group_norm_silu 2,320,64,64, channels_last | 2.0000 | 16.0000 | 32.0000 | 8.00 |" in told
    assert "mean as called 8.00 over 2 rows; in GPU times 2.00" in told
    assert "do_bench" not in told
    rows[0] |= {"do_bench_ms": 3.0, "do_bench_peers": {"eager": 12.0, "torch.compile": 9.0}}
    told = norm_tables.tables(rows)
    assert "| group_norm_silu 2,320,64,64, contiguous | 3.0000 | 12.0000 | 9.0000 | 3.00 |" in told
    assert "as called 8.00 over 2 rows; by triton.testing.do_bench 3.00 over 1 rows; in GPU times" in told
    assert "copy of the input would reach 2.50, the floor 4.00" in told
