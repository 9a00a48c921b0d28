"""Kernels on the command line: their texts, compiling them without a GPU, the cache of what was compiled."""

import hashlib
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from cli_support import binary, environment_with, fuseblock, fuseblock_json
from fuseblock import _library

BLOCK = ("group_norm(4) | silu", "--input", "f32[2,8,16,16]")
ON_GPU = (*BLOCK, "--device", "h200")
ARCHITECTURES = ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120"]


def kernel_file(
    name: str, architecture: str = "sm_90a", image: bytes = b"\x7fELF image"
) -> tuple[str, bytes]:
    """A file of the cache, as the format is described: its name and its contents."""
    identity, compiler = hashlib.sha256(name.encode()).hexdigest(), "nvrtc 13.0"
    texts = [identity, name, "entry", architecture, compiler, "a log\n"]
    fields = [text.encode() for text in texts] + [image]
    fields += [b"1", b"entry", b"40", b"1024", b"0", b"0", b"0"]
    body = b"".join(str(len(field)).encode() + b"\n" + field for field in fields)
    head = f"fuseblock kernel 1 {hashlib.sha256(body).hexdigest()} {len(body)}\n".encode()
    file = hashlib.sha256(f"{identity}\n{compiler}".encode()).hexdigest() + ".cubin"
    return file, head + body


def fill(cache: Path, *names: str) -> list[Path]:
    """Puts kernels into a cache, the last one used last."""
    folder = cache / "kernels"
    folder.mkdir(parents=True, mode=0o700)
    paths = []
    for name in names:
        file, contents = kernel_file(name)
        path = folder / file
        path.write_bytes(contents)
        path.chmod(0o600)
        paths.append(path)
        time.sleep(0.01)
    return paths


# cache


def test_cache_path_and_empty_cache(tmp_path: Path) -> None:
    cache = tmp_path / "not" / "there"
    assert fuseblock("cache", "path", cache=cache).stdout == f"{cache}/kernels\n"
    assert fuseblock_json("cache", "path", cache=cache) == {"folder": f"{cache}/kernels"}
    assert (
        fuseblock("cache", "ls", cache=cache).stdout
        == f"0 kernels, 0 B of at most 256 MB, in {cache}/kernels\n"
    )
    assert fuseblock("cache", "clear", cache=cache).stdout == "0 kernels removed\n"
    assert not cache.exists()


def test_cache_ls_lists_the_last_used_first(tmp_path: Path) -> None:
    paths = fill(tmp_path, "norm_team", "norm_block")
    listed = fuseblock_json("cache", "ls", cache=tmp_path)
    assert [kernel["name"] for kernel in listed["kernels"]] == ["norm_block", "norm_team"]
    assert listed["kernels"][0] == {
        "file": paths[1].name,
        "name": "norm_block",
        "architecture": "sm_90a",
        "compiler": "nvrtc 13.0",
        "bytes": paths[1].stat().st_size,
        "used": int(paths[1].stat().st_mtime),
        "damaged": False,
    }
    assert listed["bytes"] == sum(path.stat().st_size for path in paths)
    assert listed["bound"] == 256_000_000
    assert listed["refusal"] == ""
    text = fuseblock("cache", "ls", cache=tmp_path).stdout
    assert "norm_team" in text
    assert "sm_90a" in text
    assert f"2 kernels, {listed['bytes']} B of at most 256 MB" in text


def test_cache_ls_names_what_is_damaged(tmp_path: Path) -> None:
    (path,) = fill(tmp_path, "norm_team")
    whole = path.read_bytes()
    for damaged in (
        whole[:-1],
        whole + b"x",
        whole.replace(b"image", b"imagf"),
        b"",
        kernel_file("other")[1],
    ):
        path.write_bytes(damaged)
        (kernel,) = fuseblock_json("cache", "ls", cache=tmp_path)["kernels"]
        assert kernel["damaged"]
        assert kernel["name"] == ""
    assert "(damaged)" in fuseblock("cache", "ls", cache=tmp_path).stdout


