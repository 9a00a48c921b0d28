"""fuseblock.nn in training: autograd in all its uses, autocast, compile, export, two processes."""

from __future__ import annotations

import copy
import itertools
import multiprocessing
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from fuseblock import _blocks
from fuseblock import nn as fused
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

NOTATION = "conv2d(8, k=3, pad=1) as conv | group_norm(4) | add(skip) | silu"


def example(dtype: torch.dtype = torch.float32) -> tuple[fused.Block, Tensor, Tensor]:
    """A module with two inputs."""
    torch.manual_seed(0)
    block = fused.Block(NOTATION, in_channels=3, dtype=dtype)
    for parameter in block.get_submodule("group_norm").parameters():
        nn.init.normal_(parameter)
    return block, torch.randn(2, 3, 6, 7, dtype=dtype), torch.randn(2, 8, 6, 7, dtype=dtype)


class Network(nn.Module):
    """A small network made of modules of both kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = fused.Block("conv2d(8, k=3, pad=1) as conv | group_norm(4) | silu", in_channels=3)
        self.conv = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = fused.GroupNorm(4, 8, act="silu")
        self.embed = nn.Linear(5, 16)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor, embedding: Tensor) -> Tensor:
        y = self.stem(x)
        scale, shift = self.embed(embedding).chunk(2, dim=1)
        y = self.norm(self.conv(y), y, scale=scale, shift=shift)
        result: Tensor = self.head(y.mean((2, 3)))
        return result


def network() -> tuple[Network, Tensor, Tensor]:
    torch.manual_seed(0)
    return Network(), torch.randn(4, 3, 6, 7), torch.randn(4, 5)


def outputs_and_gradients(
    module: nn.Module, *inputs: Tensor, call: Callable[..., Tensor] | None = None
) -> list[Tensor | None]:
    """The output and the gradients of everything that requires one."""
    output = (module if call is None else call)(*inputs)
    wanted = [each for each in (*inputs, *module.parameters()) if each.requires_grad]
    generator = torch.Generator().manual_seed(1)
    incoming = torch.randn(output.shape, generator=generator).to(output)
    return [output, *torch.autograd.grad(output, wanted, incoming, allow_unused=True)]


def assert_same(
    got: list[Tensor | None], expected: list[Tensor | None], atol: float = 1e-4, rtol: float = 1e-3
) -> None:
    assert len(got) == len(expected)
    for one, two in zip(got, expected, strict=True):
        assert (one is None) == (two is None)
        if one is not None:
            assert two is not None
            assert one.dtype == two.dtype
            torch.testing.assert_close(one, two, atol=atol, rtol=rtol)


def assert_same_as_torch(module: nn.Module, *inputs: Tensor, atol: float = 1e-4, rtol: float = 1e-3) -> None:
    """Output and gradients are those of PyTorch's operators."""
    with _blocks.pytorch_operators():
        expected = outputs_and_gradients(module, *inputs)
    assert_same(outputs_and_gradients(module, *inputs), expected, atol, rtol)


# Inputs


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.transpose(2, 3),
        lambda x: x[:, :, ::2],
        lambda x: x.flip(1)[..., 1:],
        lambda x: torch.cat([x, x])[::2],
        lambda x: x[:1].expand(3, -1, -1, -1),
        lambda x: x.to(memory_format=torch.channels_last)[:, :, 1:],
    ],
)
def test_inputs_that_are_views(view: Callable[[Tensor], Tensor]) -> None:
    block, x, _ = example()
    x, skip = view(x), view(torch.randn(2, 8, 6, 7))
    assert_same_as_torch(block, x.requires_grad_(), skip.requires_grad_())


@pytest.mark.parametrize("offset", [1, 3])
def test_inputs_that_are_not_aligned(offset: int) -> None:
    block, x, skip = example()
    shifted = torch.empty(x.numel() + offset)[offset:].view(x.shape).copy_(x)
    assert_same_as_torch(block, shifted.requires_grad_(), skip)


