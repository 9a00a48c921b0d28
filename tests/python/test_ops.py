"""Blocks on tensors in eager mode: values, gradients, formats, dtypes, and what PyTorch's users rely on."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from fuseblock import _blocks
from fuseblock._blocks import block, pytorch_operators
from ops_support import BLOCKS, as_tuple, assert_same, by_torch, gradients, tensors
from torch import Tensor
from torch.utils.checkpoint import checkpoint

NAMES = list(BLOCKS)
# Functions without types.
forward_ad: Any = torch.autograd.forward_ad
jvp: Any = torch.autograd.functional.jvp


def runs_a_plan(own: _blocks.Block, arguments: list[Tensor]) -> bool:
    """Whether `explain` shows a plan of the engine."""
    text = own.explain(*arguments)
    assert ("engine cpu" in text) != ("PyTorch's operators run" in text)
    return "engine cpu" in text


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradients(name: str, dtype: torch.dtype, channels_last: bool) -> None:
    own, arguments = tensors(name, dtype, channels_last=channels_last)
    assert runs_a_plan(own, arguments)
    outputs = as_tuple(own(*arguments))
    expected = by_torch(own, arguments)
    # PyTorch rounds between the operators, the plan at the end.
    factor = 64 if dtype in (torch.float64, torch.float32) else 16
    assert_same(outputs, expected, factor)
    assert_same(gradients(outputs, arguments), gradients(expected, arguments), 8 * factor)


@pytest.mark.parametrize("name", NAMES)
def test_gradcheck(name: str) -> None:
    own, arguments = tensors(name, torch.float64)
    assert torch.autograd.gradcheck(own, arguments, fast_mode=True)
    assert torch.autograd.gradgradcheck(own, arguments, fast_mode=True)


def test_third_derivative() -> None:
    own = block("silu | square")
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    expected = (F.silu(x) ** 2).sum()
    got = own(x)
    assert isinstance(got, Tensor)
    got = got.sum()
    for _ in range(3):
        (got,) = torch.autograd.grad(got.sum(), x, create_graph=True)
        (expected,) = torch.autograd.grad(expected.sum(), x, create_graph=True)
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("name", NAMES)
def test_memory_format_in_is_memory_format_out(name: str) -> None:
    own, arguments = tensors(name, channels_last=True)
    for output in as_tuple(own(*arguments)):
        if output.dim() in (4, 5):
            last = torch.channels_last if output.dim() == 4 else torch.channels_last_3d
            assert output.is_contiguous(memory_format=last)
    own, arguments = tensors(name)
    for output in as_tuple(own(*arguments)):
        assert output.is_contiguous()


def test_gradients_have_the_format_of_the_arguments() -> None:
    own, arguments = tensors("residual", channels_last=True)
    outputs = as_tuple(own(*arguments))
    for argument, gradient in zip(arguments, gradients(outputs, arguments), strict=True):
        assert gradient.stride() == argument.stride()


@pytest.mark.parametrize("name", NAMES)
def test_any_strides(name: str) -> None:
    own, arguments = tensors(name, requires_grad=False)
    expected = as_tuple(own(*arguments))
    gaps = [torch.stack([a, torch.full_like(a, torch.nan)], -1)[..., 0] for a in arguments]
    flipped = [a.transpose(0, -1).contiguous().transpose(0, -1) for a in arguments]
    offset = [torch.cat([a.new_full([1], torch.nan), a.flatten()])[1:].view(a.shape) for a in arguments]
    for other in (gaps, flipped, offset):
        assert_same(as_tuple(own(*other)), expected)
    twice = [other.requires_grad_() for other in gaps]
    wanted = [a.clone().requires_grad_() for a in arguments]
    assert_same(
        gradients(as_tuple(own(*twice)), twice), gradients(as_tuple(own(*wanted)), wanted), factor=128
    )


def test_expanded_tensors() -> None:
    own = block("group_norm(2) | add(skip)")
    x = torch.randn(1, 4, 3, 3).expand(3, 4, 3, 3)
    skip = torch.randn(1, 1, 1, 3).expand(3, 4, 3, 3)
    weight, bias = torch.randn(1).expand(4), torch.zeros(4)
    assert_same(as_tuple(own(x, skip, weight, bias)), [F.group_norm(x.contiguous(), 2, weight, bias) + skip])
    # The gradient of a sum is an expanded tensor too.
    x = torch.randn(2, 4, 3, 3, requires_grad=True)
    arguments = [x, skip[:2], weight, bias]
    (got,) = torch.autograd.grad(as_tuple(own(*arguments))[0].sum(), x)
    (expected,) = torch.autograd.grad(by_torch(own, arguments)[0].sum(), x)
    assert_same([got], [expected])


@pytest.mark.parametrize("name", [name for name in NAMES if name != "skip"])
def test_zero_size_batch(name: str) -> None:
    own, arguments = tensors(name, batch=0)
    outputs = as_tuple(own(*arguments))
    expected = by_torch(own, arguments)
    assert_same(outputs, expected)
    for gradient, argument in zip(gradients(outputs, arguments), arguments, strict=True):
        assert gradient.shape == argument.shape
        assert not gradient.any()


@pytest.mark.parametrize("name", ["norm", "residual", "before"])
def test_subsets_of_gradients(name: str) -> None:
    own, arguments = tensors(name)
    expected = gradients(as_tuple(own(*arguments)), arguments)
    for chosen in range(len(arguments)):
        some = [a.detach().requires_grad_(i == chosen) for i, a in enumerate(arguments)]
        outputs = as_tuple(own(*some))
        assert_same(gradients(outputs, some), expected[chosen : chosen + 1], factor=128)


def test_no_gradient_is_recorded_where_none_is_wanted() -> None:
    own, arguments = tensors("residual")
    expected = as_tuple(own(*arguments))
    assert all(output.requires_grad for output in expected)
    with torch.no_grad():
        assert not any(output.requires_grad for output in as_tuple(own(*arguments)))
    with torch.inference_mode():
        inferred = as_tuple(own(*arguments))
    assert all(output.is_inference() for output in inferred)
    assert_same(inferred, [output.detach() for output in expected])
    with torch.inference_mode():
        made = [torch.randn_like(a) for a in arguments]
    assert all(not output.requires_grad for output in as_tuple(own(*made)))


def test_only_what_backward_reads_is_saved() -> None:
    own = block("conv2d(4, k=1) | add(skip)")
    x, skip, weight = (torch.randn(s, requires_grad=True) for s in ((2, 3, 4, 4), (2, 4, 4, 4), (4, 3, 1, 1)))
    bias = torch.zeros(4)
    changed = skip * 1
    (output,) = as_tuple(own(x, changed, weight, bias))
    changed.mul_(2)  # PyTorch's add does not need it either
    torch.autograd.grad(output.sum(), [x, skip])
    changed = weight * 1
    (output,) = as_tuple(own(x, skip, changed, bias))
    changed.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(output.sum(), x)


def test_two_blocks_of_one_notation_share_their_plans() -> None:
    notation = "tanh | group_norm(2) | mul(2)"
    for own in (_blocks.Block(notation), _blocks.Block(notation)):
        for extent in (3, 4):
            arguments = [torch.randn(s, requires_grad=True) for s in ((2, 4, extent), (4,), (4,))]
            assert_same(
                gradients(as_tuple(own(*arguments)), arguments),
                gradients(by_torch(own, arguments), arguments),
            )
    # Plans that were made through the operations alone.
    handle = torch.ops.fuseblock.block("tanh | square", False)
    x = torch.randn(2, 3, requires_grad=True)
    assert torch.ops.fuseblock.prepare(handle, [x.detach()], 1, "")[0] == "ready"
    (found,) = torch.autograd.grad(as_tuple(block("tanh | square")(x))[0].sum(), x)
    assert_same([found], torch.autograd.grad((torch.tanh(x) ** 2).sum(), x))


def test_one_argument_made_from_another() -> None:
    own = block("tanh | mul(y)")
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: own(t, t.square()), [x])
    assert torch.autograd.gradgradcheck(lambda t: own(t, t.square()), [x])
    assert torch.autograd.gradgradcheck(lambda t: own(t, t), [x])


@pytest.mark.parametrize("name", ["norm", "residual", "reduced", "two_outputs", "linear"])
def test_autocast(name: str) -> None:
    own, arguments = tensors(name)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = as_tuple(own(*arguments))
        expected = by_torch(own, arguments)
        assert "engine cpu" in own.explain(*arguments)
    assert_same(outputs, expected, factor=16)
    assert_same(gradients(outputs, arguments), gradients(expected, arguments), factor=1 << 18)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.autocast("cpu", enabled=False):
        assert as_tuple(own(*arguments))[0].dtype == torch.float32


def test_autocast_still_casts_parameters_for_others() -> None:
    weight, x = torch.randn(4, 3, requires_grad=True), torch.randn(2, 3)
    own = block("linear(4, bias=false) | square")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        own(x, weight)
        (found,) = torch.autograd.grad(F.linear(x, weight).float().sum(), weight)
    assert found.any()


def test_bf16_activations_with_f32_parameters() -> None:
    own = block("group_norm(4) | silu")
    x = torch.randn(2, 8, 5, 7, dtype=torch.bfloat16, requires_grad=True)
    weight, bias = (torch.randn(8, requires_grad=True) for _ in range(2))
    arguments = [x, weight, bias]
    assert runs_a_plan(own, arguments)
    outputs, expected = as_tuple(own(*arguments)), by_torch(own, arguments)
    assert_same(outputs, expected, factor=8)
    found = gradients(outputs, arguments)
    assert [g.dtype for g in found] == [torch.bfloat16, torch.float32, torch.float32]
    assert_same(found[:1], gradients(expected, arguments)[:1], factor=16)


def test_a_mix_of_dtypes_that_pytorch_promotes() -> None:
    own = block("silu | add(skip)")
    x, skip = torch.randn(2, 3, 4, dtype=torch.bfloat16), torch.randn(2, 3, 4)
    assert as_tuple(own(x, skip))[0].dtype == torch.float32
    assert as_tuple(own(skip, x))[0].dtype == torch.float32


def test_a_mix_of_dtypes_that_pytorch_refuses() -> None:
    own = block("conv2d(4, k=3)")
    x = torch.randn(1, 3, 5, 5, dtype=torch.bfloat16)
    weight, bias = torch.randn(4, 3, 3, 3), torch.randn(4)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"conv2d: .*type"):
            own(x, weight, bias)


def test_the_same_bits_on_any_number_of_threads() -> None:
    own, arguments = tensors("residual", batch=64)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            outputs = as_tuple(own(*arguments))
            results.append([*outputs, *gradients(outputs, arguments)])
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_backward_on_another_number_of_threads() -> None:
    own, arguments = tensors("residual", batch=64)
    expected = gradients(as_tuple(own(*arguments)), arguments)
    outputs = as_tuple(own(*arguments))
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        found = gradients(outputs, arguments)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_deterministic_algorithms() -> None:
    own, arguments = tensors("before")
    expected = as_tuple(own(*arguments))
    torch.use_deterministic_algorithms(True)
    try:
        outputs = as_tuple(own(*arguments))
        found = gradients(outputs, arguments)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(outputs, expected, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(found, gradients(expected, arguments), strict=True))


def test_plans_are_kept_up_to_a_number() -> None:
    own = block("silu | square | mul(0.5)")
    first = torch.randn(2, 3, 4, requires_grad=True)
    output = as_tuple(own(first))[0]
    (expected,) = torch.autograd.grad(output.sum(), first, retain_graph=True)
    for extent in range(1, 200):
        x = torch.randn(2, 3, extent, requires_grad=True)
        own(x)
    (found,) = torch.autograd.grad(output.sum(), first)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("name", ["residual", "reduced", "before", "transposed", "linear"])
def test_keep_convolutions(name: str) -> None:
    own, arguments = tensors(name, torch.float64)
    kept = block(own.notation, keep=("conv",))
    assert "host call" in kept.explain(*arguments)
    assert_same(as_tuple(kept(*arguments)), as_tuple(own(*arguments)))
    assert torch.autograd.gradcheck(kept, arguments, fast_mode=True)
    assert torch.autograd.gradgradcheck(kept, arguments, fast_mode=True)


def test_keep_takes_pytorchs_own_bits() -> None:
    kept = block("conv2d(8, k=3, pad=1)", keep=("conv",))
    x, weight, bias = torch.randn(2, 5, 9, 9), torch.randn(8, 5, 3, 3), torch.randn(8)
    assert torch.equal(as_tuple(kept(x, weight, bias))[0], F.conv2d(x, weight, bias, padding=1))


@pytest.mark.parametrize("shape", [(1, 5, 9, 8), (2, 5, 1, 8), (1, 5, 1, 1), (1, 5, 3, 9, 8)])
def test_kept_convolutions_see_channels_last(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Extents of 1 have the strides by which PyTorch tells the layout."""
    spatial = len(shape) - 2
    kept = block(f"conv{spatial}d(8, k=3, pad=1) | silu", keep=("conv",))
    last = torch.channels_last if spatial == 2 else torch.channels_last_3d
    x = torch.randn(shape).contiguous(memory_format=last).requires_grad_()
    weight, bias = (torch.randn(s, requires_grad=True) for s in ((8, 5, *[3] * spatial), (8,)))
    with torch.profiler.profile(record_shapes=True) as profile:
        (output,) = as_tuple(kept(x, weight, bias))
        torch.autograd.grad(output, [x, weight], torch.randn_like(output))
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    calls = [event for event in events if event.get("name", "").startswith("aten::convolution")]
    assert len(calls) == 3
    for call in calls:
        images = 1 if call["name"] == "aten::convolution" else 2
        told = zip(call["args"]["Input Dims"], call["args"]["Input Strides"], strict=True)
        for extents, strides in list(told)[:images]:
            assert torch.empty_strided(extents, strides).is_contiguous(memory_format=last)
            assert strides[1] == 1