def test_cache_clear(tmp_path: Path) -> None:
    paths = fill(tmp_path, "one", "two", "three")
    other = paths[0].with_name("something else")
    other.write_text("not ours")
    assert fuseblock("cache", "clear", cache=tmp_path).stdout == "3 kernels removed\n"
    assert list(paths[0].parent.iterdir()) == [other]
    assert fuseblock_json("cache", "clear", cache=tmp_path) == {"removed": 0}


def test_a_cache_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (path,) = fill(tmp_path, "norm_team")
    path.parent.chmod(0o777)
    assert "nothing is kept" in fuseblock("cache", "ls", cache=tmp_path).stdout
    assert "other users may write to it" in fuseblock_json("cache", "ls", cache=tmp_path)["refusal"]
    assert "other users may write to it" in fuseblock("cache", "clear", cache=tmp_path, status=2).stderr
    assert path.exists()


def test_cache_bound(tmp_path: Path) -> None:
    bound = {"FUSEBLOCK_CACHE_BYTES": "1000000"}
    assert fuseblock_json("cache", "ls", cache=tmp_path, variables=bound)["bound"] == 1_000_000
    for wrong in ("1 MB", "-1", "many"):
        done = fuseblock("cache", "ls", cache=tmp_path, variables={"FUSEBLOCK_CACHE_BYTES": wrong}, status=2)
        assert f"FUSEBLOCK_CACHE_BYTES: expected a number of bytes, got `{wrong}`" in done.stderr


def test_cache_usage() -> None:
    assert "ACTION" in fuseblock("cache", status=2).stderr
    assert "ACTION" in fuseblock("cache", "empty", status=2).stderr


# explain and --force

NORM = ("layer_norm(c) | silu", "--input", "bf16[2,320,64,64]", "--device", "h200")


def planned(*words: str) -> list[dict[str, Any]]:
    """The kernels of a plan, as explain has them."""
    kernels: list[dict[str, Any]] = fuseblock_json("explain", *words)["kernels"]
    return kernels


def test_explain_names_each_kernel_and_the_bytes_it_moves() -> None:
    elements = 2 * 320 * 64 * 64
    (forward,) = planned(*NORM)
    assert (forward["name"], forward["sweeps"]) == ("columns", 2)
    assert forward["read_bytes"] == 2 * elements + 2 * 2 * 320  # x, weight and bias
    assert forward["written_bytes"] == 2 * elements
    assert forward["division"]["tiles"] * forward["division"]["tile"] >= 2 * 64 * 64
    # x and the gradient are read once, for all gradients, and mean and rstd, which forward saved.
    (backward,) = planned(*NORM, "--backward")
    assert (backward["name"], backward["sweeps"], backward["finalise_steps"]) == ("columns", 2, 1)
    assert backward["read_bytes"] == 4 * elements + 2 * 2 * 320 + 2 * 4 * 2 * 64 * 64
    assert backward["written_bytes"] == 2 * elements + 2 * 2 * 320
    assert backward["again_bytes"] == 0
    assert backward["division"]["sums"] == 2
    text = fuseblock("explain", *NORM, "--backward").stdout
    assert "\n1 kernel, each launched once\n  1  columns: 2 sweeps, 1 finalise step; " in text
    assert "; 11 MB read, 5.2 MB written\n" in text
    assert f"tiles of {backward['division']['tile']} positions with all 320 channels" in text
    assert "2 sums of each channel kept in" in text
    # A device without kernels has no such part.
    assert "launched once" not in fuseblock("explain", *NORM[:-1], "cpu").stdout


def test_explain_of_teams() -> None:
    (kernel,) = planned(*ON_GPU)
    assert kernel["name"] == "rows"
    division = kernel["division"]
    assert kernel["blocks"] == division["team"] * division["teams"]
    text = fuseblock("explain", *ON_GPU).stdout
    assert f"teams of {division['team']} blocks, {division['teams']} of them at work" in text
    other = planned(*ON_GPU, "--force", f"team={division['team'] + 1}")[0]
    assert other["division"]["team"] == division["team"] + 1


