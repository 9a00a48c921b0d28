"""How a block is called: autograd, autocast, the dispatcher, compiled graphs, what has no plan."""

from __future__ import annotations

import time
from typing import Any

import fuseblock
import fuseblock.functional as fb
import torch
from fuseblock import _ops
from fuseblock._blocks import pytorch_operators
from torch import Tensor
from torch.nn import functional
from torch_checks import Fields, check, close, gn, group_norm_silu, needs_gpu, of, tensors


@check()
def requires_grad_subsets(device: str) -> Fields:
    """Any subset of the arguments may want gradients; they are those of all together."""
    made = of("group_norm(4) | mul(scale) | add(skip) | silu")
    generator = torch.Generator().manual_seed(1)
    shapes = [(2, 8, 9, 10), (2, 8, 1, 1), (2, 8, 9, 10), (8,), (8,)]
    arguments = [torch.randn(shape, generator=generator).to(device) for shape in shapes]
    gradient = torch.randn(shapes[0], generator=generator).to(device)
    leaves = [each.clone().requires_grad_() for each in arguments]
    with pytorch_operators():
        expected = torch.autograd.grad(made(*leaves), leaves, gradient)
    for wanted in range(1, 1 << len(shapes)):
        own = [each.clone().requires_grad_(bool(wanted >> i & 1)) for i, each in enumerate(arguments)]
        chosen = [i for i in range(len(shapes)) if wanted >> i & 1]
        found = torch.autograd.grad(made(*own), [own[i] for i in chosen], gradient)
        for i, each in zip(chosen, found, strict=True):
            close(each, expected[i], 512)
    return None


@check("f64")
def gradcheck(device: str) -> Fields:
    """First derivatives by differences, second ones too."""
    x, weight, bias = (each.requires_grad_() for each in tensors(device, 2, 4, 3, 3, dtype=torch.float64))
    made = of("group_norm(2) | tanh | mean(h,w)")
    assert torch.autograd.gradcheck(made, (x, weight, bias))
    assert torch.autograd.gradgradcheck(made, (x, weight, bias))
    return None


