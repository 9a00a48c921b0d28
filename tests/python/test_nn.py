"""fuseblock.nn as modules: constructors, weights, state_dict, copies, pickles, repr, explain."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import fuseblock
import pytest
import torch
from cli_support import fuseblock as command
from fuseblock import nn as fused
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import reference_blocks

# Ours, PyTorch's, the arguments of both, a small input.
REFERENCE: dict[str, tuple[type[nn.Module], type[nn.Module], tuple[Any, ...], tuple[int, ...]]] = {
    "conv3d_gn_mean": (fused.Conv3dGnMean, reference_blocks.Conv3dGnMean, (3, 24, 3, 8), (2, 3, 5, 6, 7)),
    "conv_transpose3d_relu_gn": (
        fused.ConvTranspose3dReluGn,
        reference_blocks.ConvTranspose3dReluGn,
        (4, 16, 3, 8, False),
        (2, 4, 3, 4, 5),
    ),
    "conv_transpose3d_relu_gn_bias": (
        fused.ConvTranspose3dReluGn,
        reference_blocks.ConvTranspose3dReluGn,
        (4, 16, 2, 4, True),
        (2, 4, 3, 4, 5),
    ),
    "conv3d_hardswish_gn_mean": (
        fused.Conv3dHardswishGnMean,
        reference_blocks.Conv3dHardswishGnMean,
        (3, 16, 4),
        (2, 3, 6, 7, 8),
    ),
    "conv3d_hardswish_gn_mean_no_bias": (
        fused.Conv3dHardswishGnMean,
        reference_blocks.Conv3dHardswishGnMean,
        (3, 16, 3, 8, False),
        (2, 3, 6, 7, 8),
    ),
    "conv2d_gn_tanh_hardswish_residual_lse": (
        fused.Conv2dGnTanhHardswishResidualLse,
        reference_blocks.Conv2dGnTanhHardswishResidualLse,
        (8, 32, 3, 16),
        (2, 8, 9, 10),
    ),
    "conv2d_gn_tanh_hardswish_residual_lse_eps": (
        fused.Conv2dGnTanhHardswishResidualLse,
        reference_blocks.Conv2dGnTanhHardswishResidualLse,
        (8, 32, 3, 16, 0.1),
        (2, 8, 9, 10),
    ),
}


def made(name: str) -> tuple[nn.Module, nn.Module, Tensor]:
    """Ours and PyTorch's from the same seed, gamma and beta drawn, and an input."""
    ours_class, theirs_class, arguments, shape = REFERENCE[name]
    torch.manual_seed(0)
    ours = reference_blocks.randomise(ours_class(*arguments))
    torch.manual_seed(0)
    theirs = reference_blocks.randomise(theirs_class(*arguments))
    return ours, theirs, torch.rand(shape)


@pytest.mark.parametrize("name", REFERENCE)
def test_a_reference_block_is_its_module(name: str) -> None:
    """The same seed gives the same weights, in the same order; outputs and gradients agree."""
    ours, theirs, x = made(name)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for key, value in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[key], value), key
    ours(x).square().sum().backward()
    theirs(x).square().sum().backward()
    torch.testing.assert_close(ours(x), theirs(x), atol=1e-5, rtol=1e-4)
    for (key, one), two in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert one.grad is not None and two.grad is not None, key  # noqa: PT018
        assert torch.allclose(one.grad, two.grad, atol=2e-4, rtol=1e-3), key


@pytest.mark.parametrize("name", REFERENCE)
def test_state_dict_goes_both_ways(name: str) -> None:
    ours, theirs, x = made(name)
    for parameter in ours.parameters():
        nn.init.normal_(parameter)
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(ours(x), theirs(x), atol=2e-4, rtol=1e-3)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())
    torch.testing.assert_close(ours(x), theirs(x), atol=2e-4, rtol=1e-3)
    with pytest.raises(RuntimeError, match="Missing key"):
        ours.load_state_dict({key: value for key, value in theirs.state_dict().items() if "group" not in key})


