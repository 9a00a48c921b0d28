"""Streams and CUDA graphs: where a block is launched, and that it can be captured."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import fuseblock
import torch
from fuseblock._blocks import pytorch_operators
from torch import Tensor
from torch_checks import Fields, check, close, gn, needs_gpu, of, tensors

_SLEEP_CYCLES = 1_000_000_000  # about half a second
# PyTorch gives these no types.
_new_stream: Any = torch.cuda.Stream
_sleep: Any = torch.cuda._sleep


@check()
def stream_of_the_caller(device: str) -> Fields:
    """A block runs in the current stream, behind what that stream still has to do, and nothing waits."""
    needs_gpu(device)
    x, weight, bias = tensors(device, 2, 64, 32, 32)
    values = torch.randn_like(x)
    leaf = values.clone().requires_grad_()
    expected = gn()(leaf, weight, bias)
    (d_expected,) = torch.autograd.grad(expected.square().sum(), leaf)
    x.requires_grad_()
    fuseblock.prepare(gn(), x, weight, bias)
    torch.cuda.synchronize()
    stream = _new_stream()
    with torch.cuda.stream(stream):
        _sleep(_SLEEP_CYCLES)
        with torch.no_grad():
            x.copy_(values)
        y = gn()(x, weight, bias)
        (d_x,) = torch.autograd.grad(y.square().sum(), x)
        assert not stream.query(), "the host waited for the stream"
    stream.synchronize()
    assert torch.equal(y.detach(), expected.detach())
    assert torch.equal(d_x, d_expected)
    return None


@check()
def two_streams_at_once(device: str) -> Fields:
    """Runs of one plan on two streams do not share a workspace."""
    needs_gpu(device)
    sets = [tensors(device, 1, 32, 128, 128, seed=seed) for seed in (1, 2)]
    expected = [gn()(*each) for each in sets]
    torch.cuda.synchronize()
    streams = [_new_stream(), _new_stream()]
    found: list[list[Tensor]] = [[], []]
    for _ in range(20):
        for i, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                found[i].append(gn()(*sets[i]))
    torch.cuda.synchronize()
    for exact, own in zip(expected, found, strict=True):
        assert all(torch.equal(exact, each) for each in own)
    return None


@check()
def first_call_in_a_capture(device: str) -> Fields:
    """It is refused in words that name fuseblock.prepare, and nothing is broken afterwards."""
    needs_gpu(device)
    made = of("group_norm(2) | square | tanh")
    dense = tensors(device, 3, 16, 8, 8)
    assert "fuseblock.prepare" in _refusal_in_capture(made, dense)
    fuseblock.prepare(made, *dense)
    assert _refusal_in_capture(made, dense) == ""
    # Views that may need another kernel than the prepared one.
    wide = torch.zeros(3, 16, 8, 16, device=device)
    strided = [wide[..., ::2], *dense[1:]]
    told = _refusal_in_capture(made, strided)
    assert not told or "fuseblock.prepare" in told, told
    fuseblock.prepare(made, *strided)
    assert _refusal_in_capture(made, strided) == ""
    with pytorch_operators():
        expected = made(*dense)
    close(made(*dense), expected)
    return None


def _refusal_in_capture(made: Callable[..., Any], arguments: list[Tensor]) -> str:
    """What a block says to being called in a capture; empty where it is captured."""
    told = ""
    torch.cuda.synchronize()
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            try:
                made(*arguments)
            except (RuntimeError, ValueError) as error:
                told = str(error)
    except RuntimeError:  # the end of a capture that was given up
        if not told:
            raise
    return told


@check()
def captured_and_replayed(device: str) -> Fields:
    """After fuseblock.prepare a capture holds forward and backward; replays compute anew from new inputs."""
    needs_gpu(device)
    for notation, shape in (
        ("group_norm(8) | silu", (1, 32, 128, 128)),
        ("layer_norm(c) | gelu", (2, 64, 15, 16)),
        ("hardswish | group_norm(4) | mean(h,w)", (8, 16, 21, 21)),
    ):
        made = of(notation)
        x, weight, bias = tensors(device, *shape)
        leaves = [each.requires_grad_() for each in (x, weight, bias)]
        fuseblock.prepare(made, *leaves)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = made(*leaves)
            found = torch.autograd.grad(y.square().sum(), leaves)
        for seed in (5, 6):
            values = torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device)
            with torch.no_grad():
                x.copy_(values)
            graph.replay()
            torch.cuda.synchronize()
            expected = made(*leaves)
            again = torch.autograd.grad(expected.square().sum(), leaves)
            assert torch.equal(y.detach(), expected.detach()), notation
            for ours, theirs in zip(found, again, strict=True):
                assert torch.equal(ours, theirs), notation
    return None


@check()
def captured_with_kept_convolutions(device: str) -> Fields:
    """PyTorch's convolution and fuseblock's tail in one graph."""
    needs_gpu(device)
    module = fuseblock.nn.Conv3dHardswishGnMean(3, 16, 3, keep=("conv",)).to(device)
    x = torch.randn(4, 3, 8, 12, 12, device=device)
    with torch.no_grad():
        fuseblock.prepare(module, x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = module(x)
        x.copy_(torch.randn_like(x))
        graph.replay()
        torch.cuda.synchronize()
        close(y, module(x), 64)
    return None


@check()
def graphed_callable(device: str) -> Fields:
    """torch.cuda.make_graphed_callables: captured training, driven by autograd."""
    needs_gpu(device)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(8, 16, 3), fuseblock.nn.GroupNorm(4, 16, act="silu"), torch.nn.Conv2d(16, 8, 1)
    ).to(device)
    x = torch.randn(2, 8, 14, 14, device=device, requires_grad=True)
    expected = module(x)
    gradients = torch.autograd.grad(expected.square().sum(), (x, *module.parameters()))
    # While a graph of autograd on the default stream lives, PyTorch gives the parameters' gradients to that
    # stream, which no capture allows, whatever the module.
    expected = expected.detach()
    graphed: Any = torch.cuda.make_graphed_callables(module, (x.detach().clone().requires_grad_(),))
    found = graphed(x)
    again = torch.autograd.grad(found.square().sum(), (x, *module.parameters()))
    close(found.detach(), expected)
    for ours, theirs in zip(again, gradients, strict=True):
        close(ours, theirs, 4096)
    return None


@check()
def several_threads(device: str) -> Fields:
    """One block from several threads at once, each with its own stream."""
    needs_gpu(device)
    sets = [tensors(device, 2, 32, 24, 24, seed=seed) for seed in range(4)]
    expected = [gn()(*each) for each in sets]
    torch.cuda.synchronize()
    wrong: list[str] = []

    def work(i: int) -> None:
        try:
            with torch.cuda.stream(_new_stream()):
                for _ in range(30):
                    if not torch.equal(gn()(*sets[i]), expected[i]):
                        wrong.append(f"thread {i}")
        except Exception as error:  # told by the thread that waits
            wrong.append(str(error))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]
    return None
