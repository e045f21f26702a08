"""The encoders a training job may use."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from jobs.computations.schemas import Strict

Size = Annotated[int, Field(ge=1, le=65_536)]
Sizes = Annotated[list[Size], Field(max_length=8)]


class Free(Strict):
    """Unconstrained features: one vector of parameters for each sample."""

    name: Literal["free"]


class Linear(Strict):
    """A linear map of the flattened input."""

    name: Literal["linear"]


class MLP(Strict):
    """A perceptron on the flattened input."""

    name: Literal["mlp"]
    hidden: Sizes = Field(default_factory=lambda: [256, 256])


class CNN(Strict):
    """3 × 3 convolutions, halving the image after each, then a perceptron."""

    name: Literal["cnn"]
    channels: Sizes = Field(default_factory=lambda: [32, 64, 128], min_length=1)
    head: Sizes = Field(default_factory=lambda: [128])


class ResNet(Strict):
    """A residual network with the stem for small images, then a perceptron."""

    name: Literal["resnet18", "resnet50"]
    width: int = Field(default=64, ge=1, le=512, description="channels of the first stage")
    head: Sizes = Field(default_factory=lambda: [512])


EncoderField = Annotated[Free | Linear | MLP | CNN | ResNet, Field(discriminator="name")]
