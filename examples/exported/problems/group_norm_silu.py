"""Group norm and SiLU, as between the convolutions of a VAE or a U-Net."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, eps=1e-6)
        self.act = nn.SiLU()

    def forward(self, x):
        return self.act(self.norm(x))


def get_inputs():
    return [torch.rand(1, 512, 256, 256)]


def get_init_inputs():
    return [512, 32]
