"""Who is measured: fuseblock's operations in PyTorch, and PyTorch eager and compiled.

A contender is made ready once; `run` then computes the results anew, each in memory of its own. All run on
PyTorch's threads: those of another library would find the cores taken, as PyTorch's go on spinning for some
milliseconds after each call.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from fuseblock._blocks import block
from fuseblock._capi import Plan, type_text
from torch import Tensor, nn

from benchmarks.cpu.cases import Case, memory_format

Results = dict[str, Tensor]


def in_layout(tensor: Tensor, layout: str) -> Tensor:
    """A tensor in a layout, where it has enough axes for one."""
    rank = tensor.dim()
    return tensor.to(memory_format=memory_format(rank, layout)) if rank > 3 else tensor


class FuseblockPlans:
    """fuseblock's plans of one case, and what they say of themselves."""

    name = "fuseblock"

    def __init__(self, case: Case, direction: str, threads: int) -> None:
        self.x = case.input().to(memory_format=memory_format(len(case.shape), case.layout))
        self.parameters = {name: value.detach() for name, value in case.module().named_parameters()}
        self.wanted = [*(["x"] if case.input_has_gradient else []), *self.parameters]
        self.forward_only = direction == "forward"
        plan = Plan.make(case.notation, type_text(self.x), threads=threads)
        self.result_name = plan.outputs[0].name
        self.plans = [plan] if self.forward_only else list(plan.for_training(self.wanted))
        self.saved = [info for info in self.plans[0].outputs if info.name != self.result_name]
        # One workspace would serve both in turn.
        self.workspace_bytes = max(p.workspace_bytes for p in self.plans) + sum(
            info.bytes for info in self.saved
        )
        self.explain = [p.explain() for p in self.plans]


class FuseblockContender(FuseblockPlans):
    """fuseblock on one case: its operations in PyTorch, as `fuseblock.nn` calls them."""

    def __init__(self, case: Case, direction: str, d_output: Tensor, threads: int) -> None:
        super().__init__(case, direction, threads)
        self._block = block(case.notation)
        self._arguments = {"x": self.x, **self.parameters}
        if not self.forward_only:
            for name in self.wanted:
                self._arguments[name].requires_grad_()
        self._d_output = in_layout(d_output, case.layout)
        if "engine cpu" not in self._block.explain(*self._arguments.values()):
            raise RuntimeError(f"{case.name}: PyTorch's operators run, not fuseblock")

    def run(self) -> Results:
        """The output, and the gradients as `d_` + name."""
        if self.forward_only:
            with torch.no_grad():
                return {"output": self._call()}
        output = self._call()
        gradients = torch.autograd.grad(
            output, [self._arguments[name] for name in self.wanted], self._d_output
        )
        names = [f"d_{name}" for name in self.wanted]
        return {"output": output.detach(), **dict(zip(names, gradients, strict=True))}

    def release(self) -> None:
        """Nothing is kept."""

    def _call(self) -> Tensor:
        output = self._block(*self._arguments.values())
        assert isinstance(output, Tensor)
        return output


class PlanContender(FuseblockPlans):
    """fuseblock on one case: its plans through the C API, on their own threads, into the same memory."""

    def __init__(self, case: Case, direction: str, d_output: Tensor, threads: int) -> None:
        super().__init__(case, direction, threads)
        inputs = {"x": self.x, **self.parameters}
        self._forward = self.plans[0].bind(inputs)
        self._backward = None
        if not self.forward_only:
            gradient = {f"d_{self.result_name}": in_layout(d_output, case.layout)}
            self._backward = self.plans[1].bind({**inputs, **gradient, **self._forward.outputs})

    def run(self) -> Results:
        """The output, and the gradients as `d_` + name."""
        self._forward()
        results = {"output": self._forward.outputs[self.result_name]}
        if self._backward is not None:
            self._backward()
            results.update(self._backward.outputs)
        return results

    def release(self) -> None:
        """Everything is kept."""


class TorchContender:
    """PyTorch on one case: `eager` or `compile`, in one layout."""

    def __init__(self, case: Case, direction: str, d_output: Tensor, how: str, layout: str) -> None:
        self.name = f"{how} {layout}"
        self._forward_only = direction == "forward"
        format_ = memory_format(len(case.shape), layout)
        module = case.module().to(memory_format=format_)  # type: ignore[call-overload]
        self._x = case.input().to(memory_format=format_)
        self._module: Callable[[Tensor], Tensor] = module
        if how == "compile":
            self._module = torch.compile(copy.deepcopy(module), dynamic=False, fullgraph=True)
            module = self._module
        self._names = []
        self._wanted = []
        if not self._forward_only:
            self._x.requires_grad_(case.input_has_gradient)
            if case.input_has_gradient:
                self._names.append("d_x")
                self._wanted.append(self._x)
            for name, value in module.named_parameters():
                self._names.append("d_" + name.removeprefix("_orig_mod."))
                self._wanted.append(value)
        self._d_output = in_layout(d_output, layout)

    def run(self) -> Results:
        """The output, and the gradients as `d_` + name."""
        if self._forward_only:
            with torch.no_grad():
                return {"output": self._module(self._x)}
        output = self._module(self._x)
        gradients = torch.autograd.grad(output, self._wanted, self._d_output)
        return {"output": output.detach(), **dict(zip(self._names, gradients, strict=True))}

    def release(self) -> None:
        """Nothing is kept."""


Contender = FuseblockContender | PlanContender | TorchContender


def exact_results(case: Case, direction: str, d_output: Tensor) -> Results:
    """The case in float64, by PyTorch."""
    module: nn.Module = case.module().double()
    x = case.input().double()
    if direction == "forward":
        with torch.no_grad():
            return {"output": module(x)}
    wanted: dict[str, Tensor] = dict(module.named_parameters())
    if case.input_has_gradient:
        wanted = {"x": x.requires_grad_(True), **wanted}
    output = module(x)
    gradients = torch.autograd.grad(output, list(wanted.values()), d_output.double())
    return {"output": output.detach(), **{f"d_{name}": g for name, g in zip(wanted, gradients, strict=True)}}


def output_gradient(case: Case) -> Tensor:
    """A random gradient of the output, the same at every call."""
    with torch.no_grad():
        shape = case.module()(case.input()[:1]).shape
    generator = torch.Generator().manual_seed(2)
    result = torch.randn((case.shape[0], *shape[1:]), generator=generator)
    return result.to(case.input().dtype)


def relative_error(results: Results, exact: Results) -> float:
    """The largest error over all tensors, each relative to the largest value of its tensor."""
    worst = 0.0
    for name, reference in exact.items():
        error = (results[name].double() - reference).abs().max()
        worst = max(worst, float(error / reference.abs().max()))
    return worst
