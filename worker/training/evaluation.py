"""One evaluation: the embeddings of all samples against the prediction."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from anglewise import diagnose, metrics
from anglewise.class_moments import class_moments, labeled_embeddings
from anglewise.pair_metrics import Unavailable, entropic_gap
from anglewise.sampling import FloatArray
from worker.training.data import Embeddings, IntArray, TrainingData
from worker.training.plan import Plan
from worker.training.prediction import Prediction

History = Sequence[tuple[int, Mapping[str, float | None]]]
"""Step and metrics of every evaluation, in order."""
PAIRED_ITEMS = 2000
"""Metrics over all pairs take an even selection of this many samples."""
MAX_DIAGNOSED = 5000


def evaluate(
    embeddings: Embeddings, y: IntArray, plan: Plan, prediction: Prediction
) -> dict[str, float | None]:
    """Metrics by name; None where one has no value.

    Args:
        embeddings: (n, d), as the loss sees them.
        y: (n,) classes.
    """
    if plan.projection == "none":
        embeddings = embeddings - embeddings.mean(axis=0)
    data = labeled_embeddings(embeddings, y, unit=plan.projection == "sphere")
    moments = class_moments(data)
    gram = prediction.gram
    angular = plan.projection != "none"
    cosines = gram if angular else None
    few = np.unique(np.linspace(0, len(y) - 1, min(len(y), PAIRED_ITEMS)).astype(np.int64))
    paired = labeled_embeddings(embeddings[few], y[few], unit=plan.projection == "sphere")
    all_classes = paired.classes == data.classes
    r2_procrustes, similarity = _values(lambda: metrics.class_procrustes(moments, gram))
    distance_max, distance_fro = _values(lambda: metrics.gram_distances(moments, cosines))
    return {
        "risk_gap": _value(lambda: risk_gap(embeddings, y, prediction)),
        "entropic_gap": _value(lambda: entropic_gap(paired, prediction.weighting if all_classes else None)),
        "r2_similarity": _value(lambda: metrics.class_r2_similarity(moments, gram)),
        "r2_procrustes": r2_procrustes,
        "procrustes_similarity": similarity,
        "nc1": _value(lambda: metrics.nc1(moments)),
        "nc2": _value(lambda: metrics.nc2(moments)),
        "cdnv": _value(lambda: metrics.cdnv(moments)),
        "effective_rank": _value(lambda: metrics.effective_rank(moments)),
        "gram_distance_max": distance_max,
        "gram_distance_fro": distance_fro,
        "minority_collapse_index": _value(lambda: metrics.largest_cosine(moments)) if angular else None,
    }


def _value(compute: Callable[[], float]) -> float | None:
    return _values(lambda: (compute(), 0.0))[0]


def _values(compute: Callable[[], tuple[float, float]]) -> tuple[float | None, float | None]:
    """Two that are computed together; None in place of what is no finite number."""
    try:
        first, second = compute()
    except Unavailable:
        return None, None
    return _finite(first), _finite(second)


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def risk_gap(embeddings: Embeddings, y: IntArray, prediction: Prediction) -> float:
    """The loss of the measured geometry above the optimum.

    For losses over sampled negatives it is that of the class means, a lower bound on that of the samples.
    """
    if prediction.risk is None:
        raise Unavailable("there is no prediction")
    return prediction.risk_of(embeddings, y) - prediction.risk


def report(
    embeddings: Embeddings, data: TrainingData, plan: Plan, prediction: Prediction
) -> tuple[FloatArray | None, str, list[dict[str, Any]]]:
    """The measured geometry beside the predicted one.

    Returns:
        (C, C) cosines, or inner products about the mean for the Euclidean loss; the verdict in words; what
        was measured of each class, beside its label and count. None and nothing for too many classes.
    """
    named = [{"label": x, "count": n} for x, n in zip(data.labels, data.counts, strict=True)]
    if data.classes > MAX_DIAGNOSED:
        return None, f"There are more than {MAX_DIAGNOSED} classes.", named
    if plan.projection == "none":
        return *_distances(embeddings, data.y, prediction.gram), named
    labels = np.asarray(data.labels)[data.y]
    found = diagnose(embeddings, labels, predicted=prediction.gram, unit=plan.projection == "sphere")
    return found.measured_gram, found.verdict, [dataclasses.asdict(each) for each in found.classes]


def _distances(embeddings: Embeddings, y: IntArray, predicted: FloatArray | None) -> tuple[FloatArray, str]:
    """Of the Euclidean loss: inner products about the mean, a verdict on squared distances."""
    means = class_moments(labeled_embeddings(embeddings, y, unit=False)).means
    means = means - np.bincount(y) @ means / len(y)
    gram = means @ means.T
    verdict = "There is no prediction to compare with."
    if predicted is not None:
        expected = squared_distances(predicted)
        error = float(np.abs(squared_distances(gram) - expected).max())
        verdict = (
            f"Squared distances between class means differ from the predicted ones by up to {error:.2g}; "
            f"the largest is predicted at {expected.max():.3g}."
        )
    return gram, verdict


def squared_distances(gram: FloatArray) -> FloatArray:
    """(C, C) ‖μ_i - μ_j‖² from inner products."""
    squares = np.diag(gram)
    return np.asarray(np.maximum(squares[:, None] + squares - 2 * gram, 0.0))
