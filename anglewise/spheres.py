"""Local minimization over unit vectors.

    minimize f(U),   U = [u_1; …; u_n] with |u_i| = 1.

Quasi-Newton steps from afar, then a trust-region Newton method whose Hessian products are differences of
gradients [Absil2007], [Boumal2023]: it needs nothing but f and its gradient and reaches the rounding
level of the gradient, which a line search on values cannot.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from anglewise.sampling import FloatArray

Objective = Callable[[FloatArray], tuple[float, FloatArray]]
"""U (n, d) -> f(U) and its Euclidean gradient (n, d)."""

DIFFERENCE_STEP = 1e-7
SMALLEST_WEIGHT = 1e-12
ROUNDING = 1e-14
MAX_FAILURES = 5


class _OutOfTime(Exception):
    """Raised inside the quasi-Newton loop of scipy, which has no clock."""


@dataclass(frozen=True)
class SphereMinimum:
    """A stationary point. ``gradient_norm`` is scaled: its square is the expected relative decrease."""

    U: FloatArray
    value: float
    gradient_norm: float
    evaluations: int


@dataclass(frozen=True)
class _Point:
    U: FloatArray
    value: float
    gradient: FloatArray
    """Riemannian gradient: the Euclidean one without its radial part."""
    radial: FloatArray
    """(n,) <gradient, u_i>; its size is the curvature of f along row i up to a factor."""


def _normalize(V: FloatArray) -> FloatArray:
    return np.asarray(V / np.linalg.norm(V, axis=1, keepdims=True), dtype=np.float64)


def _tangent(U: FloatArray, V: FloatArray) -> FloatArray:
    return np.asarray(V - (V * U).sum(axis=1, keepdims=True) * U, dtype=np.float64)


def _evaluate(objective: Objective, U: FloatArray) -> _Point:
    value, gradient = objective(U)
    return _Point(U, value, _tangent(U, gradient), (gradient * U).sum(axis=1))


def minimize_on_spheres(
    objective: Objective,
    U0: FloatArray,
    *,
    max_iterations: int = 500,
    newton_steps: int = 30,
    curvature: FloatArray | None = None,
    deadline: float | None = None,
) -> SphereMinimum:
    """A local minimizer near ``U0``; f never rises above f(U0) by more than rounding.

    Args:
        U0: (n, d) start, normalized here.
        max_iterations: of the quasi-Newton phase.
        newton_steps: of the second phase.
        curvature: (n,) rough curvature of f along each row where the radial slope does not tell it.
        deadline: ``time.monotonic()`` after which the best point so far is returned.
    """
    clock = _Clock(objective, deadline, 0.0 if curvature is None else curvature)
    start = _evaluate(clock, _normalize(U0))
    point = _quasi_newton(clock, start, max_iterations)
    point = _newton(clock, point, newton_steps)
    return SphereMinimum(point.U, point.value, _scaled_norm(point, clock.weights(point)), clock.evaluations)


class _Clock:
    """The objective, counted, with a time limit and the natural metric of its rows."""

    def __init__(self, objective: Objective, deadline: float | None, curvature: FloatArray | float) -> None:
        self.objective, self.deadline, self.curvature = objective, deadline, curvature
        self.evaluations = 0

    def weights(self, point: _Point) -> FloatArray:
        """(n, 1) row curvatures; some rows may matter a million times more than others."""
        size = np.maximum(np.abs(point.radial), self.curvature)
        # Where f is stationary in the Gram matrix itself the radial part vanishes and |f| sets the scale.
        floor = SMALLEST_WEIGHT * size.max() + 1e-9 * abs(point.value) / len(size) + 1e-300
        return np.asarray(np.maximum(size, floor)[:, None], dtype=np.float64)

    def __call__(self, U: FloatArray) -> tuple[float, FloatArray]:
        self.evaluations += 1
        return self.objective(U)

    @property
    def expired(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline


def _scaled_norm(point: _Point, weights: FloatArray) -> float:
    scale = max(float(weights.sum()), 1e-6 * abs(point.value))
    return math.sqrt(float((point.gradient * point.gradient / weights).sum() / scale))


def _quasi_newton(clock: _Clock, start: _Point, max_iterations: int) -> _Point:
    """L-BFGS in V with u_i = v_i/|v_i|; the lengths |v_i|, which f ignores, act as the metric."""
    if max_iterations <= 0:
        return start
    weights = clock.weights(start)
    unit = float(weights.sum())
    best = [start]

    def scaled(x: FloatArray) -> tuple[float, FloatArray]:
        if clock.expired:
            raise _OutOfTime
        V = x.reshape(start.U.shape)
        point = _evaluate(clock, _normalize(V))
        if point.value < best[0].value:
            best[0] = point
        lengths = np.linalg.norm(V, axis=1, keepdims=True)
        return (point.value - start.value) / unit, (point.gradient / lengths / unit).ravel()

    V0 = start.U * np.sqrt(np.maximum(weights / weights.max(), 1e-6))
    with contextlib.suppress(_OutOfTime):
        minimize(
            scaled,
            V0.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": max_iterations,
                "maxfun": 2 * max_iterations,
                "ftol": 0.0,
                "gtol": 0.0,
                "maxcor": 20,
            },
        )
    return best[0]


def _newton(clock: _Clock, point: _Point, steps: int) -> _Point:
    """Trust-region Newton: truncated conjugate gradients on differences of gradients."""
    radius, failures = 0.3, 0
    for _ in range(steps):
        weights = clock.weights(point)
        norm = _scaled_norm(point, weights)
        if norm < ROUNDING or radius < 1e-12 or failures > MAX_FAILURES or clock.expired:
            break
        step, decrease = _truncated_newton_step(clock, point, weights, radius)
        trial = _evaluate(clock, _normalize(point.U + step))
        noise = ROUNDING * (abs(point.value) + float(weights.sum()))
        gained = point.value - trial.value
        if decrease > 10 * noise:
            ratio = gained / decrease
            accept = ratio > 0.1
        else:  # values no longer tell: judge by the gradient
            accept = gained > -10 * noise and _scaled_norm(trial, weights) < 0.9 * norm
            ratio = 1.0 if accept else 0.0
            failures += not accept
        if accept:
            point = trial
            radius = min(2.0, 2 * radius if ratio > 0.75 else radius)
        else:  # at the rounding level the step is far shorter than the radius: shrink from the step
            length = math.sqrt(float((weights * step * step).sum() / weights.sum()))
            radius = 0.25 * min(radius, length)
    return point


def _truncated_newton_step(
    clock: _Clock, point: _Point, weights: FloatArray, radius: float
) -> tuple[FloatArray, float]:
    """Steihaug's step in the metric of ``weights`` and the decrease its quadratic model expects."""
    limit = radius * math.sqrt(float(weights.sum()))
    step = np.zeros_like(point.U)
    residual = point.gradient
    preconditioned = residual / weights
    direction = -preconditioned
    rho = float((residual * preconditioned).sum())
    wanted = rho * min(0.01, math.sqrt(rho / float(weights.sum())))
    model = 0.0
    for _ in range(min(step.size, 200)):
        image = _hessian_product(clock, point, direction)
        curvature = float((direction * image).sum())
        along = rho / curvature if curvature > 0 else math.inf
        longest = _to_boundary(step, direction, weights, limit)
        length = min(along, longest)
        model += length * rho - 0.5 * length * length * curvature
        step = step + length * direction
        if length == longest or clock.expired:
            break
        residual = residual + length * image
        preconditioned = residual / weights
        rho, previous = float((residual * preconditioned).sum()), rho
        if rho <= wanted:
            break
        direction = _tangent(point.U, -preconditioned + rho / previous * direction)
    return step, max(model, 0.0)


def _to_boundary(step: FloatArray, direction: FloatArray, weights: FloatArray, limit: float) -> float:
    """The largest s ≥ 0 with |step + s direction| ≤ limit in the metric of ``weights``."""
    a = float((weights * direction * direction).sum())
    b = float((weights * step * direction).sum())
    c = limit * limit - float((weights * step * step).sum())
    return (-b + math.sqrt(max(b * b + a * c, 0.0))) / a if a > 0 else 0.0


def _hessian_product(clock: _Clock, point: _Point, direction: FloatArray) -> FloatArray:
    """The Riemannian Hessian applied to a tangent direction, by a forward difference of gradients."""
    h = DIFFERENCE_STEP / float(np.sqrt((direction * direction).sum(axis=1).max()))
    shifted = _evaluate(clock, _normalize(point.U + h * direction))
    return _tangent(point.U, shifted.gradient - point.gradient) / h
