"""Devices on the command line: their descriptions, measuring, plans for those that are not there."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_support import NO_CACHE, by_name, digests, fuseblock, fuseblock_json

THIN = "@conv2d_gn_tanh_hardswish_residual_lse"
THICK = "@conv_transpose3d_relu_gn"
CONV = "conv2d(8, k=3) as y | group_norm(2) | tanh | add(y)"
CONV_INPUT = ("--input", "f32[2,4,9,8]")
GPUS = ["h200", "h100", "a100", "l40s", "rtx4090"]


# info


def test_info_lists_devices() -> None:
    text = fuseblock("info").stdout
    for name in ["cpu", "reference", *GPUS]:
        assert f"\n  {name} " in text
    devices = by_name(fuseblock_json("info")["devices"])
    assert list(devices) == ["cpu", "reference", *GPUS]
    assert [name for name, device in devices.items() if device["runs"]] == ["cpu", "reference"]
    assert devices["h200"]["memory_bandwidth"] == 4.23e12
    assert devices["h200"]["origin"] == "table"
    assert devices["cpu"]["origin"] == "estimated"
    assert devices["cpu"]["f32_rate"] > 0
    assert devices["reference"]["origin"] == "none"


def test_measuring_keeps_the_result(tmp_path: Path) -> None:
    folder = tmp_path / "not" / "there"
    measured = fuseblock_json("info", "--measure", cache=folder)
    assert Path(measured["file"]) == folder / "cpu.json"
    assert [path.name for path in folder.iterdir()] == ["cpu.json"]
    cpu = by_name(fuseblock_json("info", cache=folder)["devices"])["cpu"]
    assert cpu["origin"] == "measured"
    assert cpu["f32_rate"] == measured["f32_rate"] > 0
    assert "figures measured" in fuseblock("explain", CONV, *CONV_INPUT, cache=folder).stdout
    text = fuseblock("info", "--measure", cache=folder).stdout
    assert "f32 multiply-adds" in text
    assert text.endswith(f"kept in {folder / 'cpu.json'}\n")


def test_the_description_decides(tmp_path: Path) -> None:
    """Plans follow the file: a CPU without arithmetic stores, one without bandwidth recomputes."""
    path = tmp_path / "cpu.json"
    fuseblock("info", "--measure", cache=tmp_path)
    kept = json.loads(path.read_text())
    results = []
    for key, value, chosen in [("f32_rate", 1e3, "store"), ("cache_bandwidth", 1e-3, "recompute")]:
        changed = json.loads(json.dumps(kept))
        changed["description"][key] = value
        path.write_text(json.dumps(changed))
        report = fuseblock_json("explain", CONV, *CONV_INPUT, cache=tmp_path)
        assert [decision["chosen"] for decision in report["decisions"]] == [chosen]
        results.append(digests(fuseblock_json("run", CONV, *CONV_INPUT, cache=tmp_path)))
    assert results[0] == results[1]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": 1}', "\0\0", '{"format": 99, "description": {}}']
)
def test_a_damaged_file_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "cpu.json").write_text(text)
    cpu = by_name(fuseblock_json("info", cache=tmp_path)["devices"])["cpu"]
    assert cpu["origin"] == "estimated"
    assert "estimated, not measured" in fuseblock("explain", CONV, *CONV_INPUT, cache=tmp_path).stdout


def test_measuring_where_nothing_can_be_written() -> None:
    error = fuseblock_json("info", "--measure", status=2)["error"]
    assert error["kind"] == "user"
    assert f"{NO_CACHE}/cpu.json: the file cannot be written" in error["message"]


# explain --device


def test_plans_for_a_device_that_is_not_there() -> None:
    report = fuseblock_json("explain", THIN, "--device", "h200")
    assert report["engine"] is None
    assert report["device"]["name"] == "h200"
    (decision,) = report["decisions"]
    assert decision["value"] == "y"
    assert decision["chosen"] == "recompute"
    assert [each["name"] for each in decision["alternatives"]] == ["store", "recompute"]
    assert decision["alternatives"][0]["milliseconds"] > decision["alternatives"][1]["milliseconds"]
    (decision,) = fuseblock_json("explain", THICK, "--device", "h200")["decisions"]
    assert decision["chosen"] == "store"
    text = fuseblock("explain", THICK, "--device", "h200").stdout
    assert "h200" in text
    backward = fuseblock_json("explain", THIN, "--device", "a100", "--backward")
    assert backward["device"]["name"] == "a100"
    assert backward["sweep_count"] > 0


@pytest.mark.parametrize("command", ["run", "check", "bench"])
def test_a_device_that_is_not_there_runs_nothing(command: str) -> None:
    error = fuseblock_json(command, THIN, "--device", "h200", status=2)["error"]
    assert error["kind"] == "not_supported"
    assert "h200: plans can be made for this device" in error["message"]


def test_device_and_engine_are_one_option() -> None:
    for option in ("--device", "-d", "--engine", "-e"):
        assert fuseblock_json("run", CONV, *CONV_INPUT, option, "reference")["engine"] == "reference"
    fuseblock("explain", CONV, *CONV_INPUT, "--device", "h200", "--engine", "cpu", status=2)


def test_an_unknown_device_lists_the_names() -> None:
    for command in ("explain", "run", "check", "bench"):
        error = fuseblock(command, CONV, *CONV_INPUT, "--device", "h2000", status=2).stderr
        assert "there is no device `h2000`; there is cpu, reference, and to plan for h200, h100" in error


# explain


def test_explain_shows_sweeps_and_their_cost() -> None:
    text = fuseblock("explain", THIN, "--device", "h200").stdout
    assert re.search(
        r"^  1  sweep over \[128,64,1,126,126\], about [\d.]+ us: 19 G operations", text, re.MULTILINE
    )
    assert "       conv2d(64, k=3) of x\n       -> moments of y for each n,c\n" in text
    assert "never written to memory: y, group_norm, tanh, hardswish, add;" in text
    assert re.search(r"^    store, about [\d.]+ us, [\d.]+ times as long: 520 MB written", text, re.MULTILINE)
    assert re.search(r"^in all about [\d.]+ us: ", text, re.MULTILINE)
    report = fuseblock_json("explain", THIN, "--device", "h200")
    assert [step["kind"] for step in report["sweeps"]] == ["sweep", "finalise", "sweep"]
    assert report["estimated_ms"] == pytest.approx(sum(step["milliseconds"] for step in report["sweeps"]))
    assert report["never_written"] == ["y", "group_norm", "tanh", "hardswish", "add"]


def test_the_reference_engine_has_no_sweeps() -> None:
    report = fuseblock_json("explain", CONV, *CONV_INPUT, "--device", "reference")
    assert "sweeps" not in report
    assert report["device"]["origin"] == "none"


@pytest.mark.parametrize("device", ["cpu", "h200", "reference"])
@pytest.mark.parametrize("options", [[], ["--backward"], ["--force", "store"]])
def test_explain_as_a_picture(device: str, options: list[str]) -> None:
    text = fuseblock("explain", CONV, *CONV_INPUT, "--device", device, "--dot", *options).stdout
    assert text.startswith('digraph "plan" {\n')
    assert text.endswith("}\n")
    assert ("subgraph" in text) == (device != "reference")
    if graphviz := shutil.which("dot"):
        drawn = subprocess.run([graphviz, "-Tsvg"], input=text, capture_output=True, text=True, check=True)
        assert drawn.stderr == ""
        assert "</svg>" in drawn.stdout


@pytest.mark.parametrize("other", ["--json", "--statements"])
def test_a_picture_comes_alone(other: str) -> None:
    result = fuseblock("explain", CONV, *CONV_INPUT, "--dot", other, status=2)
    assert "--dot: prints a picture alone" in result.stderr


def test_a_picture_is_of_explain_only() -> None:
    assert "--dot" in fuseblock("run", CONV, *CONV_INPUT, "--dot", status=2).stderr


# --force


@pytest.mark.parametrize("choice", ["store", "recompute"])
def test_force(choice: str) -> None:
    for device in ("cpu", "h200"):
        report = fuseblock_json("explain", CONV, *CONV_INPUT, "--device", device, "--force", choice)
        (decision,) = report["decisions"]
        assert (decision["chosen"], decision["reason"]) == (choice, "asked for")
        assert len(decision["alternatives"]) == 2
    assert fuseblock_json("check", CONV, *CONV_INPUT, "--force", choice)["ok"] is True
    assert fuseblock_json("bench", CONV, *CONV_INPUT, "--force", choice, "--repeat", "1")["repeats"] == 1


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (("store", "recompute"), "--force: store and recompute contradict each other"),
        (("team=2", "team=4"), "--force: team=2 and team=4 contradict each other"),
        (("plain", "plain=no"), "--force: plain and plain=no contradict each other"),
    ],
)
def test_forced_choices_that_contradict(choices: tuple[str, ...], message: str) -> None:
    words = [word for choice in choices for word in ("--force", choice)]
    assert message in fuseblock("explain", CONV, *CONV_INPUT, *words, status=2).stderr


@pytest.mark.parametrize("choice", ["store", "recompute"])
def test_there_must_be_a_convolution_to_store(choice: str) -> None:
    result = fuseblock("run", "group_norm(2)", "--input", "f32[2,4,3]", "--force", choice, status=2)
    assert f"--force {choice}: expected a block with a convolution, but this one has none" in result.stderr


def test_force_changes_no_result() -> None:
    reports = [
        fuseblock_json("run", CONV, *CONV_INPUT, "--backward", "--force", choice)
        for choice in ("store", "recompute")
    ]
    assert digests(reports[0]) == digests(reports[1])


@pytest.mark.parametrize("command", ["explain", "run", "check", "bench"])
@pytest.mark.parametrize("value", ["", "keep", "Store"])
def test_force_of_something_else(command: str, value: str) -> None:
    error = fuseblock_json(command, CONV, *CONV_INPUT, "--force", value, status=2)["error"]
    assert error["kind"] == "usage"
    assert "--force" in error["message"]


# Empty tensors


@pytest.mark.parametrize("device", ["h200", "a100"])
@pytest.mark.parametrize("type_", ["f32[0,16,12,12]", "bf16[0,16,12,12]:cl", "f32[2,16,0,12]"])
@pytest.mark.parametrize("block", ["group_norm(4) | silu", "silu | mean(h,w)", "group_norm(4) | mean(c,h,w)"])
def test_empty_tensors_have_plans(block: str, type_: str, device: str) -> None:
    """A batch without samples has no units to divide among blocks."""
    for direction in ([], ["--backward"]):
        report = fuseblock_json("explain", block, "--input", type_, "--device", device, *direction)
        assert all(kernel["blocks"] > 0 for kernel in report["kernels"])


@pytest.mark.parametrize("type_", ["f32[2,0,12,12]", "f32[2,0,12,12]:cl"])
@pytest.mark.parametrize("block", ["group_norm(1) | silu", "mean(h,w)", "layer_norm(c)"])
def test_tensors_without_channels_have_no_kernels(block: str, type_: str) -> None:
    asked = (block, "--input", type_, "--device", "h200")
    assert not fuseblock_json("explain", *asked).get("kernels")
    assert f"cuda: x has no channels: {type_}" in fuseblock("source", *asked, status=2).stderr
