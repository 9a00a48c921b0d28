#!/usr/bin/env python3
"""The exported files of examples/exported on the GPU: right, and as fast as the library.

    python3 tests/gpu/test_export.py [--filter TEXT] [--out FILE] [--again]

Needs the build folder, a GPU, torch and nvcc. A file is built, then:

  - output and gradients of all parameters and inputs, five seeds, weights and biases of norms random, beside
    the original model and float64: max|e| <= 2 max|e_torch| + 4 ulp(max|ref|), pooled over the seeds;
  - the same for another batch and other extents, and for channels_last, strided and misaligned inputs;
  - the same bits twice;
  - times of its block, forward and forward + backward, beside the library's own plan (at most 5 % more),
    PyTorch eager and torch.compile, medians with L2 emptied before each run.

Two processes build the first file at once. Rows go to benchmarks/results/h200/export.json (--out), with the
digest of the file's CUDA text; rows that passed with the same text are not run again unless --again is given.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import hashlib
import importlib.util
import inspect
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "python")]
# Of the package only `_capi` is taken, which needs the C library alone.
_package = types.ModuleType("fuseblock")
_package.__path__ = [str(ROOT / "python" / "fuseblock")]
sys.modules.setdefault("fuseblock", _package)

import torch  # noqa: E402
from fuseblock._capi import Plan, type_text  # noqa: E402
from gpu_row import Measured  # noqa: E402
from torch import Tensor, nn  # noqa: E402

EXAMPLES = ROOT / "examples" / "exported"
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
    generator = torch.Generator().manual_seed(1000 + seed)
    return [torch.rand(shape, generator=generator).cuda() for shape in shapes]


def results(model: nn.Module, inputs: Sequence[Tensor], seed: int) -> dict[str, Tensor]:
    """Output and all gradients for a random gradient of the output, by name."""
    model.zero_grad(set_to_none=True)
    leaves = [each.detach().requires_grad_() for each in inputs]
    output = model(*leaves)
    generator = torch.Generator().manual_seed(2000 + seed)
    gradient = torch.randn(output.shape, generator=generator).to(output)
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
        start = time.monotonic()
        self.exported.library()
        self.build_seconds = time.monotonic() - start

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
        run = self.exported.run

        def counted(*arguments: Any) -> None:
            nonlocal count
            count += 1
            run(*arguments)

        self.exported.run = counted
        try:
            found = function()
        finally:
            self.exported.run = run
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
        peer = results(original, inputs, seed)
        reference = results(exact, [each.double() for each in inputs], seed)
        for name, tensor in got.items():
            if not name.startswith("d_conv"):  # cuDNN's gradients may differ from run to run
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
        torch.cuda._sleep(2_000_000)
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


def times(problem: Problem) -> dict[str, dict[str, Any]]:
    """Times of the block by direction, of the exported file, the library, and PyTorch eager and compiled."""
    arguments = problem.block_arguments(1)
    forward, backward = library_plans(problem, arguments)
    own = {info.name: tensor for info, tensor in zip(forward.inputs, arguments, strict=True)}
    call = forward.bind(own)
    call()
    gradient_of = next(info for info in backward.inputs if info.name.startswith("d_"))
    gradient = torch.randn(gradient_of.extents, device="cuda").to(gradient_of.dtype)
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

    def both(function: Callable[..., Tensor]) -> Callable[[], object]:
        def run() -> None:
            output = function(*leaves)
            torch.autograd.grad(output, leaves, gradient.view_as(output))

        return run

    def alone(function: Callable[..., Tensor]) -> Callable[[], object]:
        def run() -> None:
            with torch.no_grad():
                function(*arguments)

        return run

    eager = problem.exported.by_pytorch
    compiled = torch.compile(eager)
    rows = {}
    for direction, wrap, library in (
        ("forward", alone, library_forward),
        ("forward+backward", both, library_both),
    ):
        rows[direction] = {
            "fuseblock_ms": time_ms(wrap(problem.exported.block)),
            "library_ms": time_ms(library),
            "peers": {"eager": time_ms(wrap(eager)), "compile": time_ms(wrap(compiled))},
        }
    return rows


def whole_model_times(problem: Problem) -> dict[str, Any]:
    """Times of the whole model, forward."""
    new, original, _ = problem.models(1)
    inputs = drawn(problem.shapes, 1)
    compiled = torch.compile(original)
    with torch.no_grad():
        return {
            "fuseblock_ms": time_ms(lambda: new(*inputs)),
            "peers": {
                "eager": time_ms(lambda: original(*inputs)),
                "compile": time_ms(lambda: compiled(*inputs)),
            },
        }


def other_shapes(shapes: Sequence[torch.Size]) -> list[torch.Size]:
    """Another batch, and other extents where an input has positions."""
    return [torch.Size([3, shape[1], *(12 + 4 * i for i in range(len(shape) - 2))]) for shape in shapes]


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
    others = other_shapes(problem.shapes)
    for lay_out in (torch.Tensor.contiguous, strided, channels_last, misaligned):
        check(problem, others, SEEDS[:2], lay_out)
    rows = []
    for direction, measured in times(problem).items():
        ratio = measured["fuseblock_ms"] / measured["library_ms"]
        status = "passed" if ratio <= MOST_OF_LIBRARY else f"{ratio:.3f} times the library's time"
        rows.append({**base, "direction": direction, "status": status, **measured, **errors})
    rows.append({**base, "direction": "model forward", "status": "passed", **whole_model_times(problem)})
    for row in rows:
        row["build_s"] = round(problem.build_seconds, 1)
    return rows


def build_twice(name: str, folder: str) -> None:
    """Two processes build a file at the same time, in an empty folder."""
    program = (
        "import importlib.util\n"
        f"spec = importlib.util.spec_from_file_location('new', {str(EXAMPLES / f'{name}.py')!r})\n"
        "new = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(new)\n"
        "new.library().forward\n"
    )
    environment = {**os.environ, "TORCH_EXTENSIONS_DIR": folder}
    running = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(2)]
    assert [each.wait() for each in running] == [0, 0]


def main(arguments: Sequence[str]) -> int:
    """Runs the program; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--filter", default="", help="only problems whose name has this")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "h200" / "export.json")
    parser.add_argument("--again", action="store_true", help="run rows that passed, too")
    options = parser.parse_args(arguments)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    document: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {"rows": []}
    names = sorted(path.stem for path in (EXAMPLES / "problems").glob("*.py") if options.filter in path.stem)
    with tempfile.TemporaryDirectory() as folder:
        build_twice(names[0], folder)
    failed = []
    for name in names:
        digest = hashlib.sha256(load_file(EXAMPLES / f"{name}.py").CUDA.encode()).hexdigest()
        known = [row for row in document["rows"] if row["case"] == name]
        if (
            known
            and not options.again
            and all((row["digest"], row["status"]) == (digest, "passed") for row in known)
        ):
            continue
        try:
            rows = run_problem(name)
        except Exception:
            traceback.print_exc()
            rows = [{"case": name, "digest": digest, "status": traceback.format_exc(limit=1)}]
        document["rows"] = [row for row in document["rows"] if row["case"] != name] + rows
        document |= {
            "device": torch.cuda.get_device_name(),
            "versions": {"torch": torch.__version__, "python": platform.python_version()},
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        }
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(document, indent=1) + "\n")
        for row in rows:
            print(
                name,
                row.get("direction", ""),
                row["status"],
                row.get("fuseblock_ms", ""),
                row.get("library_ms", ""),
                row.get("peers", ""),
                flush=True,
            )
        failed += [row for row in rows if row["status"] != "passed"]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