@pytest.mark.parametrize("residency", ["registers", "shared", "memory"])
def test_a_tile_can_be_forced(residency: str) -> None:
    words = ("--force", "tile=8", "--force", f"residency={residency}")
    (kernel,) = planned("softmax(c)", "--input", "f32[2,512,32,32]", "--device", "h200", *words)
    assert kernel["division"]["tile"] == 8
    assert kernel["residency"] == residency
    (kernel,) = planned(
        "layer_norm(c)", "--input", "f32[2,512,32,32]", "--device", "h200", *words, "--backward"
    )
    assert kernel["residency"] == residency
    assert (kernel["again_bytes"] > 0) == (residency == "memory")
    source = fuseblock(
        "source", "softmax(c)", "--input", "f32[2,512,32,32]", "--device", "h200", *words
    ).stdout
    number = {"memory": 0, "registers": 1, "shared": 2}[residency]
    assert f"constexpr int kResidency = {number};" in source


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--force", "tile=7"),
            "tile: expected one that a kernel `columns` can have here, of ",
        ),
        (("--force", "team=2"), "team: expected a plan with a kernel `rows`, but that for h200 has none"),
        (("--force", "tile=0"), "--force: tile: expected a number from 1 on, got `0`"),
        (
            ("--force", "residency=disk"),
            "--force: residency: expected registers, shared or memory, got `disk`",
        ),
        (
            ("--force", "fast"),
            "--force: expected store, recompute, team=BLOCKS, tile=POSITIONS, residency=PLACE, plain or",
        ),
    ],
)
def test_choices_that_cannot_be(words: tuple[str, ...], message: str) -> None:
    assert message in fuseblock("explain", *NORM, *words, status=2).stderr


def test_choices_of_kernels_are_for_gpus() -> None:
    done = fuseblock("explain", *NORM[:-1], "cpu", "--force", "tile=8", status=2)
    assert "tile: expected a plan with a kernel `columns`, but that for cpu has none" in done.stderr
    done = fuseblock("explain", *ON_GPU, "--force", "team=100000", status=2)
    assert "team: expected at most the " in done.stderr
    done = fuseblock("explain", *ON_GPU, "--force", "team=132", status=2)
    assert "team: expected blocks that all have elements of a unit" in done.stderr


# source and compile


@pytest.mark.parametrize("command", ["source", "compile"])
def test_only_gpus_have_kernels(command: str) -> None:
    for device in ("cpu", "reference"):
        done = fuseblock(command, *BLOCK, "--device", device, status=2)
        assert f"{device}: the cuda engine compiles kernels for GPUs" in done.stderr
    assert "--wanted" in fuseblock(command, *BLOCK, "--device", "h200", "--wanted", "x", status=2).stderr


@pytest.mark.parametrize(
    ("block", "x", "result"),
    [
        ("conv2d(8, k=3)", "f32[1,3,14,14]", "f32[1,8,12,12]"),
        ("conv2d(8, k=3, stride=2)", "f32[1,3,29,29]", "f32[1,8,14,14]"),
        ("conv2d(32, k=3)", "f32[1,32,14,14]", "f32[1,32,12,12]"),
    ],
)
def test_inputs_may_be_called_as_what_kernels_know(block: str, x: str, result: str) -> None:
    """The members of a kernel's Arguments have names of their own."""
    names = ("strips", "segments", "depths", "tiles_w", "strip_tiles", "sample_items")
    inputs = [word for name in names for word in ("--input", f"{name}={result}")]
    sums = " | ".join(f"add({name})" for name in names)
    text = fuseblock("source", f"{block} | {sums}", "--input", x, *inputs, "--device", "h200").stdout
    for arguments in re.findall(r"struct Arguments \{\n(.*?)\n\};", text, re.DOTALL):
        members = re.findall(r"(\w+);", arguments)
        assert members
        assert len(set(members)) == len(members)


