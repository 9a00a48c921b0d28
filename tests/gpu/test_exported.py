#!/usr/bin/env python3
"""The exported files of examples/exported on the GPU: right, and as fast as the library.

    tools/on_gpu tests/gpu/test_exported.py [--filter TEXT] [--out FOLDER] [--again]

Needs a GPU, torch, nvcc and ninja. All files are built first, each by a process of its own, which also
compiles what is measured beside them; two processes build the first one at once. Then, file by file:

  - output and gradients of all parameters and inputs, five seeds, weights and biases of norms random, beside
    the original model and float64: max|e| <= 2 max|e_torch| + 4 ulp(max|ref|), pooled over the seeds;
  - the same for another batch and other extents, and for channels_last, strided and misaligned inputs;
  - the same bits twice;
  - times of its block, forward and forward + backward, beside the library's own plan (at most 5 % more),
    PyTorch eager and torch.compile, medians with L2 emptied before each run.

Rows go to exported.json in benchmarks/results/h200 (--out), with the digest of the file's CUDA text; what has
passed with the same text is not run again unless --again is given.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import json
import platform
import re
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "python")]

import bare_package  # noqa: E402, F401
import gpu_record  # noqa: E402
import torch  # noqa: E402
from fuseblock._capi import Plan, type_text, version  # noqa: E402
from gpu_row import Measured  # noqa: E402
from torch import Tensor, nn  # noqa: E402

EXAMPLES = ROOT / "examples" / "exported"
DEVICE = "cuda"
SEEDS = (1, 2, 3, 4, 5)
RUNS = 20
MOST_OF_LIBRARY = 1.05


def load_file(path: Path) -> Any:
    """A Python file as a module."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def randomised(model: nn.Module, seed: int) -> nn.Module:
    """The model with random weights and biases of norms, and random scales."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 or parameter.numel() == max(parameter.shape):
                start = 1.0 if name.endswith(("weight", "gamma")) else 0.0
                parameter.copy_(start + 0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def drawn(shapes: Sequence[torch.Size], seed: int) -> list[Tensor]:
    """Inputs of these shapes, uniform in [0, 1)."""
    generator = torch.Generator(DEVICE).manual_seed(1000 + seed)
    return [torch.rand(shape, generator=generator, device=DEVICE) for shape in shapes]


def results(model: nn.Module, inputs: Sequence[Tensor], seed: int) -> dict[str, Tensor]:
    """Output and all gradients for a random gradient of the output, by name."""
    model.zero_grad(set_to_none=True)
    leaves = [each.detach().requires_grad_() for each in inputs]
    output = model(*leaves)
    generator = torch.Generator(output.device).manual_seed(2000 + seed)
    gradient = torch.randn(output.shape, generator=generator, device=output.device).to(output)
    output.backward(gradient)
    named = {f"d_input{i}": leaf.grad for i, leaf in enumerate(leaves)}
    named |= {f"d_{name}": parameter.grad for name, parameter in model.named_parameters()}
    return {"output": output.detach(), **{name: each for name, each in named.items() if each is not None}}


class Problem:
    """An original model and its exported file, both on the GPU."""

    def __init__(self, name: str) -> None:
        """Builds the kernels."""
        self.name = name
        self.original = load_file(EXAMPLES / "problems" / f"{name}.py")
        self.exported = load_file(EXAMPLES / f"{name}.py")
        self.arguments = self.original.get_init_inputs()
        self.shapes = [each.shape for each in self.original.get_inputs()]
        self.digest = hashlib.sha256(self.exported.CUDA.encode()).hexdigest()
        self.exported.library()

    def models(self, seed: int) -> tuple[nn.Module, nn.Module, nn.Module]:
        """The exported model, the original, and the original in float64, with the same parameters."""
        original = randomised(self.original.Model(*self.arguments), seed).cuda()
        new = self.exported.ModelNew(*self.arguments).cuda()
        new.load_state_dict(original.state_dict())
        exact = self.original.Model(*self.arguments).cuda().double()
        exact.load_state_dict(original.state_dict())
        return new, original, exact

    def with_calls(self, function: Callable[[], dict[str, Tensor]]) -> tuple[dict[str, Tensor], int]:
        """What a function gives, and how many times it launched the block's kernels."""
        count = 0
        launch = self.exported.launch

        def counted(*arguments: Any) -> None:
            nonlocal count
            count += 1
            launch(*arguments)

        self.exported.launch = counted
        try:
            found = function()
        finally:
            self.exported.launch = launch
        return found, count

    def block_arguments(self, seed: int) -> list[Tensor]:
        """What the model hands to its block."""
        new, _, _ = self.models(seed)
        found: list[tuple[Tensor, ...]] = []
        block = self.exported.block

        def recorded(*arguments: Tensor) -> Any:
            found.append(arguments)
            return block(*arguments)

        self.exported.block = recorded
        try:
            with torch.no_grad():
                new(*drawn(self.shapes, seed))
        finally:
            self.exported.block = block
        return [each.detach().contiguous() for each in found[0]]


