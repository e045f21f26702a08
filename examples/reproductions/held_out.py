"""Embeddings of images that a network was not trained on."""

from __future__ import annotations

import numpy as np
import torch

from examples.reproductions.running import Array, Outcome, Quiet
from jobs.training_spec import TrainingSpec
from worker.training import checkpoint
from worker.training.data import load_data
from worker.training.encoders import build_encoder
from worker.training.plan import make_plan


@torch.no_grad()
def embed(outcome: Outcome, images: Array, block: int = 500) -> Array:
    """(n, d) by the trained network, from its checkpoint.

    Args:
        images: (n, h, w); standardized as those of the training, all of which it used.
    """
    training = outcome.training
    assert training.images is not None
    spec = TrainingSpec.model_validate(training.spec)
    data = load_data(spec, Quiet(training.images))
    plan = make_plan(spec, list(data.counts))
    encoder = build_encoder(spec, data, plan).to(plan.device)
    encoder.load_state_dict(checkpoint.unpack(outcome.files["checkpoint.safetensors"])["encoder"])
    encoder.eval()
    seen = training.images[0].astype(np.float32)
    x = ((images - seen.mean(dtype=np.float64)) / seen.std(dtype=np.float64)).astype(np.float32)[:, None]
    parts = [torch.from_numpy(x[i : i + block]).to(plan.device) for i in range(0, len(x), block)]
    return np.asarray(torch.cat([encoder(part).cpu() for part in parts]).numpy())
