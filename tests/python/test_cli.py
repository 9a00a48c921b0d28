"""The fuseblock command: every subcommand, its JSON, its refusals and its exit status."""

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest
from cli_support import CHECKOUT, binary, by_name, digests, fuseblock, fuseblock_json

COMMANDS = ["ops", "info", "explain", "run", "check", "bench", "demo"]
NORM = "group_norm(4) | silu"
NORM_INPUT = ("--input", "f32[2,8,5,3]")
RESIDUAL = "conv2d(8, k=3, pad=1) as y | group_norm(2) | tanh | add(y) | add(skip)"
RESIDUAL_INPUT = ("--input", "f32[2,4,5,6]", "--input", "skip=f32[2,8,5,6]")


# Help, usage, terminals


@pytest.mark.parametrize("command", [[], *[[name] for name in COMMANDS]])
def test_help_shows_examples(command: list[str]) -> None:
    text = fuseblock(*command, "--help").stdout
    assert "Usage: fuseblock" in text
    assert "Examples:\n  fuseblock" in text or "Examples:\n  echo" in text


def test_help_lists_the_commands() -> None:
    text = fuseblock("--help").stdout
    for name in COMMANDS:
        assert re.search(rf"^  {name} ", text, re.MULTILINE)


def test_version() -> None:
    assert re.fullmatch(r"fuseblock \d+\.\d+\.\d+\n", fuseblock("--version").stdout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "a command is missing"),
        (["optimise"], "there is no command `optimise`; the commands are ops, info"),
        (["run"], "BLOCK is required"),
        (["run", "relu", "--inputs", "f32[2,3]"], "--inputs"),
        (["run", "relu", "--input", "f32[2,3]", "--seed", "one"], "--seed"),
        (
            ["run", "relu", "--input", "f32[2,3]", "--seed", "-1"],
            "--seed: expected a whole number from 0 on, got `-1`",
        ),
        (
            ["check", "relu", "--input", "f32[2,3]", "--tolerance", "-1"],
            "--tolerance: expected a number from 0 to 1e+09, got `-1`",
        ),
        (["bench", "relu", "--input", "f32[2,3]", "--repeat", "0"], "--repeat"),
        (
            ["bench", "relu", "--input", "f32[2,3]", "--seconds", "nan"],
            "--seconds: expected a number from 0 to 86400, got `nan`",
        ),
        (["bench", "relu", "--input", "f32[2,3]", "--threads", "-1"], "--threads"),
        (["run", "relu", "tanh", "--input", "f32[2,3]"], "tanh"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str) -> None:
    result = fuseblock(*arguments, status=2)
    assert result.stderr.startswith("fuseblock: ")
    assert message in result.stderr
    assert result.stdout == ""
    error = fuseblock_json(*arguments, status=2)["error"]
    assert error["kind"] == "usage"
    assert message in error["message"]


def terminal_output(arguments: list[str], environment: dict[str, str]) -> str:
    """What the command writes where standard output is a terminal."""
    ours, theirs = pty.openpty()
    try:
        subprocess.run(
            [binary(), *arguments], stdout=theirs, stderr=subprocess.DEVNULL, check=True, env=environment
        )
        return os.read(ours, 1 << 16).decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_colours_only_on_a_terminal() -> None:
    plain = {key: value for key, value in os.environ.items() if key != "NO_COLOR"} | {"TERM": "xterm"}
    assert "\033[" in terminal_output(["ops", "relu"], plain)
    assert "\033[" not in terminal_output(["ops", "relu"], plain | {"NO_COLOR": "1"})
    assert "\033[" not in fuseblock("ops", "relu").stdout


def test_full_disk_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [binary(), "ops"], stdout=full, stderr=subprocess.PIPE, check=False, text=True
        )
    assert result.returncode == 2
    assert result.stderr == "fuseblock: standard output cannot be written\n"


# ops


def test_ops_table_has_every_operation_once() -> None:
    text = fuseblock("ops").stdout
    operations = fuseblock_json("ops")["operations"]
    names = [operation["name"] for operation in operations]
    assert len(names) == len(set(names)) > 50
    for name in names:
        assert len(re.findall(rf"^  {name}\(", text, re.MULTILINE)) == 1
    headings = [
        "Pointwise",
        "Convolutions",
        "Norms",
        "Reductions",
        "Pools",
        "Types",
        "Operations of backward blocks",
    ]
    assert [line for line in text.splitlines() if line in headings] == headings


