"""A log-barrier Newton method on the exact risk, for few groups: slow, second-order and hard to defeat.

    min_A S(A)/μ - log det A,    A in the elliptope, μ ↓ 0.

At the minimizer ∇S - Diag(y) = μ A⁻¹ for some y, so S(A) - S* ≤ C μ. On groups log det A splits into
log det M + Σ_g (n_g - 1) log(1 - A_gg), M the group matrix of `certificate`. It serves where the dual method
stalls: α = 0 at low temperature, where the risk is nearly piecewise linear.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from anglewise.certificate import gram_on_groups
from anglewise.dual.surrogate import temperature
from anglewise.losses import Exponential
from anglewise.risk import Risk, RiskEvaluation
from anglewise.sampling import FloatArray, IntArray
from anglewise.second_moments import second_moment_row

MAX_GROUPS = 40
MAX_STEPS = 400
FINAL_STEPS = 12
DECREASE = 0.2
CENTERED = 0.1
"""A point counts as centered when Newton's decrement² is below this."""


@dataclass
class _Point:
    x: FloatArray
    A: FloatArray
    at: RiskEvaluation
    barrier: float
    inverse: FloatArray


class Barrier:
    """The barrier problem in the free entries of the group Gram matrix, upper triangle row by row."""

    def __init__(self, risk: Risk) -> None:
        self.risk = risk
        n = risk.groups.sizes.astype(np.float64)
        G = len(n)
        rows, columns = np.triu_indices(G)
        free = (rows != columns) | (n[rows] > 1)
        self.rows: IntArray = rows[free].astype(np.int64)
        self.columns: IntArray = columns[free].astype(np.int64)
        self.n, self.diagonal = n, self.rows == self.columns
        # Ordered class pairs behind one entry, and the entry's weight in the group matrix M.
        pairs = n[self.rows] * n[self.columns] * np.where(self.diagonal, (n - 1)[self.rows] / n[self.rows], 2)
        self.pairs = pairs
        root = np.sqrt(n)
        self.weight = np.where(self.diagonal, (n - 1)[self.rows] / 2, root[self.rows] * root[self.columns])

    def gram(self, x: FloatArray) -> FloatArray:
        """The group Gram matrix with free entries x."""
        A = np.eye(len(self.n))
        A[self.rows, self.columns] = A[self.columns, self.rows] = x
        return A

    def point(self, x: FloatArray) -> _Point | None:
        """The risk and barrier at x; None outside the interior."""
        A = self.gram(x)
        inside = 1.0 - x[self.diagonal]
        if not np.isfinite(x).all() or np.abs(x).max() >= 1 or (inside <= 0).any():
            return None
        try:
            L = np.linalg.cholesky(gram_on_groups(self.risk.groups, A))
        except np.linalg.LinAlgError:
            return None
        repeats = (self.n - 1)[self.rows[self.diagonal]]
        barrier = -2.0 * float(np.log(np.diag(L)).sum()) - float(repeats @ np.log(inside))
        inverse_L = scipy.linalg.solve_triangular(L, np.eye(len(L)), lower=True)
        return _Point(x, A, self.risk.evaluate(A), barrier, inverse_L.T @ inverse_L)

    def gradients(self, point: _Point) -> tuple[FloatArray, FloatArray]:
        """Gradients of the risk and of the barrier in x."""
        H = point.at.gradient
        r, c = self.rows, self.columns
        of_risk = self.pairs * 0.5 * (H[r, c] + H[c, r])
        of_barrier = -2.0 * self.weight * point.inverse[r, c]
        of_barrier[self.diagonal] += (self.n - 1)[r[self.diagonal]] / (1.0 - point.x[self.diagonal])
        return of_risk, of_barrier

    def barrier_hessian(self, point: _Point) -> FloatArray:
        """tr(M⁻¹ dM M⁻¹ dM) and the part inside groups."""
        r, c, P, w = self.rows, self.columns, point.inverse, self.weight
        H = P[np.ix_(r, r)] * P[np.ix_(c, c)] + P[np.ix_(r, c)] * P[np.ix_(c, r)]
        H *= 2.0 * w[:, None] * w
        d = np.flatnonzero(self.diagonal)
        H[d, d] += (self.n - 1)[r[d]] / (1.0 - point.x[d]) ** 2
        return H

    def risk_hessian(self, point: _Point) -> FloatArray:
        """The exact second derivatives of the risk, a sum over rows."""
        risk, G = self.risk, len(self.n)
        T = temperature(risk)
        place = np.full((G, G), -1)
        place[self.rows, self.columns] = place[self.columns, self.rows] = np.arange(len(self.rows))
        H = np.zeros((len(self.rows), len(self.rows)))
        first = risk.law.neighbors * point.at.gradient * self.n[:, None]  # Σ over a group's anchors
        for g in range(G):
            free = place[g] >= 0
            at = place[g][free]
            block = np.diag(first[g][free] / T)
            if not isinstance(risk.loss, Exponential):
                block -= self._row_moments(g, point)[np.ix_(free, free)] / T**2
            H[np.ix_(at, at)] += block
        return H

    def _row_moments(self, g: int, point: _Point) -> FloatArray:
        """Anchors of group g: mass · E w_h w_h'."""
        risk, form, T = self.risk, self.risk.form, temperature(self.risk)
        assert form is not None
        mass = form.multiplicity * float(risk.anchor[g])
        shares = risk.law.neighbors[g] * point.at.gradient[g] * T * (self.n[g] / mass)
        if math.isinf(form.draws):
            return np.asarray(mass * np.outer(shares, shares))
        if form.draws == 1:
            p = risk.law.group[g]
            return np.asarray(mass * np.diag(np.where(p > 0, shares**2 / np.where(p > 0, p, 1.0), 0.0)))
        moments = np.empty((len(self.n), len(self.n)))
        log_x = (point.A[g] - 1.0) / T
        second_moment_row(
            log_x, risk.law.group[g], float(risk.law.own[g]), float(form.draws),
            form.log_alpha - form.log_beta, moments,
        )  # fmt: skip
        return mass * moments


