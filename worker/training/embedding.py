"""The embeddings of all samples, in blocks."""

from __future__ import annotations

import torch
from torch import nn

from worker.training.data import TrainingData
from worker.training.encoders import FreeFeatures
from worker.training.evaluation import Embeddings
from worker.training.plan import Plan

BLOCK = 1024


@torch.no_grad()
def embed(encoder: nn.Module, data: TrainingData, plan: Plan) -> Embeddings:
    """(n, d) float32, or float64 for parameters in double precision."""
    if isinstance(encoder, FreeFeatures):
        table: Embeddings = encoder().cpu().numpy()
        return table
    raise NotImplementedError