def test_parameters_that_are_views() -> None:
    block, x, skip = example()
    conv = block.get_submodule("conv")
    conv.weight = nn.Parameter(torch.randn(3, 8, 3, 3).transpose(0, 1))
    assert_same_as_torch(block, x.requires_grad_(), skip)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_batch_of_none(dtype: torch.dtype) -> None:
    block, x, skip = example(dtype)
    x, skip = x[:0].requires_grad_(), skip[:0].requires_grad_()
    output, d_x, d_skip, *d_parameters = outputs_and_gradients(block, x, skip)
    assert output is not None and output.shape == (0, 8, 6, 7)  # noqa: PT018
    assert d_x is not None and d_x.shape == x.shape  # noqa: PT018
    assert d_skip is not None and d_skip.shape == skip.shape  # noqa: PT018
    for found, parameter in zip(d_parameters, block.parameters(), strict=True):
        assert found is not None
        assert torch.equal(found, torch.zeros_like(parameter))


# Who requires gradients


@pytest.mark.parametrize("subset", list(itertools.product([False, True], repeat=6)))
def test_any_of_the_arguments_may_require_gradients(subset: tuple[bool, ...]) -> None:
    block, x, skip = example()
    for each, flag in zip((x, skip, *block.parameters()), subset, strict=True):
        each.requires_grad_(flag)
    if not any(subset):
        assert not block(x, skip).requires_grad
        return
    assert_same_as_torch(block, x, skip)


def test_frozen_parameters_have_no_gradients() -> None:
    block, x, skip = example()
    block.get_submodule("conv").requires_grad_(False)
    block(x, skip).sum().backward()
    assert block.get_parameter("conv.weight").grad is None
    assert block.get_parameter("group_norm.weight").grad is not None


def test_gradients_add_up() -> None:
    block, x, skip = example()
    block(x, skip).sum().backward()
    once = block.get_parameter("conv.weight").grad
    assert once is not None
    once = once.clone()
    block(x, skip).sum().backward()
    torch.testing.assert_close(block.get_parameter("conv.weight").grad, 2 * once)


def test_a_parameter_used_twice_gets_both_gradients() -> None:
    block = fused.Block("conv2d(3, k=3, pad=1) as conv | relu", in_channels=3)
    x = torch.randn(1, 3, 5, 5)

    def twice(x: Tensor) -> Tensor:
        result: Tensor = block(block(x))
        return result

    with _blocks.pytorch_operators():
        expected = outputs_and_gradients(block, x, call=twice)
    assert_same(outputs_and_gradients(block, x, call=twice), expected)


def test_backward_twice_through_a_kept_graph_and_never_through_a_freed_one() -> None:
    block, x, skip = example()
    x.requires_grad_()
    output = block(x, skip)
    (first,) = torch.autograd.grad(output.sum(), x, retain_graph=True)
    (second,) = torch.autograd.grad(output.sum(), x)
    assert torch.equal(first, second)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(output.sum(), x)


def test_an_input_changed_in_place_before_backward_is_an_error() -> None:
    block, x, skip = example()
    output = block(x, skip)
    with torch.no_grad():
        block.get_parameter("conv.weight").mul_(2)
        x.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_a_penalty_on_gradients() -> None:
    """Double backward."""
    block, x, skip = example(torch.float64)
    x.requires_grad_()

    def penalty() -> list[Tensor]:
        (d_x,) = torch.autograd.grad(block(x, skip).square().sum(), x, create_graph=True)
        return list(torch.autograd.grad(d_x.square().sum(), [x, *block.parameters()]))

    with _blocks.pytorch_operators():
        expected = penalty()
    for one, two in zip(penalty(), expected, strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode: Callable[[], Any]) -> None:
    block, x, skip = example()
    expected = block(x, skip)
    with mode():
        got = block(x, skip)
    assert not got.requires_grad
    assert got.is_inference() == (mode is torch.inference_mode)
    torch.testing.assert_close(got, expected.detach())


