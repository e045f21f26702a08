"""The certified optimum for the class counts of a run: what training should converge to."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from anglewise import best_geometry, named_weighting, optimal_geometry
from anglewise.class_geometry import Geometry
from anglewise.class_moments import class_moments, labeled_embeddings
from anglewise.errors import AnglewiseError
from anglewise.geometry import Certificate
from anglewise.pair_metrics import Unavailable, Weighting
from anglewise.sampling import FloatArray
from anglewise.weighted_geometry import WeightedGeometry
from jobs.training_losses import Drawn, Weighted
from jobs.training_spec import TrainingSpec
from worker.training.data import Embeddings, IntArray, TrainingData
from worker.training.objectives import WeightedLoss
from worker.training.plan import Plan
from worker.training.risk import Risk

Solved = TypeVar("Solved", Geometry, WeightedGeometry)
TIME_LIMIT = 60.0
"""Seconds for the prediction."""
MAX_ITEMS = 20_000
"""Samples up to which a weighted loss is evaluated on all of them."""
MAX_INLINE = 1000
"""Classes up to which Gram matrices are part of the summary."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """
    Attributes:
        gram: (C, C) predicted inner products of class means, about the mean of all samples for the
            Euclidean loss; None where the core has no answer.
        risk: the loss there.
        certificate: how far ``risk`` can be above the minimum.
        risk_of: the loss of embeddings (n, d) with classes (n,): of their class means for losses over sampled
            negatives, of the samples for weighted losses.
        weighting: for the entropic gap.
        warnings: sentences for people.
    """

    gram: FloatArray | None
    risk: float | None
    certificate: Certificate | None
    risk_of: Callable[[Embeddings, IntArray], float]
    weighting: Weighting | None
    warnings: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """For the summary."""
        return {
            "gram": inline(self.gram),
            "risk": self.risk,
            "certificate": None if self.certificate is None else dataclasses.asdict(self.certificate),
            "warnings": list(self.warnings),
        }


def inline(gram: FloatArray | None) -> list[list[float]] | None:
    """A Gram matrix for the summary; None where it is too large for one."""
    rows: list[list[float]] | None = None if gram is None or len(gram) > MAX_INLINE else gram.tolist()
    return rows


def predict(spec: TrainingSpec, plan: Plan, data: TrainingData) -> Prediction:
    """The optimum of the spec's loss for the class counts of these data, from the core."""
    if isinstance(spec.loss, Drawn):
        return _drawn(spec.loss, plan, data.counts)
    return _weighted(spec.loss, plan, data, 2 if spec.positives == "views" else 1)


def _drawn(loss: Drawn, plan: Plan, counts: tuple[int, ...]) -> Prediction:
    core = loss.build()
    risk = Risk(counts, loss.sampling, core)

    def risk_of(embeddings: Embeddings, y: IntArray) -> float:
        data = labeled_embeddings(embeddings, y, unit=False)
        means = class_moments(data).means
        return float(risk(torch.from_numpy(means @ means.T)))

    temperature = getattr(core, "temperature", None)
    supcon = named_weighting("supcon", class_counts=counts).log_weights.values
    weighting = None if temperature is None else Weighting(supcon, temperature)
    dimension = plan.dimension if plan.dimension < len(counts) - 1 else None
    try:
        geometry = _in_time(
            lambda: optimal_geometry(
                counts, sampling=loss.sampling, loss=core, dimension=dimension, time_limit=TIME_LIMIT
            )
        )
    except AnglewiseError as error:
        return Prediction(None, None, None, risk_of, weighting, (f"There is no prediction: {error}.",))
    return Prediction(
        geometry.gram, geometry.risk, geometry.certificate, risk_of, weighting, geometry.warnings
    )


def _weighted(loss: Weighted, plan: Plan, data: TrainingData, copies: int) -> Prediction:
    """``copies``: a sample whose views are compared stands for so many."""
    weighted, counts = WeightedLoss(loss, data, "cpu", copies), data.counts
    named = weighted.named
    weighting = Weighting(named.log_weights.values, loss.temperature, named.metric, loss.self_pairs)

    def risk_of(embeddings: Embeddings, y: IntArray) -> float:
        if len(y) * copies > MAX_ITEMS or len(y) < sum(counts):
            raise Unavailable("it needs the loss of all samples in one batch")
        with torch.no_grad():
            z = torch.from_numpy(np.tile(embeddings, (copies, 1))).double()
            return float(weighted(z, np.tile(y, copies)).value)

    try:
        geometry = _in_time(
            lambda: best_geometry(
                named,
                metric=named.metric,
                temperature=loss.temperature,
                self_pairs=loss.self_pairs,
                dimension=plan.dimension if plan.dimension < len(counts) - 1 else None,
                time_limit=TIME_LIMIT,
            )
        )
    except AnglewiseError as error:
        return Prediction(None, None, None, risk_of, weighting, (f"There is no prediction: {error}.",))
    whole = "The prediction is for all samples in one batch."
    warnings = geometry.warnings if plan.exact else (*geometry.warnings, whole)
    gram = geometry.gram if len(geometry.gram) == len(counts) else None
    if gram is not None and named.metric == "euclidean":
        gram = centered(gram, counts)
    return Prediction(gram, geometry.loss, geometry.certificate, risk_of, weighting, warnings)


def _in_time(solve: Callable[[], Solved]) -> Solved:
    """A second try where the first one ended uncertified: it may have spent its time on compiling."""
    started = time.monotonic()
    found = solve()
    late = time.monotonic() - started > TIME_LIMIT / 2
    return solve() if late and not found.certificate.certified else found


def centered(gram: FloatArray, counts: tuple[int, ...]) -> FloatArray:
    """Inner products about the mean of all samples, for inner products about any point."""
    shares = np.asarray(counts) / sum(counts)
    offset = gram @ shares
    return np.asarray(gram - offset[:, None] - offset + shares @ offset)
