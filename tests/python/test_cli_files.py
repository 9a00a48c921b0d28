"""`fuseblock run --save` and `--load`: the .npy files, the generated data in them, and damaged ones."""

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_support import binary, by_name, digests, fuseblock, fuseblock_json

NORM = "group_norm(4) | silu"
NORM_INPUT = ("--input", "f32[2,8,5,3]")
RESIDUAL = "conv2d(8, k=3, pad=1) as y | group_norm(2) | tanh | add(y) | add(skip)"


def save(folder: Path, *arguments: str) -> dict[str, np.ndarray[Any, Any]]:
    fuseblock("run", *arguments, "--save", folder)
    return {path.stem: np.load(path) for path in folder.glob("*.npy")}


def test_saved_statistics_and_values(tmp_path: Path) -> None:
    report = fuseblock_json("run", NORM, *NORM_INPUT, "--save", tmp_path)
    tensors = {path.stem: np.load(path) for path in tmp_path.glob("*.npy")}
    assert set(tensors) == {"x", "group_norm.weight", "group_norm.bias", "silu"}
    x = tensors["x"].astype(np.float64).reshape(2, 4, 2, 5, 3)
    normed = (x - x.mean(axis=(2, 3, 4), keepdims=True)) / np.sqrt(
        x.var(axis=(2, 3, 4), keepdims=True) + 1e-5
    )
    scale, shift = (
        tensors[f"group_norm.{name}"].astype(np.float64)[:, None, None] for name in ("weight", "bias")
    )
    y = normed.reshape(2, 8, 5, 3) * scale + shift
    expected = y / (1 + np.exp(-y))
    assert tensors["silu"].dtype == np.float32
    np.testing.assert_allclose(tensors["silu"], expected, rtol=1e-6, atol=1e-7)
    row = by_name(report["outputs"])["silu"]
    np.testing.assert_allclose(
        [row["mean"], row["std"], row["min"], row["max"]],
        [f(tensors["silu"].astype(np.float64)) for f in (np.mean, np.std, np.min, np.max)],
    )
    digest = 0xCBF29CE484222325
    for byte in tensors["silu"].tobytes():
        digest = ((digest ^ byte) * 0x100000001B3) % 2**64
    assert row["digest"] == f"{digest:016x}"


def splitmix(key: int, number: int) -> int:
    state = (key + number) % 2**64
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % 2**64
    return state ^ (state >> 31)


def generated(name: str, seed: int, index: int, *, normal: bool) -> float:
    """The documented generator, written again."""
    key = 0xCBF29CE484222325
    for byte in name.encode():
        key = (key ^ byte) * 0x100000001B3 % 2**64
    key = splitmix(key, seed)
    bits = [
        splitmix(key, (i + 1) * 0x9E3779B97F4A7C15)
        for i in ([3 * index + k for k in range(3)] if normal else [index])
    ]
    if not normal:
        return (bits[0] >> 40) / 2**24
    parts = [(word >> shift) & 0xFFFF for word in bits for shift in (0, 16, 32, 48)]
    return (sum(parts) - 12 * 32767.5) / 2**16


def test_generated_data_follows_the_documentation(tmp_path: Path) -> None:
    block = "conv2d(6, k=(2,3)) | batch_norm | add(skip)"
    tensors = save(tmp_path, block, "--input", "f32[2,4,9,9]", "--seed", "7", "--backward")
    for name, offset, factor, normal in (
        ("x", 0, 1, False),
        ("skip", 0, 1, False),
        ("conv2d.weight", -(24**-0.5), 2 * 24**-0.5, False),
        ("conv2d.bias", -(24**-0.5), 2 * 24**-0.5, False),
        ("batch_norm.weight", 1, 0.3, True),
        ("batch_norm.bias", 0, 0.3, True),
        ("batch_norm.running_mean", 0, 0.3, True),
        ("batch_norm.running_var", 0.5, 1, False),
        ("d_add", 0, 1, True),
    ):
        flat = tensors[name].reshape(-1)
        for index in (0, 1, flat.size - 1):
            expected = np.float32(offset + factor * generated(name, 7, index, normal=normal))
            assert flat[index] == pytest.approx(expected, rel=1e-6), name
    x = tensors["x"].astype(np.float64)
    assert (x.min() >= 0, x.max() < 1) == (True, True)
    gradient = tensors["d_add"].astype(np.float64)
    assert abs(gradient.mean()) < 5 * gradient.size**-0.5
    assert abs(gradient.std() - 1) < 5 * gradient.size**-0.5