def test_keep_with_padding_that_gradients_refuse() -> None:
    kept = block("conv2d(4, k=3, pad=1, pad_mode=reflect) | relu", keep=("conv",))
    arguments = [torch.randn(s, requires_grad=True) for s in ((2, 3, 5, 5), (4, 3, 3, 3), (4,))]
    with torch.no_grad():
        assert "host call" in kept.explain(*arguments)
        assert_same(as_tuple(kept(*arguments)), by_torch(kept, arguments))
    assert "PyTorch's operators run: " in kept.explain(*arguments)
    assert_same(
        gradients(as_tuple(kept(*arguments)), arguments), gradients(by_torch(kept, arguments), arguments)
    )


def test_unknown_kinds_to_keep() -> None:
    with pytest.raises(ValueError, match="keep: expected"):
        block("relu", keep=("norm",))


def test_functional_transforms() -> None:
    own, arguments = tensors("norm", torch.float64)
    x, *others = [a.detach() for a in arguments]
    many = torch.stack([x, x * 2])
    mapped: Tensor = torch.func.vmap(lambda t: as_tuple(own(t, *others))[0])(many)
    assert_same([mapped], [torch.stack([as_tuple(own(t, *others))[0] for t in many])])
    found = torch.func.grad(lambda t: as_tuple(own(t, *others))[0].sum())(x)
    (expected,) = torch.autograd.grad(as_tuple(own(*arguments))[0].sum(), arguments[0])
    assert_same([found], [expected])