def check(
    problem: Problem, shapes: Sequence[torch.Size], seeds: Sequence[int], lay_out: Callable[[Tensor], Tensor]
) -> dict[str, Any]:
    """Errors beside PyTorch's; raises AssertionError where one is above the bar."""
    measured = Measured()
    for seed in seeds:
        new, original, exact = problem.models(seed)
        inputs = [lay_out(each) for each in drawn(shapes, seed)]
        got, calls = problem.with_calls(functools.partial(results, new, inputs, seed))
        assert calls >= 2, f"{problem.name}: the kernels did not run, but PyTorch's operators"
        again = results(new, inputs, seed)
        peer, peer_again = (results(original, inputs, seed) for _ in range(2))
        reference = results(exact, [each.double() for each in inputs], seed)
        for name, tensor in got.items():
            # What a convolution gives is PyTorch's: where that does not repeat itself, neither can this.
            if torch.equal(peer[name], peer_again[name]):
                assert torch.equal(tensor, again[name]), f"{name}: another result the second time"
            wrong = measured.add(name, tensor, peer[name], reference[name])
            assert not wrong, wrong
    verdict = measured.verdict(torch.float32)
    assert not verdict, verdict
    return {"error": measured.error, "peer_error": measured.peer_error}


_flush: list[Tensor] = []


def time_ms(function: Callable[[], object]) -> float:
    """The median time of a run, L2 emptied before each."""
    if not _flush:
        _flush.append(torch.empty(512 << 20, dtype=torch.uint8, device="cuda"))
    for _ in range(3):
        function()
    times: list[float] = []
    for _ in range(RUNS):
        _flush[0].zero_()
        # The host gets ahead, so that its own time does not count.
        torch.cuda._sleep(2_000_000)  # type: ignore[no-untyped-call]
        start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        start.record()
        function()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def library_plans(problem: Problem, arguments: Sequence[Tensor]) -> tuple[Plan, Plan]:
    """The library's own plans of the block, forward and backward."""
    notation = problem.exported.block.__doc__.split("`")[1]
    names = list(inspect.signature(problem.exported.block).parameters)
    others = {
        name: type_text(tensor)
        for name, tensor in zip(names[1:], arguments[1:], strict=True)
        if re.search(rf"(?<![\w.]){name}(?![\w.(])", notation)
    }
    return Plan.make(notation, type_text(arguments[0]), others, "cuda").for_training()


Runs = dict[str, dict[str, Callable[[], object]]]


def runs(problem: Problem) -> Runs:
    """What is timed, by direction: the exported block, the library's plan, PyTorch eager and compiled."""
    arguments = problem.block_arguments(1)
    forward, backward = library_plans(problem, arguments)
    own = {info.name: tensor for info, tensor in zip(forward.inputs, arguments, strict=True)}
    call = forward.bind(own)
    call()
    gradient_of = next(info for info in backward.inputs if info.name.startswith("d_"))
    gradient = torch.randn(gradient_of.extents, device=DEVICE).to(gradient_of.dtype)
    back = backward.bind({**own, **call.outputs, gradient_of.name: gradient})

    def library_forward() -> None:
        call.fresh_outputs()
        call()

    def library_both() -> None:
        library_forward()
        for name, tensor in call.outputs.items():
            if any(info.name == name for info in backward.inputs):
                back.set_input(name, tensor)
        back.fresh_outputs()
        back()

    leaves = [each.clone().requires_grad_() for each in arguments]

    def alone(function: Callable[..., Tensor]) -> None:
        with torch.no_grad():
            function(*arguments)

    def both(function: Callable[..., Tensor]) -> None:
        output = function(*leaves)
        torch.autograd.grad(output, leaves, gradient.view_as(output))

    eager = problem.exported.by_pytorch
    functions = {"exported": problem.exported.block, "eager": eager, "torch.compile": torch.compile(eager)}
    return {
        direction: {
            "library": library,
            **{name: functools.partial(wrap, function) for name, function in functions.items()},
        }
        for direction, wrap, library in (
            ("forward", alone, library_forward),
            ("forward+backward", both, library_both),
        )
    }


def times(problem: Problem) -> dict[str, dict[str, Any]]:
    """Times by direction."""
    rows = {}
    for direction, functions in runs(problem).items():
        measured = {name: time_ms(function) for name, function in functions.items()}
        rows[direction] = {
            "fuseblock_ms": measured.pop("exported"),
            "library_ms": measured.pop("library"),
            "peers": measured,
        }
    return rows


def other_shapes(problem: Problem) -> list[torch.Size]:
    """Another batch, and other extents of positions; whole chunks where the kernels ask for them."""
    whole = "h * w % 256 == 0" in Path(problem.exported.__file__).read_text()
    extents = (32, 48) if whole else (12, 16, 20)
    return [torch.Size([3, shape[1], *extents[: len(shape) - 2]]) for shape in problem.shapes]


