"""Measured embeddings beside the predicted geometry, class by class, with a verdict in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from anglewise.class_geometry import Geometry
from anglewise.class_moments import ClassMoments, class_moments, labeled_embeddings
from anglewise.errors import TooLarge
from anglewise.metrics import (
    Metrics,
    checked_gram,
    gram_factor,
    mean_directions,
    measure_classes,
)
from anglewise.pair_metrics import Weighting
from anglewise.sampling import FloatArray

MAX_CLASSES = 5_000
"""A (C, C) Gram matrix is part of the answer up to this many classes."""
MERGED_COSINE = 0.99
"""Measured class means at least this aligned count as merged."""
PREDICTED_MERGED_COSINE = 1 - 1e-7
"""Predicted class means at least this aligned count as merged exactly; above `MERGED_COSINE` as near."""
CLOSE_TO_PREDICTED = 0.05
"""Largest difference of cosines up to which a measured geometry counts as the predicted one."""
COLLAPSED_VARIANCE = 0.01
"""Share of within-class variance below which items count as collapsed onto their class means."""
LISTED = 12

Label = int | str


@dataclass(frozen=True)
class ClassReport:
    """One class.

    Attributes:
        label: as given.
        count: items.
        norm: length of the class mean.
        within_variance: mean of ‖x - μ_c‖².
        cosine_to_predicted: after the best rotation of all class means onto the predicted ones; None
            without a prediction or where the mean has no direction.
        nearest: label of the class with the most similar mean, and their cosine; None for one class.
    """

    label: Label
    count: int
    norm: float
    within_variance: float
    cosine_to_predicted: float | None
    nearest: Label | None
    nearest_cosine: float | None


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What was measured, what was predicted, and how they differ.

    Attributes:
        items, dimension: n and d of the embeddings.
        classes: one report a class, in order of the sorted labels.
        metrics: `Metrics`, with reasons for those that are None.
        measured_gram: (C, C) cosines between class means (0 where a mean has no direction).
        predicted_gram: (C, C) or None.
        merged: groups of labels whose measured means are linked by cosines ≥ 0.99.
        predicted_merged: groups the prediction merges exactly.
        predicted_near: groups the prediction puts at a cosine ≥ 0.99.
        verdict: plain sentences, all from these numbers.
        zero_embeddings: rows that are exactly zero.
    """

    items: int
    dimension: int
    classes: tuple[ClassReport, ...]
    metrics: Metrics
    measured_gram: FloatArray
    predicted_gram: FloatArray | None
    merged: tuple[tuple[Label, ...], ...]
    predicted_merged: tuple[tuple[Label, ...], ...]
    predicted_near: tuple[tuple[Label, ...], ...]
    verdict: str
    zero_embeddings: int


def diagnose(
    embeddings: npt.NDArray[np.floating] | Sequence[Sequence[float]],
    labels: npt.NDArray[np.generic] | Sequence[int] | Sequence[str],
    *,
    predicted: FloatArray | Geometry | None = None,
    weighting: Weighting | None = None,
    unit: bool = True,
) -> Diagnosis:
    """Compare embeddings with a predicted class geometry.

    Args:
        embeddings: (n, d), float32 or float64.
        labels: (n,) integers or strings.
        predicted: (C, C) inner products of the predicted unit class means, in order of the sorted labels,
            or the `Geometry` that has them.
        weighting: weights of the loss, for the entropic gap.
        unit: divide each embedding by its norm first.

    Raises:
        InvalidInput: naming ``("embeddings", i, j)``, ``("labels", i)`` or ``("predicted_gram",)``.
        TooLarge: more than 5,000 classes.
    """
    data = labeled_embeddings(embeddings, labels, unit=unit)
    if data.classes > MAX_CLASSES:
        raise TooLarge(("labels",), f"more than {MAX_CLASSES} classes")
    gram = predicted.gram if isinstance(predicted, Geometry) else predicted
    A = None if gram is None else checked_gram(gram, data.classes)
    moments = class_moments(data)
    U = mean_directions(moments)
    measured = np.clip(U @ U.T, -1.0, 1.0)
    reports = _class_reports(data.labels, moments, U, measured, A)
    metrics = measure_classes(data, moments, A, weighting)
    merged = linked_groups(data.labels, measured, MERGED_COSINE)
    exact = () if A is None else linked_groups(data.labels, A, PREDICTED_MERGED_COSINE)
    near = () if A is None else linked_groups(data.labels, A, MERGED_COSINE)
    sentences = [
        *_about_spread(moments),
        *_about_merging(merged, exact, near, U, A),
        *_about_distance(metrics, A),
        *_about_zeros(moments),
    ]
    return Diagnosis(
        items=data.items,
        dimension=data.dimension,
        classes=reports,
        metrics=metrics,
        measured_gram=measured,
        predicted_gram=A,
        merged=merged,
        predicted_merged=exact,
        predicted_near=near,
        verdict=" ".join(sentences),
        zero_embeddings=moments.zero_rows,
    )


