"""Plans from Python through the C API: results and gradients beside PyTorch, strides, threads, refusals."""

from __future__ import annotations

import gc
import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from fuseblock._capi import Plan, aligned_bytes, type_text, version
from torch import Tensor, nn
from torch.nn import functional

NOTATION = "conv2d(8, k=3) as conv | group_norm(4) | silu"


class Block(nn.Module):
    """The same as NOTATION."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 8, 3)
        self.group_norm = nn.GroupNorm(4, 8)

    def forward(self, x: Tensor) -> Tensor:
        return functional.silu(self.group_norm(self.conv(x)))


@pytest.fixture
def module() -> Block:
    torch.manual_seed(0)
    return Block()


def arguments(module: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """The tensors of the block by name."""
    return {"x": x, **{name: value.detach() for name, value in module.named_parameters()}}


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_results_and_gradients_are_those_of_torch(module: Block, dtype: torch.dtype, fuse: bool) -> None:
    module = module.to(dtype)
    x = torch.randn(3, 4, 9, 10, dtype=dtype, requires_grad=True)
    expected = module(x)
    d_output = torch.randn_like(expected)
    wanted = {"x": x, **dict(module.named_parameters())}
    expected_gradients = torch.autograd.grad(expected, list(wanted.values()), d_output)

    plan = Plan.make(NOTATION, type_text(x), threads=2, fuse=fuse)
    forward, backward = plan.for_training(list(wanted))
    inputs = arguments(module, x.detach())
    outputs = forward.run(inputs)
    torch.testing.assert_close(outputs["silu"], expected.detach(), atol=1e-5, rtol=1e-4)
    gradients = backward.run({**inputs, **outputs, "d_silu": d_output})
    assert list(gradients) == [f"d_{name}" for name in wanted]
    for found, reference in zip(gradients.values(), expected_gradients, strict=True):
        torch.testing.assert_close(found, reference, atol=1e-4, rtol=1e-4)
    for name, found in plan.backward(["conv.weight"]).run({**inputs, "d_silu": d_output}).items():
        assert name == "d_conv.weight"
        torch.testing.assert_close(found, gradients[name], atol=1e-5, rtol=1e-5)


def test_tensors_may_have_any_strides(module: Block) -> None:
    x = torch.randn(3, 4, 9, 10)
    plan = Plan.make(NOTATION, type_text(x))
    expected = plan.run(arguments(module, x))["silu"]
    strided = torch.randn(3, 4, 18, 10)[:, :, ::2].copy_(x)
    assert torch.equal(plan.run(arguments(module, strided))["silu"], expected)
    last = torch.empty_like(expected).to(memory_format=torch.channels_last)
    plan.run(arguments(module, x), {"silu": last})
    assert torch.equal(last, expected)


def test_type_text() -> None:
    assert type_text(torch.empty(2, 3)) == "f32[2,3]"
    image = torch.empty(2, 3, 4, 5, dtype=torch.bfloat16)
    assert type_text(image) == "bf16[2,3,4,5]"
    assert type_text(image.to(memory_format=torch.channels_last)) == "bf16[2,3,4,5]:cl"
    with pytest.raises(ValueError, match="int64"):
        type_text(torch.tensor([1]))


def test_a_bound_call_sees_what_its_tensors_hold_then() -> None:
    x = torch.ones(2, 3)
    call = Plan.make("mul(2) | add(1)", "f32[2,3]").bind({"x": x})
    gc.collect()
    call()
    assert call.outputs["add"].tolist() == [[3.0] * 3] * 2
    x.fill_(5)
    kept = call.outputs["add"]
    call.fresh_outputs()
    call()
    assert call.outputs["add"].tolist() == [[11.0] * 3] * 2
    assert kept.tolist() == [[3.0] * 3] * 2
    call.set_input("x", torch.full((3, 2), 7.0).T)
    gc.collect()
    call()
    assert call.outputs["add"].tolist() == [[15.0] * 3] * 2
    call.release_outputs()
    with pytest.raises(ValueError, match="add: the tensor has no memory"):
        call()


def test_threads_share_a_plan(module: Block) -> None:
    x = torch.randn(3, 4, 9, 10)
    plan = Plan.make(NOTATION, type_text(x))
    inputs = arguments(module, x)
    expected = plan.run(inputs)["silu"]

    def run_often() -> bool:
        call = plan.bind(inputs, workspace=aligned_bytes(plan.workspace_bytes))
        for _ in range(20):
            call.fresh_outputs()
            call()
            if not torch.equal(call.outputs["silu"], expected):
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: run_often(), range(4)))


def test_refusals() -> None:
    with pytest.raises(ValueError, match="8 channels do not divide into 7 groups"):
        Plan.make("group_norm(7)", "f32[2,8]")
    with pytest.raises(ValueError, match="by_cost"):
        Plan.make("relu", "f32[2,8]", reuse="never")
    with pytest.raises(ValueError, match="strict, tf32"):
        Plan.make("relu", "f32[2,8]", precision="half")
    with pytest.raises(ValueError, match="threads"):
        Plan.make("relu", "f32[2,8]", threads=-1)
    plan = Plan.make("relu", "f32[2,8]")
    with pytest.raises(ValueError, match="no tensor `x`, expected f32"):
        plan.run({})
    with pytest.raises(ValueError, match=r"x: expected f32\[2,8\], got f32\[2,9\]"):
        plan.run({"x": torch.empty(2, 9)})
    with pytest.raises(ValueError, match=r"x: expected f32\[2,8\], got f64\[2,8\]"):
        plan.run({"x": torch.empty(2, 8, dtype=torch.float64)})
    with pytest.raises(ValueError, match="int32"):
        plan.run({"x": torch.empty(2, 8, dtype=torch.int32)})
    with pytest.raises(ValueError, match="on cpu, got one on meta"):
        plan.run({"x": torch.empty(2, 8, device="meta")})
    with pytest.raises(ValueError, match="workspace has 0 bytes"):
        Plan.make("group_norm(2)", "f32[2,8,3,3]").bind(
            {
                "x": torch.rand(2, 8, 3, 3),
                "group_norm.weight": torch.ones(8),
                "group_norm.bias": torch.ones(8),
            },
            workspace=torch.empty(0, dtype=torch.uint8),
        )()


def test_what_a_plan_tells() -> None:
    plan = Plan.make(
        "mul(scale) | relu as y", "bf16[2,8,4,4]:cl", {"scale": "bf16[2,8,1,1]"}, device="reference"
    )
    assert [(info.name, info.type) for info in plan.inputs] == [
        ("x", "bf16[2,8,4,4]:cl"),
        ("scale", "bf16[2,8,1,1]"),
    ]
    (output,) = plan.outputs
    assert output.dtype == torch.bfloat16
    assert output.empty().is_contiguous(memory_format=torch.channels_last)
    assert output.bytes == 2 * 8 * 4 * 4 * 2
    assert "reference" in plan.explain()
    report = json.loads(plan.explain_json())
    assert report["engine"] == "reference"
    assert report["workspace_bytes"] == plan.workspace_bytes
    assert version().count(".") == 2
