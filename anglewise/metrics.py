"""Measured embeddings in numbers: neural collapse, distance to a predicted geometry, spread (Part C).

By default each embedding is divided by its norm, as contrastive losses do. Class means are of these unit
vectors; cosines are between the means. Every metric is a finite number, or None with a reason: never NaN.
Nothing of size n × n is kept; metrics that need all pairs of items are refused above a stated limit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigvalsh

from anglewise.class_moments import (
    ClassMoments,
    LabeledEmbeddings,
    class_moments,
    labeled_embeddings,
    unit_rows,
)
from anglewise.errors import InvalidInput
from anglewise.pair_metrics import Unavailable, Weighting, entropic_gap, row_blocks, uniformity
from anglewise.procrustes import nuclear_norm, r2_from_norms, similarity_from_norms
from anglewise.sampling import FloatArray
from anglewise.weighted_loss import row_dot

__all__ = [
    "Metrics",
    "Unavailable",
    "Weighting",
    "checked_gram",
    "gram_factor",
    "mean_directions",
    "measure",
    "measure_classes",
]

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Metrics:
    """Numbers about one set of labeled embeddings; None where ``reasons`` says why.

    Attributes:
        nc1: tr(Σ_W Σ_B⁺)/C ≥ 0, Σ_W the mean within-class covariance over items, Σ_B the covariance of the
            C class means about their mean, the pseudo-inverse cut at rank C - 1 ([Papyan2020]).
        cdnv: mean over pairs of classes of (σ_c² + σ_k²)/(2‖μ_c - μ_k‖²) ([Galanti2022]).
        nc2: ‖K/‖K‖ - (I - 11ᵀ/C)/√(C-1)‖_F, K the Gram matrix of the centered class means: 0 for a
            simplex, below √2.
        gram_distance_max: largest |cosine of class means - predicted|.
        gram_distance_fro: the Frobenius norm of that difference, divided by C.
        minority_collapse_index: largest cosine between the means of different classes.
        effective_rank: exp of the entropy of the normalized singular values of the embeddings
            ([Roy2007]), from 1 to min(n, d).
        alignment: mean squared distance of two items of one class ([Wang2020]).
        uniformity: log of the mean of e^{-2‖z_i - z_j‖²} over pairs ([Wang2020]).
        entropic_gap: (1/n) Σ_i KL(p_i‖q_i) ≥ 0 ([P2]).
        r2_similarity: 1 - ‖S - S*‖²/‖S* - mean‖² over pairs of items, S* predicted.
        r2_procrustes: 1 - ‖Y - XR‖²/‖Y‖², the items X against their predicted class means Y.
        procrustes_similarity: ‖XᵀY‖_*/(‖X‖‖Y‖).
        reasons: why a metric is None.
    """

    nc1: float | None
    cdnv: float | None
    nc2: float | None
    gram_distance_max: float | None
    gram_distance_fro: float | None
    minority_collapse_index: float | None
    effective_rank: float | None
    alignment: float | None
    uniformity: float | None
    entropic_gap: float | None
    r2_similarity: float | None
    r2_procrustes: float | None
    procrustes_similarity: float | None
    reasons: dict[str, str] = field(default_factory=dict)

    def values(self) -> dict[str, float | None]:
        """The metrics by name."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "reasons"}


def measure(
    embeddings: npt.NDArray[np.floating] | Sequence[Sequence[float]],
    labels: npt.NDArray[np.generic] | Sequence[int] | Sequence[str],
    *,
    predicted_gram: FloatArray | None = None,
    weighting: Weighting | None = None,
    unit: bool = True,
) -> Metrics:
    """All metrics of Part C.

    Args:
        embeddings: (n, d), float32 or float64.
        labels: (n,) integers or strings; classes are in order of the sorted labels.
        predicted_gram: (C, C) inner products of the predicted unit class means.
        weighting: the weights of the loss, for the entropic gap.
        unit: divide each embedding by its norm first.

    Raises:
        InvalidInput: naming ``("embeddings", i, j)``, ``("labels", i)``, ``("predicted_gram",)`` or
            ``("weighting",)``.
    """
    data = labeled_embeddings(embeddings, labels, unit=unit)
    predicted = None if predicted_gram is None else checked_gram(predicted_gram, data.classes)
    return measure_classes(data, class_moments(data), predicted, weighting)