def test_ops_detail_of_a_pointwise_operation() -> None:
    text = fuseblock("ops", "relu6").stdout
    assert "select(x <= 0, 0, select(x >= 6, 6, x))" in text
    assert "Derivative by x" in text
    assert "0 at x = 6" in text
    assert "F.relu6(x)" in text
    slopes = {kink["at"]: kink["slope"] for kink in fuseblock_json("ops", "leaky_relu")["kinks"]}
    assert slopes == {0: 0.01}


def test_ops_detail_of_arguments() -> None:
    text = fuseblock("ops", "conv2d").stdout
    assert re.search(r"k +whole number.*required +>= 1 +kernel_size +extent of the filter", text)
    arguments = by_name(fuseblock_json("ops", "conv2d")["arguments"])
    assert arguments["pad"]["choices"] == ["same", "valid"]
    assert arguments["stride"]["default"] == "1"
    assert arguments["stride"]["minimum"] == 1
    assert arguments["channels"]["required"] is True


def test_ops_of_an_unknown_name_suggests() -> None:
    assert "did you mean hardswish?" in fuseblock("ops", "hardswis", status=2).stderr
    assert "`fuseblock ops` lists all" in fuseblock("ops", "qqqqqqqq", status=2).stderr


def test_ops_markdown_is_the_page_of_all_operations() -> None:
    page = fuseblock("ops", "--markdown").stdout
    for operation in fuseblock_json("ops")["operations"]:
        assert f"\n### {operation['name']}\n" in page
    assert "## Primitives" in page
    assert "| `tanh(a)` |" in page
    written = CHECKOUT / "docs" / "operations.md"
    if written.exists():
        assert written.read_text() == page, "run: build/fuseblock ops --markdown > docs/operations.md"


# info


def test_info() -> None:
    assert "reference" in fuseblock("info").stdout
    info = fuseblock_json("info")
    assert re.fullmatch(r"\d+\.\d+\.\d+", info["version"])
    assert "reference" in [engine["name"] for engine in info["engines"]]
    assert sum(engine["best"] for engine in info["engines"]) == 1
    assert info["compiler"]
    assert info["build_type"]
    names = [block["name"] for block in info["reference_blocks"]]
    assert {"conv3d_gn_mean", "conv3d_hardswish_gn_mean_k3", "conv3d_hardswish_gn_mean_tail"} <= set(names)


# explain


def test_explain() -> None:
    text = fuseblock("explain", "@conv3d_gn_mean").stdout
    assert "f32[24,3,3,3,3]" in text
    report = fuseblock_json("explain", "@conv3d_gn_mean")
    parameters = {row["name"]: row["type"] for row in report["parameters"]}
    assert parameters["conv3d.weight"] == "f32[24,3,3,3,3]"
    assert [row["type"] for row in report["outputs"]] == ["f32[128]"]


def test_explain_backward() -> None:
    text = fuseblock("explain", NORM, *NORM_INPUT, "--backward").stdout
    assert "return d_x" in text
    report = fuseblock_json("explain", NORM, *NORM_INPUT, "--backward", "--wanted", "group_norm.weight,x")
    assert [row["name"] for row in report["outputs"]] == ["d_group_norm.weight", "d_x"]
    assert "rstd" in report["block"]


def test_explain_backward_lists_what_forward_saves() -> None:
    words = ("explain", "@conv3d_gn_mean", "--small", "--backward", "--force", "recompute")
    saved = [(row["name"], row["bytes"]) for row in fuseblock_json(*words)["saved"]]
    assert saved == [
        ("saved.group_norm.mean", 4 * 2 * 8),
        ("saved.group_norm.rstd", 4 * 2 * 8),
        ("saved.conv3d.mean", 4 * 2 * 24),
    ]
    assert "saved by forward: saved.group_norm.rstd f32[2,8], 64 bytes" in fuseblock(*words).stdout


def test_explain_statements() -> None:
    assert "group_norm = group_norm(x, 4" in fuseblock("explain", NORM, *NORM_INPUT, "--statements").stdout


# Blocks and types


def test_reference_blocks_run_small() -> None:
    report = fuseblock_json("run", "@conv2d_gn_tanh_hardswish_residual_lse", "--small")
    assert report["outputs"][0]["nan"] == 0


