"""The convex program of [P1] as a cvxpy model, every draw of the negatives a term of its own."""

from __future__ import annotations

import importlib
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import sparse

from anglewise.enumeration import (
    Outcomes,
    enumerated_value_and_gradient,
    infonce_scale,
    pair_weights,
)
from anglewise.errors import InvalidInput, NumericalFailure
from anglewise.losses import Exponential, InfoNCE, Logistic, Loss, SquaredHinge, Triplet
from anglewise.sampling import FloatArray

Backend = Literal["CLARABEL", "SCS"]

SMALLEST_SLOPE = 1e-280
ATTEMPTS = ((1e-11, 1e-13), (1e-8, 1e-9), (1e-7, 1e-6), (1e-6, 1e-4))
"""Accuracy asked of the solver, and the relative weight below which a draw is left out.

Draws a million times rarer than others ruin the scaling of an interior-point method; what is left out
here is seen by the polish that follows and by the certificate.
"""


@dataclass(frozen=True)
class ConicAnswer:
    """What the conic solver says, unproven.

    Attributes:
        A: (C, C) Gram matrix.
        y: (C,) multipliers of diag(A) = 1.
        slopes: (C, C) multipliers of the epigraph of the triplet loss, None for the other losses.
        iterations: of the conic solver.
    """

    A: FloatArray
    y: FloatArray
    slopes: FloatArray | None
    iterations: int


def solve_conic(loss: Loss, outcomes: Outcomes, tolerance: float, backend: Backend) -> ConicAnswer:
    """The most accurate answer the conic solver reaches.

    Raises:
        NumericalFailure: it fails at the lowest accuracy too, or the risk underflows.
    """
    if (
        isinstance(loss, InfoNCE | Logistic | Exponential)
        and _slope_at_simplex(loss, outcomes) < SMALLEST_SLOPE
    ):
        raise NumericalFailure("the terms of this risk underflow, so no conic solver can tell matrices apart")
    cp: Any = importlib.import_module("cvxpy")  # a second of import time, paid only by users of this solver
    failure: Exception | None = None
    for accuracy, negligible in ATTEMPTS:
        try:
            return _attempt(cp, loss, outcomes, max(accuracy, tolerance / 100), negligible, backend)
        except (cp.error.SolverError, NumericalFailure) as error:
            failure = error
    if isinstance(loss, InfoNCE | Logistic | Exponential):
        A = _exponential_surrogate(cp, loss, outcomes, backend)
        if A is not None:
            return ConicAnswer(A, np.zeros(len(A)), None, 0)
    raise NumericalFailure(f"{backend} found no matrix: {failure}") from failure


def run_solver(problem: Any, solver: str, **options: Any) -> None:
    """Let cvxpy solve the problem.

    Raises:
        NumericalFailure: the solver panicked. Clarabel is written in Rust, whose panics come as a
            BaseException and would end the process.
    """
    try:
        problem.solve(solver=solver, **options)
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise NumericalFailure(f"{solver} panicked: {error}") from None


