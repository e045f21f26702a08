"""Riemannian trust region for a factor of the Gram matrix (Steihaug's truncated conjugate gradients).

The unknown is Z (m, r) with unit rows (cosine) or centered columns (Euclidean). Hessian products are exact:
the local convergence is quadratic where the optimum has rank r.  [Absil2007], [Burer2003]
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

from anglewise.sampling import FloatArray
from anglewise.weighted_loss import Point, WeightedLoss, evaluate, excess, hessian_product, project, retract

ROUNDING = 2e-13
"""Relative accuracy of the excess: smaller model decreases are taken on trust."""


@dataclass
class Budget:
    """Work done so far, and when to stop.

    ``optional_after`` limits products while only refining an answer that already is good enough.
    """

    deadline: float = np.inf
    max_products: int = 200_000
    optional_after: float = np.inf
    products: int = 0
    steps: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> bool:
        limit = min(self.max_products, self.optional_after)
        return self.products >= limit or time.monotonic() >= self.deadline

    @property
    def out_of_time(self) -> bool:
        return time.monotonic() >= self.deadline

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started


def _dot(A: FloatArray, B: FloatArray) -> float:
    return float(np.vdot(A, B))


def _to_boundary(square: float, cross: float, direction: float, radius: float) -> float:
    """τ ≥ 0 with ‖η + τ p‖ = radius, from ‖η‖², η·p and ‖p‖²."""
    return float((-cross + np.sqrt(max(0.0, cross**2 + direction * (radius**2 - square)))) / direction)


def truncated_newton_step(
    problem: WeightedLoss,
    point: Point,
    radius: float,
    forcing: float,
    budget: Budget,
    max_products: int = 400,
) -> tuple[FloatArray, FloatArray]:
    """A step η with ‖η‖ ≤ radius that approximately minimizes the quadratic model, and H η."""
    eta = np.zeros_like(point.Z)
    H_eta = np.zeros_like(point.Z)
    residual = point.gradient.copy()
    p = -residual
    rr = pp = _dot(residual, residual)
    ee = ep = 0.0
    stop = forcing * np.sqrt(rr)
    for _ in range(max_products):
        Hp = hessian_product(problem, point, p)
        budget.products += 1
        curvature = _dot(p, Hp)
        alpha = rr / curvature if curvature > 0 else np.inf
        square = ee + 2 * alpha * ep + alpha**2 * pp if curvature > 0 else np.inf
        if square >= radius**2:
            tau = _to_boundary(ee, ep, pp, radius)
            return eta + tau * p, H_eta + tau * Hp
        eta += alpha * p
        H_eta += alpha * Hp
        residual = project(problem, point.Z, residual + alpha * Hp)
        new = _dot(residual, residual)
        ee = square
        if np.sqrt(new) <= stop or budget.spent:
            break
        beta = new / rr
        rr = new
        ep = beta * (ep + alpha * pp)
        pp = new + beta**2 * pp
        p = -residual + beta * p
    return eta, H_eta


def trust_region(
    problem: WeightedLoss, Z: FloatArray, gradient_tolerance: float, budget: Budget, max_steps: int = 300
) -> Point:
    """A point near Z with gradient norm at most ``gradient_tolerance``, or the best rounding allows."""
    point = evaluate(problem, Z)
    size = np.sqrt(problem.rows)
    if not problem.cosine:
        size *= max(np.sqrt(problem.temperature), 2 * float(np.linalg.norm(Z)) / size)
    largest = size if problem.cosine else 1e3 * size
    radius = size / 8
    first = float(np.linalg.norm(point.gradient))
    for _ in range(max_steps):
        norm = float(np.linalg.norm(point.gradient))
        if norm <= gradient_tolerance or budget.spent:
            break
        budget.steps += 1
        eta, H_eta = truncated_newton_step(problem, point, radius, min(0.1, norm / first), budget)
        trial = retract(problem, point.Z + eta)
        model = -_dot(point.gradient, eta) - 0.5 * _dot(eta, H_eta)
        noise = ROUNDING * point.excess + problem.rounding
        if model <= 100 * noise:
            # The decrease drowns in rounding; the gradient, more accurate, decides.
            candidate = evaluate(problem, trial)
            if np.linalg.norm(candidate.gradient) >= norm:
                break
            point = candidate
            continue
        ratio = (point.excess - excess(problem, trial)) / model
        if not ratio >= 0.25:
            radius *= 0.25
        elif ratio > 0.75 and np.linalg.norm(eta) > 0.99 * radius:
            radius = min(2 * radius, largest)
        if ratio > 0.1:
            point = evaluate(problem, trial)
        elif radius < 1e-14 * size:
            break
    return point
