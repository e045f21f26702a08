"""Why a run ended as far from its prediction as it did: what its own numbers say, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from anglewise.sampling import FloatArray
from worker.training.data import TrainingData
from worker.training.evaluation import History
from worker.training.plan import Plan
from worker.training.prediction import Prediction

PAIRS = 10
"""How many of the pairs that are furthest from the prediction are told."""
SETTLED = 0.1
"""The share of the gap that a run that has settled loses in its last quarter at most."""
CLOSE = 1e-2
"""A difference of cosines that needs no reason."""
ROUNDING = 1e-9
"""Gaps below this share of the optimum are not looked into."""


class Pair(NamedTuple):
    """Two classes.

    Attributes:
        first, second: their numbers.
        measured, predicted: the cosine between their means.
    """

    first: int
    second: int
    measured: float
    predicted: float


def furthest_pairs(measured: FloatArray | None, predicted: FloatArray | None) -> list[Pair]:
    """Those whose cosines differ most from the prediction, the largest difference first.

    Args:
        measured, predicted: (C, C) cosines between class means; without one there are no pairs.
    """
    if measured is None or predicted is None:
        return []
    first, second = np.triu_indices(len(measured), 1)
    differences = np.abs(measured - predicted)[first, second]
    worst = np.argsort(-differences, kind="stable")[:PAIRS]
    return [
        Pair(int(i), int(j), float(measured[i, j]), float(predicted[i, j]))
        for i, j in zip(first[worst], second[worst], strict=True)
    ]


def reasons(
    data: TrainingData, plan: Plan, prediction: Prediction, history: History, pairs: Sequence[Pair]
) -> list[str]:
    """
    Args:
        history: every evaluation.
        pairs: `furthest_pairs`; none where the loss measures no angles.
    """
    return [
        *_about_gap(plan, prediction, history),
        *_about_trend(plan, prediction, history),
        *_about_pairs(data, pairs),
        *_about_batches(data, plan),
    ]


def _about_gap(plan: Plan, prediction: Prediction, history: History) -> Iterator[str]:
    gap, optimum = history[-1][1].get("risk_gap"), prediction.risk
    if gap is None or optimum is None:
        return
    what = "loss of all samples" if plan.weighted else "risk of the class means"
    if gap < -ROUNDING * max(abs(optimum), 1.0):
        yield f"The {what} is {-gap:.2g} below the predicted {optimum:.6g}: that is not its optimum."
        return
    above = max(gap, 0.0)
    share = f" ({above / abs(optimum):.2g} of it)" if abs(optimum) > 1e-12 else ""
    yield f"The {what} is {above:.2g} above the optimum of {optimum:.6g}{share}."


def _about_trend(plan: Plan, prediction: Prediction, history: History) -> Iterator[str]:
    last, end = history[-1]
    gap, optimum = end.get("risk_gap"), prediction.risk or 0.0
    quarter = [values.get("risk_gap") for step, values in history if 0.75 * last <= step < last]
    if gap is None or not quarter or quarter[0] is None or gap <= ROUNDING * max(abs(optimum), 1.0):
        return
    fallen = 1 - gap / quarter[0] if quarter[0] > 0 else 0.0
    if fallen > SETTLED:
        yield f"It still fell by {fallen:.0%} in the last quarter of the steps: the run had not settled."
        return
    if fallen < -SETTLED:
        yield f"It rose by {-fallen:.0%} in the last quarter of the steps."
        return
    why = "as the learning rate fell to 0" if plan.schedule.name == "cosine" else "so the run has settled"
    yield f"It changed by {abs(fallen):.0%} in the last quarter of the steps, {why}."


def _about_pairs(data: TrainingData, pairs: Sequence[Pair]) -> Iterator[str]:
    if not pairs or abs(pairs[0].measured - pairs[0].predicted) <= CLOSE:
        return
    worst = pairs[0]
    named = " and ".join(
        f"{data.labels[c]} ({_samples(data.counts[c])})" for c in (worst.first, worst.second)
    )
    yield (
        f"Furthest off are classes {named}: their cosine is {worst.measured:.2f} where "
        f"{worst.predicted:.2f} is predicted."
    )


def _about_batches(data: TrainingData, plan: Plan) -> Iterator[str]:
    rarest = int(np.argmin(data.counts))
    expected = plan.batch * data.counts[rarest] / len(data)
    if plan.exact or plan.batch == len(data) or expected >= 2:
        return
    yield (
        f"A batch of {plan.batch} holds {expected:.2g} samples of class {data.labels[rarest]}, the rarest, "
        f"on average ({_samples(data.counts[rarest])} in all)."
    )


def _samples(count: int) -> str:
    return f"{count} sample{'' if count == 1 else 's'}"


def told(pairs: Sequence[Pair], labels: Sequence[int | str]) -> list[dict[str, Any]]:
    """Pairs for the summary, by their labels."""
    return [
        {
            "classes": [labels[pair.first], labels[pair.second]],
            "measured": pair.measured,
            "predicted": pair.predicted,
        }
        for pair in pairs
    ]