def _attempt(
    cp: Any, loss: Loss, outcomes: Outcomes, accuracy: float, negligible: float, backend: Backend
) -> ConicAnswer:
    C = outcomes.counts.shape[1]
    A = cp.Variable((C, C), PSD=True)
    t = cp.reshape(A, (C * C,), order="C") - 1
    unit_norms = cp.diag(A) == 1
    constraints, hinge, weights = [unit_norms], None, np.zeros(0)
    if isinstance(loss, InfoNCE):
        common = outcomes.weights > negligible * outcomes.weights.max()
        kept = Outcomes(outcomes.anchor[common], outcomes.counts[common], outcomes.weights[common])
        objective = _infonce_objective(cp, loss, kept, t)
    else:
        weights = pair_weights(loss, outcomes).ravel()
        objective, extra, hinge = _separable_objective(cp, loss, weights, t)
        constraints += extra
    unit = _natural_unit(loss, outcomes)
    problem = cp.Problem(cp.Minimize(objective / unit), constraints)
    options: dict[str, Any] = {"eps_abs": accuracy, "eps_rel": accuracy, "max_iters": 100_000}
    if backend == "CLARABEL":
        options = {f"tol_{name}": accuracy for name in ("gap_abs", "gap_rel", "feas")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an inaccurate answer is judged by its certificate
        run_solver(problem, getattr(cp, backend), **options)
    if A.value is None or not np.isfinite(A.value).all():
        raise NumericalFailure(f"status {problem.status}")
    slopes = None
    if hinge is not None and hinge.dual_value is not None:
        slopes = np.zeros(C * C)
        slopes[np.flatnonzero(weights)] = unit * hinge.dual_value
        slopes = slopes.reshape(C, C)
    y = np.zeros(C) if unit_norms.dual_value is None else -unit * np.atleast_1d(unit_norms.dual_value)
    return ConicAnswer(np.asarray(A.value), y, slopes, int(problem.solver_stats.num_iters or 0))


def _exponential_surrogate(
    cp: Any, loss: InfoNCE | Logistic | Exponential, outcomes: Outcomes, backend: Backend
) -> FloatArray | None:
    """(C, C) start for the polish where T is so low that the risk underflows the solver's accuracy.

    minimize Σ G_ij e^{(A_ij - B_ij)/T}, G the slopes of the risk at the simplex B: the leading behavior of
    every loss of the family, in numbers near one.
    """
    C = outcomes.counts.shape[1]
    B = _simplex(C)
    G = enumerated_value_and_gradient(loss, outcomes, B)[1]
    weights = ((G + G.T) / 2 / G.max()).ravel()
    pairs = np.flatnonzero((weights > 0) & ~np.eye(C, dtype=bool).ravel())
    A = cp.Variable((C, C), PSD=True)
    exponents = (cp.reshape(A, (C * C,), order="C")[pairs] - B.ravel()[pairs]) / loss.temperature
    problem = cp.Problem(cp.Minimize(weights[pairs] @ cp.exp(exponents)), [cp.diag(A) == 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run_solver(problem, getattr(cp, backend))
        except (cp.error.SolverError, NumericalFailure):
            return None
    found = A.value is not None and bool(np.isfinite(A.value).all())
    return np.asarray(A.value, dtype=np.float64) if found else None


def _simplex(C: int) -> FloatArray:
    return np.where(np.eye(C) > 0, 1.0, -1 / max(C - 1, 1))


def _slope_at_simplex(loss: Loss, outcomes: Outcomes) -> float:
    C = outcomes.counts.shape[1]
    return float(enumerated_value_and_gradient(loss, outcomes, _simplex(C))[1].sum())


def _natural_unit(loss: Loss, outcomes: Outcomes) -> float:
    """The total slope at the simplex: conic solvers stop by absolute errors, and at low T risks are tiny."""
    slope = _slope_at_simplex(loss, outcomes)
    return slope if slope > 0 else 1.0


def _infonce_objective(cp: Any, loss: InfoNCE, outcomes: Outcomes, t: Any) -> Any:
    """Σ weight · log(constant + Σ_j β n_j e^{t_j/T}), draws with equally many terms in one expression."""
    N, C = outcomes.counts.shape
    amounts = infonce_scale(loss) * outcomes.counts
    own = amounts[np.arange(N), outcomes.anchor]
    constant = loss.alpha + own
    others = amounts.copy()
    others[np.arange(N), outcomes.anchor] = 0.0
    terms = (others > 0).sum(axis=1)
    objective: Any = 0
    for size, has_constant in {(int(s), bool(c)) for s, c in zip(terms, constant > 0, strict=True)}:
        rows = np.flatnonzero((terms == size) & ((constant > 0) == has_constant))
        weights = outcomes.weights[rows]
        if size == 0:
            objective += float(weights @ np.log(constant[rows]))
            continue
        draw, drawn = np.nonzero(others[rows] > 0)
        pairs = outcomes.anchor[rows][draw] * C + drawn
        ones, order = np.ones(len(pairs)), np.arange(len(pairs))
        pick = sparse.csr_matrix((ones, (order, pairs)), shape=(len(pairs), C * C))
        offsets = np.log(others[rows][draw, drawn])
        exponents = cp.reshape((pick @ t) / loss.temperature + offsets, (len(rows), size), order="C")
        if has_constant:
            exponents = cp.hstack([np.log(constant[rows])[:, None], exponents])
        objective += weights @ cp.log_sum_exp(exponents, axis=1)
    return objective


def _separable_objective(cp: Any, loss: Loss, weights: FloatArray, t: Any) -> tuple[Any, list[Any], Any]:
    """The objective, extra constraints, and the epigraph constraint whose multipliers are the slopes."""
    pairs = np.flatnonzero(weights)
    t, weights = t[pairs], weights[pairs]
    if isinstance(loss, Logistic):
        return weights @ cp.logistic((t + loss.margin) / loss.temperature), [], None
    if isinstance(loss, Exponential):
        return weights @ cp.exp(t / loss.temperature), [], None
    if isinstance(loss, SquaredHinge):
        return weights @ cp.square(cp.pos(t + loss.margin)), [], None
    if isinstance(loss, Triplet):
        height = cp.Variable(len(pairs), nonneg=True)
        above = height >= t + loss.margin
        return weights @ height, [above], above
    raise InvalidInput(("loss",), f"{type(loss).__name__} is not supported")