@pytest.mark.parametrize("name", ["norm", "residual", "scaled"])
def test_forward_mode(name: str) -> None:
    own, arguments = tensors(name, torch.float64)
    x, *others = arguments
    tangent = torch.randn_like(x)
    for parameters in (others, [a.detach() for a in others]):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x.detach(), tangent)
            assert "forward_ad" in own.explain(dual, *parameters)
            found = [forward_ad.unpack_dual(each) for each in as_tuple(own(dual, *parameters))]
            assert_same([each.primal for each in found], as_tuple(own(*arguments)))
        _, expected = jvp(lambda t: as_tuple(own(t, *others)), x, tangent)
        assert_same([each.tangent for each in found], as_tuple(expected))


def test_a_gradient_has_a_tangent() -> None:
    own, arguments = tensors("norm", torch.float64)
    outputs = as_tuple(own(*arguments))
    incoming, tangents = ([torch.randn_like(output) for output in outputs] for _ in range(2))
    # Gradients are linear in what comes in, so the tangent of one is the gradient for the tangent.
    expected = torch.autograd.grad(outputs, arguments, tangents, retain_graph=True)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(d, t) for d, t in zip(incoming, tangents, strict=True)]
        found = torch.autograd.grad(outputs, arguments, duals)
        assert_same([forward_ad.unpack_dual(each).tangent for each in found], expected)


