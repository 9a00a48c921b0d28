"""Rows run in several processes, and the record that they leave: resumable, one JSON object a file.

A row has a `key`, which is `case dtype layout`, and those three as attributes or in what it gives; a row's
work gives records, dictionaries with `case`, `dtype`, `layout`, `direction`, `status` (passed, failed,
unsupported), and `message` where something is wrong. What has passed with the same libraries is not run
again, and rows for which there was no time are left to the next run. Where a program says how, rows run in
groups first, and by themselves those of which a group gave no records.

Processes are copies of one that has imported PyTorch and nothing else, which takes seconds: see `warm_up`.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib
import json
import multiprocessing
import multiprocessing.forkserver
import os
import platform
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "h200"
# How long to wait for the next row to end.
_SLOWEST_ROW_S = {"cuda": 100, "cpu": 180, "emulated": 1800}
_SAVE_EVERY_S = 5
Record = dict[str, Any]
# Records of some rows by their keys.
Found = list[tuple[str, list[Record]]]


class Row(Protocol):
    """What is run by itself."""

    @property
    def key(self) -> str:
        """What tells it from other rows: case, type, layout."""


def parser(description: str) -> argparse.ArgumentParser:
    """The options that all programs have."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--filter", default="", help="only rows whose name, type or layout contains the text")
    made.add_argument("--row", action="append", default=[], help="only this row: its name, type and layout")
    made.add_argument(
        "--out", type=Path, help="the folder of the record: benchmarks/results/h200, or build for no GPU"
    )
    made.add_argument("--seconds", type=float, default=1e6, help="after these no further row is begun")
    made.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    made.add_argument("--device", default="cuda", choices=("cuda", "cpu", "emulated"))
    made.add_argument(
        "--same-kernels",
        action="store_true",
        help="keep rows of other libraries whose kernels are those of now",
    )
    made.add_argument("--again", action="store_true", help="run what has passed before, too")
    return made


def warm_up() -> None:
    """Lets the process that workers are copies of import PyTorch, while the caller goes on."""
    multiprocessing.set_forkserver_preload(["torch"])
    multiprocessing.forkserver.ensure_running()


def record_path(options: argparse.Namespace, name: str) -> Path:
    """Where the record is: NAME.json, or NAME_DEVICE.json in the build folder for what is no GPU."""
    if options.out is not None:
        return Path(options.out) / f"{name}.json"
    if options.device == "cuda":
        return RESULTS / f"{name}.json"
    return ROOT / "build" / f"{name}_{options.device}.json"


def main(
    options: argparse.Namespace,
    name: str,
    rows: Sequence[Row],
    work: str,
    library: Path,
    kernels: Callable[[Any, str], list[str]] | None = None,
    grouped: tuple[Callable[[list[Any]], list[list[Any]]], str] | None = None,
) -> int:
    """Runs the rows and writes the record; the exit status.

    name: that of the record, see `record_path`.
    work: `module:function`; the function takes a row and a device and gives the row's records.
    library: what the record belongs to.
    kernels: the digests of a row's kernels in a direction, for --same-kernels.
    grouped: rows to groups of rows, and as `work` a function that takes such a group and a device and gives
    the key and the records of each row, none where the row is to run by itself.
    """
    deadline = time.monotonic() + options.seconds
    path = record_path(options, name)
    if missing := set(options.row) - {row.key for row in rows}:
        print(f"there is no row {', '.join(sorted(missing))}", file=sys.stderr)
        return 2
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    records = [] if options.again else _known(path, digest, options.device, options.same_kernels)
    if options.same_kernels:
        records = _with_same_kernels(records, rows, kernels)
    done = {_key(record) for record in records}
    left = {
        row.key: row
        for row in rows
        if options.filter in row.key and row.key not in done and (not options.row or row.key in options.row)
    }
    print(f"{len(left)} rows to run, {len(done)} known", flush=True)
    runs = bool(left) or not path.exists()
    saved = time.monotonic()
    for found in _results(left, options, work, deadline, grouped):
        records += found
        for record in found:
            if record["status"] != "passed":
                told = str(record.get("message", ""))[:400]
                print(f"{record['status']}: {_key(record)} {record['direction']}: {told}", flush=True)
        if time.monotonic() - saved > _SAVE_EVERY_S:
            _save(path, _document(options.device, records, digest, len(left)))
            saved = time.monotonic()
    if runs:
        _save(path, _document(options.device, records, digest, len(left)))
    else:
        # What the record says of the machine, the libraries and the day stays.
        _save(path, {**json.loads(path.read_text()), "rows_left": 0, **_of_rows(records)})
    print(_summary(records))
    failed = sum(record["status"] == "failed" for record in records)
    print(f"{len(records)} records, {failed} failed, {len(left)} rows left; {path}")
    return 1 if failed or left else 0


_broken = False
_deadline = 0.0
_device = ""
_work: Any = None
_group_work: Any = None


def _start(device: str, work: str, group_work: str, deadline: float) -> None:
    """Imports what a worker needs."""
    global _deadline, _device, _work, _group_work
    # PyTorch's own use of the driver finds that the emulator is not one.
    if device == "emulated":
        warnings.filterwarnings("ignore", "CUDA initialization")
    _deadline = deadline
    _device = device
    _work = _function(work)
    _group_work = _function(group_work) if group_work else None
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)


