"""What all modules have: `explain`, which prints the plan that will run, and their parameters."""

from __future__ import annotations

from typing import Any, TextIO

import torch
from torch import Tensor

from fuseblock._norms import Prepared

# Shape, strides, dtype and device of an input.
_Seen = tuple[torch.Size, tuple[int, ...], torch.dtype, torch.device]


class Explained(torch.nn.Module):
    """A module that runs one block. It remembers what its first inputs were like, not the inputs."""

    _seen: tuple[tuple[_Seen, ...], dict[str, _Seen]] | None = None

    def _prepared(self, *inputs: Tensor | None, **named: Tensor | None) -> Prepared:
        """The block and the tensors to call it with."""
        raise NotImplementedError

    def explain(self, *inputs: Tensor, file: TextIO | None = None, **named: Tensor | None) -> None:
        """Prints the plan that will run for these inputs, given as the module takes them.

        Without inputs: for such as those of the first call. Where PyTorch's operators will run it says why.
        file: where to print; standard output unless given.
        """
        if not inputs and not named:
            inputs, named = self._like_seen()
        block, tensors = self._prepared(*inputs, **named)
        print(block.explain(*tensors).rstrip("\n"), file=file)

    def _note(self, *inputs: Tensor, **named: Tensor | None) -> None:
        """Remembers what inputs are like, once."""
        self._seen = (
            tuple(_seen(each) for each in inputs),
            {name: _seen(each) for name, each in named.items() if each is not None},
        )

    def _like_seen(self) -> tuple[tuple[Tensor, ...], dict[str, Tensor | None]]:
        if self._seen is None:
            raise ValueError(f"{type(self).__name__}.explain: give inputs, or call the module before")
        inputs, named = self._seen
        return tuple(_like(each) for each in inputs), {name: _like(each) for name, each in named.items()}


def parameter(module: torch.nn.Module, name: str) -> Any:
    """A module's attribute that is a parameter, or a tensor that stands for one, as a parametrisation's.

    By its name Python finds it last, after every other place: half a microsecond.
    """
    own = module._parameters
    return own[name] if name in own else getattr(module, name)


def _seen(tensor: Tensor) -> _Seen:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _like(seen: _Seen) -> Tensor:
    shape, strides, dtype, device = seen
    return torch.empty_strided(shape, strides, dtype=dtype, device=device)