def test_a_block_is_drawn_as_its_layers_are() -> None:
    notation = (
        "conv2d(8, k=(3,1), stride=2, pad=1, groups=2) as first | instance_norm(affine) | leaky_relu(0.2) | "
        "conv_transpose2d(6, k=3, output_pad=1, stride=2) as up | group_norm(3, eps=1e-3) | mean(h,w) | "
        "linear(5)"
    )
    torch.manual_seed(3)
    ours = fused.Block(notation, in_channels=4)
    torch.manual_seed(3)
    layers: dict[str, nn.Module] = {
        "first": nn.Conv2d(4, 8, (3, 1), stride=2, padding=1, groups=2),
        "instance_norm": nn.InstanceNorm2d(8, affine=True),
        "up": nn.ConvTranspose2d(8, 6, 3, stride=2, output_padding=1),
        "group_norm": nn.GroupNorm(3, 6, eps=1e-3),
        "linear": nn.Linear(6, 5),
    }
    for name, layer in layers.items():
        held = ours.get_submodule(name)
        assert type(held) is type(layer)
        assert repr(held) == repr(layer)
        for key, value in layer.state_dict().items():
            assert torch.equal(held.state_dict()[key], value), f"{name}.{key}"
    x = torch.randn(2, 4, 9, 9)
    expected = functional.leaky_relu(layers["instance_norm"](layers["first"](x)), 0.2)
    expected = layers["linear"](layers["group_norm"](layers["up"](expected)).mean((2, 3)))
    torch.testing.assert_close(ours(x), expected, atol=1e-5, rtol=1e-4)


def test_parameters_are_called_like_their_stages() -> None:
    block = fused.Block(
        "conv3d(24, k=3) | group_norm(8) | silu | group_norm(4) | batch_norm | rms_norm(c)", in_channels=3
    )
    assert list(block.state_dict()) == [
        "conv3d.weight",
        "conv3d.bias",
        "group_norm.weight",
        "group_norm.bias",
        "group_norm2.weight",
        "group_norm2.bias",
        "batch_norm.weight",
        "batch_norm.bias",
        "batch_norm.running_mean",
        "batch_norm.running_var",
        "batch_norm.num_batches_tracked",
        "rms_norm.weight",
    ]
    assert [name for name, _ in block.named_buffers()] == [
        "batch_norm.running_mean",
        "batch_norm.running_var",
        "batch_norm.num_batches_tracked",
    ]


def test_batch_norm_uses_its_running_statistics() -> None:
    block = fused.Block("batch_norm | relu", in_channels=3)
    norm = block.get_submodule("batch_norm")
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    norm.running_mean.fill_(1.0)
    x = torch.randn(2, 3, 4, 4)
    torch.testing.assert_close(block.train()(x), functional.relu(norm.eval()(x)))
    assert torch.equal(norm.running_mean, torch.ones(3))


def test_parameters_of_a_stage_that_is_not_there() -> None:
    block = fused.Block(
        "k = conv2d(x, 4, k=1); y = mul(k, up.gamma); z = add(y, up.next.beta); return z",
        in_channels=4,
        types={"up.gamma": "f32[c=4]", "up.next.beta": "f32[c=4]"},
    )
    assert list(block.state_dict()) == ["k.weight", "k.bias", "up.gamma", "up.next.beta"]
    x = torch.randn(1, 4, 3, 3)
    conv = block.get_submodule("k")
    torch.testing.assert_close(block(x), conv(x))


def test_shapes_that_depend_on_the_extents_are_asked_for() -> None:
    with pytest.raises(
        ValueError, match=r"layer_norm.weight depends on the extents .* input_size=\(32, 32\)"
    ):
        fused.Block("layer_norm(c,h,w)", in_channels=3)
    block = fused.Block("layer_norm(c,h,w) | relu", in_channels=3, input_size=(5, 6))
    x = torch.randn(2, 3, 5, 6)
    torch.testing.assert_close(block(x), functional.relu(functional.layer_norm(x, (3, 5, 6))))


