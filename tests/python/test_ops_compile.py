"""The operations in PyTorch's dispatcher: opcheck, torch.compile, torch.export, torch.jit.trace."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fuseblock._blocks import block, pytorch_operators
from ops_support import BLOCKS, as_tuple, assert_same, by_torch, gradients, tensors
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend
from torch.library import opcheck

NAMES = list(BLOCKS)
ops = torch.ops.fuseblock
trace: Any = torch.jit.trace  # which has no types


@pytest.fixture(autouse=True)
def _fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("name", ["norm", "residual", "scaled", "two_outputs"])
def test_opcheck_by_notation(name: str, keep: bool) -> None:
    own, arguments = tensors(name, channels_last=name == "residual")
    opcheck(ops.run.default, (own.notation, keep, arguments))
    plain = [argument.detach() for argument in arguments]
    incoming = [torch.randn_like(output) for output in as_tuple(own(*plain))]
    wanted = (1 << len(arguments)) - 1
    opcheck(ops.run_backward.default, (own.notation, keep, plain, incoming, wanted))
    opcheck(
        ops.run_backward.default,
        (own.notation, keep, [a.requires_grad_() for a in plain], incoming, 1),
        test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
    )


@pytest.mark.parametrize("name", ["norm", "residual", "two_outputs"])
def test_opcheck_by_handle(name: str) -> None:
    own, arguments = tensors(name, requires_grad=False)
    handle = ops.block(own.notation, False)
    wanted = (1 << len(arguments)) - 1
    assert ops.prepare(handle, arguments, 0, "")[0] == "ready"
    assert ops.prepare(handle, arguments, wanted, "")[0] == "ready"
    opcheck(ops.forward.default, (handle, arguments, 0))
    # What is saved depends on the extents, so these are not symbolic.
    static = ("test_schema", "test_autograd_registration", "test_faketensor")
    opcheck(ops.forward.default, (handle, arguments, wanted), test_utils=static)
    count = len(as_tuple(own(*arguments)))
    results = ops.forward(handle, arguments, wanted)
    incoming = [torch.randn_like(output) for output in results[:count]]
    saved = results[count]
    opcheck(ops.backward.default, (handle, arguments, wanted, incoming, saved), test_utils="test_schema")
    alone = wanted | 1 << 62
    assert ops.prepare(handle, arguments, alone, "")[0] == "ready"
    opcheck(ops.backward_alone.default, (handle, arguments, incoming, wanted))


def test_handles_are_checked() -> None:
    x = torch.randn(2, 3)
    errors = (ValueError, RuntimeError)  # by the version of PyTorch
    with pytest.raises(errors, match="expected the handle of a block, got 12345"):
        ops.forward(12345, [x], 0)
    with pytest.raises(errors, match="no operation `sillu`"):
        ops.block("sillu", False)
    handle = ops.block("silu", False)
    with pytest.raises(errors, match="saved: expected the bytes that `forward` saved"):
        ops.backward(handle, [x], 1, [x], x)
    for made in (torch.zeros(8, dtype=torch.uint8), torch.full([80], 3, dtype=torch.uint8)):
        with pytest.raises(errors, match="expected the"):
            ops.backward(handle, [x], 1, [x], made)


@pytest.mark.parametrize("name", NAMES)
def test_compiled(name: str) -> None:
    own, arguments = tensors(name)
    compiled = torch.compile(own, fullgraph=True, backend="aot_eager")
    outputs = as_tuple(compiled(*arguments))
    expected = as_tuple(own(*arguments))
    assert_same(outputs, expected)
    assert_same(gradients(outputs, arguments), gradients(expected, arguments), factor=256)
    with torch.no_grad():
        assert_same(as_tuple(compiled(*arguments)), expected)


def test_a_dynamic_batch_compiles_once() -> None:
    own, _ = tensors("residual")
    counter = CompileCounterWithBackend("aot_eager")

    def function(*arguments: Tensor) -> Tensor:
        return as_tuple(own(*arguments))[0] * 2

    compiled = torch.compile(function, fullgraph=True, backend=counter)
    for batch in (2, 3, 7):
        _, arguments = tensors("residual", batch=batch)
        torch._dynamo.mark_dynamic(arguments[0], 0)
        output = compiled(*arguments)
        assert_same([output], [function(*arguments)])
        expected = gradients([function(*arguments)], arguments)
        assert_same(gradients([output], arguments), expected, factor=256)
    assert counter.frame_count == 1


def test_compiled_by_inductor() -> None:
    # Nothing beside the block: a C++ compiler and Python's headers are not needed then.
    own, arguments = tensors("two_outputs", requires_grad=False)
    compiled = torch.compile(own, fullgraph=True)
    assert_same(as_tuple(compiled(*arguments)), as_tuple(own(*arguments)))


@pytest.mark.parametrize("name", ["residual", "linear"])
def test_compiled_under_autocast(name: str) -> None:
    own, arguments = tensors(name)

    def function(*tensors_: Tensor) -> tuple[Tensor, ...]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return as_tuple(own(*tensors_))

    outputs = torch.compile(function, fullgraph=True, backend="aot_eager")(*arguments)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = by_torch(own, arguments)
    assert_same(outputs, expected, factor=16)
    assert_same(gradients(outputs, arguments), gradients(expected, arguments), factor=1 << 18)


@pytest.mark.parametrize("name", ["norm", "residual", "two_outputs"])
def test_exported(name: str) -> None:
    own, arguments = tensors(name, requires_grad=False)

    class Module(torch.nn.Module):
        def forward(self, *tensors_: Tensor) -> tuple[Tensor, ...]:
            return as_tuple(own(*tensors_))

    batch = torch.export.Dim("batch")
    dynamic = tuple({0: batch} if i == 0 else {} for i in range(len(arguments)))
    program = torch.export.export(Module(), tuple(arguments), dynamic_shapes=(dynamic,))
    assert "fuseblock.run.default" in program.graph_module.code
    _, others = tensors(name, requires_grad=False, batch=5)
    assert_same(program.module()(*others), as_tuple(own(*others)))


class Traced(torch.nn.Module):
    """A block of which a trace can be saved."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.own, self.arguments = tensors(name, requires_grad=False)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return as_tuple(self.own(x, *self.arguments[1:]))