def test_tensors_made_in_inference_mode() -> None:
    block, x, skip = example()
    with torch.inference_mode():
        made = x * 1
    torch.testing.assert_close(block.requires_grad_(False)(made, skip), block(x, skip))


# Types


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm", [partial(fused.GroupNorm, 4, 8), partial(fused.LayerNorm, 8)])
def test_wider_parameters_of_a_norm(norm: Callable[..., nn.Module], dtype: torch.dtype) -> None:
    """16-bit activations with f32 gamma and beta: gradients in the dtypes of the arguments."""
    module = norm(act="silu")
    x = torch.randn(2, 8, 6, 7).to(dtype).requires_grad_()
    with _blocks.pytorch_operators():
        try:
            expected = outputs_and_gradients(module, x)
        except RuntimeError:
            pytest.skip("PyTorch's operators do not take them")
    assert_same(outputs_and_gradients(module, x), expected, atol=0.1, rtol=0.05)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(dtype: torch.dtype) -> None:
    """Each output has the dtype that PyTorch's operators would give it."""
    model, x, embedding = network()
    with torch.autocast("cpu", dtype=dtype):
        got = outputs_and_gradients(model, x.requires_grad_(), embedding)
        norm = model.norm(x.new_ones(1, 8, 2, 2, dtype=dtype))
        stem = model.stem(x)
        with _blocks.pytorch_operators():
            expected = outputs_and_gradients(model, x, embedding)
            expected_norm = model.norm(x.new_ones(1, 8, 2, 2, dtype=dtype))
            expected_stem = model.stem(x)
    assert norm.dtype == expected_norm.dtype
    assert stem.dtype == expected_stem.dtype
    assert_same(got, expected, atol=0.05, rtol=0.05)


# What wraps modules


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_activation_checkpointing(use_reentrant: bool) -> None:
    model, x, embedding = network()
    x.requires_grad_()
    expected = outputs_and_gradients(model, x, embedding)
    call = partial(checkpoint, model, use_reentrant=use_reentrant)
    got: list[Tensor | None]
    if use_reentrant:  # it only supports backward()
        output = call(x, embedding)
        output.backward(torch.randn(output.shape, generator=torch.Generator().manual_seed(1)))
        got = [output, x.grad, *(parameter.grad for parameter in model.parameters())]
    else:
        got = outputs_and_gradients(model, x, embedding, call=call)
    for one, two in zip(got, expected, strict=True):
        assert one is not None and two is not None  # noqa: PT018
        torch.testing.assert_close(one, two, atol=0, rtol=0)


@pytest.mark.parametrize("parametrization", [parametrizations.weight_norm, parametrizations.spectral_norm])
def test_parametrised_weights(parametrization: Callable[..., nn.Module]) -> None:
    block, x, skip = example()
    parametrization(block.get_submodule("conv"), "weight")
    block.eval()  # spectral_norm steps its power iteration in training
    assert "conv.parametrizations.weight.original0" in block.state_dict() or (
        "conv.parametrizations.weight.original" in block.state_dict()
    )
    assert_same_as_torch(block, x.requires_grad_(), skip)
    assert_same_as_torch(copy.deepcopy(block), x, skip)


def test_a_parametrised_norm() -> None:
    class Positive(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.exp()

    norm = fused.GroupNorm(2, 4, act="relu")
    parametrize.register_parametrization(norm, "weight", Positive())
    assert_same_as_torch(norm, torch.randn(2, 4, 3, 3).requires_grad_())


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_weights_made_by_hooks_are_refused() -> None:
    """Old-style weight_norm makes the weight in a hook of the layer, which a block does not call."""
    block, x, skip = example()
    nn.utils.weight_norm(block.get_submodule("conv"))
    with pytest.raises(NotImplementedError, match=r"conv has hooks.*parametrize"):
        block(x, skip)


def test_functional_call_and_per_sample_gradients() -> None:
    block, x, skip = example()
    parameters = {name: parameter.detach() for name, parameter in block.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor, skip: Tensor) -> Tensor:
        result: Tensor = torch.func.functional_call(block, parameters, (x[None], skip[None])).square().sum()
        return result

    got = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, x, skip)
    for name in parameters:
        for i in range(2):
            block.zero_grad()
            block(x[i : i + 1], skip[i : i + 1]).square().sum().backward()
            torch.testing.assert_close(got[name][i], block.get_parameter(name).grad, atol=1e-3, rtol=1e-3)