@pytest.mark.parametrize(("dtype", "stored"), [("f64", "f8"), ("f32", "f4"), ("f16", "f2"), ("bf16", "f4")])
@pytest.mark.parametrize("layout", ["", ":cl"])
def test_save_and_load_round_trip(tmp_path: Path, dtype: str, stored: str, layout: str) -> None:
    arguments = (RESIDUAL, "--input", f"{dtype}[2,4,5,6]{layout}", "--backward")
    saved = fuseblock_json("run", *arguments, "--save", tmp_path / "a" / "b")
    loaded = fuseblock_json("run", *arguments, "--load", tmp_path / "a" / "b")
    for group in ("arguments", "outputs", "output_gradients", "gradients"):
        assert digests(saved, group) == digests(loaded, group)
        for row in saved[group]:
            array = np.load(tmp_path / "a" / "b" / f"{row['name']}.npy")
            assert array.dtype == np.dtype(stored)
            assert array.flags.c_contiguous
    block = (tmp_path / "a" / "b" / "block.json").read_text()
    assert digests(fuseblock_json("run", "-", *arguments[1:], stdin=block)) == digests(saved)


@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4", ">f4", "<f2", "<i1", "<i8", ">i4", "<u2", "<u8", "?"])
@pytest.mark.parametrize("fortran", [False, True])
def test_load_of_every_dtype_and_order(tmp_path: Path, dtype: str, fortran: bool) -> None:
    values = np.arange(24).reshape(2, 3, 4).astype(dtype)
    np.save(tmp_path / "x.npy", np.asfortranarray(values) if fortran else values)
    fuseblock("run", "square", "--input", "f64[2,3,4]", "--load", tmp_path, "--save", tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "square.npy"), values.astype(np.float64) ** 2)


def test_load_rounds_to_the_type_asked_for(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(2, 3))
    np.save(tmp_path / "x.npy", values)
    fuseblock("run", "neg", "--input", "f16[2,3]", "--load", tmp_path, "--save", tmp_path / "out")
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "neg.npy"), -values.astype(np.float16))


def test_load_refuses_what_does_not_fit(tmp_path: Path) -> None:
    def refusal(folder: Path) -> str:
        return fuseblock("run", "relu", "--input", "f32[2,3]", "--load", folder, status=2).stderr

    path = tmp_path / "x.npy"
    assert f"{path}: No such file" in refusal(tmp_path)
    np.save(path, np.zeros((3, 2)))
    assert f"{path}: its shape is [3,2], expected [2,3] for f32[2,3]" in refusal(tmp_path)
    np.save(path, np.zeros((2, 3), complex))
    assert "its dtype is `<c16`" in refusal(tmp_path)
    np.save(path, np.zeros((2, 3), [("a", "f4")]))
    assert "structured" in refusal(tmp_path)
    path.write_bytes(b"hello")
    assert "not a readable .npy file" in refusal(tmp_path)
    np.save(path, np.zeros((2, 3), "f4"))
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole + b"\0", whole[:60], whole[:7], whole[:6] + b"\x09" + whole[7:]):
        path.write_bytes(damaged)
        assert "not a readable .npy file" in refusal(tmp_path)


def test_load_survives_damaged_headers(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 3), "f4"))
    whole = bytearray((tmp_path / "x.npy").read_bytes())
    random = np.random.default_rng(1)
    for _ in range(100):
        damaged = whole.copy()
        for place in random.integers(0, 80, size=3):
            damaged[place] = random.integers(0, 256)
        (tmp_path / "x.npy").write_bytes(damaged)
        arguments = [str(binary()), "run", "relu", "--input", "f32[2,3]", "--load", str(tmp_path)]
        done = subprocess.run(arguments, capture_output=True, check=False, timeout=60)
        assert done.returncode in (0, 2)
        assert b"internal" not in done.stderr


def test_load_needs_the_incoming_gradients(tmp_path: Path) -> None:
    fuseblock("run", NORM, *NORM_INPUT, "--save", tmp_path)
    fuseblock("run", NORM, *NORM_INPUT, "--load", tmp_path)
    assert (
        "d_silu.npy" in fuseblock("run", NORM, *NORM_INPUT, "--backward", "--load", tmp_path, status=2).stderr
    )


def test_save_where_nothing_can_be_written() -> None:
    assert (
        "--save /proc/nowhere"
        in fuseblock("run", NORM, *NORM_INPUT, "--save", "/proc/nowhere", status=2).stderr
    )
