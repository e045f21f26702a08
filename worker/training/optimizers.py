"""Optimizers and the learning rate over time."""

from __future__ import annotations

import math

import torch
from torch import nn

from jobs.training_spec import Schedule
from worker.training.encoders import FreeFeatures
from worker.training.lbfgs import LBFGS
from worker.training.plan import Plan


def build_optimizer(encoder: nn.Module, plan: Plan) -> torch.optim.Optimizer:
    """The optimizer of the plan over all parameters of the encoder."""
    chosen, parameters = plan.optimizer, list(encoder.parameters())
    assert chosen.lr is not None
    if chosen.name == "lbfgs":
        assert isinstance(encoder, FreeFeatures)
        return LBFGS(encoder.table, encoder.retract)
    if chosen.name == "sgd":
        return torch.optim.SGD(
            parameters, lr=chosen.lr, momentum=chosen.momentum, weight_decay=chosen.weight_decay
        )
    kind = torch.optim.Adam if chosen.name == "adam" else torch.optim.AdamW
    return kind(parameters, lr=chosen.lr, weight_decay=chosen.weight_decay)


def rate(schedule: Schedule, step: int, steps: int) -> float:
    """The share of the full learning rate in step 0..steps-1.

    >>> [round(rate(Schedule(name="cosine", warmup=2), s, 6), 3) for s in range(6)]
    [0.5, 1.0, 1.0, 0.854, 0.5, 0.146]
    """
    if step < schedule.warmup:
        return (step + 1) / schedule.warmup
    if schedule.name == "constant":
        return 1.0
    done = (step - schedule.warmup) / max(1, steps - schedule.warmup)
    return 0.5 * (1 + math.cos(math.pi * done))