@check()
def double_backward(device: str) -> Fields:
    """A gradient penalty: the second derivative runs PyTorch's operators on what the plans computed."""
    x, weight, bias = (each.requires_grad_() for each in tensors(device, 2, 16, 6, 7))

    def penalty() -> list[Tensor]:
        y = gn(4)(x, weight, bias)
        (d_x,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        return list(torch.autograd.grad(d_x.square().sum(), (x, weight, bias)))

    ours = penalty()
    with pytorch_operators():
        theirs = penalty()
    for mine, other in zip(ours, theirs, strict=True):
        close(mine, other, 4096)
    return None


@check("bf16")
def autocast(device: str) -> Fields:
    """Dtypes are PyTorch's, with and without autocast, convolutions kept among them."""
    x, weight, bias = tensors(device, 2, 16, 12, 12)
    conv = fuseblock.nn.Block("conv2d(8, k=3) | group_norm(2) | silu", 16, keep=("conv",)).to(device)
    for dtype in (torch.bfloat16, torch.float16):
        for given in (x, x.to(dtype)):
            with torch.autocast(device, dtype=dtype):
                ours, kept = gn(4)(given, weight, bias), conv(given)
                with pytorch_operators():
                    theirs, kept_theirs = gn(4)(given, weight, bias), conv(given)
            close(ours, theirs)
            close(kept, kept_theirs, 16)
    return None


@check()
def functional_forms(device: str) -> Fields:
    """fuseblock.functional beside torch.nn.functional."""
    x, weight, bias = tensors(device, 2, 16, 10, 12)
    rows = x.movedim(1, -1)
    pairs: list[tuple[Any, Tensor]] = [
        (fb.group_norm(x, 4, weight, bias, act="silu"), group_norm_silu(x, weight, bias, 4)),
        (
            fb.instance_norm(x, weight=weight, bias=bias),
            functional.instance_norm(x, weight=weight, bias=bias),
        ),
        (
            fb.layer_norm(x, (16,), weight, bias),
            functional.layer_norm(rows, (16,), weight, bias).movedim(-1, 1),
        ),
        (fb.rms_norm(x, (16,), weight, 1e-6), functional.rms_norm(rows, (16,), weight, 1e-6).movedim(-1, 1)),
        (fb.block("max_pool(2)", x), functional.max_pool2d(x, 2)),
    ]
    for ours, theirs in pairs:
        close(ours, theirs)
    return None


@check()
def operators_in_the_dispatcher(device: str) -> Fields:
    """The operations hold what their schemas say: PyTorch's opcheck, on this device."""
    arguments = [each.requires_grad_() for each in tensors(device, 2, 8, 6, 6)]
    torch.library.opcheck(torch.ops.fuseblock.run.default, ("group_norm(4) | silu", False, arguments))
    handle = _ops.handle_of("group_norm(4) | silu", False)
    plain = [each.detach() for each in arguments]
    for wanted in (0, 7):
        assert torch.ops.fuseblock.prepare(handle, plain, wanted, "")[0] == "ready"
        torch.library.opcheck(
            torch.ops.fuseblock.forward.default,
            (handle, plain, wanted),
            test_utils=("test_schema", "test_faketensor"),
        )
    results = torch.ops.fuseblock.forward(handle, plain, 7)
    on_device = [each for each in results if each.device.type == device]
    assert results[-1].is_cpu
    assert len(on_device) == len(results) - (device == "cuda")
    return None


@check()
def compiled(device: str) -> Fields:
    """torch.compile without a graph break: the block by notation, forward and backward."""
    module = torch.nn.Sequential(
        fuseblock.nn.GroupNorm(4, 16, act="silu"), torch.nn.Tanh(), fuseblock.nn.LayerNorm(16)
    ).to(device)
    x = torch.randn(2, 16, 8, 9, device=device, requires_grad=True)
    expected = module(x)
    wanted = (x, *module.parameters())
    gradients = torch.autograd.grad(expected.square().sum(), wanted)
    # `aot_eager` captures forward and backward as the default does, and leaves out its compiler.
    made = torch.compile(module, fullgraph=True, backend="aot_eager")
    found = made(x)
    close(found, expected)
    for ours, theirs in zip(torch.autograd.grad(found.square().sum(), wanted), gradients, strict=True):
        close(ours, theirs, 512)
    return None


@check()
def prepared_ahead(device: str) -> Fields:
    """After fuseblock.prepare nothing is compiled: every call is quick; and nothing else has changed."""
    module = torch.nn.Sequential(
        torch.nn.BatchNorm2d(12), fuseblock.nn.GroupNorm(3, 12, act="mish"), torch.nn.Dropout(0.5)
    ).to(device)
    x = torch.randn(2, 12, 11, 13, device=device, requires_grad=True)
    before = {name: each.clone() for name, each in module.state_dict().items()}
    torch.manual_seed(4)
    state = torch.get_rng_state()
    fuseblock.prepare(module, x)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(each, before[name]) for name, each in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert x.grad is None
    begin = time.monotonic()
    module(x).square().sum().backward()
    elapsed = time.monotonic() - begin
    assert elapsed < 0.2, f"the first call took {elapsed:.2f} s"
    return None


@check()
def other_gpus(device: str) -> Fields:
    """Tensors of another GPU than the current one."""
    needs_gpu(device, 2)
    for number in (1, 0):
        x, weight, bias = (each.requires_grad_() for each in tensors(f"cuda:{number}", 2, 64, 32, 32))
        ours = gn()(x, weight, bias)
        with pytorch_operators():
            theirs = gn()(x, weight, bias)
        assert ours.device == x.device
        close(ours, theirs)
        pairs = zip(
            *(torch.autograd.grad(each.square().sum(), (x, weight, bias)) for each in (ours, theirs)),
            strict=True,
        )
        for mine, other in pairs:
            close(mine, other, 4096)
    return None


@check()
def what_has_no_plan(device: str) -> Fields:
    """Scalars on the CPU, no elements: PyTorch's operators."""
    needs_gpu(device)
    x = torch.randn(2, 4, 8, 8, device=device)
    scaled = of("mul(scale) | tanh")
    close(scaled(x, torch.tensor(2.0)), torch.tanh(2 * x))
    assert gn(2)(*tensors(device, 0, 4, 3, 3)).shape == (0, 4, 3, 3)
    return None


@check("bf16", "channels_last")
def memory_of_a_training_step(device: str) -> Fields:
    """What is saved for backward is the input and a few statistics; the workspace does not stay."""
    needs_gpu(device)
    x, weight, bias = tensors(device, 4, 64, 128, 128, dtype=torch.bfloat16)
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    fuseblock.prepare(gn(), x, weight, bias)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    y = gn()(x, weight, bias)
    kept = torch.cuda.memory_allocated() - before
    size = x.numel() * x.element_size()
    assert kept < size + (1 << 20), f"{kept} bytes are kept for an output of {size}"
    del y
    assert torch.cuda.memory_allocated() == before
    return {"peak_bytes": kept}
