"""Fewer dimensions than the convex optimum needs: a non-convex problem, several starts, the best returned.

The convex minimum stays a lower bound; the answer is proven best only when it meets that bound.
"""

from __future__ import annotations

import numpy as np

from anglewise.sampling import FloatArray
from anglewise.trust_region import Budget, trust_region
from anglewise.weighted_certificate import relative
from anglewise.weighted_loss import Point, WeightedLoss, evaluate, retract, row_dot

GRADIENT_TOLERANCE = 1e-10


def starts(problem: WeightedLoss, dimension: int) -> int:
    """How many starting points: in two or three dimensions many end well above the best."""
    return 24 if dimension <= 3 else 10


def truncate(problem: WeightedLoss, Z: FloatArray, dimension: int) -> FloatArray:
    """Z on its leading principal axes, padded with zeros to ``dimension`` columns."""
    U, s, _ = np.linalg.svd(Z, full_matrices=False)
    U, s = U[:, :dimension], s[:dimension]
    return retract(problem, np.pad(U * s, ((0, 0), (0, dimension - len(s)))))


def minimize_in_dimension(
    problem: WeightedLoss,
    dimension: int,
    guesses: list[FloatArray],
    lower_bound: float,
    tolerance: float,
    budget: Budget,
    seed: int = 0,
) -> tuple[Point, int]:
    """The best factor with ``dimension`` columns, and the number of starts.

    ``guesses`` are (m, r) embeddings, truncated to the dimension; random starts follow. Stops as soon as
    ``lower_bound`` on the excess is met.
    """
    rng = np.random.default_rng(seed)
    spread = 1.0 if problem.cosine else np.sqrt(problem.temperature / dimension)
    best: Point | None = None
    found: list[float] = []
    for k in range(len(guesses) + starts(problem, dimension)):
        if k < len(guesses):
            Z = truncate(problem, guesses[k], dimension)
            Z = Z + 1e-6 * spread * rng.standard_normal(Z.shape)
        else:
            Z = spread * rng.standard_normal((problem.rows, dimension))
        Z = retract(problem, Z)
        if problem.cosine and dimension == 1:
            point = flip_signs(problem, Z)
        else:
            point = trust_region(problem, Z, GRADIENT_TOLERANCE, budget)
        found.append(point.excess)
        if best is None or point.excess < best.excess:
            best = point
        met = relative(best.excess - lower_bound, problem.entropy_bound + best.excess) <= tolerance
        if met or budget.spent:
            break
    assert best is not None
    return best, len(found)


def flip_excess(problem: WeightedLoss, z: FloatArray) -> FloatArray:
    """(m,) the excess after changing the sign of each z_i alone, z in {-1, 1}^m."""
    a, P, N, T = problem.anchors, problem.target, problem.multiplicity, problem.temperature
    sign = np.outer(z, z)
    E = N * np.exp((sign - 1) / T)
    flipped = N * np.exp((-sign - 1) / T)
    own, own_flipped = np.diag(E), np.diag(flipped)
    total = E.sum(axis=1)
    linear = row_dot(P, sign) / T
    # Row i itself: everything but its own pair turns around.
    turned = a * (_log(flipped.sum(axis=1) - own_flipped + own) + 1 / T + linear - 2 * np.diag(P) / T)
    # Row j ≠ i: one entry changes.
    with np.errstate(divide="ignore"):
        others = a[:, None] * (
            _log(np.maximum(total[:, None] - E, 0.0) + flipped) + 1 / T - linear[:, None] + 2 * P * sign / T
        )
    np.fill_diagonal(others, 0.0)
    return np.asarray(turned + others.sum(axis=0) - problem.entropy_bound, dtype=np.float64)


def _log(x: FloatArray) -> FloatArray:
    """log, with the zero of an empty comparison kept finite (its anchor has no weight)."""
    return np.log(np.maximum(x, 1e-300))


def flip_signs(problem: WeightedLoss, Z: FloatArray) -> Point:
    """On a line only signs remain: flip the best one until none helps."""
    point = evaluate(problem, np.where(Z[:, :1] >= 0, 1.0, -1.0))
    for _ in range(10 * problem.rows):
        flipped = point.Z.copy()
        flipped[np.argmin(flip_excess(problem, point.Z[:, 0]))] *= -1
        trial = evaluate(problem, flipped)
        if not trial.excess < point.excess:
            break
        point = trial
    return point