def measure_classes(
    data: LabeledEmbeddings,
    moments: ClassMoments,
    predicted: FloatArray | None = None,
    weighting: Weighting | None = None,
) -> Metrics:
    """`measure` on moments already accumulated."""
    computations: dict[str, Callable[[], float]] = {
        "nc1": lambda: nc1(moments),
        "cdnv": lambda: cdnv(moments),
        "nc2": lambda: nc2(moments),
        "gram_distance_max": lambda: gram_distances(moments, predicted)[0],
        "gram_distance_fro": lambda: gram_distances(moments, predicted)[1],
        "minority_collapse_index": lambda: largest_cosine(moments),
        "effective_rank": lambda: effective_rank(moments),
        "alignment": lambda: alignment(moments),
        "uniformity": lambda: uniformity(data),
        "entropic_gap": lambda: entropic_gap(data, weighting),
        "r2_similarity": lambda: class_r2_similarity(moments, predicted),
        "r2_procrustes": lambda: class_procrustes(moments, predicted)[0],
        "procrustes_similarity": lambda: class_procrustes(moments, predicted)[1],
    }
    values: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for name, compute in computations.items():
        try:
            value = float(compute())
            if not np.isfinite(value):
                raise Unavailable("the value is outside the range of double precision")
            values[name] = value
        except Unavailable as reason:
            values[name] = None
            reasons[name] = str(reason)
    return Metrics(**values, reasons=reasons)


def checked_gram(gram: FloatArray, classes: int) -> FloatArray:
    """A symmetric finite (C, C) matrix.

    Raises:
        InvalidInput: naming ``("predicted_gram",)``.
    """
    A = np.asarray(gram, dtype=np.float64)
    if A.shape != (classes, classes):
        raise InvalidInput(
            ("predicted_gram",), f"must be {classes} x {classes}, one row for each class found"
        )
    if not np.isfinite(A).all() or np.abs(A - A.T).max() > 1e-6 * max(1.0, float(np.abs(A).max())):
        raise InvalidInput(("predicted_gram",), "must be symmetric and finite")
    return np.asarray((A + A.T) / 2, dtype=np.float64)


def _needs_two_classes(moments: ClassMoments) -> None:
    if len(moments.counts) < 2:
        raise Unavailable("there is only one class")


def _centered_means(moments: ClassMoments) -> FloatArray:
    """Class means about their own mean, which weighs every class alike; rounding noise set to zero."""
    M = moments.means - moments.means.mean(axis=0)
    noise = 8 * EPS * float(np.abs(moments.means).max())
    return np.where(np.abs(M) > noise, M, 0.0)


def nc1(moments: ClassMoments) -> float:
    """tr(Σ_W Σ_B⁺)/C, as Σ_k v_kᵀ Σ_W v_k / s_k² over the C - 1 leading singular pairs of the means."""
    _needs_two_classes(moments)
    M = _centered_means(moments)
    C = len(M)
    _, s, Vt = np.linalg.svd(M / np.sqrt(C), full_matrices=False)
    s, Vt = s[: C - 1], Vt[: C - 1]
    if s[0] == 0:
        raise Unavailable("all class means coincide, so there is no variation between classes")
    keep = s > max(M.shape) * EPS * s[0]
    V = Vt[keep].T
    # Rounding may leave -1e-17 where nothing varies; a variance is not negative.
    within = np.maximum(row_dot(V.T @ moments.within_scatter, V.T), 0.0) / moments.items
    return float((within / s[keep] ** 2).sum() / C)


def cdnv(moments: ClassMoments) -> float:
    """Class-distance normalized variance, averaged over pairs of classes."""
    _needs_two_classes(moments)
    C, total = len(moments.counts), 0.0
    noise = (8 * EPS * float(np.abs(moments.means).max())) ** 2
    for c in range(C - 1):
        squares = ((moments.means[c + 1 :] - moments.means[c]) ** 2).sum(axis=1)
        if squares.min() <= noise:
            k = c + 1 + int(squares.argmin())
            raise Unavailable(f"the means of classes {c} and {k} (in sorted order) coincide")
        spread = moments.within_variance[c + 1 :] + moments.within_variance[c]
        total += float((spread / (2 * squares)).sum())
    return total / (C * (C - 1) / 2)


def nc2(moments: ClassMoments) -> float:
    """Distance of the centered means from a simplex, from the spectrum of their Gram matrix.

    K and I - 11ᵀ/C have the same eigenvectors where both are nonzero, so the Frobenius distance is that of
    the C - 1 eigenvalues.
    """
    _needs_two_classes(moments)
    M = _centered_means(moments)
    C = len(M)
    eigenvalues = np.zeros(C - 1)
    s = np.linalg.svd(M, compute_uv=False)[: C - 1]
    if s[0] == 0:
        raise Unavailable("all class means coincide")
    eigenvalues[: len(s)] = (s / s[0]) ** 2
    return float(np.linalg.norm(eigenvalues / np.linalg.norm(eigenvalues) - 1 / np.sqrt(C - 1)))


def mean_directions(moments: ClassMoments) -> FloatArray:
    """(C, d) class means divided by their norms; zero where a mean is zero up to rounding."""
    norms = np.linalg.norm(moments.means, axis=1)
    lengths = np.sqrt(moments.within_variance + norms**2)
    return unit_rows(np.where((norms > 1e-14 * lengths)[:, None], moments.means, 0.0))