def test_unknown_reference_block_lists_the_names() -> None:
    error = fuseblock("run", "@conv9d", status=2).stderr
    assert "@conv9d" in error
    assert "\n  @conv3d_gn_mean\n" in error


def test_block_from_standard_input_and_json() -> None:
    expected = digests(fuseblock_json("run", NORM, *NORM_INPUT))
    assert digests(fuseblock_json("run", "-", *NORM_INPUT, stdin=NORM + "\n")) == expected
    statements = [
        {"name": "group_norm", "op": "group_norm", "operands": ["x"], "args": {"groups": 4}},
        {"name": "silu", "op": "silu", "operands": ["group_norm"]},
    ]
    block = json.dumps({"statements": statements, "outputs": ["silu"]})
    assert digests(fuseblock_json("run", block, *NORM_INPUT)) == expected
    assert digests(fuseblock_json("run", "-", *NORM_INPUT, stdin=block)) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["relu"], "the type of x is missing"),
        (["relu", "--input", "f33[2,3]"], "--input: unknown dtype `f33`"),
        (["relu", "--input", "f32[2,3]", "--input", "f32[2,3]"], "given twice"),
        (["add(y)", "--input", "f32[2,3]", "--input", "y=f32[2,3]", "--input", "y=f32[2,3]"], "given twice"),
        (["add(y)", "--input", "f32[2,3]", "--input", "y=f32[2"], "--input y: "),
        (["relu", "--input", "f32[2,3]", "--input", "skip=f32[2,3]"], "skip"),
        (["relu", "--input", "f32[2,3]", "--small"], "--small"),
        (["@conv3d_gn_mean", "--input", "f32[2,3,5,5,5]", "--small"], "--small"),
        (["relu", "--input", "f32[2,3]", "--engine", "abacus"], "abacus"),
        (["relu", "--input", "f32[2,3]", "--wanted", "x"], "--wanted"),
        (["relu", "--input", "f32[2,3]", "--backward", "--wanted", "y"], "y"),
        (["", "--input", "f32[2,3]"], ""),
        (["{", "--input", "f32[2,3]"], ""),
        (["relu", "--input", ""], "--input"),
    ],
)
def test_bad_blocks_and_types(arguments: list[str], message: str) -> None:
    result = fuseblock("run", *arguments, status=2)
    assert result.stderr.startswith("fuseblock: ")
    assert "internal" not in result.stderr
    assert message in result.stderr


def test_error_shows_the_place() -> None:
    block = "conv2d(24, k=3) | group_norm(7)"
    result = fuseblock("explain", block, "--input", "f32[2,3,8,8]", status=2)
    assert "group_norm(7): 24 channels do not divide into 7 groups" in result.stderr
    lines = result.stderr.splitlines()
    at = next(i for i, line in enumerate(lines) if line.endswith(block))
    caret = lines[at + 1].index("^") - lines[at].index(block)
    assert block[caret:].startswith("group_norm(7)")
    assert result.stdout == ""


def test_error_as_json() -> None:
    error = fuseblock_json("run", "relu\n| rellu", "--input", "f32[2,3]", status=2)["error"]
    assert list(error) == ["kind", "message", "line", "column", "pointer", "excerpt"]
    assert error["kind"] == "user"
    assert "rellu" in error["message"]
    assert (error["line"], error["column"]) == (2, 3)
    assert "^" in error["excerpt"]
    statement = {"name": "y", "op": "relu", "operands": ["x"], "args": {"slope": 1}}
    block = json.dumps({"statements": [statement], "outputs": ["y"]})
    error = fuseblock_json("run", block, "--input", "f32[2,3]", status=2)["error"]
    assert error["pointer"].startswith("/statements/0")


def test_bytes_that_are_no_text() -> None:
    for stdin in (b"relu\xff\xfe", b"relu\0| tanh", b"\xff", b"", b"relu |" * 5000):
        error = fuseblock_json("run", "-", "--input", "f32[2,3]", stdin=stdin, status=2)["error"]
        assert error["kind"] == "user"


def test_a_file_given_as_block_gets_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "block.json"
    path.write_text("{}")
    assert f"- < {path}" in fuseblock("run", path, *NORM_INPUT, status=2).stderr


