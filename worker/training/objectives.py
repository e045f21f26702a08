"""The loss of one step as a function of the encoder's parameters.

Shapes: N samples, C classes, d dimensions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from jobs.training_spec import Drawn, TrainingSpec
from worker.training.data import TrainingData
from worker.training.plan import Plan
from worker.training.risk import Risk

Objective = Callable[[int, int], Tensor]
"""(step, part of the step) -> loss"""


def build_objective(spec: TrainingSpec, encoder: nn.Module, data: TrainingData, plan: Plan) -> Objective:
    """The exact risk, or the loss of one batch."""
    if plan.exact and isinstance(spec.loss, Drawn):
        return ExactRisk(spec.loss, encoder, data, plan)
    raise NotImplementedError(spec.loss.name)


class ExactRisk:
    """S of the class means of free features: no batch, no noise.

    Features of a class that are not yet one point have a mean inside the ball, and S falls as it moves
    outwards; so the minimum is collapsed, and is that of [P1].
    """

    def __init__(self, loss: Drawn, encoder: nn.Module, data: TrainingData, plan: Plan) -> None:
        self.encoder = encoder
        self.risk = Risk(data.counts, loss.sampling, loss.build(), plan.device)
        self.y_N = torch.from_numpy(data.y).to(plan.device)
        self.counts_C = torch.tensor(data.counts, dtype=torch.float64, device=plan.device)

    def __call__(self, step: int, part: int) -> Tensor:
        features_ND = self.encoder().double()
        sums_CD = features_ND.new_zeros(len(self.counts_C), features_ND.shape[1])
        means_CD = sums_CD.index_add(0, self.y_N, features_ND) / self.counts_C[:, None]
        return self.risk(means_CD @ means_CD.T)