def test_source_prints_what_is_compiled() -> None:
    source = fuseblock_json("source", *ON_GPU)
    assert source["architecture"] == "sm_90a"
    assert source["kernels"]
    text = fuseblock("source", *ON_GPU).stdout
    for kernel in source["kernels"]:
        assert kernel["text"] in text
        assert f"// {kernel['name']}: nvrtc --gpu-architecture=sm_90a" in text
        assert "#include" not in kernel["text"]
    assert fuseblock_json("source", *ON_GPU, "--backward")["kernels"] != source["kernels"]


@pytest.mark.parametrize("block", ["group_norm(32) | silu", "layer_norm(c) | silu"])
@pytest.mark.parametrize("layout", ["", ":cl"])
@pytest.mark.parametrize(("dtype", "is_16_bit"), [("f32", 0), ("bf16", 1)])
def test_functions_of_16_bits_serve_results_of_16_bits(
    block: str, layout: str, dtype: str, is_16_bit: int
) -> None:
    """The gradient of a weight in f32 is a sum of exact values, whatever x is."""
    name = block.split("(")[0]
    types = [f"bf16[2,320,64,64]{layout}", *(f"{name}.{each}={dtype}[320]" for each in ("weight", "bias"))]
    words = [word for each in types for word in ("--input", each)]
    text = fuseblock("source", block, *words, "--device", "h200", "--backward").stdout
    assert f"constexpr int k16Bit = {is_16_bit};" in text


def test_compile_for_every_architecture(tmp_path: Path) -> None:
    names = [kernel["name"] for kernel in fuseblock_json("source", *ON_GPU)["kernels"]]
    built = fuseblock_json("compile", *ON_GPU, "--arch", "all", cache=tmp_path)["kernels"]
    assert [(kernel["architecture"], kernel["name"]) for kernel in built] == [
        (architecture, name) for architecture in ARCHITECTURES for name in names
    ]
    for kernel in built:
        assert 0 < kernel["registers"] <= 255
        assert kernel["cubin_bytes"] > 1000
        assert kernel["origin"] == "compiled"
        assert len(kernel["digest"]) == 64
    again = fuseblock_json("compile", *ON_GPU, "--arch", "sm_80,sm_90a", cache=tmp_path)["kernels"]
    assert {kernel["origin"] for kernel in again} == {"disk"}
    listed = fuseblock_json("cache", "ls", cache=tmp_path)["kernels"]
    assert len(listed) == len(built)
    assert "registers" in fuseblock("compile", *ON_GPU, cache=tmp_path).stdout
    refused = fuseblock("compile", *ON_GPU, "--arch", "sm_70", status=2).stderr
    assert "there is no architecture `sm_70`" in refused


def test_compiled_kernels_can_be_carried(tmp_path: Path) -> None:
    carried = tmp_path / "carried"
    built = fuseblock_json("compile", *ON_GPU, "--carry", carried)["kernels"]
    assert len(list(carried.glob("*.cubin"))) == len(built)
    elsewhere = {"FUSEBLOCK_NVRTC": "/nowhere/libnvrtc.so.13"}
    done = fuseblock("compile", *ON_GPU, variables=elsewhere, status=2)
    assert "there is no run-time compiler" in done.stderr
    assert "/nowhere/libnvrtc.so.13" in done.stderr
    elsewhere["FUSEBLOCK_CUBINS"] = str(carried)
    found = fuseblock_json("compile", *ON_GPU, variables=elsewhere)["kernels"]
    assert {kernel["origin"] for kernel in found} == {"carried"}
    assert [kernel["registers"] for kernel in found] == [kernel["registers"] for kernel in built]


def test_processes_at_once_compile_once(tmp_path: Path) -> None:
    command = [str(binary()), "compile", *ON_GPU, "--json"]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment_with(tmp_path))
        for _ in range(4)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 4
    kernels = len(fuseblock_json("source", *ON_GPU)["kernels"])
    assert sum(output.count('"origin": "compiled"') for output in outputs) == kernels
    assert sum(output.count('"origin": "disk"') for output in outputs) == 3 * kernels


def test_the_python_package_knows_where_the_wheel_is() -> None:
    folder = _library.wheels_folder()
    assert folder is not None
    assert (folder / "nvidia/cu13/lib/libnvrtc.so.13").is_file()