def test_extra_inputs_by_position_and_by_name() -> None:
    block = fused.Block("group_norm(2) | mul(scale) | add(skip)", in_channels=4)
    assert block.input_names == ("x", "scale", "skip")
    x, scale, skip = torch.randn(2, 4, 3, 3), torch.randn(2, 4, 1, 1), torch.randn(2, 4, 3, 3)
    expected = functional.group_norm(x, 2) * scale + skip
    for got in (block(x, scale, skip), block(x, scale, skip=skip), block(x, skip=skip, scale=scale)):
        torch.testing.assert_close(got, expected)
    for inputs, named in (
        ((x, scale), {}),
        ((x, scale, skip, x), {}),
        ((x, scale), {"scale": x}),
        ((x,), {"y": x}),
    ):
        with pytest.raises(TypeError, match="expected x, scale, skip; got tensor 1"):
            block(*inputs, **named)


def test_several_outputs() -> None:
    block = fused.Block("y = conv2d(x, 4, k=3); z = group_norm(y, 2); return z, y", in_channels=3)
    first, second = block(torch.randn(1, 3, 5, 5))
    torch.testing.assert_close(first, functional.group_norm(second, 2))


@pytest.mark.parametrize(
    ("notation", "message"),
    [
        ("conv2d(24, k=3) | group_norm(7)", "24 channels do not divide into 7 groups"),
        ("conv2d(24, kernel=3)", "there is no argument `kernel`"),
        ("hardswis", "did you mean hardswish"),
        ("", "empty"),
    ],
)
def test_a_wrong_notation_is_refused_at_construction(notation: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fused.Block(notation, in_channels=3)


# Norms

NORMS: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module], tuple[int, ...]]] = {
    "GroupNorm": (lambda: fused.GroupNorm(4, 8, 1e-3), lambda: nn.GroupNorm(4, 8, 1e-3), (2, 8, 5, 6)),
    "GroupNorm_plain": (
        lambda: fused.GroupNorm(2, 8, affine=False),
        lambda: nn.GroupNorm(2, 8, affine=False),
        (2, 8, 5),
    ),
    "InstanceNorm1d": (lambda: fused.InstanceNorm1d(8), lambda: nn.InstanceNorm1d(8), (2, 8, 6)),
    "InstanceNorm2d": (
        lambda: fused.InstanceNorm2d(8, 0.1, affine=True),
        lambda: nn.InstanceNorm2d(8, 0.1, affine=True),
        (2, 8, 5, 6),
    ),
    "InstanceNorm3d": (
        lambda: fused.InstanceNorm3d(8, affine=True),
        lambda: nn.InstanceNorm3d(8, affine=True),
        (2, 8, 3, 4, 5),
    ),
    "LayerNorm": (lambda: fused.LayerNorm(8), lambda: nn.LayerNorm(8), (5, 8)),
    "LayerNorm_last": (
        lambda: fused.LayerNorm((6,), 0.1, bias=False, dim=-1),
        lambda: nn.LayerNorm([6], 0.1, bias=False),
        (2, 4, 6),
    ),
    "LayerNorm_two": (
        lambda: fused.LayerNorm((5, 6), elementwise_affine=False, dim=(-2, -1)),
        lambda: nn.LayerNorm([5, 6], elementwise_affine=False),
        (2, 4, 5, 6),
    ),
    "RMSNorm": (lambda: fused.RMSNorm(8), lambda: nn.RMSNorm(8), (5, 8)),
    "RMSNorm_last": (
        lambda: fused.RMSNorm(6, 1e-3, elementwise_affine=False, dim=-1),
        lambda: nn.RMSNorm(6, 1e-3, elementwise_affine=False),
        (2, 4, 6),
    ),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_is_that_of_torch(name: str) -> None:
    make_ours, make_theirs, shape = NORMS[name]
    ours, theirs = make_ours(), make_theirs()
    assert isinstance(ours, type(theirs))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(shape)
    torch.testing.assert_close(ours(x), theirs(x), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", NORMS)
def test_what_stands_around_a_norm(name: str) -> None:
    make_ours, make_theirs, shape = NORMS[name]
    ours, theirs = make_ours(), make_theirs()
    ours.__dict__["act"] = "silu"
    x, residual = torch.randn(shape), torch.randn(shape)
    n, c, *positions = shape
    scale, shift = torch.randn(n, c), torch.randn(c)
    wide = scale.view(n, c, *(1 for _ in positions))
    per_channel = shift.view(1, c, *(1 for _ in positions))
    norm = theirs(x)
    for got, expected in (
        (ours(x), norm),
        (ours(x, residual), norm + residual),
        (ours(x, scale=scale), norm * (1 + wide)),
        (ours(x, scale=wide, shift=shift), norm * (1 + wide) + per_channel),
        (ours(x, residual, scale=scale, shift=shift), norm * (1 + wide) + per_channel + residual),
    ):
        torch.testing.assert_close(got, functional.silu(expected), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("act", "function"),
    [
        ("leaky_relu(0.2)", lambda x: functional.leaky_relu(x, 0.2)),
        ("tanh | hardswish", lambda x: functional.hardswish(torch.tanh(x))),
        (nn.LeakyReLU(0.3), lambda x: functional.leaky_relu(x, 0.3)),
        (nn.GELU("tanh"), lambda x: functional.gelu(x, approximate="tanh")),
        (nn.Softplus(2.0), lambda x: functional.softplus(x, 2.0)),
        (nn.Hardtanh(-0.5, 0.5), lambda x: functional.hardtanh(x, -0.5, 0.5)),
        (nn.ELU(0.7), lambda x: functional.elu(x, 0.7)),
        (nn.Identity(), lambda x: x),
    ],
)
def test_activations(act: str | nn.Module, function: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(2, 4, 5)
    got = fused.GroupNorm(2, 4, act=act)(x)
    torch.testing.assert_close(got, function(functional.group_norm(x, 2)), atol=1e-5, rtol=1e-4)


def test_an_activation_that_is_not_known() -> None:
    with pytest.raises(
        NotImplementedError, match=r"act: expected notation such as 'silu' or one of .* got Dropout"
    ):
        fused.GroupNorm(2, 4, act=nn.Dropout())


def test_attributes_that_change_later_count() -> None:
    norm = fused.GroupNorm(2, 4)
    x = torch.randn(2, 4, 3, 3)
    norm(x)
    norm.eps = 1.0
    torch.testing.assert_close(norm(x), functional.group_norm(x, 2, eps=1.0))


def test_instance_norm_of_one_sample() -> None:
    norm = fused.InstanceNorm2d(4, affine=True, act="relu")
    x, residual, scale = torch.randn(4, 5, 6), torch.randn(4, 5, 6), torch.randn(4)
    normed = nn.InstanceNorm2d(4)(x)
    torch.testing.assert_close(norm(x), functional.relu(normed))
    expected = functional.relu(normed * (1 + scale.view(4, 1, 1)) + residual)
    torch.testing.assert_close(norm(x, residual, scale=scale), expected)


def test_layer_norm_over_channels() -> None:
    norm = fused.LayerNorm(6, act="relu")
    x = torch.randn(2, 6, 4, 5)
    expected = functional.layer_norm(x.movedim(1, -1), (6,)).movedim(-1, 1)
    torch.testing.assert_close(norm(x), functional.relu(expected), atol=1e-5, rtol=1e-4)


# What users do with modules


def example() -> tuple[fused.Block, Tensor]:
    torch.manual_seed(0)
    block = fused.Block("conv2d(8, k=3) as conv | group_norm(4) | silu", in_channels=3)
    return block, torch.randn(2, 3, 6, 7)


@pytest.mark.parametrize("called", [False, True])
def test_copies_and_pickles(called: bool) -> None:
    norm = fused.GroupNorm(2, 8, act="relu")
    block, x = example()
    model = nn.Sequential(block, norm)
    if called:
        model(x)
    expected = model(x)
    saved = io.BytesIO()
    torch.save(model, saved)
    saved.seek(0)
    for other in (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        torch.load(saved, weights_only=False),
    ):
        assert torch.equal(other(x), expected)
        assert getattr(other[1], "act", None) == "relu"
        with torch.no_grad():
            other.get_parameter("0.conv.weight").zero_()
        assert torch.equal(model(x), expected), "the copy shares parameters"


def test_construction_on_meta() -> None:
    with torch.device("meta"):
        ambient = fused.Block("conv2d(8, k=3) as conv | group_norm(4)", in_channels=3)
    given = fused.Block("conv2d(8, k=3) as conv | group_norm(4)", in_channels=3, device="meta")
    norm = fused.GroupNorm(2, 4, device="meta")
    for module in (ambient, given, norm):
        assert all(parameter.is_meta for parameter in module.parameters())
    block, x = example()
    given.to_empty(device="cpu").load_state_dict(block.state_dict())
    torch.testing.assert_close(
        given(x), functional.group_norm(block.get_submodule("conv")(x), 4), atol=1e-5, rtol=1e-4
    )


def test_dtypes_at_construction_and_later() -> None:
    block = fused.Block("conv2d(8, k=3) | group_norm(4)", in_channels=3, dtype=torch.float64)
    assert {parameter.dtype for parameter in block.parameters()} == {torch.float64}
    x = torch.randn(1, 3, 5, 5)
    assert block(x.double()).dtype == torch.float64
    assert block.to(torch.bfloat16)(x.bfloat16()).dtype == torch.bfloat16
    assert block.half()(x.half()).dtype == torch.float16
    block.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert block.get_parameter("conv2d.weight").is_contiguous(memory_format=torch.channels_last)


def test_memory_format_in_is_memory_format_out() -> None:
    block, x = example()
    assert block(x).is_contiguous()
    assert block(x.contiguous(memory_format=torch.channels_last)).is_contiguous(
        memory_format=torch.channels_last
    )


def test_hooks_on_a_stage_are_refused_and_on_the_block_called() -> None:
    block, x = example()
    seen = []
    block.register_forward_hook(lambda *_: seen.append(1))
    block(x)
    assert seen == [1]
    handle = block.get_submodule("conv").register_forward_pre_hook(lambda *_: None)
    with pytest.raises(NotImplementedError, match="conv has hooks"):
        block(x)
    handle.remove()
    block(x)


def test_repr() -> None:
    block, _ = example()
    assert repr(block) == (
        "Block(\n"
        "  'conv2d(8, k=3) as conv | group_norm(4) | silu', in_channels=3\n"
        "  (conv): Conv2d(3, 8, kernel_size=(3, 3), stride=(1, 1))\n"
        "  (group_norm): GroupNorm(4, 8, eps=1e-05, affine=True)\n"
        ")"
    )
    assert repr(fused.LayerNorm(4, act="relu")) == repr(nn.LayerNorm(4))[:-1] + ", act='relu', dim=1)"
    kept = fused.Conv3dGnMean(3, 8, 3, 4, keep=("conv",))
    assert "mean(c,d,h,w)', in_channels=3, keep=('conv',)" in repr(kept)


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    block, x = example()
    with pytest.raises(ValueError, match=r"Block\.explain: give inputs, or call the module before"):
        block.explain()
    block.explain(x)
    given = capsys.readouterr().out
    assert "conv2d(8, k=3) as conv | group_norm(4) | silu" in given
    assert "f32[2,3,6,7]" in given
    block(x)
    block.explain()
    assert capsys.readouterr().out == given
    norm = fused.GroupNorm(3, 3, act="relu")
    norm(x, x, scale=torch.randn(2, 3))
    norm.explain()
    assert "group_norm(3) as norm | mul(scale) | add(norm) | add(residual) | relu" in capsys.readouterr().out
    norm.explain(x)
    assert "group_norm(3) as norm | relu" in capsys.readouterr().out


def test_version() -> None:
    assert fuseblock.__version__ == command("--version").stdout.split()[-1]
