"""The convex program of [P1] handed to a general conic solver, with the risk summed draw by draw.

    minimize S(A) over A ⪰ 0, diag(A) = 1,    S(A) = Σ_i λ_i E ψ(t_{i j_1}, …, t_{i j_k}),  t_ij = A_ij - 1.

Slow and small by design: it shares neither the quadrature nor the dual method of the fast solvers, so it
checks them. What the conic solver returns is not trusted: the matrix is made feasible and polished, its risk
is summed again, and the bound below it is proven here from the gradient.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from anglewise.conic import Backend, solve_conic
from anglewise.enumeration import (
    TERMS_LIMIT,
    Outcomes,
    enumerate_outcomes,
    enumerated_risk,
    enumerated_value_and_gradient,
    pair_weights,
)
from anglewise.errors import InvalidInput, NumericalFailure, TooLarge
from anglewise.geometry import Certificate, GroupSolution, SolverReport
from anglewise.losses import InfoNCE, Loss, Triplet
from anglewise.sampling import FloatArray, Groups, Sampling
from anglewise.spheres import minimize_on_spheres

__all__ = ["Backend", "enumerated_risk", "solve_reference"]

MAX_CLASSES = 100
"""Beyond it a conic solver takes minutes and gigabytes, and ends the process when it gets no memory."""
EPS = float(np.finfo(np.float64).eps)
VANISHING_EIGENVALUE = 1e-7
"""Eigenvalues of the Gram matrix that an interior point only approaches zero with."""


def solve_reference(
    groups: Groups,
    sampling: Sampling,
    loss: Loss,
    *,
    tolerance: float = 1e-8,
    terms_limit: int = TERMS_LIMIT,
    backend: Backend = "CLARABEL",
) -> GroupSolution:
    """The optimal class geometry by cvxpy, one unknown per pair of classes.

    Args:
        groups: the C classes; equal proportions are averaged at the end, which convexity allows.
        tolerance: wanted bound on the relative gap; the conic solver is asked for a tenth of it.
        terms_limit: most draws to enumerate over all anchors.
        backend: the conic solver.

    Raises:
        TooLarge: more than `MAX_CLASSES` classes or ``terms_limit`` draws.
        InvalidInput: hard negatives (η > 0), whose risk is not convex.
        NumericalFailure: the conic solver gave no matrix.
    """
    if loss.hardness > 0:
        raise InvalidInput(("loss", "hardness"), "the reference solver needs a convex risk (hardness 0)")
    if groups.classes > MAX_CLASSES:
        raise TooLarge(
            ("solver",), f"the reference solver takes at most {MAX_CLASSES} classes, not {groups.classes}"
        )
    started = time.perf_counter()
    proportions = np.repeat(groups.proportions, groups.sizes)
    outcomes = enumerate_outcomes(proportions, sampling, loss, terms_limit=terms_limit)
    conic = solve_conic(loss, outcomes, tolerance, backend)
    raw = _feasible(conic.A)
    if conic.slopes is None:
        raw = _polished(lambda B: enumerated_value_and_gradient(loss, outcomes, B), raw)
    gram = _group_means(raw, groups)
    A = _expand(gram, groups)
    risk, gradient = enumerated_value_and_gradient(loss, outcomes, A)
    y = _group_average(conic.y, groups)
    if conic.slopes is None:
        minimum, min_dual = _linear_minimum(gradient, y, A)
        lower_bound = risk - _inner(gradient, A) + minimum
    else:
        slopes = _expand(_group_means(conic.slopes, groups), groups)
        lower_bound, min_dual = _triplet_bound(loss, outcomes, slopes, y, A)
    report = SolverReport(
        method=f"cvxpy_{backend.lower()}",
        iterations=conic.iterations,
        groups=len(groups),
        seconds=time.perf_counter() - started,
    )
    return GroupSolution(
        gram=gram,
        risk=risk,
        certificate=_certificate(loss, risk, lower_bound, tolerance, min_dual, A),
        report=report,
        unique=loss.strictly_convex,
        warnings=() if loss.strictly_convex else ("The minimizer may not be unique.",),
    )


def _feasible(A: FloatArray) -> FloatArray:
    """The nearest multiple of the identity added, then the diagonal scaled back to one."""
    A = (A + A.T) / 2
    A = A + max(0.0, -float(np.linalg.eigvalsh(A)[0])) * np.eye(len(A))
    scale = np.sqrt(np.diag(A))
    if not (scale > 0).all():
        raise NumericalFailure("the conic solver returned a class mean of norm zero")
    A = A / np.outer(scale, scale)
    np.fill_diagonal(A, 1.0)
    epsilon = max(0.0, -float(np.linalg.eigvalsh(A)[0])) * 2
    return np.asarray((A + epsilon * np.eye(len(A))) / (1 + epsilon), dtype=np.float64)


def _polished(risk: Callable[[FloatArray], tuple[float, FloatArray]], A: FloatArray) -> FloatArray:
    """Newton steps on the factor of A: an interior-point answer is off by the square root of its gap."""
    eigenvalues, vectors = np.linalg.eigh(A)
    kept = eigenvalues > VANISHING_EIGENVALUE
    factor = vectors[:, kept] * np.sqrt(eigenvalues[kept])

    def objective(U: FloatArray) -> tuple[float, FloatArray]:
        value, G = risk(U @ U.T)
        return value, (G + G.T) @ U

    polished = minimize_on_spheres(objective, factor, max_iterations=200)
    return _feasible(polished.U @ polished.U.T)


def _membership(groups: Groups) -> FloatArray:
    return np.repeat(np.eye(len(groups)), groups.sizes, axis=0)


def _group_means(A: FloatArray, groups: Groups) -> FloatArray:
    """(G, G) average over ordered pairs of different classes; 1 on the diagonal of a single class."""
    Q = _membership(groups)
    pairs = np.outer(groups.sizes, groups.sizes) - np.diag(groups.sizes)
    sums = Q.T @ (A - np.diag(np.diag(A))) @ Q
    return np.where(pairs > 0, sums / np.maximum(pairs, 1), 1.0)


def _group_average(y: FloatArray, groups: Groups) -> FloatArray:
    Q = _membership(groups)
    return np.asarray(Q @ (Q.T @ y / groups.sizes), dtype=np.float64)


def _expand(gram: FloatArray, groups: Groups) -> FloatArray:
    Q = _membership(groups)
    A = Q @ gram @ Q.T
    np.fill_diagonal(A, 1.0)
    return np.asarray(A, dtype=np.float64)


def _inner(G: FloatArray, A: FloatArray) -> float:
    """<G, A> off the diagonal; the diagonal of A is the constant one and carries no slope."""
    return float((G * A).sum() - np.diag(G) @ np.diag(A))


def _linear_minimum(G: FloatArray, y: FloatArray, A: FloatArray) -> tuple[float, float]:
    """A lower bound of <G, B> off the diagonal over the elliptope, and λ_min(Z).

    For every y and every w > 0, with Z = G - Diag(y),

        <G, B> ≥ Σ y_i + Σ w_i · min(0, λ_min(W^{-1/2} Z W^{-1/2})).

    The conic solver's y and y_i = (GA)_ii are tried, each with w = 1 and w = -y.
    """
    G = (G + G.T) / 2
    np.fill_diagonal(G, 0.0)
    best, min_dual = -math.inf, -math.inf
    for multipliers in (y, (G * A).sum(axis=1)):
        Z = G - np.diag(multipliers)
        smallest = float(np.linalg.eigvalsh(Z)[0])
        min_dual = max(min_dual, smallest)
        rounding = 4 * EPS * float(np.abs(np.diag(Z)).sum())  # of the eigenvalue, as observed
        deficits = [len(G) * (min(0.0, smallest) - rounding)]
        if (multipliers < 0).all():
            s = np.sqrt(-multipliers)
            scaled = float(np.linalg.eigvalsh(Z / np.outer(s, s))[0])
            deficits.append(-float(multipliers.sum()) * (min(0.0, scaled) - 4 * EPS * len(G)))
        best = max(best, float(multipliers.sum()) + max(deficits))
    return best, min_dual


def _triplet_bound(
    loss: Loss, outcomes: Outcomes, slopes: FloatArray, y: FloatArray, A: FloatArray
) -> tuple[float, float]:
    """Σ ω max(0, t + m) ≥ Σ G (t + m) for any 0 ≤ G ≤ ω; the conic solver's multipliers make it tight."""
    assert isinstance(loss, Triplet)
    weights = pair_weights(loss, outcomes)
    slopes = np.clip(slopes, 0.0, weights) if loss.margin < 2 else weights.copy()
    np.fill_diagonal(slopes, 0.0)
    if slopes.any():  # the best y for these slopes comes from their own linear program
        A = _polished(lambda B: (float((slopes * B).sum()), slopes), A)
    minimum, min_dual = _linear_minimum(slopes, y, A)
    collisions = float(np.diag(weights).sum()) * max(0.0, loss.margin)
    return collisions + max(0.0, (loss.margin - 1) * float(slopes.sum()) + minimum), min_dual


def _certificate(
    loss: Loss, risk: float, lower_bound: float, tolerance: float, min_dual: float, A: FloatArray
) -> Certificate:
    gap = max(0.0, risk - lower_bound)
    may_cross_zero = isinstance(loss, InfoNCE) and loss.alpha == 0
    scale = max(abs(risk), 1.0) if may_cross_zero else max(abs(risk), 1e-12)
    relative_gap = gap / scale
    if not math.isfinite(relative_gap):
        raise NumericalFailure("the risk of the conic solver's matrix is not finite")
    return Certificate(
        gap=gap,
        relative_gap=relative_gap,
        lower_bound=risk - gap,
        certified=relative_gap <= tolerance,
        tolerance=tolerance,
        min_dual_eigenvalue=min_dual,
        min_gram_eigenvalue=float(np.linalg.eigvalsh(A)[0]),
    )
