"""Well-known geometries to compare a prediction with, each with its exact contrastive risk.

- the simplex equiangular tight frame, optimal for equal proportions ([P1]);
- the SELI geometry of cross-entropy under imbalance [Thrampoulidis2022]: with Z the (C, n) matrix of columns
  e_y - 1/C, one per sample, and Z = VΛUᵀ, classifiers have the Gram matrix VΛVᵀ and embeddings UΛUᵀ;
- the orthogonal frame, optimal for features without negative coordinates [Kini2023].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from anglewise.blas import single_threaded_blas
from anglewise.sampling import FloatArray, Groups

GroupRisk = Callable[[FloatArray], float]

MAX_SELI_GROUPS = 1_000
MIN_SELI_RATIO = 1e-17
"""Smallest over largest proportion: below it, double precision loses the singular values of rare classes. Any
two counts below 2^53 are above it."""


@dataclass(frozen=True)
class Comparator:
    """The risk of a fixed geometry for the given proportions."""

    risk: float


@dataclass(frozen=True)
class SELI(Comparator):
    """The SELI geometry on groups of equal counts.

    Attributes:
        risk: contrastive risk of the embedding directions.
        classifier_gram: (G, G) cosines between classifiers of two different classes.
        embedding_gram: (G, G) cosines between embedding directions of two different classes; both have a 1
            on the diagonal where the group has one class.
    """

    classifier_gram: FloatArray
    embedding_gram: FloatArray


def simplex_gram(groups: Groups) -> FloatArray:
    """(G, G) all cosines -1/(C - 1)."""
    return _constant_gram(groups, -1 / (groups.classes - 1) if groups.classes > 1 else 1.0)


def orthogonal_gram(groups: Groups) -> FloatArray:
    """(G, G) all cosines 0."""
    return _constant_gram(groups, 0.0)


def seli_grams(groups: Groups) -> tuple[FloatArray, FloatArray]:
    """Cosines of SELI classifiers and embeddings on groups; C ≥ 2.

    With P = I - 11ᵀ/C and D the diagonal of the counts, ZZᵀ = PDP: classifiers have the Gram matrix
    (PDP)^{1/2}, the embeddings of one class the pseudo-inverse (PDP)^{+1/2}. Both directions are the same
    for any multiple of the counts, so proportions stand for them.
    """
    s, root = np.sqrt(groups.sizes), np.sqrt(groups.proportions)
    P = np.eye(len(s)) - np.outer(s, s) / groups.classes
    with single_threaded_blas():
        # The singular values of D^{1/2}P: squaring first would lose the rare classes of extreme imbalance.
        _, singular, rows = np.linalg.svd(root[:, None] * P)
    V, sigma = rows[:-1].T, singular[:-1]  # the last one is the zero of PDP: P1 = 0
    classifiers = _cosines(groups, V * sigma @ V.T, root)
    embeddings = _cosines(groups, V / sigma @ V.T, 1 / root)
    return classifiers, embeddings


def seli(groups: Groups, risk: GroupRisk) -> SELI | None:
    """The SELI geometry; ``None`` for one class, more than `MAX_SELI_GROUPS` distinct proportions, or
    proportions whose ratio is below `MIN_SELI_RATIO`."""
    if groups.classes < 2 or len(groups) > MAX_SELI_GROUPS:
        return None
    if groups.proportions[-1] < MIN_SELI_RATIO * groups.proportions[0]:
        return None
    classifiers, embeddings = seli_grams(groups)
    return SELI(risk(embeddings), classifiers, embeddings)


def comparators(groups: Groups, risk: GroupRisk) -> dict[str, Comparator]:
    """All comparators by name; none for a single class.

    Args:
        risk: of a (G, G) Gram matrix on groups, such as `Risk.value`.
    """
    if groups.classes < 2:
        return {}
    found: dict[str, Comparator | None] = {
        "simplex_etf": Comparator(risk(simplex_gram(groups))),
        "seli": seli(groups, risk),
        "orthogonal_frame": Comparator(risk(orthogonal_gram(groups))),
    }
    return {name: comparator for name, comparator in found.items() if comparator is not None}


def _constant_gram(groups: Groups, cosine: float) -> FloatArray:
    A = np.full((len(groups), len(groups)), cosine)
    single = groups.sizes == 1
    A[single, single] = 1.0
    return A


def _cosines(groups: Groups, F: FloatArray, inside: FloatArray) -> FloatArray:
    """Normalized entries of a C × C matrix given on groups.

    Args:
        F: (G, G) the matrix on normalized group indicators.
        inside: (G,) its eigenvalue on vectors inside a group that sum to zero.
    """
    n = groups.sizes.astype(np.float64)
    entries = F / np.sqrt(np.outer(n, n))
    own = np.diag(entries) + inside * (1 - 1 / n)
    entries[np.diag_indices(len(n))] -= inside / n
    length = np.sqrt(own)
    cosines = np.clip(entries / np.outer(length, length), -1.0, 1.0)
    cosines[groups.sizes == 1, groups.sizes == 1] = 1.0
    return np.asarray(cosines, dtype=np.float64)