def minimize_by_barrier(
    risk: Risk, start: FloatArray, *, gap: float, deadline: float
) -> tuple[FloatArray, int]:
    """A Gram matrix with S(A) - S* about ``gap``, and the Newton steps it took.

    ``start`` is any feasible Gram matrix; it is drawn into the interior first.
    """
    problem = Barrier(risk)
    x = 0.5 * start[problem.rows, problem.columns]
    point = problem.point(x)
    assert point is not None
    of_risk, of_barrier = problem.gradients(point)
    C = risk.groups.classes
    mu = max(float(np.abs(of_risk).max()), gap / C)
    last, final = 0.5 * gap / C, 0
    steps = 0
    while steps < MAX_STEPS:
        steps += 1
        of_risk, of_barrier = problem.gradients(point)
        g = of_risk + mu * of_barrier
        H = problem.risk_hessian(point) + mu * problem.barrier_hessian(point)
        d = _newton_direction(H, -g)
        decrement = -float(d @ g) / mu
        moved = _search(problem, point, d, float(d @ g), mu)
        if moved is not None:
            point = moved
        if time.monotonic() > deadline or (moved is None and mu <= last):
            break
        if mu <= last:
            final += 1
            if decrement < 1e-10 or final >= FINAL_STEPS:
                break
        elif decrement < CENTERED or moved is None:
            mu = max(last, mu * DECREASE)
    return point.A, steps


def _newton_direction(H: FloatArray, g: FloatArray) -> FloatArray:
    """H⁻¹ g, scaled to unit diagonal first."""
    root = 1.0 / np.sqrt(np.maximum(np.diag(H), 1e-300))
    scaled = H * root[:, None] * root
    for jitter in (0.0, 1e-14, 1e-12, 1e-10, 1e-8):
        try:
            factor = scipy.linalg.cho_factor(scaled + jitter * np.eye(len(H)), check_finite=False)
            return np.asarray(root * scipy.linalg.cho_solve(factor, root * g, check_finite=False))
        except np.linalg.LinAlgError:
            continue
    return root * root * g


def _search(problem: Barrier, point: _Point, d: FloatArray, slope: float, mu: float) -> _Point | None:
    """Backtracks into the interior and to a sufficient decrease."""
    step = 1.0
    value = point.at.risk + mu * point.barrier
    noise = 1e-15 * (abs(point.at.risk) + mu * abs(point.barrier))
    for _ in range(40):
        new = problem.point(point.x + step * d)
        if new is not None and new.at.risk + mu * new.barrier <= value + 0.1 * step * slope + noise:
            return new
        step *= 0.5
    return None