def linked_groups(
    labels: tuple[Label, ...], gram: FloatArray, cosine: float
) -> tuple[tuple[Label, ...], ...]:
    """Groups of two or more classes linked by entries of ``gram`` of at least ``cosine``."""
    _, component = connected_components(csr_array((gram >= cosine).astype(np.int8)), directed=False)
    groups: dict[int, list[Label]] = {}
    for label, c in zip(labels, component.tolist(), strict=True):
        groups.setdefault(c, []).append(label)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def cosines_to_predicted(directions: FloatArray, predicted: FloatArray) -> FloatArray:
    """(C,) cosine of each class direction with its predicted one after the best common rotation."""
    Y = gram_factor(predicted)
    left, _, right = np.linalg.svd(directions.T @ Y, full_matrices=False)
    norms = np.linalg.norm(Y, axis=1)
    rotated = np.einsum("ij,ij->i", directions @ left, Y @ right.T)
    return np.asarray(np.clip(rotated / np.where(norms > 0, norms, 1.0), -1.0, 1.0), dtype=np.float64)


def _class_reports(
    labels: tuple[Label, ...],
    moments: ClassMoments,
    U: FloatArray,
    measured: FloatArray,
    predicted: FloatArray | None,
) -> tuple[ClassReport, ...]:
    C = len(labels)
    aligned = None if predicted is None else cosines_to_predicted(U, predicted)
    directed = np.abs(U).max(axis=1) > 0
    others = np.where(directed[:, None] & directed, measured, -np.inf)
    np.fill_diagonal(others, -np.inf)
    nearest = others.argmax(axis=1)
    norms = np.linalg.norm(moments.means, axis=1)
    return tuple(
        ClassReport(
            label=labels[c],
            count=int(moments.counts[c]),
            norm=float(norms[c]),
            within_variance=float(moments.within_variance[c]),
            cosine_to_predicted=None if aligned is None or not directed[c] else float(aligned[c]),
            nearest=labels[nearest[c]] if np.isfinite(others[c, nearest[c]]) else None,
            nearest_cosine=float(measured[c, nearest[c]]) if np.isfinite(others[c, nearest[c]]) else None,
        )
        for c in range(C)
    )


def _about_spread(moments: ClassMoments) -> list[str]:
    n = moments.counts
    total = float(moments.squared_norms.sum())
    if total == 0:
        return ["All embeddings are zero."]
    share = float(n @ moments.within_variance) / total
    if share <= COLLAPSED_VARIANCE:
        return [f"Items sit on their class means: {share:.2%} of the squared length is within-class spread."]
    return [f"Classes are not points: {share:.1%} of the squared length is within-class spread."]


def _about_merging(
    merged: tuple[tuple[Label, ...], ...],
    exact: tuple[tuple[Label, ...], ...],
    near: tuple[tuple[Label, ...], ...],
    directions: FloatArray,
    predicted: FloatArray | None,
) -> list[str]:
    if len(directions) == 1:
        return ["There is one class."]
    without = int((~directions.any(axis=1)).sum())
    if without:
        return [f"{without} class means are zero and have no direction."]
    if predicted is None:
        return [f"{_named(group)} have merged." for group in merged] or ["No two classes have merged."]
    sentences = [f"{_named(group)} have merged; {_expected(group, exact, near)}." for group in merged]
    apart = [group for group in near if not any(set(group) <= set(m) for m in merged)]
    for group in apart:
        word = "the same direction" if _inside(group, exact) else "nearly the same direction"
        sentences.append(f"{_named(group)} are predicted to share {word} but are still apart.")
    return sentences or ["No two classes have merged, as predicted."]


def _inside(group: tuple[Label, ...], groups: tuple[tuple[Label, ...], ...]) -> bool:
    return any(set(group) <= set(other) for other in groups)


def _expected(
    group: tuple[Label, ...],
    exact: tuple[tuple[Label, ...], ...],
    near: tuple[tuple[Label, ...], ...],
) -> str:
    if _inside(group, exact):
        return "predicted at these proportions"
    if _inside(group, near):
        return "predicted to come within a cosine of 0.99 at these proportions"
    partly = [set(group) & set(other) for other in near]
    largest = max(partly, key=len, default=set())
    if len(largest) > 1:
        return (
            f"of these only {_named(tuple(x for x in group if x in largest), lower=True)} were predicted to"
        )
    return "not predicted at these proportions"


def _named(group: tuple[Label, ...], *, lower: bool = False) -> str:
    shown = ", ".join(str(label) for label in group[:LISTED])
    more = f" and {len(group) - LISTED} more" if len(group) > LISTED else ""
    return f"{'classes' if lower else 'Classes'} {shown}{more}"


def _about_distance(metrics: Metrics, predicted: FloatArray | None) -> list[str]:
    if predicted is None or len(predicted) == 1:
        return []
    distance = metrics.gram_distance_max
    if distance is None:
        return [f"Distance from the predicted geometry: {metrics.reasons['gram_distance_max']}."]
    if distance <= CLOSE_TO_PREDICTED:
        return [f"The class means match the prediction: no cosine differs by more than {distance:.2g}."]
    return [f"The class means differ from the predicted geometry by up to {distance:.2f} in cosine."]


def _about_zeros(moments: ClassMoments) -> list[str]:
    if moments.zero_rows == 0:
        return []
    return [f"{moments.zero_rows} embeddings are exactly zero and have no direction."]
