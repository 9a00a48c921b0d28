"""fuseblock.prepare: what it makes ready, and what it leaves as it is. On a GPU: tests/gpu/test_torch.py."""

from __future__ import annotations

from typing import Any

import fuseblock
import pytest
import torch
from fuseblock import _ops
from torch import Tensor


def is_known(notation: str, arguments: list[Tensor], wanted: int) -> bool:
    """Whether a call with these tensors finds its plans."""
    handle = _ops.handle_of(notation, False)
    plain = [argument.detach() for argument in arguments]
    kind: str = torch.ops.fuseblock.prepare(handle, plain, wanted, "", True)[0]
    return kind != "unknown"


def test_plans_are_made_for_what_will_be_called() -> None:
    """Without gradients and, where they are enabled, with those that something requires."""
    notation = "group_norm(4) | tanh | mul(0.125)"
    m: Any = fuseblock.nn.Block(notation, in_channels=8)
    x = torch.randn(2, 8, 5, 9, requires_grad=True)
    arguments = [x, m.group_norm.weight, m.group_norm.bias]
    assert not is_known(notation, arguments, 0)
    with torch.no_grad():
        fuseblock.prepare(m, x)
    assert is_known(notation, arguments, 0)
    assert not is_known(notation, arguments, 0b111)
    fuseblock.prepare(m, x)
    assert is_known(notation, arguments, 0b111)
    assert not is_known(notation, arguments, 0b110)
    fuseblock.prepare(m, x.detach())
    assert is_known(notation, arguments, 0b110)


def test_nothing_is_made_where_only_known_plans_are_asked_for() -> None:
    """`prepare` of the dispatcher with `known_only` finds plans and refusals, and makes neither."""
    notation = "group_norm(4) | tanh | mul(0.375)"
    tensors = [torch.randn(2, 8, 5, 5), torch.randn(8), torch.randn(8)]
    assert not is_known(notation, tensors, 0)
    assert not is_known(notation, tensors, 0)
    handle = _ops.handle_of(notation, False)
    assert torch.ops.fuseblock.prepare(handle, tensors, 0, "for no reason")[0] == "refused"
    assert is_known(notation, tensors, 0)


def test_state_stays_as_it_is() -> None:
    """Buffers, gradients, random numbers, in training mode too."""
    model = torch.nn.Sequential(
        torch.nn.BatchNorm2d(6), fuseblock.nn.GroupNorm(2, 6, act="silu"), torch.nn.Dropout(0.5)
    )
    x = torch.randn(3, 6, 4, 4, requires_grad=True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    fuseblock.prepare(model, x)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in (x, *model.parameters()))


def test_a_function_and_inputs_by_name() -> None:
    """Anything that can be called; tensors in lists and by name count as inputs."""

    def add_and_norm(pair: list[Tensor], *, weight: Tensor) -> dict[str, Tensor]:
        y = fuseblock.functional.group_norm(pair[0] + pair[1], 2, weight, weight)
        return {"y": y, "count": torch.tensor(3)}

    pair = [torch.randn(2, 4, 3, 3, requires_grad=True), torch.randn(2, 4, 3, 3)]
    fuseblock.prepare(add_and_norm, pair, weight=torch.ones(4, requires_grad=True))


def test_errors_of_the_module_are_told() -> None:
    """A call that fails fails here too."""
    with pytest.raises(ValueError, match="expected an input with 8 channels"):
        fuseblock.prepare(fuseblock.nn.Block("group_norm(4)", in_channels=8), torch.randn(2, 7, 3, 3))


def test_it_is_refused_inside_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be compiled there."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(RuntimeError, match="call it before"):
        fuseblock.prepare(fuseblock.nn.GroupNorm(2, 4), torch.randn(2, 4, 3, 3))
