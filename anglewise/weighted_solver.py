"""The convex program over Gram matrices, solved on a factor whose rank grows until the certificate closes.

Start: the projection of the matrix the entropy bound asks for, at its numerical rank. Then alternate:
minimize over the factor; drop dimensions that do not matter; compute the dual matrix; open a new dimension
along each of its negative eigenvectors. A full-rank start converges far more slowly. [Burer2003]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from anglewise.sampling import FloatArray
from anglewise.trust_region import Budget, trust_region
from anglewise.weighted_certificate import DualCheck, check, relative
from anglewise.weighted_loss import Point, WeightedLoss, evaluate, excess, retract
from anglewise.weighted_problem import bound_gram

MAX_ROUNDS = 80
NEGLIGIBLE = 1e-4
"""Singular values below this share of the largest are dropped when the loss does not rise."""


LEADING = 0.3
"""Eigenvalues below this share of the second largest are left to the rounds that follow."""
OFFSETS = (0.01, 0.03, 0.1, 0.2, 0.4)
"""Constants taken from all cosines between different items, self pairs excluded."""
MAX_OFFSET_ROWS = 1000
GEOMETRY = 1e-8
"""Wanted gap as a share of the excess over the entropy bound."""


@dataclass(frozen=True, eq=False)
class FactorSolution:
    """The best factor found.

    ``gap`` is a proven bound on its loss minus the minimum of the convex program.
    """

    point: Point
    gap: float
    dual_eigenvalue: float
    rounds: int

    @property
    def lower_bound(self) -> float:
        """Proven bound on the excess of the convex program."""
        return self.point.excess - self.gap


def spectral_start(problem: WeightedLoss, rng: np.random.Generator, noise: float = 1e-9) -> FloatArray:
    """(m, r) factor of the positive part of `bound_gram`; jittered, since a symmetric start may be a saddle.

    With self pairs excluded the loss fixes similarities up to a common constant only: several are tried.
    """
    K = bound_gram(problem)
    Z = _positive_factor(problem, K, LEADING)
    if problem.cosine and problem.excluded and problem.rows <= MAX_OFFSET_ROWS:
        others = 1 - np.eye(len(K))
        starts = [Z, *(_positive_factor(problem, K - offset * others, 1e-6) for offset in OFFSETS)]
        Z = min(starts, key=lambda start: excess(problem, start))
    size = float(np.sqrt(np.mean(Z**2))) or 1.0
    return retract(problem, Z + noise * size * rng.standard_normal(Z.shape))


def _positive_factor(problem: WeightedLoss, K: FloatArray, cut: float) -> FloatArray:
    """A factor of K on its leading eigenvectors.

    The largest eigenvalue may stand for the common direction alone, so the second one is the measure.
    """
    values, vectors = eigh(K)
    keep = values > max(cut * values[-2:][0], 1e-3 * cut * values[-1], 0.0)
    keep[-1] = True
    return retract(problem, vectors[:, keep] * np.sqrt(np.maximum(values[keep], 0.0)))


def compress(problem: WeightedLoss, point: Point) -> Point:
    """Principal axes, without the dimensions that do not matter to the loss."""
    U, s, _ = np.linalg.svd(point.Z, full_matrices=False)
    rank = max(1, int((s > NEGLIGIBLE * s[0]).sum()))
    if rank < point.Z.shape[1]:
        Z = retract(problem, U[:, :rank] * s[:rank])
        if excess(problem, Z) <= point.excess * (1 + 1e-12) + problem.rounding:
            return evaluate(problem, Z)
    return point


def escape(problem: WeightedLoss, point: Point, directions: FloatArray) -> FloatArray:
    """A factor of higher rank with a lower loss, by a step along new orthogonal dimensions."""
    rows, rank = point.Z.shape
    directions = directions[:, : max(1, rows - rank)]
    Z = np.hstack([point.Z, np.zeros_like(directions)])
    V = np.hstack([np.zeros_like(point.Z), directions * np.sqrt(rows)])
    step = 0.5
    while step > 1e-8:
        trial = retract(problem, Z + step * V)
        if excess(problem, trial) < point.excess:
            return trial
        step *= 0.5
    return retract(problem, Z + 1e-6 * V)


def solve_convex(problem: WeightedLoss, tolerance: float, budget: Budget, seed: int = 0) -> FactorSolution:
    """The minimum over Gram matrices to a relative gap of ``tolerance``, or the best within the budget.

    The loss may hardly depend on the geometry (low temperatures), so the gap is also brought below
    `GEOMETRY` of the excess over the entropy bound, as far as half as much work again allows.
    """
    rng = np.random.default_rng(seed)
    m = problem.rows
    Z = spectral_start(problem, rng)
    gradient_tolerance = 1e-3 * float(np.linalg.norm(evaluate(problem, Z).gradient)) + 1e-300
    best: FactorSolution | None = None
    lower = 0.0
    history: list[float] = []
    certified = False
    for rounds in range(1, MAX_ROUNDS + 1):
        point = compress(problem, trust_region(problem, Z, gradient_tolerance, budget))
        dual = check(problem, point, 4 + m // 4)
        lower = max(lower, point.excess - dual.gap)
        gap = max(point.excess - lower, 0.0)
        history.append(gap)
        if best is None or gap <= best.gap:
            best = FactorSolution(point, gap, dual.eigenvalue, rounds)
        if not certified and relative(gap, problem.entropy_bound + point.excess) <= tolerance:
            certified = True
            budget.optional_after = 1.5 * budget.products + 200
        settled = gap <= GEOMETRY * point.excess or point.excess <= problem.rounding
        stalled = rounds > 20 and min(history[-20:]) > 0.5 * min(history[:-20])
        if (certified and settled) or stalled or budget.spent or gradient_tolerance == 0:
            break
        if _items_separate(dual):
            break
        Z, gradient_tolerance = _next_round(problem, point, dual, gradient_tolerance)
    assert best is not None
    budget.optional_after = np.inf
    return FactorSolution(best.point, max(best.point.excess - lower, 0.0), best.dual_eigenvalue, rounds)


def _items_separate(dual: DualCheck) -> bool:
    """Whether only the items of single rows, held at one point, still want to move: more rows are needed."""
    return dual.inside < 0 and float(dual.eigenvalues[0]) > 1e-3 * dual.inside


def _next_round(
    problem: WeightedLoss, point: Point, dual: DualCheck, gradient_tolerance: float
) -> tuple[FloatArray, float]:
    """Open new dimensions where the dual matrix is negative, else ask for a smaller gradient."""
    norm = float(np.linalg.norm(point.gradient))
    negative = dual.directions[:, dual.eigenvalues < min(0.05 * dual.eigenvalues[0], 0.0)]
    wants_dimension = negative.shape[1] > 0 and -dual.eigenvalues[0] * np.sqrt(problem.rows) > norm
    if wants_dimension and point.Z.shape[1] < problem.rows:
        Z = escape(problem, point, negative)
        return Z, min(gradient_tolerance, 0.1 * float(np.linalg.norm(evaluate(problem, Z).gradient)))
    return point.Z, min(gradient_tolerance, norm) * 1e-2