def test_checkpointing() -> None:
    own, arguments = tensors("residual")
    plain = gradients(as_tuple(own(*arguments)), arguments)
    again: Any = checkpoint(own, *arguments, use_reentrant=False)
    assert all(torch.equal(a, b) for a, b in zip(gradients(as_tuple(again), arguments), plain, strict=True))


def test_pytorchs_operators_on_request() -> None:
    own, arguments = tensors("norm")
    with pytorch_operators():
        assert "PyTorch's operators run: " in own.explain(*arguments)
        (output,) = as_tuple(own(*arguments))
    assert output.grad_fn is not None
    assert output.grad_fn.name() == "SiluBackward0"


def test_pickle() -> None:
    own = block("group_norm(4) | silu", keep=("conv",))
    assert pickle.loads(pickle.dumps(own)) is own


def test_what_pytorch_runs_and_the_engine_refuses_runs() -> None:
    own = block("conv2d(4, k=3) | relu")
    x, weight, bias = (torch.randn(s, requires_grad=True) for s in ((3, 6, 6), (4, 3, 3, 3), (4,)))
    assert "PyTorch's operators run: conv2d(4, k=3)" in own.explain(x, weight, bias)
    (output,) = as_tuple(own(x, weight, bias))
    assert torch.equal(output, torch.relu(F.conv2d(x, weight, bias)))


