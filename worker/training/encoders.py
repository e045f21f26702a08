"""From samples to embeddings: a table of free features, or a network and a projection."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from jobs.training_encoders import CNN, MLP, EncoderField, ResNet
from jobs.training_spec import TrainingSpec
from worker.training.data import TrainingData
from worker.training.networks import convolutions, perceptron, residual_network
from worker.training.plan import Plan, Projection, Stream, generator
from worker.training.projection import project


class FreeFeatures(nn.Module):
    """One row of parameters a sample.

    The ball is the shadow of a sphere with one more coordinate: smooth where clipping lengths has a kink,
    which is where the optimum lies.
    """

    def __init__(self, data: TrainingData, plan: Plan) -> None:
        super().__init__()
        self.projection = plan.projection
        self.dimension = plan.dimension
        columns = plan.dimension + (plan.projection == "ball")
        rows = generator(plan.seed, Stream.INIT).standard_normal((len(data), columns))
        if plan.projection == "none":
            rows /= math.sqrt(columns)
        else:
            rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        self.table = nn.Parameter(torch.tensor(rows, dtype=plan.dtype))

    def forward(self, rows: Tensor | None = None) -> Tensor:
        """(b, d) embeddings of these rows, or of all."""
        return self._lifted(self.table if rows is None else self.table[rows])[:, : self.dimension]

    def _lifted(self, table_ND: Tensor) -> Tensor:
        return project(table_ND, "none" if self.projection == "none" else "sphere")

    @torch.no_grad()
    def retract(self) -> None:
        """Replace the table by the embeddings it stands for; they do not change."""
        self.table.copy_(self._lifted(self.table))


class Network(nn.Module):
    """A network on samples, in bfloat16 if asked to, and the projection of its output."""

    def __init__(self, network: nn.Module, projection: Projection, *, autocast: bool) -> None:
        super().__init__()
        self.network = network
        self.projection, self.autocast = projection, autocast

    def forward(self, x: Tensor) -> Tensor:
        """(b, d) embeddings of these samples, in float32 at least."""
        with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=self.autocast):
            z = self.network(x)
        return project(z if z.dtype == torch.float64 else z.float(), self.projection)


def build_encoder(spec: TrainingSpec, data: TrainingData, plan: Plan) -> nn.Module:
    """The encoder of the spec, with parameters drawn from torch's generator (free: from the plan's seed)."""
    if data.x is None:
        return FreeFeatures(data, plan)
    network = build_network(spec.encoder, data.x.shape[1:], plan.dimension)
    return Network(network, plan.projection, autocast=plan.autocast).to(plan.dtype)


def build_network(encoder: EncoderField, shape: Sequence[int], dimension: int) -> nn.Module:
    """From samples (b, *shape) to (b, dimension) before the projection."""
    if isinstance(encoder, CNN):
        features = convolutions([shape[0], *encoder.channels])
        return nn.Sequential(features, perceptron([encoder.channels[-1], *encoder.head, dimension]))
    if isinstance(encoder, ResNet):
        features, count = residual_network(encoder.name, shape[0], encoder.width)
        return nn.Sequential(features, perceptron([count, *encoder.head, dimension]))
    hidden = encoder.hidden if isinstance(encoder, MLP) else []
    return nn.Sequential(nn.Flatten(), perceptron([math.prod(shape), *hidden, dimension]))
