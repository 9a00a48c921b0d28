#!/usr/bin/env python3
"""Every load-sourced case on the GPU, forward and every gradient, beside PyTorch and float64.

    python3 tests/gpu/test_cases.py [--filter TEXT] [--out FILE] [--jobs N] [--again] [--device cuda]
    tools/emulated python3 tests/gpu/test_cases.py --device emulated

Needs the build folder, a GPU and torch, nothing else; under tools/emulated no GPU. Rows run in several
processes at once, so that kernels are compiled side by side. Results go row by row to --out, which is
benchmarks/results/h200/tests.json unless given, or build/tests_DEVICE.json for what is no GPU: what has
passed there with the same library is not run again unless --again is given. The exit status is 1 where a row
fails.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import multiprocessing
import os
import platform
import sys
import time
import types
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "python")]

# Of the package only `aten` and `_capi` are taken, which need the C library alone; the package itself loads
# the library of PyTorch's operations, too.
_package = types.ModuleType("fuseblock")
_package.__path__ = [str(ROOT / "python" / "fuseblock")]
sys.modules.setdefault("fuseblock", _package)

import gpu_cases  # noqa: E402

_SLOWEST_ROW_S = {"cuda": 180, "cpu": 180, "emulated": 1800}
_SAVE_EVERY_S = 5


def _start(device: str) -> None:
    """Imports what a worker needs."""
    os.environ["FUSEBLOCK_TEST_DEVICE"] = device
    import torch

    torch.set_num_threads(1)
    # PyTorch's own use of the driver finds that the emulator is not one.
    if device == "emulated":
        warnings.filterwarnings("ignore", "CUDA initialization")


_broken = False


def _work(row: gpu_cases.Row) -> list[dict[str, Any]]:
    """Runs a row; one that meets a context that an earlier row broke is run again elsewhere."""
    global _broken
    from gpu_row import run_row

    if _broken:
        return [{"case": row.case.name, "dtype": row.dtype, "layout": row.layout, "status": "again"}]
    start = time.monotonic()
    device = os.environ["FUSEBLOCK_TEST_DEVICE"]
    records = run_row(row, device)
    told = " ".join(str(record.get("message", "")) for record in records)
    _broken = device == "cuda" and ("CUDA error" in told or "CUDA_ERROR" in told)
    for record in records:
        record["seconds"] = round(time.monotonic() - start, 2)
    return records


def _results(rows: list[gpu_cases.Row], jobs: int, device: str) -> Iterator[list[dict[str, Any]]]:
    """The records of each row as they come; rows that never end are given up."""
    context = multiprocessing.get_context("spawn")
    patience = _SLOWEST_ROW_S[device]
    left = {row.key: row for row in rows}
    for _ in range(3):
        if not left:
            return
        pool = context.Pool(min(jobs, len(left)), _start, (device,))
        results = pool.imap_unordered(_work, list(left.values()))
        try:
            for _ in range(len(left)):
                records = results.next(timeout=patience)
                if records[0]["status"] == "again":
                    continue
                first = records[0]
                left.pop(f"{first['case']} {first['dtype']} {first['layout']}")
                yield records
        except multiprocessing.TimeoutError:
            print(f"no row has ended for {patience} s; {len(left)} are left", file=sys.stderr)
        pool.terminate()
        pool.join()
    for row in left.values():
        record = {"case": row.case.name, "dtype": row.dtype, "layout": row.layout, "direction": "all"}
        yield [{**record, "status": "failed", "message": "the row did not end"}]


def _library_digest() -> str:
    from fuseblock._capi import library_path

    return hashlib.sha256(library_path().read_bytes()).hexdigest()


def _document(device: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    import torch
    from fuseblock._capi import version

    kernels = sorted({kernel["source_digest"] for row in rows for kernel in row.get("kernels", [])})
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.processor(),
        "versions": {
            "fuseblock": version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "python": platform.python_version(),
        },
        "digest": hashlib.sha256("\n".join(kernels).encode()).hexdigest(),
        "library_digest": _library_digest(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "rows": sorted(rows, key=lambda row: (row["case"], row["dtype"], row["layout"], row["direction"])),
    }


def _save(path: Path, document: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(document, indent=1) + "\n")
    beside.replace(path)


def _key(record: dict[str, Any]) -> str:
    return f"{record['case']} {record['dtype']} {record['layout']}"


def _known(path: Path) -> list[dict[str, Any]]:
    """The records of an earlier run of the same library whose rows have passed."""
    if not path.exists():
        return []
    document = json.loads(path.read_text())
    if document.get("library_digest") != _library_digest():
        return []
    missed = {_key(record) for record in document["rows"] if record["status"] == "failed"}
    return [record for record in document["rows"] if _key(record) not in missed]


def _summary(records: list[dict[str, Any]]) -> str:
    lines = [f"{'direction':<10} {'dtype':<6} {'layout':<14} {'passed':>7} {'failed':>7} {'unsupported':>12}"]
    counts: dict[tuple[str, str, str], Counter[str]] = {}
    for record in records:
        where = (record["direction"], record["dtype"], record["layout"])
        counts.setdefault(where, Counter())[record["status"]] += 1
    for where, count in sorted(counts.items()):
        cells = f"{where[0]:<10} {where[1]:<6} {where[2]:<14}"
        lines.append(f"{cells} {count['passed']:>7} {count['failed']:>7} {count['unsupported']:>12}")
    return "\n".join(lines)


def main() -> int:
    """Runs the rows and writes the record."""
    parser = argparse.ArgumentParser(
        description="Every load-sourced case on the GPU beside PyTorch and float64"
    )
    parser.add_argument("--filter", default="", help="only rows whose name, type or layout contains the text")
    parser.add_argument("--row", action="append", default=[], help="only this row: its name, type and layout")
    parser.add_argument(
        "--out", type=Path, help="benchmarks/results/h200/tests.json unless given, else build"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu", "emulated"))
    parser.add_argument("--again", action="store_true", help="run what has passed before, too")
    options = parser.parse_args()
    if options.out is None:
        folder = ROOT / "benchmarks" / "results" / "h200" if options.device == "cuda" else ROOT / "build"
        options.out = folder / ("tests.json" if options.device == "cuda" else f"tests_{options.device}.json")

    records = [] if options.again else _known(options.out)
    done = {_key(record) for record in records}
    rows = [row for row in gpu_cases.rows() if options.filter in row.key and row.key not in done]
    if options.row:
        missing = set(options.row) - {row.key for row in gpu_cases.rows()}
        if missing:
            parser.error(f"there is no row {', '.join(sorted(missing))}")
        rows = [row for row in rows if row.key in options.row]
    print(f"{len(rows)} rows to run, {len(done)} known", flush=True)
    saved = time.monotonic()
    for found in _results(rows, options.jobs, options.device):
        records += found
        for record in found:
            if record["status"] != "passed":
                told = str(record.get("message", ""))[:400]
                print(f"{record['status']}: {_key(record)} {record['direction']}: {told}", flush=True)
        if time.monotonic() - saved > _SAVE_EVERY_S:
            _save(options.out, _document(options.device, records))
            saved = time.monotonic()
    _save(options.out, _document(options.device, records))
    print(_summary(records))
    failed = sum(record["status"] == "failed" for record in records)
    print(f"{len(records)} records, {failed} failed; {options.out}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