def test_too_large_is_a_clear_error() -> None:
    for extents in ("[1000000,1000000]", "[100000,3000,1000]", "[4294967296,4294967296]"):
        for command in ("run", "check", "bench"):
            assert fuseblock(command, "relu", "--input", f"f32{extents}", status=2).stderr.startswith(
                "fuseblock: "
            )


def test_empty_batch() -> None:
    row = fuseblock_json("run", NORM, "--input", "f32[0,8,5,3]")["outputs"][0]
    assert row["type"] == "f32[0,8,5,3]"
    assert row["mean"] is None


# run


def test_run_text() -> None:
    text = fuseblock("run", NORM, *NORM_INPUT, "--seed", "3").stdout
    digest = fuseblock_json("run", NORM, *NORM_INPUT, "--seed", "3")["outputs"][0]["digest"]
    assert re.fullmatch("[0-9a-f]{16}", digest)
    assert re.search(rf"^silu +f32\[2,8,5,3\] +{digest} ", text, re.MULTILINE)
    assert "seed 3" in text


def test_same_seed_same_digest() -> None:
    first = fuseblock("run", RESIDUAL, *RESIDUAL_INPUT, "--backward").stdout
    assert fuseblock("run", RESIDUAL, *RESIDUAL_INPUT, "--backward").stdout == first
    zero, one = (fuseblock_json("run", RESIDUAL, *RESIDUAL_INPUT, "--seed", seed) for seed in ("0", "1"))
    assert digests(zero) != digests(one)
    assert not set(digests(zero, "arguments").values()) & set(digests(one, "arguments").values())


def test_data_depends_on_the_name_alone() -> None:
    short = fuseblock_json("run", "conv2d(8, k=3)", "--input", "f32[2,4,5,6]")
    long = fuseblock_json(
        "run", "relu | conv2d(8, k=3) | group_norm(2) | mul(gate)", "--input", "f32[2,4,5,6]"
    )
    expected = digests(short, "arguments")
    found = digests(long, "arguments")
    assert {name: found[name] for name in expected} == expected


def test_layout_changes_no_value() -> None:
    first = fuseblock_json("run", "square", "--input", "f32[2,4,5,6]")
    last = fuseblock_json("run", "square", "--input", "f32[2,4,5,6]:cl")
    assert digests(first) == digests(last)


def test_run_wanted() -> None:
    report = fuseblock_json(
        "run", NORM, *NORM_INPUT, "--backward", "--wanted", "x", "--wanted", "group_norm.bias"
    )
    assert [row["name"] for row in report["gradients"]] == ["d_x", "d_group_norm.bias"]
    assert [row["name"] for row in report["output_gradients"]] == ["d_silu"]


def test_run_counts_what_is_not_finite() -> None:
    row = fuseblock_json("run", "s = x - 2; y = log(s); z = x / 0; return y, z", "--input", "f32[2,3]")[
        "outputs"
    ]
    assert (row[0]["nan"], row[0]["mean"]) == (6, None)
    assert row[1]["inf"] == 6


# check


def test_check_of_the_reference_engine() -> None:
    text = fuseblock("check", RESIDUAL, *RESIDUAL_INPUT).stdout
    assert text.endswith("\nok\n")
    report = fuseblock_json("check", RESIDUAL, *RESIDUAL_INPUT, "--engine", "reference")
    assert report["ok"] is True
    assert [row["name"] for row in report["outputs"]] == ["add2"]
    names = ["d_x", "d_skip", "d_y.weight", "d_y.bias", "d_group_norm.weight", "d_group_norm.bias"]
    assert sorted(row["name"] for row in report["gradients"]) == sorted(names)
    for row in report["outputs"] + report["gradients"]:
        assert row["ok"] is True
        assert row["max_abs_error"] <= row["bound"]
        assert row["max_rel_error"] < 1e-6


def test_check_fails_with_status_1() -> None:
    report = fuseblock_json("check", "exp", "--input", "f32[2,3]", "--tolerance", "0", status=1)
    assert report["ok"] is False
    assert by_name(report["gradients"])["d_x"]["ok"] is False
    assert "FAILED" in fuseblock("check", "exp", "--input", "f32[2,3]", "--tolerance", "0", status=1).stdout


