"""Calls that change tensors in place: who reads a tensor before such a call, and who behind it.

A call of a block changes nothing: it gives a new tensor. So whatever reads a tensor behind a call that
changed it is made to read that call's result. Where the tensor has other names, such as a view of it, an
argument of forward or a buffer, the call stays as it is and is no part of a block. Either way all that read
the tensor before stands before the call: `node.meta["after"]` has what a node follows without reading it.
"""

from __future__ import annotations

from typing import Any

import torch.fx
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils import _pytree as pytree

__all__ = ["Propagation", "follow_in_place", "needs"]


class Propagation(FakeTensorProp):
    """A run on tensors without memory that notes which earlier values each call changes."""

    def __init__(self, module: torch.fx.GraphModule, mode: FakeTensorMode) -> None:
        """Keeps the tensors of all values: a view that nothing reads any more still names what is changed."""
        super().__init__(module, mode)
        self.tensors: dict[torch.fx.Node, list[Tensor]] = {}
        self.without_memory = mode

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A parameter or buffer without its memory: one tensor, however often it is read."""
        value = super().get_attr(target, args, kwargs)
        return self.without_memory.from_tensor(value) if isinstance(value, Tensor) else value

    def run_node(self, n: torch.fx.Node) -> Any:
        """Runs one call."""
        before = {node: _versions(own) for node, own in self.tensors.items()}
        result = super().run_node(n)
        n.meta["changed"] = [node for node, own in self.tensors.items() if _versions(own) != before[node]]
        self.tensors[n] = [each for each in pytree.tree_leaves(result) if isinstance(each, Tensor)]
        return result


def _versions(tensors: list[Tensor]) -> list[int]:
    """How often the memory behind tensors was changed: views have their tensor's count."""
    return [tensor._version for tensor in tensors]


def needs(node: torch.fx.Node) -> list[torch.fx.Node]:
    """What stands before a node: what it reads, and what it follows without reading it."""
    return [*node.all_input_nodes, *node.meta.get("after", ())]


def follow_in_place(graph: torch.fx.Graph) -> None:
    """Orders the readers of tensors around the calls that change these in place."""
    seen: set[torch.fx.Node] = set()
    for node in graph.nodes:
        changed = node.meta.get("changed", [])
        users = [(each, user) for each in changed for user in list(each.users) if user is not node]
        node.meta["after"] = [*node.meta.get("after", ()), *(user for _, user in users if user in seen)]
        node.meta["changes_others"] = bool(changed) and not _is_own(node, changed)
        for each, user in users:
            if user in seen:
                continue
            if node.meta["changes_others"]:
                user.meta.setdefault("after", []).append(node)
            else:
                user.replace_input_with(each, node)
        seen.add(node)


def _is_own(node: torch.fx.Node, changed: list[torch.fx.Node]) -> bool:
    """Whether all that a call changes is one tensor of forward's own, which the call returns."""
    places = {_place(each.meta.get("val")) for each in (node, *changed)}
    return len(places) == 1 and None not in places and all(each.op.startswith("call_") for each in changed)


def _place(value: Any) -> tuple[Any, ...] | None:
    if not isinstance(value, Tensor):
        return None
    return value.untyped_storage()._cdata, value.storage_offset(), value.shape, value.stride()