def test_an_optimiser_step_counts() -> None:
    model, x, embedding = network()
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(4):
        loss = model(x, embedding).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


# Graphs


@pytest.mark.parametrize("dynamic", [False, None])
def test_compile(dynamic: bool | None) -> None:
    model, x, embedding = network()
    torch.compiler.reset()
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, _inputs: Any) -> torch.fx.GraphModule:
        graphs.append(graph)
        return graph

    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend=backend)
    for n in (4, 3, 2):
        few = x[:n].requires_grad_(), embedding[:n]
        assert_same(
            outputs_and_gradients(model, *few, call=compiled), outputs_and_gradients(model, *few), atol=1e-5
        )
    assert sum("fuseblock" in str(node.target) for node in graphs[0].graph.nodes) == 2
    assert len(graphs) == (3 if dynamic is False else 2), "a dynamic batch compiles once"


def test_compile_with_autograd_and_decompositions() -> None:
    model, x, embedding = network()
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x.requires_grad_()
    assert_same(
        outputs_and_gradients(model, x, embedding, call=compiled),
        outputs_and_gradients(model, x, embedding),
        atol=1e-5,
    )


@pytest.mark.parametrize("name", ["Conv3dGnMean", "Conv2dGnTanhHardswishResidualLse", "LayerNorm"])
def test_compile_each_kind_of_module(name: str) -> None:
    torch.compiler.reset()
    module: nn.Module
    if name == "LayerNorm":
        module, x = fused.LayerNorm(6, act="gelu"), torch.randn(2, 6, 5, 5)
    elif name == "Conv3dGnMean":
        module, x = fused.Conv3dGnMean(3, 8, 3, 4), torch.randn(2, 3, 5, 5, 5)
    else:
        module, x = fused.Conv2dGnTanhHardswishResidualLse(3, 8, 3, 4), torch.randn(2, 3, 5, 5)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), module(x))


def test_export() -> None:
    model, x, embedding = network()
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(
        model.eval(), (x, embedding), dynamic_shapes={"x": {0: batch}, "embedding": {0: batch}}
    )
    assert [node for node in program.graph.nodes if "fuseblock" in str(node.target)]
    for n in (4, 2, 1):
        torch.testing.assert_close(program.module()(x[:n], embedding[:n]), model(x[:n], embedding[:n]))


# Two processes


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _losses(rank: int, world: int, steps: int = 3) -> list[float]:
    """The losses of some steps on this process's part of the batch, averaged over all of it by the caller."""
    model, x, embedding = network()
    part = slice(rank * 4 // world, (rank + 1) * 4 // world)
    module: nn.Module = DistributedDataParallel(model) if world > 1 else model
    optimiser = torch.optim.SGD(module.parameters(), 0.1)
    losses = []
    for _ in range(steps):
        loss = module(x[part], embedding[part]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def _train(rank: int, port: int) -> list[float]:
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    try:
        return _losses(rank, 2)
    finally:
        dist.destroy_process_group()


def _other_process(port: int, results: Any) -> None:
    torch.set_num_threads(1)
    results.put(_train(1, port))


def test_two_processes_have_the_losses_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    port = _free_port()
    other = context.Process(target=_other_process, args=(port, results))
    other.start()
    try:
        pairs = zip(_train(0, port), results.get(timeout=60), strict=True)
    finally:
        other.join(60)
    assert [sum(pair) / 2 for pair in pairs] == pytest.approx(_losses(0, 1), rel=1e-4)
