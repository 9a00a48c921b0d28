"""The package as a wheel: built, installed into an empty environment, used there.

The build folder of the tests is used again, so that nothing is compiled twice; FUSEBLOCK_LONG=1 builds from
nothing. PyTorch is that of the tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from case_support import BUILD, ROOT, build_folder_held

USE = """
import fuseblock, pathlib, sys, torch
from fuseblock._blocks import block

place = pathlib.Path(fuseblock.__file__).resolve()
assert place.is_relative_to(pathlib.Path(sys.prefix).resolve()), place
own = block("conv2d(8, k=3) | group_norm(4) | silu")
arguments = [torch.randn(s, requires_grad=True) for s in ((2, 3, 6, 6), (8, 3, 3, 3), (8,), (8,), (8,))]
assert "engine cpu" in own.explain(*arguments)
own(*arguments).sum().backward()
maps = pathlib.Path("/proc/self/maps").read_text()
for name in ("libfuseblock_torch.so", "libfuseblock_c.so", "libtbb.so", "libhwy.so"):
    places = {line.split()[-1] for line in maps.splitlines() if f"/{name}" in line}
    assert places, name
    assert all(pathlib.Path(p).is_relative_to(place.parent) for p in places), places
print(fuseblock.__version__)
"""


def run(*command: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.fail(f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}", pytrace=False)
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    if os.environ.get("FUSEBLOCK_LONG"):
        run(sys.executable, "-m", "pip", "wheel", *options, ROOT)
    else:
        settings = {"build-dir": BUILD, "cmake.define.FUSEBLOCK_BUILD_TESTS": "ON"}
        options += [f"--config-settings={name}={value}" for name, value in settings.items()]
        with build_folder_held():
            cache = (BUILD / "CMakeCache.txt").read_text()
            before = re.search(r"^CMAKE_INSTALL_PREFIX:PATH=(.*)$", cache, re.M)
            assert before is not None
            run(sys.executable, "-m", "pip", "wheel", *options, ROOT)
            run("cmake", BUILD, "-USKBUILD*", "-DFUSEBLOCK_TORCH=AUTO", f"-DCMAKE_INSTALL_PREFIX={before[1]}")
    (made,) = folder.glob("*.whl")
    return made


def test_one_wheel_for_every_python(wheel: Path) -> None:
    assert re.fullmatch(r"fuseblock-[0-9.]+-py3-none-linux_x86_64\.whl", wheel.name)


def test_what_is_in_it(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    inside = {name for name in names if name.startswith("fuseblock/")}
    expected = {
        f"fuseblock/{path.relative_to(ROOT / 'python/fuseblock')}"
        for path in (ROOT / "python/fuseblock").rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }
    libraries = {name for name in inside if ".so" in name}
    assert inside - libraries == expected
    assert {name.split("/")[1].split(".")[0] for name in libraries} == {
        "libfuseblock_c",
        "libfuseblock_torch",
        "libhwy",
        "libtbb",
    }


def test_libraries_need_no_python(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path)
    for library in (tmp_path / "fuseblock").glob("libfuseblock*.so"):
        needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", library))
        assert not [name for name in needed if "python" in name or "cuda" in name or "c10" in name]
        assert "$ORIGIN" in run("readelf", "-d", library)


def test_installed(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    run(
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        wheel,
    )
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    (site / "torch_of_the_tests.pth").write_text(sysconfig.get_path("purelib"))
    version = run(python, "-c", USE, cwd=tmp_path).strip()
    assert wheel.name.startswith(f"fuseblock-{version}-")
    project = re.search(r"project\(fuseblock VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())
    assert project is not None
    assert version == project[1]
