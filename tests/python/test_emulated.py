"""Kernels of the CUDA engine on the emulator of tests/emulator, as on a GPU by tests/gpu/test_cases.py.

ROWS take every kernel: units with and without a ring, teams of blocks, statistics at the end of a grid;
slices that stay on chip, that do not, and that are begun ahead; tiles along positions and along channels,
kept in registers, in shared memory and nowhere; pools; statistics of statistics; convolutions with few
channels and others. With FUSEBLOCK_LONG all rows run.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("FUSEBLOCK_BUILD", ROOT / "build"))
sys.path.insert(0, str(ROOT / "tests" / "gpu"))

import gpu_cases  # noqa: E402

ROWS = (
    "gpu_group_norm_odd f32 contiguous",
    "gpu_group_norm_ten f16 contiguous",
    "gpu_group_norm_one bf16 contiguous",
    "gpu_group_norm_residual f32 channels_last",
    "gpu_group_norm_odd f16 channels_last",
    "gpu_group_norm_silu[channels=320,team=3,ring=4,pieces=1] bf16 channels_last",
    "gpu_group_norm_team[channels=16,team=40,pieces=2,threads=64,blocks=4,ring=3] f16 channels_last",
    "gpu_slices_batch[channels=16,team=2,pieces=1,threads=32,blocks=2,ring=4] bf16 channels_last",
    "gpu_slices_batch[channels=16,team=2,pieces=1,ahead=1] f32 channels_last",
    "gpu_group_norm_silu[cluster=8] bf16 channels_last",
    "gpu_group_norm_twice[cluster=2] f32 channels_last",
    "gpu_slices_three[cluster=4] f64 channels_last",
    "gpu_slices_mask[cluster=8,pieces=1] f16 channels_last",
    "gpu_slices_batch[ahead=1,team=2,blocks=1,pieces=1,threads=32] bf16 contiguous",
    "gpu_slices_batch[ahead=2,team=1,blocks=2,pieces=1,threads=64,apart=0] f32 contiguous",
    "gpu_group_norm_silu[ahead=2,team=4,blocks=1,pieces=1,threads=32,ring=24] f32 contiguous",
    "gpu_group_norm_silu[ahead=1,team=4,blocks=1,pieces=1,threads=32,ring=6] f32 contiguous",
    "gpu_group_norm_silu[ahead=2,team=3,blocks=1,pieces=1,threads=32,ring=24,begun=3] bf16 contiguous",
    "gpu_slices_held[channels=32,team=4,pieces=1,threads=64,blocks=1,ring=4,registers=2,lead=0] bf16 "
    "channels_last",
    "gpu_adagn f16 contiguous",
    "gpu_batch_norm f64 contiguous",
    "gpu_gn_mean_all f32 contiguous",
    "gpu_gn_mean_all bf16 contiguous",
    "gpu_tanh_hardswish_residual_lse f32 contiguous",
    "gpu_pointwise bf16 strided",
    "gpu_layer_norm bf16 contiguous",
    "gpu_layer_norm f32 channels_last",
    "gpu_layer_norm_2048 f32 contiguous",
    "gpu_layer_norm_2048 bf16 strided",
    "gpu_layer_norm_ten f64 channels_last",
    "gpu_layer_norm_three f16 strided",
    "gpu_softmax f32 contiguous",
    "gpu_odd_broadcast f16 contiguous",
    "gpu_max_pool f32 channels_last",
    "gpu_avg_pool bf16 contiguous",
    "gpu_layer_norm_rows f32 contiguous",
    "gpu_conv3d_gn_mean f32 contiguous",
    "gpu_conv3d_gn_mean f16 contiguous",
    "gpu_conv3d_hardswish_gn_mean bf16 contiguous",
    "gpu_conv2d_gn_lse f16 channels_last",
    "gpu_conv2d_odd f32 strided",
    "gpu_conv2d_residual f64 contiguous",
    "gpu_conv1d_tiles f32 contiguous",
    "gpu_conv2d_gn_lse[roll=0] f32 contiguous",
    "gpu_conv3d_gn_mean[roll=0] bf16 strided",
    "gpu_roll_image[fold=1] f32 contiguous",
    "gpu_roll_windows bf16 strided",
    "gpu_roll_windows_bands f32 contiguous",
    "gpu_roll_rows f32 channels_last",
    "gpu_roll_rounds_tangent_less[rounds=4] f32 contiguous",
    "gpu_roll_rounds_tangent[rounds=4] bf16 contiguous",
    "gpu_roll_rounds_flat[threads=128,rounds=8] bf16 contiguous",
    "integer_few_rounds[rounds=4][tf32] f32 contiguous",
    "gpu_roll_segments f16 contiguous",
    "gpu_roll_dilated f32 contiguous",
    "gpu_roll_many_in bf16 channels_last",
    "infinite_roll_odd bf16 contiguous",
    "infinite_roll_windows[tf32] f32 contiguous",
    "infinite_wide f16 contiguous",
    "gpu_wide_transpose3d_relu_gn bf16 contiguous",
    "gpu_wide_conv3d_instance_norm f32 channels_last",
    "gpu_wide_conv2d_gn_mean f16 strided",
    "gpu_wide_conv2d_odd f32 contiguous",
    "gpu_wide_conv2d_groups bf16 channels_last",
    "gpu_wide_conv1d f16 contiguous",
    "gpu_wide_conv3d_planes f32 strided",
    "gpu_deep_transpose3d_relu_gn f32 contiguous",
    "gpu_deep_conv3d_mean f16 strided",
    "gpu_deep_conv2d_blocks f32 channels_last",
    "gpu_deep_conv2d_groups bf16 contiguous",
    "gpu_deep_conv1d f32 contiguous",
    "infinite_deep bf16 contiguous",
    "each_gelu f32 contiguous",
    "each_gelu_tanh f32 contiguous",
)
KEYS = tuple(row.key for row in gpu_cases.rows()) if os.environ.get("FUSEBLOCK_LONG") else ROWS


def run_rows(
    folder: Path, name: str, keys: Sequence[str], options: Sequence[str] = (), **variables: str
) -> dict[str, list[dict[str, Any]]]:
    """The records of rows by their keys."""
    emulator = BUILD / "tests" / "emulator" / "libcuda.so.1"
    assert emulator.exists(), f"there is no {emulator}: build the target fuseblock_emulated_cuda"
    environment = {
        **os.environ,
        "FUSEBLOCK_BUILD": str(BUILD),
        "FUSEBLOCK_CACHE_DIR": str(folder / "cache"),
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    out = folder / f"{name}.json"
    program = [f"{ROOT}/tools/emulated", sys.executable, f"{ROOT}/tests/gpu/test_cases.py"]
    words = ["--device", "emulated", "--out", str(folder), *options]
    words += [word for key in keys for word in ("--row", key)]
    done = subprocess.run([*program, *words], env=environment, capture_output=True, text=True, check=False)
    assert out.exists(), done.stdout + done.stderr
    found: dict[str, list[dict[str, Any]]] = {}
    for record in json.loads(out.read_text())["rows"]:
        found.setdefault(f"{record['case']} {record['dtype']} {record['layout']}", []).append(record)
    return found


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """The records of all rows by their keys."""
    return run_rows(tmp_path_factory.mktemp("emulated"), "tests", KEYS)


@pytest.mark.parametrize("key", KEYS)
def test_row(key: str, records: dict[str, list[dict[str, Any]]]) -> None:
    """Outputs and gradients keep to the bar of tests/gpu/gpu_row.py."""
    assert [record.get("message", "") for record in records[key] if record["status"] != "passed"] == []
    assert records[key]


def test_every_kernel_ran(records: dict[str, list[dict[str, Any]]]) -> None:
    """The rows take all kinds of kernels."""
    names = {kernel["name"] for each in records.values() for record in each for kernel in record["kernels"]}
    convolutions = {"conv", "conv_roll", "conv_wide", "conv_deep", "conv_weights", "conv_direct"}
    sweeps = {"rows", "plain", "slices", "slices_cluster", "columns"}
    assert names == sweeps | {"pool", "finalise"} | convolutions


def test_plain_kernels(tmp_path: Path) -> None:
    """Kernels `plain`, and those that stand in for them where tensors are not dense."""
    keys = [row.key for row in gpu_cases.plain_rows()]
    if not os.environ.get("FUSEBLOCK_LONG"):
        keys = [key for key in keys if "contiguous" in key and "team" not in key and "many" not in key]
        keys += ["gpu_hardswish_gn_mean[plain] f32 strided"]
    # A team has a block for each channel of a unit.
    found = run_rows(tmp_path, "plain", keys, ["--plain"], FUSEBLOCK_EMULATED_MULTIPROCESSORS="44")
    assert sorted(found) == sorted(keys)
    for key, records in found.items():
        assert [record.get("message", "") for record in records if record["status"] != "passed"] == []
        names = {kernel["name"] for record in records for kernel in record["kernels"]}
        if "channels_last" not in key:
            assert names & {"plain", "plain_channels"}, key


@pytest.mark.parametrize("precision", ["strict", "tf32"])
@pytest.mark.parametrize("channels", [5, 24])
def test_precision(precision: str, channels: int) -> None:
    """f32 convolutions in each mode, with few channels and many: the error is the mode's own."""
    block = "conv2d(12, k=3) | group_norm(3) | mean(h,w)"
    command = [str(ROOT / "tools" / "emulated"), str(BUILD / "fuseblock"), "check", block, "--json"]
    options = ["--input", f"f32[2,{channels},9,11]", "--device", "cuda", "--wanted", "x"]
    options += ["--precision", precision, "--tolerance", "200"]
    environment = {**os.environ, "FUSEBLOCK_BUILD": str(BUILD)}
    done = subprocess.run([*command, *options], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (output,) = json.loads(done.stdout)["outputs"]
    assert (output["max_abs_error"] > 1e-6) == (precision == "tf32")


def run_block(folder: Path, device: str, block: str, kind: str, division: str = "") -> NDArray[np.float32]:
    """The output `mean` of a block on generated data, in strict mode."""
    command = [str(BUILD / "fuseblock"), "run", block, "--input", kind, "--device", device]
    if device == "cuda":
        command = [str(ROOT / "tools" / "emulated"), *command]
    environment = {**os.environ, "FUSEBLOCK_BUILD": str(BUILD), "FUSEBLOCK_CONV": division}
    words = [*command, "--save", str(folder / device)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result: NDArray[np.float32] = np.load(folder / device / "mean.npy")
    return result


# Products of a warpgroup one after the other; squads, some of which have no strips; strips one after the
# other, whose last plane lies in the first stage, where the next one's first plane goes, and in others.
@pytest.mark.parametrize(
    "division",
    [
        "threads=128,rows=2",
        "threads=128,rows=1",
        "threads=512,squads=2,rows=2",
        "threads=512,squads=4,rows=1",
    ],
)
@pytest.mark.parametrize(
    ("block", "kind"),
    [
        ("conv3d(24, k=3) | group_norm(8) | mean(c,d,h,w)", "f32[1,3,7,20,17]"),
        ("conv3d(12, k=3) | hardswish | group_norm(3) | mean(d,h,w)", "f32[1,2,8,20,24]"),
        ("conv3d(8, k=(2,2,4), pad=1) | hardswish | group_norm(2) | mean(d,h,w)", "f32[1,1,4,21,18]"),
    ],
)
def test_taps(tmp_path: Path, block: str, kind: str, division: str) -> None:
    """Divisions of `conv_roll` whose products have the input in registers."""
    got = run_block(tmp_path, "cuda", block, kind, division + ",blocks=1")
    assert abs(got - run_block(tmp_path, "reference", block, kind)).max() < 1e-6


@pytest.mark.parametrize(
    ("program", "lines"),
    # What a program runs is in its head.
    [("kept_workspace", 16), ("launches_in_turn", 2), ("samples_in_range", 2)],
)
def test_calls_in_turn(program: str, lines: int) -> None:
    """Calls that find the workspace, launches the statistics, samples the scales that others have left."""
    words = [
        f"{ROOT}/tools/emulated",
        sys.executable,
        f"{ROOT}/tests/gpu/{program}.py",
        "--device",
        "emulated",
    ]
    environment = {**os.environ, "FUSEBLOCK_BUILD": str(BUILD)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed") == lines


def can_contract() -> bool:
    """Whether the processor has fused multiply-adds."""
    if platform.machine() != "x86_64":
        return True
    information = Path("/proc/cpuinfo")
    return information.exists() and " fma " in information.read_text()


@pytest.mark.skipif(not can_contract(), reason="the processor has no fused multiply-adds")
def test_contracted(tmp_path: Path) -> None:
    """What is 0 in groups of one element is 0 where products and sums are contracted, too."""
    key = "random_62 bf16 contiguous"
    found = run_rows(tmp_path, "random", [key], ["--random"], FUSEBLOCK_EMULATED_CONTRACT="1")[key]
    assert [record.get("message", "") for record in found if record["status"] != "passed"] == []
    assert found