def _function(name: str) -> Any:
    module, function = name.split(":")
    return getattr(importlib.import_module(module), function)


def _run(rows: list[Row]) -> Found:
    """Rows' records; none where there is no time, or where an earlier row broke this process's context."""
    global _broken
    if _broken or time.monotonic() > _deadline:
        return [(row.key, []) for row in rows]
    if len(rows) > 1:
        found: Found = _group_work(rows, _device)
        return found
    start = time.monotonic()
    records: list[Record] = _work(rows[0], _device)
    told = " ".join(str(record.get("message", "")) for record in records)
    _broken = _device == "cuda" and ("CUDA error" in told or "CUDA_ERROR" in told)
    for record in records:
        record["seconds"] = round(time.monotonic() - start, 2)
    return [(rows[0].key, records)]


def _results(
    left: dict[str, Row],
    options: argparse.Namespace,
    work: str,
    deadline: float,
    grouped: tuple[Callable[[list[Any]], list[list[Any]]], str] | None,
) -> Iterator[list[Record]]:
    """The records of each row as they come, taken out of `left`; rows that never end are given up."""
    context = multiprocessing.get_context("forkserver")
    patience = _SLOWEST_ROW_S[options.device]
    ways: list[Callable[[list[Any]], list[list[Any]]]] = [lambda rows: [[row] for row in rows]] * 2
    if grouped:
        ways.insert(0, grouped[0])
    for way in ways:
        if not left or time.monotonic() > deadline:
            return
        batches = way(list(left.values()))
        started = (options.device, work, grouped[1] if grouped else "", deadline)
        pool = context.Pool(min(options.jobs, len(batches)), _start, started)
        results = pool.imap_unordered(_run, batches)
        try:
            for _ in batches:
                for key, records in results.next(timeout=patience):
                    if records:
                        left.pop(key)
                        yield records
        except multiprocessing.TimeoutError:
            print(f"no row has ended for {patience} s; {len(left)} are left", file=sys.stderr)
        pool.terminate()
        pool.join()
    if time.monotonic() > deadline:
        return
    for key in list(left):
        case, dtype, layout = key.split(" ")
        record = {"case": case, "dtype": dtype, "layout": layout, "direction": "all"}
        left.pop(key)
        yield [{**record, "status": "failed", "message": "the row did not end"}]


def _document(device: str, rows: list[Record], library_digest: str, left: int) -> Record:
    import torch
    from fuseblock._capi import version

    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.processor(),
        "versions": {
            "fuseblock": version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "python": platform.python_version(),
        },
        "engine": device,
        "library_digest": library_digest,
        "rows_left": left,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **_of_rows(rows),
    }


def _of_rows(rows: list[Record]) -> Record:
    """What a document has of its rows."""
    kernels = sorted({kernel["source_digest"] for row in rows for kernel in row.get("kernels", [])})
    return {
        "digest": hashlib.sha256("\n".join(kernels).encode()).hexdigest(),
        "rows": sorted(rows, key=lambda row: (row["case"], row["dtype"], row["layout"], row["direction"])),
    }


def _save(path: Path, document: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_suffix(".part")
    beside.write_text(json.dumps(document, indent=1) + "\n")
    beside.replace(path)


def _key(record: Record) -> str:
    return f"{record['case']} {record['dtype']} {record['layout']}"


def _with_same_kernels(
    records: list[Record], rows: Sequence[Row], kernels: Callable[[Any, str], list[str]] | None
) -> list[Record]:
    """The records of rows whose kernels, forward and backward, are the recorded ones."""
    if kernels is None:
        return []
    by_key = {row.key: row for row in rows}
    changed = set()
    for record in records:
        row = by_key.get(_key(record))
        if row is None:
            changed.add(_key(record))
        elif record["direction"] in ("forward", "backward", "all"):
            recorded = [kernel["source_digest"] for kernel in record.get("kernels", [])]
            if kernels(row, record["direction"]) != recorded:
                changed.add(row.key)
    return [record for record in records if _key(record) not in changed]


def _known(path: Path, library_digest: str, device: str, any_library: bool) -> list[Record]:
    """The records of an earlier run on such a device whose rows have passed."""
    if not path.exists():
        return []
    document = json.loads(path.read_text())
    if document.get("engine") != device:
        return []
    if document.get("library_digest") != library_digest and not any_library:
        return []
    missed = {_key(record) for record in document["rows"] if record["status"] == "failed"}
    return [record for record in document["rows"] if _key(record) not in missed]


def _summary(records: list[Record]) -> str:
    lines = [f"{'direction':<10} {'dtype':<6} {'layout':<14} {'passed':>7} {'failed':>7} {'unsupported':>12}"]
    counts: dict[tuple[str, str, str], Counter[str]] = {}
    for record in records:
        where = (record["direction"], record["dtype"], record["layout"])
        counts.setdefault(where, Counter())[record["status"]] += 1
    for where, count in sorted(counts.items()):
        cells = f"{where[0]:<10} {where[1]:<6} {where[2]:<14}"
        lines.append(f"{cells} {count['passed']:>7} {count['failed']:>7} {count['unsupported']:>12}")
    return "\n".join(lines)