def strided(tensor: Tensor) -> Tensor:
    """Every second element of a wider tensor, from its second on."""
    wide = torch.zeros(*tensor.shape[:-1], 2 * tensor.shape[-1], device=tensor.device)
    wide[..., 1::2] = tensor
    return wide[..., 1::2]


def channels_last(tensor: Tensor) -> Tensor:
    """In the other layout where it has one."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.contiguous(memory_format=formats.get(tensor.dim(), torch.contiguous_format))


def misaligned(tensor: Tensor) -> Tensor:
    """One element behind the beginning of its memory."""
    memory = torch.empty(tensor.numel() + 1, device=tensor.device)
    memory[1:] = tensor.flatten()
    return memory[1:].view(tensor.shape)


def run_problem(name: str) -> list[dict[str, Any]]:
    """All rows of a problem."""
    problem = Problem(name)
    base = {"case": name, "dtype": "f32", "layout": "contiguous", "mode": "strict", "digest": problem.digest}
    errors = check(problem, problem.shapes, SEEDS, lambda tensor: tensor)
    others = other_shapes(problem)
    for lay_out in (torch.Tensor.contiguous, strided, channels_last, misaligned):
        check(problem, others, SEEDS[:2], lay_out)
    rows = []
    for direction, measured in times(problem).items():
        row = {**base, "direction": direction, "status": "passed", **measured, **errors}
        ratio = measured["fuseblock_ms"] / measured["library_ms"]
        if ratio > MOST_OF_LIBRARY:
            row |= {"status": "failed", "message": f"{ratio:.3f} times the library's time"}
        rows.append(row)
    return rows


def build_ahead(names: Sequence[str]) -> dict[str, float]:
    """Builds and compiles all that these problems need, side by side; the seconds that each file took."""
    command = [sys.executable, __file__, "--ahead"]
    started = {name: subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in names}
    twice = subprocess.Popen([*command, names[0]], stdout=subprocess.PIPE, text=True)
    seconds = {}
    for name, process in started.items():
        told, _ = process.communicate()
        found = re.search(r"^built in ([\d.]+) s$", told, re.MULTILINE)
        seconds[name] = float(found[1]) if found else float("nan")
    if twice.wait() != 0:
        raise RuntimeError(f"{names[0]}: the second of two processes that built it at once failed")
    return seconds


def ahead(name: str) -> None:
    """One process of `build_ahead`."""
    start = time.monotonic()
    problem = Problem(name)
    print(f"built in {time.monotonic() - start:.1f} s", flush=True)
    for functions in runs(problem).values():
        for function in functions.values():
            function()
    torch.cuda.synchronize()


def save(path: Path, rows: list[dict[str, Any]], left: int) -> None:
    """Writes the record."""
    document = {
        "device": torch.cuda.get_device_name(),
        "versions": {
            "fuseblock": version(),
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "python": platform.python_version(),
        },
        "digest": hashlib.sha256("\n".join(sorted({row["digest"] for row in rows})).encode()).hexdigest(),
        "rows_left": left,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": sorted(rows, key=lambda row: (row["case"], row["direction"])),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def main(arguments: Sequence[str]) -> int:
    """Runs the program; the exit status."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True  # gradients of convolutions are compared bit for bit, too
    if arguments[:1] == ["--ahead"]:
        ahead(arguments[1])
        return 0
    options = gpu_record.parser((__doc__ or "").partition("\n")[0]).parse_args(arguments)
    path = gpu_record.record_path(options, "exported")
    deadline = time.monotonic() + options.seconds
    rows: list[dict[str, Any]] = []
    if path.exists() and not options.again:
        rows = json.loads(path.read_text())["rows"]
    names = []
    for name in sorted(each.stem for each in (EXAMPLES / "problems").glob("*.py")):
        digest = hashlib.sha256(load_file(EXAMPLES / f"{name}.py").CUDA.encode()).hexdigest()
        own = [(row["digest"], row["status"]) for row in rows if row["case"] == name]
        if options.filter in name and (not own or set(own) != {(digest, "passed")}):
            names.append(name)
    rows = [row for row in rows if row["case"] not in names]
    print(f"{len(names)} files to run, {len({row['case'] for row in rows})} known", flush=True)
    built = build_ahead(names) if names else {}
    while names and time.monotonic() < deadline:
        name = names.pop(0)
        try:
            found = run_problem(name)
        except Exception as error:
            traceback.print_exc()
            base = {"case": name, "dtype": "f32", "layout": "contiguous", "direction": "all", "digest": ""}
            found = [{**base, "status": "failed", "message": f"{type(error).__name__}: {error}"[:400]}]
        for row in found:
            row["build_s"] = built[name]
            print(name, row["direction"], row["status"], row.get("message", ""), flush=True)
            print({key: row.get(key) for key in ("fuseblock_ms", "library_ms", "peers")}, flush=True)
        rows += found
        save(path, rows, len(names))
        torch.cuda.empty_cache()
    return 1 if names or any(row["status"] != "passed" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
