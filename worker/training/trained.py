"""A trained encoder, from the checkpoint that its training left: embeddings of other samples.

encode = load_encoder(Path("result/checkpoint.safetensors"))
z = encode(images)
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from pydantic import TypeAdapter
from torch import nn

from anglewise.errors import InvalidInput
from jobs.training_encoders import EncoderField
from jobs.training_spec import TrainingSpec
from worker.training import checkpoint
from worker.training.data import Embeddings, TrainingData, arranged, numbers, standardized
from worker.training.encoders import Network, build_network
from worker.training.plan import Plan

BLOCK = 1024
"""Samples encoded at a time."""


def pack_encoder(spec: TrainingSpec, data: TrainingData, plan: Plan, encoder: nn.Module) -> bytes:
    """The parameters of an encoder, and what else it takes to use them."""
    about = {
        "encoder": spec.encoder.model_dump(),
        "shape": None if data.x is None else list(data.x.shape[1:]),
        "dimension": plan.dimension,
        "projection": plan.projection,
        "autocast": plan.autocast,
        "center": data.center,
        "spread": data.spread,
    }
    return checkpoint.pack({"about": about, "encoder": encoder.state_dict()})


@dataclass(frozen=True, eq=False)
class TrainedEncoder:
    """
    Attributes:
        name: of the kind of encoder.
        shape: of one sample, as the network takes it: (features,) or (channels, height, width).
        network: with its projection, ready to be used.
        center, spread: of the entries of the training set.
    """

    name: str
    shape: tuple[int, ...]
    network: nn.Module
    center: float
    spread: float

    @torch.no_grad()
    def __call__(self, samples: npt.NDArray[np.generic]) -> Embeddings:
        """(n, d) embeddings.

        Args:
            samples: (n, …) as in the training set, in its units.

        Raises:
            InvalidInput: they are of another shape, or no finite numbers.
        """
        values = numbers(arranged(samples, self.name), ())
        if values.shape[1:] != self.shape:
            raise InvalidInput((), f"samples of shape {values.shape[1:]} for an encoder of {self.shape}")
        weight = next(self.network.parameters())
        parts = []
        for start in range(0, max(1, len(values)), BLOCK):
            block = standardized(values[start : start + BLOCK], self.center, self.spread)
            parts.append(self.network(torch.from_numpy(block).to(weight)).cpu().numpy())
        return np.concatenate(parts)


def load_encoder(source: Path | bytes, device: str | torch.device = "cpu") -> TrainedEncoder:
    """
    Args:
        source: a ``checkpoint.safetensors``, or its content.

    Raises:
        Unreadable: it is no checkpoint.
        InvalidInput: it is that of free features, which are those of the samples in training alone.
    """
    found = checkpoint.unpack(source if isinstance(source, bytes) else source.read_bytes())
    try:
        about, state = found["about"], found["encoder"]
    except (KeyError, TypeError):
        raise checkpoint.Unreadable("not the checkpoint of a finished training") from None
    if about["shape"] is None:
        raise InvalidInput((), "free features have no encoder for other samples")
    encoder = TypeAdapter[EncoderField](EncoderField).validate_python(about["encoder"])
    network = Network(
        build_network(encoder, about["shape"], about["dimension"]),
        about["projection"],
        autocast=about["autocast"],
    )
    network.to(next(iter(state.values())).dtype).load_state_dict(state)
    network.to(device).eval()
    return TrainedEncoder(encoder.name, tuple(about["shape"]), network, about["center"], about["spread"])
