"""How large the experiments are: small enough for two processor cores, or for a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Preset:
    """
    Attributes:
        processes: trainings at a time; None: as many as there are cores, each with one thread.
        seeds: free features start from each; tables show the one furthest from the prediction.
        network_seeds: likewise of networks, and of what is compared with them.
        images: the data set of networks.
        largest: images of the largest class, of which the others are shares.
        encoders: by name; those of images.
        steps, batch_size: of networks.
        longer: the steps of a network that show what more steps change.
        precision: of networks.
        sampled_steps: of free features with sampled negatives.
        drawn: samples of free features whose negatives are drawn in batches of all of them.
        drawn_steps: of these.
        sweep_step, sweep_around: grid of the majority's proportion, and points on each side of the threshold.
        thickness_images, thickness_held_out, thickness_steps: of the regression.
        thickness_encoder: of the regression.
    """

    name: str
    processes: int | None
    seeds: tuple[int, ...]
    network_seeds: tuple[int, ...]
    images: Literal["digits", "mnist5k"]
    largest: int
    encoders: Mapping[str, Mapping[str, Any]]
    steps: int
    batch_size: int
    longer: int
    precision: Literal["float32", "bf16"]
    sampled_steps: tuple[int, ...]
    drawn: tuple[int, ...]
    drawn_steps: int
    sweep_step: float
    sweep_around: int
    thickness_images: int
    thickness_held_out: int
    thickness_steps: int
    thickness_encoder: Mapping[str, Any]


CPU = Preset(
    name="cpu",
    processes=None,
    seeds=(0, 1, 2),
    network_seeds=(0,),
    images="digits",
    largest=170,
    encoders={
        "mlp": {"name": "mlp"},
        "cnn": {"name": "cnn", "channels": [16, 32], "head": [64]},
        "resnet18": {"name": "resnet18", "width": 8, "head": [64]},
    },
    steps=400,
    batch_size=128,
    longer=2000,
    precision="float32",
    sampled_steps=(100, 400, 1600),
    drawn=(180, 900),
    drawn_steps=4000,
    sweep_step=0.02,
    sweep_around=3,
    thickness_images=2000,
    thickness_held_out=1000,
    thickness_steps=600,
    thickness_encoder={"name": "cnn", "channels": [16, 32]},
)
GPU = Preset(
    name="gpu",
    processes=1,
    seeds=(0, 1, 2),
    network_seeds=(0, 1, 2),
    images="mnist5k",
    largest=500,
    encoders={
        "mlp": {"name": "mlp", "hidden": [1024, 1024]},
        "cnn": {"name": "cnn", "channels": [64, 128, 256]},
        "resnet18": {"name": "resnet18", "width": 64},
    },
    steps=4000,
    batch_size=512,
    longer=20_000,
    precision="bf16",
    sampled_steps=(100, 400, 1600, 6400, 25_600),
    drawn=(180, 900, 4500),
    drawn_steps=20_000,
    sweep_step=0.01,
    sweep_around=6,
    thickness_images=4000,
    thickness_held_out=1000,
    thickness_steps=6000,
    thickness_encoder={"name": "cnn", "channels": [64, 128, 256]},
)
PRESETS = {preset.name: preset for preset in (CPU, GPU)}
