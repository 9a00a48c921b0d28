"""Compares a module with itself run by PyTorch's operators and in float64: outputs and every gradient.

The bar for each tensor is `max|e| <= 2 max|e_torch| + 4 ulp(max|reference|)`: e is the error against float64,
e_torch that of PyTorch's operators on the same data, ulp that of the tensor's dtype. Tensors of float64 are
compared with PyTorch's own: `max|e| <= 1e-10 (1 + max|reference|)`. Where float64 and PyTorch are finite the
result must be.
"""

from __future__ import annotations

import contextlib
import copy
import math
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from fuseblock import _blocks

__all__ = ["Row", "Verification", "error_bar", "verify"]


@dataclass(frozen=True)
class Row:
    """One output or gradient. `largest` is the largest finite absolute value of the reference."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    largest: float
    error: float
    torch_error: float
    bar: float
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is within the bar."""
        return not self.problem and self.error <= self.bar


@dataclass(frozen=True, repr=False)
class Verification:
    """What `verify` found; true where every tensor is within the bar.

    command: the one that repeats it, where something is not.
    """

    module: str
    rows: tuple[Row, ...]
    command: str | None = None

    @property
    def ok(self) -> bool:
        """Whether every tensor is within the bar."""
        return all(row.ok for row in self.rows)

    def __bool__(self) -> bool:
        return self.ok

    def __repr__(self) -> str:
        return f"<Verification of {self.module}: {sum(row.ok for row in self.rows)} of {len(self.rows)} ok>"

    def __str__(self) -> str:
        """The table."""
        head = ("tensor", "type", "largest", "error", "PyTorch's", "bar", "")
        lines = [head, *(_cells(row) for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
        table = [
            "  ".join(
                cell.ljust(width) if i in (0, 1) else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        within = sum(row.ok for row in self.rows)
        summary = f"{self.module}: {within} of {len(self.rows)} tensors within the bar"
        ending = [f"repeat with: {self.command}"] if self.command else []
        return "\n".join([*table, summary, *ending])


def verify(
    module: torch.nn.Module,
    *inputs: Any,
    seed: int = 0,
    file: TextIO | None = None,
    **named: Any,
) -> Verification:
    """Compares a module with PyTorch's operators and with float64, and prints a table.

    module: any module; its fuseblock blocks are compared with themselves run by PyTorch's operators.
    inputs, named: what it is called with. Gradients are taken of all floating-point tensors among them and of
    all parameters that require them.
    seed: of the gradients that come in, and of what the module draws itself.
    file: where to print; standard output unless given.

    Where something is not within the bar, or the module fails, the module and its inputs are written to a
    file, and the command that repeats this is printed.

    >>> import torch, fuseblock
    >>> module = fuseblock.nn.GroupNorm(4, 8, act="silu")
    >>> result = fuseblock.verify(module, torch.randn(2, 8, 6, 6))  # doctest: +ELLIPSIS
    tensor    type          largest    error  PyTorch's      bar
    output    f32[2,8,6,6]  ...
    d_input   f32[2,8,6,6]  ...
    d_weight  f32[8]        ...
    d_bias    f32[8]        ...
    GroupNorm: 4 of 4 tensors within the bar
    >>> result.ok
    True
    """
    name = type(module).__name__
    with torch.inference_mode(False), torch.enable_grad():
        with _blocks.pytorch_operators():
            exact = _run(module, inputs, named, seed, torch.float64)
            theirs = _peer(module, inputs, named, seed)
        try:
            ours = _run(module, inputs, named, seed, None)
        except Exception as error:
            error.add_note(f"repeat with: {_save(module, inputs, named, seed)}")
            raise
    rows = tuple(_row(key, ours.get(key), theirs[key], exact[key]) for key in exact)
    command = None if all(row.ok for row in rows) else _save(module, inputs, named, seed)
    result = Verification(name, rows, command)
    print(result, file=file)
    return result


def error_bar(torch_error: float, largest: float, dtype: torch.dtype) -> float:
    """The largest error that a tensor may have; see the head of this file."""
    if dtype == torch.float64:
        return 1e-10 * (1 + largest)
    info = torch.finfo(dtype)
    ulp = info.eps * 2.0 ** math.floor(math.log2(max(largest, info.tiny)))
    return 2 * torch_error + 4 * ulp


def _peer(module: torch.nn.Module, inputs: Any, named: Any, seed: int) -> dict[str, Tensor]:
    """PyTorch's results; in f32 where it lacks an operator for 16 bits."""
    try:
        return _run(module, inputs, named, seed, None)
    except (NotImplementedError, RuntimeError) as error:
        if "not implemented" not in str(error):
            raise
        return _run(module, inputs, named, seed, torch.float32)


def _run(
    module: torch.nn.Module, inputs: Any, named: Any, seed: int, dtype: torch.dtype | None
) -> dict[str, Tensor]:
    """Outputs and gradients by name, the module and its inputs cast to a dtype where one is given."""
    own = copy.deepcopy(module)
    if dtype is not None:
        own = own.to(dtype)
    leaves, layout = pytree.tree_flatten((inputs, named))
    leaves = [_leaf(each, dtype) for each in leaves]
    args, kwargs = pytree.tree_unflatten(leaves, layout)
    with _seeded(seed):
        outputs = [each for each in pytree.tree_leaves(own(*args, **kwargs)) if isinstance(each, Tensor)]
    results = {key: each.detach() for key, each in zip(_names("output", len(outputs)), outputs, strict=True)}
    tensors = [each for each in leaves if isinstance(each, Tensor) and each.requires_grad]
    wanted = dict(zip(_names("d_input", len(tensors)), tensors, strict=True))
    wanted |= {f"d_{key}": each for key, each in own.named_parameters() if each.requires_grad}
    generator = torch.Generator().manual_seed(seed)
    incoming = [torch.randn(each.shape, generator=generator, dtype=torch.float64) for each in outputs]
    pairs = [(each, d.to(each)) for each, d in zip(outputs, incoming, strict=True) if each.requires_grad]
    if pairs and wanted:
        found = torch.autograd.grad(
            [each for each, _ in pairs], list(wanted.values()), [d for _, d in pairs], allow_unused=True
        )
        results |= {
            key: torch.zeros_like(each) if gradient is None else gradient
            for (key, each), gradient in zip(wanted.items(), found, strict=True)
        }
    return results


def _leaf(value: Any, dtype: torch.dtype | None) -> Any:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return value
    return value.detach().to(dtype or value.dtype).requires_grad_()


def _names(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}{i + 1}" for i in range(count)]


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def _row(name: str, ours: Tensor | None, theirs: Tensor, exact: Tensor) -> Row:
    if ours is None:
        return Row(name, theirs.dtype, tuple(exact.shape), 0, math.inf, 0, 0, "missing")
    problem = ""
    if ours.shape != exact.shape:
        problem = f"has the shape {list(ours.shape)}"
        return Row(name, ours.dtype, tuple(exact.shape), 0, math.inf, 0, 0, problem)
    if ours.dtype != theirs.dtype and theirs.dtype != torch.float32:
        problem = f"is {ours.dtype}, PyTorch's {theirs.dtype}"
    mine, peer, reference = ours.double(), theirs.to(ours.dtype).double(), exact.double()
    agreed = reference.isfinite() & peer.isfinite()
    if not bool(mine[agreed].isfinite().all()):
        problem = "is not finite where PyTorch is"
    largest = _largest(reference)
    torch_error = _largest((peer - reference)[agreed])
    error = _largest((mine - reference)[agreed])
    bar = error_bar(torch_error, largest, ours.dtype)
    return Row(name, ours.dtype, tuple(exact.shape), largest, error, torch_error, bar, problem)


def _largest(values: Tensor) -> float:
    finite = values[values.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0


def _cells(row: Row) -> tuple[str, ...]:
    short = {torch.float64: "f64", torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
    kind = f"{short.get(row.dtype, row.dtype)}[{','.join(str(extent) for extent in row.shape)}]"
    figures = (row.largest, row.error, row.torch_error, row.bar)
    verdict = "" if row.ok else row.problem or "above the bar"
    return (row.name, kind, *(f"{figure:.1e}" for figure in figures), verdict)


def _save(module: torch.nn.Module, inputs: Any, named: Any, seed: int) -> str:
    """Writes what was verified to a file; returns the command that repeats it."""
    saved = {"module": module, "inputs": inputs, "named": named, "seed": seed}
    with tempfile.NamedTemporaryFile(prefix="fuseblock-verify-", suffix=".pt", delete=False) as file:
        try:
            torch.save(saved, file)
        except Exception as error:  # a module that cannot be pickled
            return f"fuseblock.verify(module, *inputs, seed={seed}) (not written to a file: {error})"
    return f"python -m fuseblock verify {file.name}"


def repeat(path: str) -> Verification:
    """Repeats what was written to a file."""
    saved = torch.load(path, weights_only=False)
    return verify(saved["module"], *saved["inputs"], seed=saved["seed"], **saved["named"])


def main(words: Sequence[str]) -> int:
    """`python -m fuseblock verify FILE`: the status is 0 where all is within the bar, 1 where not."""
    if len(words) != 2 or words[0] != "verify":
        print(
            "usage: python -m fuseblock verify FILE   (a file that fuseblock.verify wrote)", file=sys.stderr
        )
        return 2
    return 0 if repeat(words[1]) else 1