def gram_distances(moments: ClassMoments, predicted: FloatArray | None) -> tuple[float, float]:
    """max and Frobenius norm (divided by C) of measured minus predicted cosines between class means."""
    if predicted is None:
        raise Unavailable("no predicted geometry was given")
    U = mean_directions(moments)
    if not U.any(axis=1).all():
        raise Unavailable("a class mean is zero and has no direction")
    largest, total = 0.0, 0.0
    for rows in row_blocks(len(U), len(U)):
        difference = U[rows] @ U.T - predicted[rows]
        largest = max(largest, float(np.abs(difference).max()))
        total += float((difference**2).sum())
    return largest, float(np.sqrt(total)) / len(U)


def largest_cosine(moments: ClassMoments) -> float:
    """Largest cosine between the means of two different classes that have a direction."""
    _needs_two_classes(moments)
    U = mean_directions(moments)
    U = U[U.any(axis=1)]
    if len(U) < 2:
        raise Unavailable("fewer than two class means are nonzero")
    largest = -1.0
    for rows in row_blocks(len(U), len(U)):
        cosines = U[rows] @ U.T
        cosines[np.arange(len(cosines)), np.arange(rows.start, rows.stop)] = -1.0
        largest = max(largest, float(cosines.max()))
    return min(largest, 1.0)


def effective_rank(moments: ClassMoments) -> float:
    """exp(-Σ p log p), p the singular values of the embeddings divided by their sum."""
    eigenvalues = eigvalsh(moments.second_moment)
    top = float(eigenvalues[-1])
    if not top > 0:
        raise Unavailable("all embeddings are zero")
    # Eigenvalues are known to about d·eps of the largest; below that they are zero.
    s = np.sqrt(eigenvalues[eigenvalues > 4 * len(eigenvalues) * EPS * top] / top)
    p = s / s.sum()
    return float(np.exp(-(p * np.log(p)).sum()))


def alignment(moments: ClassMoments) -> float:
    """Mean of ‖z_i - z_j‖² over pairs of different items of one class: 2 n σ²/(n-1) inside a class."""
    n = moments.counts.astype(np.float64)
    pairs = n * (n - 1)
    if not pairs.any():
        raise Unavailable("no class has two items")
    return float((2 * n**2 * moments.within_variance).sum() / pairs.sum())


def class_r2_similarity(moments: ClassMoments, predicted: FloatArray | None) -> float:
    """r² of x_i·x_j against A*_{y_i y_j} over pairs i < j, from class sums and second moments alone."""
    if predicted is None:
        raise Unavailable("no predicted geometry was given")
    n = moments.counts.astype(np.float64)
    pairs = np.outer(n, n) - np.diag(n)
    if not pairs.any():
        raise Unavailable("there is only one item")
    mean = float((pairs * predicted).sum() / pairs.sum())
    spread = float((pairs * (predicted - mean) ** 2).sum())
    if spread <= 1e-24 * float((pairs * predicted**2).sum()):
        raise Unavailable("all predicted similarities are equal")
    sums = moments.means * n[:, None]
    # Σ over i ≠ j of S², S A* and A*²: everything less the pairs i = j.
    measured = float((moments.second_moment**2).sum()) - moments.fourth_power
    product = float((sums * (predicted @ sums)).sum() - np.diag(predicted) @ moments.squared_norms)
    error = measured - 2 * product + float((pairs * predicted**2).sum())
    return 1 - max(error, 0.0) / spread


def gram_factor(A: FloatArray) -> FloatArray:
    """(C, r) rows with inner products A, its negative eigenvalues set to zero."""
    eigenvalues, vectors = np.linalg.eigh(A)
    keep = eigenvalues > 1e-12 * max(float(eigenvalues[-1]), 0.0)
    return np.asarray(vectors[:, keep] * np.sqrt(eigenvalues[keep]), dtype=np.float64)


def class_procrustes(moments: ClassMoments, predicted: FloatArray | None) -> tuple[float, float]:
    """r² and similarity of the items against their predicted class means, from class sums alone."""
    if predicted is None:
        raise Unavailable("no predicted geometry was given")
    n = moments.counts.astype(np.float64)
    Y = gram_factor(predicted)
    Y = Y - n @ Y / n.sum()
    M = moments.means - n @ moments.means / n.sum()
    target = float(n @ (Y**2).sum(axis=1))
    measured = float(n @ (moments.within_variance + (M**2).sum(axis=1)))
    nuclear = nuclear_norm((M * n[:, None]).T @ Y)
    if target <= 1e-24 * n.sum():
        raise Unavailable("all predicted class means coincide")
    similarity = similarity_from_norms(nuclear, measured, target)
    r2 = r2_from_norms(nuclear, measured, target)
    if similarity is None or r2 is None:
        raise Unavailable("all embeddings coincide")
    return r2, similarity