def test_mistakes_name_the_stage_and_the_tensor() -> None:
    own = block("conv2d(4, k=3) | group_norm(2) | add(skip)")
    x, skip, weight = torch.randn(2, 3, 6, 6), torch.randn(2, 4, 4, 4), torch.randn(4, 3, 3, 3)
    vector = torch.randn(4)
    good = [x, skip, weight, vector, vector, vector]
    own(*good)

    def message(index: int, tensor: Tensor) -> str:
        arguments = [*good]
        arguments[index] = tensor
        texts = []
        for _ in range(2):
            with pytest.raises((ValueError, RuntimeError, NotImplementedError)) as caught:
                own(*arguments)
            texts.append(str(caught.value))
        assert texts[0] == texts[1]
        return texts[0]

    assert message(0, torch.randn(2, 5, 6, 6)).startswith("conv2d(4, k=3): conv2d.weight: expected")
    assert "skip" in message(1, torch.randn(2, 4, 4, 3))
    assert message(4, torch.randn(3)).startswith("group_norm(2): group_norm.weight: expected [4], got [3]")
    assert message(0, x.to(torch.complex64)).startswith("x: expected a tensor of f64, f32, bf16, f16, got")
    assert message(0, x.to("meta")).endswith("same device, got x on meta and skip on cpu")
    assert message(2, weight.to("meta")).endswith("same device, got x on cpu and conv2d.weight on meta")
    assert "conv2d" in message(0, x.to_sparse())
    assert "conv2d" in message(2, weight.double())
    with pytest.raises(ValueError, match=r"expected 6 tensors \(x, skip, conv2d.weight, .*\), got 2"):
        own(x, skip)
    with pytest.raises(ValueError, match="no operation `sillu`"):
        block("sillu")(x)
