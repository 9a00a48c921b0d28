"""Runs the fuseblock command for tests: the binary of $FUSEBLOCK_BINARY, or build/fuseblock."""

import functools
import json
import os
import subprocess
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
# A cache folder that is not there and cannot be made.
NO_CACHE = "/dev/null/fuseblock"


@functools.cache
def binary() -> Path:
    """The command under test; a clear failure where it has not been built."""
    path = Path(os.environ.get("FUSEBLOCK_BINARY", CHECKOUT / "build" / "fuseblock"))
    assert path.is_file(), f"{path} is missing: run `make build`, or set FUSEBLOCK_BINARY"
    return path


def environment_with(cache: str | Path) -> dict[str, str]:
    """The command's environment: a cache folder, no wish for colours, the run-time compiler beside torch."""
    environment = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    environment["FUSEBLOCK_CACHE_DIR"] = str(cache)
    if compiler := next(
        (CHECKOUT / ".venv").glob("lib/*/site-packages/nvidia/cu13/lib/libnvrtc.so.13"), None
    ):
        environment.setdefault("FUSEBLOCK_NVRTC", str(compiler))
    return environment


def fuseblock(
    *arguments: str | Path,
    status: int = 0,
    stdin: str | bytes = "",
    cache: str | Path = NO_CACHE,
    variables: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs the command and checks its exit status; output is text with replaced bytes.

    `cache` is the folder of what is kept between processes; unless given there is none. `variables` are set
    in the environment besides.
    """
    done = subprocess.run(
        [str(binary()), *[str(argument) for argument in arguments]],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        timeout=120,
        env=environment_with(cache) | (variables or {}),
        check=False,
    )
    result = subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    )
    assert result.returncode == status, (
        f"{result.args}: status {result.returncode}\n{result.stdout}{result.stderr}"
    )
    return result


def fuseblock_json(
    *arguments: str | Path,
    status: int = 0,
    stdin: str | bytes = "",
    cache: str | Path = NO_CACHE,
    variables: dict[str, str] | None = None,
) -> Any:
    """The same with --json: what the command printed, read."""
    done = fuseblock(*arguments, "--json", status=status, stdin=stdin, cache=cache, variables=variables)
    return json.loads(done.stdout)


def by_name(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Rows of a report by their names."""
    return {row["name"]: row for row in rows}


def digests(report: dict[str, Any], group: str = "outputs") -> dict[str, str]:
    """The digest of each tensor of a report."""
    return {row["name"]: row["digest"] for row in report[group]}
