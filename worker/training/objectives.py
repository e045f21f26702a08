"""The loss of one step as a function of the encoder's parameters.

Shapes: N samples, B anchors, C classes, D dimensions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch

from anglewise import NamedWeighting, named_weighting
from jobs.training_losses import Drawn, Weighted
from jobs.training_spec import TrainingSpec
from worker.training.batches import Batches, Embedder
from worker.training.data import IntArray, TrainingData
from worker.training.losses import (
    BatchLoss,
    allowed_negatives,
    averaged_loss,
    draw_negatives,
    drawn_loss,
    weighted_infonce,
)
from worker.training.plan import Plan, Stream, generator
from worker.training.risk import Risk

Objective = Callable[[int], BatchLoss]
"""number of the batch -> its loss"""


def build_objective(spec: TrainingSpec, embedder: Embedder, data: TrainingData, plan: Plan) -> Objective:
    """The exact risk, or the loss of one batch."""
    if isinstance(spec.loss, Drawn):
        if plan.exact:
            return ExactRisk(spec.loss, embedder, data, plan)
        return DrawnBatches(spec.loss, embedder, data, plan, views=spec.positives == "views")
    if plan.exact:
        return WeightedWhole(spec.loss, embedder, data, plan)
    return WeightedBatches(spec.loss, embedder, data, plan, views=spec.positives == "views")


class ExactRisk:
    """S of the class means of free features: no batch, no noise.

    Features of a class that are not yet one point have a mean inside the ball, and S falls as it moves
    outwards; so the minimum is collapsed, and is that of [P1].
    """

    def __init__(self, loss: Drawn, embedder: Embedder, data: TrainingData, plan: Plan) -> None:
        self.encoder, self.items = embedder.encoder, len(data)
        self.risk = Risk(data.counts, loss.sampling, loss.build(), plan.device)
        self.y_N = torch.from_numpy(data.y).to(plan.device)
        self.counts_C = torch.tensor(data.counts, dtype=torch.float64, device=plan.device)

    def __call__(self, number: int) -> BatchLoss:
        features_ND = self.encoder().double()
        sums_CD = features_ND.new_zeros(len(self.counts_C), features_ND.shape[1])
        means_CD = sums_CD.index_add(0, self.y_N, features_ND) / self.counts_C[:, None]
        return BatchLoss(self.risk(means_CD @ means_CD.T), self.items)


class Draw(NamedTuple):
    """What a step compares.

    Attributes:
        rows: samples to encode: the B anchors and, unless these are views, the B positives.
        negatives: (B, k) anchors of the batch, or (B, B) which of them may be drawn, if k is infinite.
    """

    rows: IntArray
    negatives: torch.Tensor


class Draws:
    """Batches of anchors, a positive for each, and negatives from the other anchors, by number."""

    def __init__(self, loss: Drawn, data: TrainingData, plan: Plan, *, views: bool) -> None:
        self.sampling, self.negatives, self.views = loss.sampling, loss.build().negatives, views
        self.batches, self.y, self.seed = Batches(data, plan), data.y, plan.seed
        items, counts_C = len(data), np.asarray(data.counts)
        self.populations_C = (
            items - counts_C if self.sampling == "supervised" else np.full_like(counts_C, items)
        )

    def __call__(self, number: int) -> Draw:
        anchors = self.batches.anchors(number)
        classes = self.y[anchors]
        rows = anchors
        if not self.views:
            rows = np.concatenate([anchors, self.batches.positives(anchors, number)])
        if math.isinf(self.negatives):
            return Draw(rows, torch.from_numpy(allowed_negatives(classes, self.sampling)))
        random = generator(self.seed, Stream.NEGATIVES, number)
        populations, count = self.populations_C[classes], int(self.negatives)
        drawn = draw_negatives(classes, populations, count, self.sampling, random)
        return Draw(rows, torch.from_numpy(drawn))


class DrawnBatches:
    """The loss of the anchors of a batch."""

    def __init__(
        self, loss: Drawn, embedder: Embedder, data: TrainingData, plan: Plan, *, views: bool
    ) -> None:
        self.loss, self.embedder, self.views = loss.build(), embedder, views
        self.draws = Draws(loss, data, plan, views=views)
        self.collisions = 1 / len(data) if loss.sampling == "unsupervised" else 0.0

    def __call__(self, number: int) -> BatchLoss:
        rows, negatives = self.draws(number)
        z_ND = self.embedder.two_views(rows, number) if self.views else self.embedder(rows)
        anchors_BD, positives_BD = torch.chunk(z_ND, 2)
        compared = (anchors_BD, positives_BD, anchors_BD, negatives.to(z_ND.device), self.loss)
        if math.isinf(self.loss.negatives):
            return averaged_loss(*compared, collisions=self.collisions)
        return drawn_loss(*compared)


class WeightedLoss:
    """Weighted InfoNCE with the class weights of the spec."""

    def __init__(
        self, loss: Weighted, data: TrainingData, device: torch.device | str, copies: int = 1
    ) -> None:
        """
        Args:
            copies: of each sample in a batch of all: its views.
        """
        counts = [copies * count for count in data.counts]
        self.loss, self.named = loss, named_weights(loss, counts, data.labels)
        self.log_weights_CC = torch.from_numpy(self.named.log_weights.values).to(device)

    def __call__(self, z_ND: torch.Tensor, classes: IntArray) -> BatchLoss:
        return weighted_infonce(
            z_ND,
            torch.from_numpy(classes).to(z_ND.device),
            self.log_weights_CC,
            temperature=self.loss.temperature,
            metric=self.named.metric,
            self_pairs=self.loss.self_pairs,
        )


def named_weights(loss: Weighted, counts: Sequence[int], labels: Sequence[int | str]) -> NamedWeighting:
    """The weights between classes; targets default to labels that are integers, or to class numbers."""
    fields = loss.model_dump(exclude={"temperature", "self_pairs"})
    if "targets" in fields and fields["targets"] is None:
        numeric = all(isinstance(label, int) for label in labels)
        fields["targets"] = [float(x) for x in (labels if numeric else range(len(labels)))]
    return named_weighting(**fields, class_counts=counts)


class WeightedWhole:
    """The loss of all samples in one batch."""

    def __init__(self, loss: Weighted, embedder: Embedder, data: TrainingData, plan: Plan) -> None:
        self.encoder, self.data = embedder.encoder, data
        self.weighted = WeightedLoss(loss, data, plan.device)

    def __call__(self, number: int) -> BatchLoss:
        return self.weighted(self.encoder(), self.data.y)


class WeightedBatches:
    """The loss of one batch, of one or two views of each sample."""

    def __init__(
        self, loss: Weighted, embedder: Embedder, data: TrainingData, plan: Plan, *, views: bool
    ) -> None:
        self.embedder, self.data, self.views = embedder, data, views
        self.weighted = WeightedLoss(loss, data, plan.device)
        self.batches = Batches(data, plan)

    def __call__(self, number: int) -> BatchLoss:
        rows = self.batches.anchors(number)
        if self.views:
            return self.weighted(self.embedder.two_views(rows, number), np.tile(self.data.y[rows], 2))
        return self.weighted(self.embedder(rows), self.data.y[rows])
