"""The certified optimum for the class counts of a run: what training should converge to."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from anglewise import best_geometry, named_weighting, optimal_geometry
from anglewise.errors import AnglewiseError
from anglewise.geometry import Certificate
from anglewise.pair_metrics import Weighting
from anglewise.sampling import FloatArray
from jobs.training_spec import Drawn, TrainingSpec, Weighted
from worker.training.plan import Plan
from worker.training.risk import Risk

TIME_LIMIT = 60.0
"""Seconds for the prediction."""
MAX_INLINE = 1000
"""Classes up to which Gram matrices are part of the summary."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """
    Attributes:
        gram: (C, C) predicted inner products of class means; None where the core has no answer.
        risk: the loss there.
        certificate: how far ``risk`` can be above the minimum.
        risk_of: the loss of class means (C, d) whose classes are points; None where it is not defined.
        weighting: for the entropic gap.
        warnings: sentences for people.
    """

    gram: FloatArray | None
    risk: float | None
    certificate: Certificate | None
    risk_of: Callable[[FloatArray], float] | None
    weighting: Weighting | None
    warnings: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """For the summary."""
        small = self.gram is not None and len(self.gram) <= MAX_INLINE
        return {
            "gram": self.gram.tolist() if self.gram is not None and small else None,
            "risk": self.risk,
            "certificate": None if self.certificate is None else dataclasses.asdict(self.certificate),
            "warnings": list(self.warnings),
        }


def predict(spec: TrainingSpec, plan: Plan, counts: tuple[int, ...]) -> Prediction:
    """The optimum of the spec's loss for these class counts, from the core."""
    if isinstance(spec.loss, Drawn):
        return _drawn(spec.loss, plan, counts)
    return _weighted(spec.loss, plan, counts)


def _drawn(loss: Drawn, plan: Plan, counts: tuple[int, ...]) -> Prediction:
    core = loss.build()
    risk = Risk(counts, loss.sampling, core)

    def risk_of(means: FloatArray) -> float:
        return float(risk(torch.from_numpy(means @ means.T)))

    temperature = getattr(core, "temperature", None)
    supcon = named_weighting("supcon", class_counts=counts).log_weights.values
    weighting = None if temperature is None else Weighting(supcon, temperature)
    dimension = plan.dimension if plan.dimension < len(counts) - 1 else None
    try:
        geometry = optimal_geometry(
            counts, sampling=loss.sampling, loss=core, dimension=dimension, time_limit=TIME_LIMIT
        )
    except AnglewiseError as error:
        return Prediction(None, None, None, risk_of, weighting, (f"There is no prediction: {error}.",))
    return Prediction(
        geometry.gram, geometry.risk, geometry.certificate, risk_of, weighting, geometry.warnings
    )


def _weighted(loss: Weighted, plan: Plan, counts: tuple[int, ...]) -> Prediction:
    named = named_weighting(loss.name, class_counts=counts, **weighting_parameters(loss, len(counts)))  # type: ignore[attr-defined]
    weighting = Weighting(named.log_weights.values, loss.temperature, named.metric, loss.self_pairs)
    try:
        geometry = best_geometry(
            named,
            metric=named.metric,
            temperature=loss.temperature,
            self_pairs=loss.self_pairs,
            dimension=plan.dimension if plan.dimension < len(counts) - 1 else None,
            time_limit=TIME_LIMIT,
        )
    except AnglewiseError as error:
        return Prediction(None, None, None, None, weighting, (f"There is no prediction: {error}.",))
    whole = "The prediction is for all samples in one batch."
    warnings = geometry.warnings if plan.exact else (*geometry.warnings, whole)
    gram = geometry.gram if len(geometry.gram) == len(counts) else None
    return Prediction(gram, geometry.loss, geometry.certificate, None, weighting, warnings)


def weighting_parameters(loss: Weighted, classes: int) -> dict[str, Any]:
    """The arguments of `named_weighting`, without the counts; targets default to class numbers."""
    fields = loss.model_dump(exclude={"name", "temperature", "self_pairs"})
    if "targets" in fields and fields["targets"] is None:
        fields["targets"] = np.arange(classes).tolist()
    return fields
