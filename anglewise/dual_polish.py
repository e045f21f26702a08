"""A much sharper bound from the same embedding: repair the dual point where it costs nothing to first order.

At an embedding with Gram matrix G let q be its softmax and Z the dual matrix, a function of the off-diagonal
of Γ = sym a(q - p) and of free multipliers on the diagonal, with ⟨Z, G⟩ = 0. For any other q' and multipliers
with a dual matrix Z' ⪰ 0,

    L - min L ≤ Σ_i a_i KL(q'_i‖q_i) + ⟨Z', G⟩ .

The shift of the plain certificate pays n·|λ_min| in the second term. Instead take for Z' the positive part of
Z on the complement of the range of G: the second term vanishes, and the first is of second order in Z' - Z.
The change of q with a given symmetric part, rows summing to zero and the least KL (to leading order) solves a
Laplacian system. What a nonnegative q' cannot follow is made up by diagonal dominance.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import eigh, eigvalsh, solve

from anglewise.laplacian import laplacian_between, without_kernel
from anglewise.sampling import FloatArray
from anglewise.weighted_loss import Point, WeightedLoss

CUTS = (1e-3, 1e-6)
"""Shares of the largest eigenvalue of G below which a direction counts as outside its range; all tried."""
EPS = float(np.finfo(np.float64).eps)
KEEP = 0.1
"""No q' falls below this share of q."""


def polished_gap(problem: WeightedLoss, point: Point, dual: FloatArray, connectivity: float) -> float:
    """The bound above; infinite when the repair fails.

    Args:
        dual: (m, m) Z between orthonormal row vectors.
        connectivity: least eigenvalue that mixing q' with the identity adds per unit (Euclidean).
    """
    root = np.sqrt(problem.counts)
    F = point.Z * root[:, None]
    if not problem.cosine:
        v = root / np.linalg.norm(root)
        F = F - np.outer(v, v @ F)
    U, s, _ = np.linalg.svd(F, full_matrices=False)
    gaps = []
    for cut in CUTS:
        U1 = U[:, s**2 > cut * s[0] ** 2]
        if not problem.cosine:
            U1 = np.column_stack([U1, root / np.linalg.norm(root)])
        target = _positive_part_outside(dual, U1)
        if problem.excluded and (problem.counts == 1).all():
            target = _with_trace_equal_to_sum(target, U1)
        gaps.append(_gap_of(problem, point, dual, target, F, connectivity))
    return min(gaps)


def _positive_part_outside(Z: FloatArray, U1: FloatArray) -> FloatArray:
    """(P Z P)₊ for the projection P onto the complement of the columns of U1."""
    half = Z - U1 @ (U1.T @ Z)
    M = half - (half @ U1) @ U1.T
    M = (M + M.T) / 2
    values, vectors = eigh(M, subset_by_value=(-np.inf, 0.0))
    return np.asarray(M - (vectors * values) @ vectors.T, dtype=np.float64)


def _with_trace_equal_to_sum(Z: FloatArray, U1: FloatArray) -> FloatArray:
    """Z plus the smallest positive matrix outside U1 that makes 1ᵀZ1 = tr Z.

    With self pairs excluded the off-diagonal of a(q' - p) sums to zero, so that of Z' must.
    """
    m = len(Z)
    excess = float(np.trace(Z) - Z.sum())
    one = np.ones(m)
    one = one - U1 @ (U1.T @ one)
    square = float(one @ one)
    outside = m - U1.shape[1]
    if excess > 0:
        if square <= 1 + 1e-9:
            return Z
        return np.asarray(Z + excess / (square * (square - 1)) * np.outer(one, one), dtype=np.float64)
    if outside < 2:
        return Z
    P = np.eye(m) - U1 @ U1.T
    if square > 1e-12:
        P -= np.outer(one, one) / square
    return np.asarray(Z - excess / (outside - (square > 1e-12)) * P, dtype=np.float64)


