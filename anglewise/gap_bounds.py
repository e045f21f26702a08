"""Proven lower bounds on the entropy gap of inconsistent weights.

For any probability rows q_i on N(i), Gibbs' inequality gives -log softmax_j(s_i) = max_q form

    L(S) ≥ (1/n) Σ_i [H(q_i) + Σ_j (q_ij - p_ij) s_ij].

So each direction D with zero row sums, q = p + t D ≥ 0, for which Σ_ij D_ij s_ij is bounded below by the
witness of an inconsistency, bounds the gap L - (1/n) Σ H(p_i) from below, whatever the geometry. Three
kinds of D and one argument for dimension, which is not convex:

- along a cycle, a self pair or a path, Σ D_ij s_ij ≥ 0: `entropy_gain`;
- along x xᵀ for a vector x with xᵀKx < 0: `vector_gap`;
- rank and all else, from the distance of the required Gram matrix to the feasible ones: `deviation_gap`.

(Derived for this library.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numba import njit
from scipy.special import entr

from anglewise.sampling import FloatArray

EPS = float(np.finfo(np.float64).eps)
HALF_STEP_LOSS = 0.614
"""(1 + u) log(1 + u) - u ≤ 0.614 u² for u ≥ -1/2."""


def entropy_gain(p: Sequence[float], D: Sequence[float], anchors: int) -> float:
    """max over t of (1/n) Σ [h(p + t D) - h(p)], h(x) = -x log x, over the entries that change.

    ``p`` are the probabilities of the changed entries, ``D`` the direction (zero sum in each row).
    """
    probability, step = np.asarray(p, dtype=np.float64), np.asarray(D, dtype=np.float64)
    if (step[probability == 0] < 0).any():
        return 0.0
    falling = step < 0
    longest = float((probability[falling] / -step[falling]).min())
    gains = _gains(probability, step, longest * np.geomspace(1e-100, 1.0, 801))
    return max(0.0, float(gains.max())) / anchors


def _gains(p: FloatArray, D: FloatArray, t: FloatArray) -> FloatArray:
    """Σ [h(p + t D) - h(p)] for each t, less a bound on its rounding."""
    old = p > 0
    with np.errstate(over="ignore"):  # an infinite rise is an infinite loss
        u = np.maximum(t[:, None] * D[old] / p[old], -1.0)
        inside = u > -1
        loss = p[old] * np.where(inside, (1 + u) * np.log1p(np.where(inside, u, 0.0)), 0.0)
    new = t[:, None] * D[~old]
    terms = np.concatenate([-t[:, None] * D[old] * np.log(p[old]), -loss, entr(new)], axis=1)
    return np.asarray(terms.sum(axis=1) - 8 * EPS * np.abs(terms).sum(axis=1))


def vector_gap(P: FloatArray, x: FloatArray, T: float, excess: float, anchors: int, included: bool) -> float:
    """A bound from Σ_{i≠j} x_i x_j (s_ij - required) ≥ excess / T > 0 for every geometry.

    P (n, n) holds p_ij with zero rows for skipped anchors. Off the diagonal q = p + t D with
    D_ij + D_ji = 2 n T x_i x_j, split in proportion to p; then gap ≥ t · excess - (1/n) Σ KL(q_i ‖ p_i).
    With self pairs included the diagonal restores the row sums; with self pairs excluded an antisymmetric
    flow does, which exists because (1ᵀx)² = xᵀx.
    """
    if excess <= 0:
        return 0.0
    row_sums = np.empty(len(P))
    _split_row_sums(P, x, 2 * T * anchors, row_sums)
    curvature, longest = _chi_square(P, x, 2 * T * anchors, row_sums, included)
    curvature /= anchors
    if not (math.isfinite(curvature) and longest > 0):
        return 0.0
    t = 0.5 * longest
    if curvature > 0:
        t = min(t, excess / (2 * HALF_STEP_LOSS * curvature))
    return max(0.0, t * excess - HALF_STEP_LOSS * curvature * t * t) if math.isfinite(t) else 0.0


@njit(cache=True, nogil=True)
def _split_row_sums(P: FloatArray, x: FloatArray, factor: float, row_sums: FloatArray) -> None:
    """Σ_{j≠i} D_ij of the symmetric split."""
    n = len(P)
    row_sums[:] = 0.0
    for i in range(n):
        if x[i] == 0.0:
            continue
        for j in range(i):
            both = P[i, j] + P[j, i]
            if both > 0:
                w = factor * x[i] * x[j] / both
                row_sums[i] += w * P[i, j]
                row_sums[j] += w * P[j, i]


@njit(cache=True, nogil=True)
def _chi_square(
    P: FloatArray, x: FloatArray, factor: float, row_sums: FloatArray, included: bool
) -> tuple[float, float]:
    """Σ D²/p over all entries and the largest t with p + t D ≥ 0; (inf, 0) if D needs an entry with p = 0."""
    n = len(P)
    total, steepest = 0.0, 0.0
    mean = row_sums.mean()
    for i in range(n):
        if included and x[i] == 0.0:
            continue  # nothing moves in this row
        live = False
        for j in range(n):
            live = live or P[i, j] > 0
        if not live:
            continue
        for j in range(n):
            if i == j:
                if not included:
                    continue
                D = -row_sums[i]
            else:
                both = P[i, j] + P[j, i]
                D = factor * x[i] * x[j] * P[i, j] / both if both > 0 else factor * x[i] * x[j]
                if not included:
                    D -= ((row_sums[i] - mean) - (row_sums[j] - mean)) / n
            if D == 0.0:
                continue
            if P[i, j] == 0.0:
                return np.inf, 0.0
            u = D / P[i, j]
            total += D * u
            steepest = max(steepest, -u)
    return total, 1 / steepest if steepest > 0 else np.inf


def deviation_gap(smallest_probability: float, deviation: float, anchors: int) -> float:
    """A bound when in every geometry some counted s_ij - log w_ij is ``deviation`` off every row constant.

    With δ the deviation from the row mean, KL(p_i ‖ q_i) = log E_p e^δ ≥ log(1 + p_min (e^{-u} - 1 + u)) for
    the entry with |δ| ≥ u.
    """
    if deviation <= 0:
        return 0.0
    return math.log1p(smallest_probability * (math.expm1(-deviation) + deviation)) / anchors
