"""From samples to embeddings: a table of free features, or a network."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from jobs.training_spec import TrainingSpec
from worker.training.data import TrainingData
from worker.training.plan import Plan, Stream, generator
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


def build_encoder(spec: TrainingSpec, data: TrainingData, plan: Plan) -> nn.Module:
    """The encoder of the spec, with parameters drawn from its seed."""
    if spec.encoder.name == "free":
        return FreeFeatures(data, plan)
    raise NotImplementedError(spec.encoder.name)
