"""The layers of torch.nn that hold the parameters of a block's stages, with PyTorch's initialisation.

Only their parameters are used: the block runs as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

Shapes = Mapping[str, tuple[int, ...]]
Factory = Mapping[str, Any]


class Parameters(nn.Module):
    """Parameters of a stage that is not in the block, or some of those of a stage that is.

    Of one dimension: ones for a scale, zeros for all else. Of more: as torch.nn.Conv2d draws its weight.
    """

    def __init__(self, shapes: Shapes, factory: Factory) -> None:
        super().__init__()
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.empty(shape, **factory)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws them anew."""
        for name, parameter in self.named_parameters(recurse=False):
            if name == "weight" and parameter.dim() > 1:
                nn.init.kaiming_uniform_(parameter, a=math.sqrt(5))
            elif name in ("weight", "gamma", "scale"):
                nn.init.ones_(parameter)
            else:
                nn.init.zeros_(parameter)

    def extra_repr(self) -> str:
        """The shapes."""
        return ", ".join(f"{name}={tuple(each.shape)}" for name, each in self.named_parameters(recurse=False))


def layer(operation: str, args: Mapping[str, Any], shapes: Shapes, rank: int, factory: Factory) -> nn.Module:
    """The layer of a stage.

    operation, args: of the statement in the block's JSON; an unknown one gets `Parameters`.
    shapes: of the stage's own parameters.
    rank: how many spatial dimensions the block's input has.
    factory: device and dtype.
    """
    made = _layer(operation, args, shapes, rank, factory)
    if made is not None:
        own = {name: tuple(each.shape) for name, each in (*made.named_parameters(), *made.named_buffers())}
        own.pop("num_batches_tracked", None)
        if own == dict(shapes):
            return made
    return Parameters(shapes, factory)


def _layer(
    operation: str, args: Mapping[str, Any], shapes: Shapes, rank: int, factory: Factory
) -> nn.Module | None:
    weight = shapes.get("weight", ())
    if operation in ("conv1d", "conv2d", "conv3d") and weight:
        return _class(operation.replace("conv", "Conv"))(
            weight[1] * args["groups"],
            weight[0],
            weight[2:],
            stride=_tuple(args["stride"]),
            padding=args["pad"] if isinstance(args["pad"], str) else _tuple(args["pad"]),
            dilation=_tuple(args["dilation"]),
            groups=args["groups"],
            bias="bias" in shapes,
            padding_mode=args["pad_mode"],
            **factory,
        )
    if operation in ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d") and weight:
        return _class(operation.replace("conv_transpose", "ConvTranspose"))(
            weight[0],
            weight[1] * args["groups"],
            weight[2:],
            stride=_tuple(args["stride"]),
            padding=_tuple(args["pad"]),
            output_padding=_tuple(args["output_pad"]),
            groups=args["groups"],
            bias="bias" in shapes,
            dilation=_tuple(args["dilation"]),
            **factory,
        )
    if operation == "linear" and weight:
        return nn.Linear(weight[1], weight[0], bias="bias" in shapes, **factory)
    if operation == "group_norm" and weight:
        return nn.GroupNorm(args["groups"], weight[0], args["eps"], **factory)
    if operation == "instance_norm" and weight:
        return _class(f"InstanceNorm{max(rank, 1)}d")(weight[0], args["eps"], affine=True, **factory)
    if operation == "batch_norm" and "running_mean" in shapes:
        return _class(f"BatchNorm{max(rank, 1)}d")(
            shapes["running_mean"][0], args["eps"], affine="weight" in shapes, **factory
        )
    if operation == "layer_norm" and weight:
        return nn.LayerNorm(list(weight), args["eps"], bias="bias" in shapes, **factory)
    if operation == "rms_norm" and weight:
        return nn.RMSNorm(list(weight), args["eps"], **factory)
    return None


def _class(name: str) -> Callable[..., nn.Module]:
    found: type[nn.Module] = getattr(nn, name)
    return found


def _tuple(argument: int | Sequence[int]) -> Any:
    return argument if isinstance(argument, int) else tuple(argument)