def _change_of_softmax(problem: WeightedLoss, point: Point, wanted: FloatArray) -> FloatArray:
    """(m, m) E with sym(E) = ``wanted`` off the diagonal, rows summing to zero, a q + E > 0, small KL.

    E_ij = 2 w_ij W_ij/(W_ij + W_ji) + h_ij (x_i - x_j), W = a q, h the harmonic sum of W_ij and W_ji.
    """
    W = point.Q
    total = W + W.T
    share = np.divide(W, total, out=np.zeros_like(W), where=total > 0)
    h = share * W.T
    np.fill_diagonal(h, 0.0)
    E = 2 * wanted * share
    own = np.diag(W)
    system = np.diag(h.sum(axis=1) + own) - h
    system[np.diag_indices(len(W))] += 1e-14 * float(np.diag(system).max())
    x = solve(system, -E.sum(axis=1), assume_a="sym", check_finite=False)
    E += h * (x[:, None] - x[None, :])
    np.maximum(E, (KEEP - 1) * W, out=E)
    if (own > 0).all():
        np.fill_diagonal(E, np.diag(E) - E.sum(axis=1))
        return E
    moved = W + E
    sums = moved.sum(axis=1)
    scale = np.divide(problem.anchors, sums, out=np.zeros_like(sums), where=sums > 0)
    return np.asarray(moved * scale[:, None] - W, dtype=np.float64)


def _divergence(W: FloatArray, E: FloatArray) -> float:
    """Σ KL((W + E)‖W), rows of E summing to zero; infinite where W + E is not positive."""
    with np.errstate(over="ignore"):
        relative = np.divide(E, W, out=np.zeros_like(W), where=W > 0)
    if not ((relative > -1) & (relative < 1e100)).all() or (E[W == 0] != 0).any():
        return np.inf
    return float((W * ((1 + relative) * np.log1p(relative) - relative)).sum())


def _gap_of(
    problem: WeightedLoss,
    point: Point,
    dual: FloatArray,
    target: FloatArray,
    F: FloatArray,
    connectivity: float,
) -> float:
    """Σ KL + ⟨Z', G⟩, Z' the dual matrix of the repaired softmax, made positive semidefinite."""
    n, T = problem.counts, problem.temperature
    scale = (T if problem.cosine else T / 2) * np.sqrt(np.outer(n, n))
    wanted = scale * (target - dual)
    np.fill_diagonal(wanted, 0.0)
    try:
        E = _change_of_softmax(problem, point, wanted)
    except np.linalg.LinAlgError:
        return np.inf
    divergence = _divergence(point.Q, E)
    if not np.isfinite(divergence):
        return np.inf
    change = (E + E.T) / 2
    own = point.own + np.diag(change)
    np.fill_diagonal(change, 0.0)
    if not problem.cosine:
        reached = (2 / T) * laplacian_between(-(point.Gamma + change), n)
        inside = (-2 / T) * ((point.Gamma + change).sum(axis=1) + own) / n
        return divergence + _euclidean_remainder(problem, reached, inside, F, connectivity)
    missed = (change - wanted) / scale
    reached = target + missed + np.diag(np.abs(missed).sum(axis=1))
    inside = np.diag(reached) - own / (T * np.maximum(n - 1 if problem.excluded else n, 1.0))
    least = float(inside[n > 1].min(initial=0.0))
    shift = max(0.0, -least) + 4 * EPS * float(np.abs(reached).max())
    return divergence + max(float(np.vdot(F, reached @ F)), 0.0) + float(n.sum()) * shift


def _euclidean_remainder(
    problem: WeightedLoss, reached: FloatArray, inside: FloatArray, F: FloatArray, connectivity: float
) -> float:
    """⟨Z', B⟩ and what mixing with the identity costs: at most a share θ of log n."""
    n = problem.counts
    least = float(eigvalsh(without_kernel(reached, n), subset_by_index=[0, 0])[0])
    least = min(least, float(inside[n > 1].min(initial=0.0)))
    delta = max(0.0, -least) + 4 * EPS * float(np.abs(reached).max())
    theta = delta / (delta + connectivity)
    return max(float(np.vdot(F, reached @ F)), 0.0) + theta * float(np.log(n.sum()))
