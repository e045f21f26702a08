"""A factor of the Gram matrix on groups of equal proportions, and a plain descent on it.

A group of n_g classes with mean direction m_g has inner products a_g = (n_g |m_g|² - 1)/(n_g - 1) inside and
m_g · m_h to other groups. |m_g| ≤ 1 becomes an equality with one private coordinate per group of several
classes: u_g = (m_g, s_g) with |u_g| = 1 [Burer2003].
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.linalg

from anglewise.sampling import FloatArray, Groups
from anglewise.spheres import Objective, SphereMinimum, minimize_on_spheres

ValueAndGradient = Callable[[FloatArray], tuple[float, FloatArray]]
"""(G, G) group Gram matrix -> value and derivative per ordered pair of classes."""

NOISE = 1e-3
SMALLEST_SLACK = 1e-3


def gram_of(groups: Groups, U: FloatArray) -> FloatArray:
    """(G, G) group Gram matrix of (G, r + 1) unit rows (m_g, s_g)."""
    M, n = U[:, :-1], groups.sizes.astype(np.float64)
    A = np.clip(M @ M.T, -1.0, 1.0)
    inside = (n * (M * M).sum(axis=1) - 1) / np.maximum(n - 1, 1)
    np.fill_diagonal(A, np.where(n > 1, np.clip(inside, -1.0, 1.0), 1.0))
    return np.asarray(A, dtype=np.float64)


def mean_directions(groups: Groups, A: FloatArray) -> FloatArray:
    """(G, G) matrix of inner products m_g · m_h, with |m_g|² on the diagonal."""
    n = groups.sizes.astype(np.float64)
    B = A.copy()
    np.fill_diagonal(B, np.where(n > 1, (1 + (n - 1) * np.diag(A)) / n, 1.0))
    return B


def factor_of(groups: Groups, A: FloatArray, rank: int, *, noise: float = NOISE, seed: int = 0) -> FloatArray:
    """(G, rank + 1) unit rows whose Gram matrix is near ``A``; the noise lets the rank grow."""
    eigenvalues, vectors = scipy.linalg.eigh(mean_directions(groups, A))
    scaled = (vectors * np.sqrt(np.maximum(eigenvalues, 0.0)))[:, ::-1][:, :rank]
    M = np.zeros((len(groups), rank))
    M[:, : scaled.shape[1]] = scaled
    M += noise * np.random.default_rng(seed).normal(size=M.shape) / np.sqrt(rank)
    slack = np.sqrt(np.maximum(1 - (M * M).sum(axis=1), SMALLEST_SLACK**2)) * (groups.sizes > 1)
    U = np.column_stack([M, slack])
    return np.asarray(U / np.linalg.norm(U, axis=1, keepdims=True), dtype=np.float64)


def factor_objective(groups: Groups, value_and_gradient: ValueAndGradient) -> Objective:
    """The function of a Gram matrix as a function of its factor (m_g, s_g)."""
    n = groups.sizes.astype(np.float64)
    pairs = np.outer(n, n)
    np.fill_diagonal(pairs, np.where(n > 1, n * n, 0.0))

    def objective(U: FloatArray) -> tuple[float, FloatArray]:
        value, H = value_and_gradient(gram_of(groups, U))
        gradient = np.zeros_like(U)
        gradient[:, :-1] = (pairs * (H + H.T)) @ U[:, :-1]
        return value, gradient

    return objective


def row_curvature(groups: Groups, H: FloatArray) -> FloatArray:
    """(G,) slope of the row of every group, times the smallest |cosine| that an optimum can have throughout.

    The multiplier of |u_g| = 1 vanishes for groups whose classes stay apart, so it is no scale for them.
    """
    n = groups.sizes.astype(np.float64)
    neighbors = np.tile(n, (len(n), 1)) - np.eye(len(n))
    return np.asarray(n * (neighbors * (H + H.T)).sum(axis=1) / max(groups.classes - 1, 1), dtype=np.float64)


def factor_descent(
    groups: Groups,
    value_and_gradient: ValueAndGradient,
    A0: FloatArray,
    *,
    rank: int | None = None,
    max_iterations: int = 400,
    newton_steps: int = 20,
    deadline: float | None = None,
    seed: int = 0,
) -> tuple[FloatArray, SphereMinimum]:
    """A general descent for any convex function of the group Gram matrix, no structure needed.

    Args:
        A0: (G, G) start.
        rank: of the factor, min(G, 100) by default.

    Returns:
        (G, G) Gram matrix, feasible by construction, and the minimum in the factor.
    """
    r = min(len(groups), 100) if rank is None else rank
    minimum = minimize_on_spheres(
        factor_objective(groups, value_and_gradient),
        factor_of(groups, A0, r, seed=seed),
        max_iterations=max_iterations,
        newton_steps=newton_steps,
        curvature=row_curvature(groups, value_and_gradient(A0)[1]),
        deadline=deadline,
    )
    return gram_of(groups, minimum.U), minimum
