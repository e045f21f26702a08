"""One evaluation: the embeddings of all samples against the prediction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from anglewise import diagnose, metrics
from anglewise.class_moments import ClassMoments, class_moments, labeled_embeddings
from anglewise.pair_metrics import Unavailable, entropic_gap
from worker.training.data import IntArray
from worker.training.plan import Plan
from worker.training.prediction import MAX_INLINE, Prediction

PAIRED_ITEMS = 2000
"""Metrics over all pairs take an even selection of this many samples."""
MAX_DIAGNOSED = 5000

Embeddings = npt.NDArray[np.floating]


def evaluate(
    embeddings: Embeddings, y: IntArray, plan: Plan, prediction: Prediction
) -> dict[str, float | None]:
    """Metrics by name; None where one has no value.

    Args:
        embeddings: (n, d), as the loss sees them.
        y: (n,) classes.
    """
    data = labeled_embeddings(embeddings, y, unit=plan.projection == "sphere")
    moments = class_moments(data)
    gram = prediction.gram
    cosines = None if plan.projection == "none" else gram
    few = np.unique(np.linspace(0, len(y) - 1, min(len(y), PAIRED_ITEMS)).astype(np.int64))
    paired = labeled_embeddings(embeddings[few], y[few], unit=plan.projection == "sphere")
    all_classes = paired.classes == data.classes
    return {
        "risk_gap": _value(lambda: risk_gap(moments, prediction)),
        "entropic_gap": _value(lambda: entropic_gap(paired, prediction.weighting if all_classes else None)),
        "r2_similarity": _value(lambda: metrics.class_r2_similarity(moments, gram)),
        "r2_procrustes": _value(lambda: metrics.class_procrustes(moments, gram)[0]),
        "nc1": _value(lambda: metrics.nc1(moments)),
        "nc2": _value(lambda: metrics.nc2(moments)),
        "cdnv": _value(lambda: metrics.cdnv(moments)),
        "gram_distance_max": _value(lambda: metrics.gram_distances(moments, cosines)[0]),
        "gram_distance_fro": _value(lambda: metrics.gram_distances(moments, cosines)[1]),
        "minority_collapse_index": _value(lambda: metrics.largest_cosine(moments)),
    }


def _value(compute: Callable[[], float]) -> float | None:
    try:
        value = float(compute())
    except Unavailable:
        return None
    return value if np.isfinite(value) else None


def risk_gap(moments: ClassMoments, prediction: Prediction) -> float:
    """The loss of the measured class means above the optimum; a lower bound on that of the samples."""
    if prediction.risk is None or prediction.risk_of is None:
        raise Unavailable("there is no prediction")
    return prediction.risk_of(moments.means) - prediction.risk


def report(embeddings: Embeddings, y: IntArray, plan: Plan, prediction: Prediction) -> dict[str, Any]:
    """The measured geometry beside the predicted one, for the summary."""
    classes = int(y.max()) + 1
    if classes > MAX_DIAGNOSED:
        return {"measured_gram": None, "verdict": f"There are more than {MAX_DIAGNOSED} classes."}
    gram = None if plan.projection == "none" else prediction.gram
    found = diagnose(embeddings, y, predicted=gram, unit=plan.projection == "sphere")
    measured = found.measured_gram
    if plan.projection == "none":
        means = class_moments(labeled_embeddings(embeddings, y, unit=False)).means
        means = means - np.bincount(y) @ means / len(y)
        measured = means @ means.T
    return {
        "measured_gram": measured.tolist() if classes <= MAX_INLINE else None,
        "verdict": found.verdict,
    }
