"""Networks in plain torch: a perceptron, a small convolutional network, residual networks for small images.

Residual networks are those of He et al., *Deep Residual Learning for Image Recognition* (2016), with the stem
for small images: 3 × 3, no stride, no pooling.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

STAGES = {"resnet18": (2, 2, 2, 2), "resnet50": (3, 4, 6, 3)}


def perceptron(sizes: Sequence[int]) -> nn.Sequential:
    """Linear maps from each size to the next, with ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(sizes):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def convolutions(channels: Sequence[int]) -> nn.Sequential:
    """Normalized 3 × 3 convolutions, each but the first on half the resolution; the mean over places."""
    layers: list[nn.Module] = []
    for number, (before, after) in enumerate(itertools.pairwise(channels)):
        stride = 1 if number == 0 else 2
        layers += [*_convolution(before, after, 3, stride), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def residual_network(name: str, channels: int, width: int) -> tuple[nn.Sequential, int]:
    """The network up to the mean over places, and how many features it has."""
    bottleneck = name == "resnet50"
    layers: list[nn.Module] = [*_convolution(channels, width, 3), nn.ReLU()]
    before = width
    for stage, blocks in enumerate(STAGES[name]):
        inner = width * 2**stage
        after = 4 * inner if bottleneck else inner
        for block in range(blocks):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(Residual(before, inner, after, stride, bottleneck=bottleneck))
            before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), before


class Residual(nn.Module):
    """x + f(x), f of two 3 × 3 convolutions, or of 1 × 1, 3 × 3, 1 × 1 (bottleneck)."""

    def __init__(self, before: int, inner: int, after: int, stride: int, *, bottleneck: bool) -> None:
        super().__init__()
        if bottleneck:
            layers = [
                *_convolution(before, inner, 1),
                nn.ReLU(),
                *_convolution(inner, inner, 3, stride),
                nn.ReLU(),
                *_convolution(inner, after, 1),
            ]
        else:
            layers = [*_convolution(before, inner, 3, stride), nn.ReLU(), *_convolution(inner, after, 3)]
        self.change = nn.Sequential(*layers)
        same = stride == 1 and before == after
        self.short = nn.Identity() if same else nn.Sequential(*_convolution(before, after, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.short(x) + self.change(x))


def _convolution(before: int, after: int, size: int, stride: int = 1) -> list[nn.Module]:
    return [
        nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False),
        nn.BatchNorm2d(after),
    ]