# Blocks of its own come first, so that numbers in the order of registration would name these.
LOADS_A_TRACE = """
import sys, torch, fuseblock
for groups in (1, 2, 4):
    fuseblock.nn.GroupNorm(groups, 8)(torch.randn(2, 8, 3, 3))
x, expected = torch.load(sys.argv[2])
torch.testing.assert_close(torch.jit.load(sys.argv[1])(x), expected, atol=0, rtol=0)
"""


@pytest.mark.parametrize("name", ["residual", "two_outputs"])
@pytest.mark.parametrize("called_before", [False, True])
def test_a_saved_trace_means_the_same_in_another_process(
    name: str, called_before: bool, tmp_path: Path
) -> None:
    module = Traced(name)
    x = module.arguments[0]
    if called_before:
        module(x)
    traced = trace(module, x)
    assert "fuseblock::run" in str(traced.inlined_graph)
    _, others = tensors(name, requires_grad=False, batch=5)
    assert_same(traced(others[0]), as_tuple(module(others[0])))
    x.requires_grad_()
    assert_same(gradients(traced(x), [x]), gradients(module(x), [x]), factor=256)
    traced.save(tmp_path / "trace.pt")
    x = x.detach()
    torch.save((x, module(x)), tmp_path / "data.pt")
    command = [sys.executable, "-c", LOADS_A_TRACE, str(tmp_path / "trace.pt"), str(tmp_path / "data.pt")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(command, env=environment, check=True)


def test_a_trace_of_pytorchs_operators_on_request() -> None:
    module = Traced("norm")
    x = module.arguments[0]
    with pytorch_operators():
        traced = trace(module, x)
    assert "fuseblock::" not in str(traced.inlined_graph)
    assert_same(traced(x), module(x))


def test_notation_by_itself() -> None:
    own, arguments = tensors("scaled", torch.float64)
    (output,) = ops.run(own.notation, False, arguments)
    assert_same([output], as_tuple(own(*arguments)))
    assert torch.autograd.gradcheck(lambda *t: ops.run(own.notation, False, list(t))[0], arguments)
    assert torch.autograd.gradgradcheck(
        lambda *t: ops.run(own.notation, False, list(t))[0], arguments, fast_mode=True
    )


def test_results_do_not_share_memory_with_arguments() -> None:
    x = torch.randn(2, 3, 4)
    (output,) = ops.run("cast(f32)", False, [x])
    assert output.data_ptr() != x.data_ptr()
    assert torch.equal(output, x)


def test_meta_tensors() -> None:
    own = block("group_norm(4) | silu | mean(h,w)")
    x, weight = torch.empty(2, 8, 5, 7, device="meta"), torch.empty(8, device="meta")
    assert as_tuple(own(x, weight, weight))[0].shape == (2, 8)
