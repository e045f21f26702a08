"""Euclidean similarity, self pairs excluded, enough dimensions: the best geometry is a Bradley-Terry fit.

Adding a constant to all squared distances changes no softmax over j ≠ i, and enough of it makes any symmetric
matrix a matrix of squared distances. So S is any symmetric matrix, and L is least where a_i q_ij + a_j q_ji =
N_ij := a_i P_ij + a_j P_ji for all pairs: with v > 0 the equations of [Hunter2004], convex in log v,

    Σ_j N_ij v_i/(v_i + v_j) = a_i,    a_i q_ij = N_ij v_i/(v_i + v_j),    S_ij = log N_ij - log(v_i + v_j).

A pair with N_ij = 0, or weights that are one-sided without a cycle, send distances to infinity: the minimum
is approached and the similarity returned here is finite and within rounding of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.special import expit

from anglewise.sampling import FloatArray
from anglewise.weighted_loss import WeightedLoss
from anglewise.weighted_problem import double_center

MAX_ITERATIONS = 200
FAR = 40.0
"""Log-similarity of an uncompared pair below the total of either row: e^-40 is below rounding."""
DIVERGED = 25.0
"""A spread of log v that only a minimum at infinity produces."""


@dataclass(frozen=True, eq=False)
class BradleyTerry:
    """The minimum over all symmetric similarities.

    Attributes:
        S: (n, n) a minimizing similarity, zero diagonal.
        excess: L(S) less the entropy bound.
        gap: proven bound on ``excess`` minus its minimum.
        attained: False when some distances must go to infinity.
        iterations: Newton steps.
    """

    S: FloatArray
    excess: float
    gap: float
    attained: bool
    iterations: int


def _laplacian_solve(C: FloatArray, b: FloatArray) -> FloatArray:
    """x with Σ_j C_ij (x_i - x_j) = b_i for conductances C, in each connected part; Σ b = 0 there."""
    degree = C.sum(axis=1)
    d = np.sqrt(np.where(degree > 0, degree, 1.0))
    scaled = -C / np.outer(d, d)
    scaled[np.diag_indices(len(d))] = 1.0 + 1e-13
    v = d / np.linalg.norm(d)
    factor = cho_factor(scaled + np.outer(v, v), check_finite=False)
    return np.asarray(cho_solve(factor, b / d, check_finite=False) / d, dtype=np.float64)


def _objective(N: FloatArray, a: FloatArray, x: FloatArray) -> float:
    return float(0.5 * (N * np.logaddexp(x[:, None], x[None, :])).sum() - a @ x)


def fit(N: FloatArray, a: FloatArray) -> tuple[FloatArray, int]:
    """log v (n,), Σ log v = 0, by Newton's method with a backtracking line search; and the steps taken."""
    x = np.zeros(len(a))
    for iteration in range(MAX_ITERATIONS):
        share = expit(x[:, None] - x[None, :])
        g = (N * share).sum(axis=1) - a
        if np.abs(g).max() < 1e-15 * a.max():
            return x, iteration
        step = _laplacian_solve(N * share * share.T, -g)
        step *= min(1.0, 5.0 / max(np.abs(step).max(), 1e-300))
        here, slope, t = _objective(N, a, x), float(g @ step), 1.0
        while t > 1e-6 and _objective(N, a, x + t * step) > here + 1e-4 * t * slope + 1e-15:
            t *= 0.5
        x = x + t * step
        x -= x.mean()
    return x, MAX_ITERATIONS


def similarity(N: FloatArray, a: FloatArray, x: FloatArray) -> FloatArray:
    """S of the fit; pairs with N_ij = 0 get a similarity that no softmax sees."""
    with np.errstate(divide="ignore"):
        row_total = np.log(a) - x
        S = np.log(N) - np.logaddexp(x[:, None], x[None, :])
    row_total[a == 0] = np.inf
    floor = np.minimum(row_total[:, None], row_total[None, :]) - FAR
    floor = np.where(np.isfinite(floor), floor, row_total[a > 0].min() - FAR)
    S = np.where(N > 0, S, floor)
    np.fill_diagonal(S, 0.0)
    return S


def proven_gap(problem: WeightedLoss, N: FloatArray, x: FloatArray, S: FloatArray, excess: float) -> float:
    """L - Σ_i a_i H(q_i) for shares q with the pair sums N: the dual value, since S is unconstrained.

    One flow along the pairs makes the rows of q sum to 1; what rounding leaves is charged at max |S|.
    """
    a = problem.anchors
    share = expit(x[:, None] - x[None, :])
    Q = N * share
    potential = _laplacian_solve(Q * share.T, a - Q.sum(axis=1))
    Q = np.maximum(Q + Q * share.T * (potential[:, None] - potential[None, :]), 0.0)
    residual = float(np.abs(Q.sum(axis=1) - a).sum() + 0.5 * np.abs(Q + Q.T - N).sum())
    live = a > 0
    Q[live] /= a[live, None]
    scale = float(np.abs(S).max()) + np.log(len(a)) + 1
    gap = max(excess + problem.entropy_bound - problem.entropy(Q), 0.0) + residual * scale
    return float(min(gap, excess))


def bradley_terry(problem: WeightedLoss) -> BradleyTerry:
    """The least L over all symmetric similarities of single items, self pairs excluded."""
    a = problem.anchors
    N = a[:, None] * problem.target
    N = N + N.T
    np.fill_diagonal(N, 0.0)
    x, iterations = fit(N, a)
    S = similarity(N, a, x)
    excess = problem.excess(S)
    off = ~np.eye(len(a), dtype=bool)
    attained = bool((N[off] > 0).all() and np.ptp(x) < DIVERGED)
    return BradleyTerry(S, excess, proven_gap(problem, N, x, S, excess), attained, iterations)


def nearest_embedding(S: FloatArray, temperature: float) -> FloatArray:
    """(n, r) points with -‖z_i - z_j‖²/T = S_ij - c, i ≠ j, for the least constant c that allows it."""
    n = len(S)
    B = 0.5 * temperature * double_center(S)
    values, vectors = eigh(B + np.abs(B).max() * np.ones((n, n)))
    # The constant vector has the largest eigenvalue; the others are those of B on centered vectors.
    values, vectors = values[:-1] - values[0], vectors[:, :-1]
    keep = values > 1e-12 * max(values[-1], temperature)
    if not keep.any():
        return np.zeros((n, 1))
    return np.asarray(vectors[:, keep] * np.sqrt(values[keep]), dtype=np.float64)