def test_check_says_what_it_cannot_judge() -> None:
    call = ("check", "sub(2) | log", "--input", "f32[2,3]", "--engine", "reference")
    assert by_name(fuseblock_json(*call)["gradients"])["d_x"]["skipped"] is True
    assert "skipped" in fuseblock(*call).stdout


def test_check_compares_another_engine_with_the_reference() -> None:
    report = fuseblock_json("check", NORM, *NORM_INPUT, "--engine", "cpu")
    assert report["ok"] is True
    errors = [row["max_abs_error"] for row in report["outputs"] + report["gradients"]]
    assert 0 < max(errors) < 1e-4


def test_check_wanted() -> None:
    report = fuseblock_json("check", NORM, *NORM_INPUT, "--wanted", "group_norm.bias")
    assert [row["name"] for row in report["gradients"]] == ["d_group_norm.bias"]
    fuseblock("check", NORM, *NORM_INPUT, "--wanted", "nothing", status=2)


# bench and demo


def test_bench() -> None:
    report = fuseblock_json("bench", NORM, *NORM_INPUT, "--repeat", "5", "--threads", "1")
    assert report["repeats"] == 5
    assert 0 < report["p10_ms"] <= report["median_ms"] <= report["p90_ms"]
    assert report["peak_bytes"] >= 2 * 4 * 2 * 8 * 5 * 3
    assert report["operations_per_second"] > 0
    backward = fuseblock_json("bench", NORM, *NORM_INPUT, "--repeat", "5", "--backward")
    assert backward["direction"] == "forward+backward"
    # x, y, weight and bias, the gradients of all, and mean and rstd of four groups, which forward saves.
    assert backward["peak_bytes"] >= 4 * (4 * 2 * 8 * 5 * 3 + 4 * 8 + 2 * 2 * 4)
    assert backward["peak_bytes"] > report["peak_bytes"]
    assert "median" in fuseblock("bench", NORM, *NORM_INPUT, "--seconds", "0").stdout


def test_unfused_runs_one_operation_after_the_other() -> None:
    block = ("silu | mul(3) | add(1)", "--input", "bf16[2,8,5,3]")
    fused = fuseblock_json("run", *block)
    unfused = fuseblock_json("run", *block, "--unfused")
    assert (fused["fused"], unfused["fused"]) == (True, False)
    # bf16 is rounded after each operation.
    assert digests(fused) != digests(unfused)
    means = [by_name(report["outputs"])["add"]["mean"] for report in (fused, unfused)]
    assert means[0] == pytest.approx(means[1], rel=1e-2)
    assert "unfused" in fuseblock("run", *block, "--unfused").stdout
    report = fuseblock_json("bench", *block, "--repeat", "2", "--unfused", "--backward")
    assert report["fused"] is False
    assert "unfused" in fuseblock("bench", *block, "--repeat", "1", "--unfused").stdout


def test_bench_takes_all_cores() -> None:
    report = fuseblock_json("bench", NORM, *NORM_INPUT, "--repeat", "1", "--threads", "0")
    assert report["threads"] == os.cpu_count()


def test_bench_says_how_many_threads_there_are() -> None:
    result = fuseblock("bench", NORM, *NORM_INPUT, "--repeat", "1", "--threads", "4", "--engine", "reference")
    assert "uses one thread" in result.stderr
    assert "1 thread" in result.stdout


def test_demo() -> None:
    names = ["conv3d_gn_mean", "conv_transpose3d_relu_gn", "conv3d_hardswish_gn_mean"]
    names.append("conv2d_gn_tanh_hardswish_residual_lse")
    rows = fuseblock_json("demo", "--small")["rows"]
    assert [row["block"] for row in rows] == names
    for row in rows:
        assert row["input"].startswith("f32[")
        assert row["ratio"] == pytest.approx(row["unfused_ms"] / row["fused_ms"])
        assert row["fused_workspace_bytes"] > 0
        assert row["unfused_workspace_bytes"] > 0
        assert row["ok"] is True
        assert row["max_abs_error"] <= row["bound"]
    text = fuseblock("demo", "--small").stdout
    for name in names:
        time = r"[\d.]+ (us|ms|s)"
        assert re.search(rf"^{name} +f32\S+ +\d+ +{time} +{time} .*[\d.e-]+$", text, re.MULTILINE)
    assert fuseblock("explain", f"@{names[2]}", "--small").stdout in text
    assert "What to try next" in text
