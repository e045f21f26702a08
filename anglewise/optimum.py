"""The optimal class geometry: problem in, certified answer out ([P1], program of A3).

    minimize S(A) over Gram matrices A ⪰ 0 with unit diagonal

on groups of equal proportions. `optimal_geometry` picks the method:

- non-negative features: the orthogonal frame, in closed form (A9);
- fewer dimensions than the convex optimum needs, or hard negatives: the factored problem, not convex;
- otherwise the convex program, by the dual method, the hinge method or cvxpy.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from anglewise.answer import clean, convex_geometry, factored_geometry, verified
from anglewise.blas import single_threaded_blas
from anglewise.class_geometry import Geometry
from anglewise.closed_forms import orthogonal_frame, point
from anglewise.errors import InvalidInput, TooLarge
from anglewise.factor import minimize_factored
from anglewise.geometry import GroupSolution, SolverReport
from anglewise.hinge import minimize_hinge
from anglewise.linear_risk import is_linear
from anglewise.losses import InfoNCE, Loss, SquaredHinge, Triplet, require_loss
from anglewise.means import expand_rows
from anglewise.reference import solve_reference
from anglewise.risk import Risk
from anglewise.sampling import (
    FloatArray,
    Groups,
    Sampling,
    group_classes,
    normalized_proportions,
    proportions_from_counts,
)
from anglewise.solve import minimize_risk
from anglewise.tiny_risk import refine
from anglewise.two_levels import has_two_levels, two_level_optimum

Solver = Literal["auto", "cvxpy"]

MIN_TOLERANCE, MAX_TOLERANCE = 1e-12, 1e-1
MAX_FACTORED_CLASSES = 2_000


def optimal_geometry(
    class_counts: Sequence[int] | npt.NDArray[np.integer] | None = None,
    class_proportions: Sequence[float] | FloatArray | None = None,
    *,
    sampling: Sampling = "supervised",
    loss: Loss | None = None,
    dimension: int | None = None,
    nonnegative: bool = False,
    solver: Solver = "auto",
    tolerance: float = 1e-8,
    time_limit: float | None = None,
) -> Geometry:
    """The class means a contrastive loss converges to, with a proof of optimality.

    Args:
        class_counts: (C,) positive integers, samples of each class.
        class_proportions: (C,) positive, sum 1 to within 1e-6; exactly one of the two is given.
        sampling: negatives from the other classes ("supervised") or from all.
        loss: any of the family; InfoNCE(negatives=256, temperature=0.1) by default.
        dimension: d ≥ 1 of the embedding; ``None`` for as many as the optimum needs (at most C - 1). Below
            the rank of the optimum the problem is not convex: the best of several starts is returned,
            certified only if it meets the convex bound.
        nonnegative: class means without negative coordinates; needs ``dimension`` ≥ C.
        solver: "auto", or "cvxpy" for the independent reference on small problems.
        tolerance: relative gap from 1e-12 to 0.1 up to which an answer counts as certified.
        time_limit: seconds for the search; an answer with its proven gap is returned in any case.

    Raises:
        InvalidInput: naming the argument.
        TooLarge: more draws than the reference enumerates, or too many classes for the factored problem.
        NumericalFailure: no matrix whose properties could be verified.

    >>> from anglewise import InfoNCE
    >>> loss = InfoNCE(negatives=16, temperature=1.0)
    >>> geometry = optimal_geometry([900, 50, 50], sampling="unsupervised", loss=loss)
    >>> geometry.gram.round(4)
    array([[ 1.    , -0.99  , -0.99  ],
           [-0.99  ,  1.    ,  0.9603],
           [-0.99  ,  0.9603,  1.    ]])
    >>> geometry.certificate.certified
    True
    """
    started = time.perf_counter()
    loss = InfoNCE() if loss is None else loss
    require_loss(loss)
    proportions = _proportions(class_counts, class_proportions)
    _check_options(dimension, solver, tolerance, time_limit)
    groups = group_classes(proportions)
    with single_threaded_blas():  # entered once: the uses inside it are then free
        if groups.classes == 1:
            geometry = point(groups, sampling, loss, dimension, tolerance)
        elif nonnegative:
            if solver == "cvxpy":
                raise InvalidInput(("solver",), "the non-negative optimum has a closed form; use 'auto'")
            geometry = orthogonal_frame(groups, sampling, loss, dimension, tolerance)
        else:
            geometry = _best(proportions, groups, sampling, loss, dimension, solver, tolerance, time_limit)
        geometry = verified(geometry)
    return replace(geometry, solver=replace(geometry.solver, seconds=time.perf_counter() - started))


def _proportions(
    counts: Sequence[int] | npt.NDArray[np.integer] | None, proportions: Sequence[float] | FloatArray | None
) -> FloatArray:
    if (counts is None) == (proportions is None):
        field = "class_counts" if counts is None else "class_proportions"
        raise InvalidInput((field,), "give exactly one of class_counts and class_proportions")
    if counts is not None:
        return proportions_from_counts(counts)
    assert proportions is not None
    return normalized_proportions(proportions)


def _check_options(dimension: int | None, solver: str, tolerance: float, time_limit: float | None) -> None:
    if dimension is not None:
        if isinstance(dimension, bool) or not isinstance(dimension, (int, np.integer)):
            raise InvalidInput(("dimension",), "must be an integer")
        if dimension < 1:
            raise InvalidInput(("dimension",), "must be at least 1")
    if solver not in ("auto", "cvxpy"):
        raise InvalidInput(("solver",), "must be 'auto' or 'cvxpy'")
    if not MIN_TOLERANCE <= tolerance <= MAX_TOLERANCE:
        raise InvalidInput(("tolerance",), f"must be from {MIN_TOLERANCE:g} to {MAX_TOLERANCE:g}")
    if time_limit is not None and not time_limit > 0:
        raise InvalidInput(("time_limit",), "must be positive")


def _best(
    proportions: FloatArray,
    groups: Groups,
    sampling: Sampling,
    loss: Loss,
    dimension: int | None,
    solver: Solver,
    tolerance: float,
    time_limit: float | None,
) -> Geometry:
    """The convex optimum, or the factored problem bounded by it."""
    started = time.perf_counter()
    if loss.hardness > 0:
        _check_factored(groups, ("loss", "hardness"), solver)
    plain = replace(loss, hardness=0.0)
    risk = Risk(groups, sampling, plain)
    convex = _solve(groups, sampling, plain, solver, tolerance, time_limit)
    until = None if time_limit is None else time.monotonic() + time_limit
    convex = refine(risk, convex, until, minimize=solver == "auto")
    means, convex = clean(risk, convex)
    if loss.hardness == 0 and (dimension is None or dimension >= means.rank):
        means = replace(means, dimension=means.rank if dimension is None else dimension)
        return convex_geometry(risk, convex, means)
    if loss.hardness == 0:
        _check_factored(groups, ("dimension",), "auto")
    remaining = None if time_limit is None else max(0.1, time_limit - (time.perf_counter() - started))
    C = groups.classes
    found = minimize_factored(
        proportions,
        sampling,
        loss,
        dimension=dimension,
        tolerance=tolerance,
        time_limit=remaining,
        start_gram=expand_rows(groups, means.group_gram, 0, C),
        lower_bound=convex.certificate.lower_bound,
    )
    return factored_geometry(
        proportions, risk, loss, found, convex.certificate.lower_bound, dimension, tolerance
    )


def _check_factored(groups: Groups, field: tuple[str, ...], solver: str) -> None:
    if solver == "cvxpy":
        raise InvalidInput(("solver",), "cvxpy solves convex problems only: no hard negatives")
    if groups.classes > MAX_FACTORED_CLASSES:
        raise TooLarge(field, f"this non-convex problem is limited to {MAX_FACTORED_CLASSES} classes")


def _solve(
    groups: Groups, sampling: Sampling, loss: Loss, solver: Solver, tolerance: float, time_limit: float | None
) -> GroupSolution:
    if solver == "cvxpy":
        return solve_reference(groups, sampling, loss, tolerance=tolerance)
    if isinstance(loss, (SquaredHinge, Triplet)):
        return minimize_hinge(groups, sampling, loss, tolerance=tolerance, time_limit=time_limit)
    if has_two_levels(groups) and not is_linear(loss):
        found = two_level_optimum(groups, sampling, loss, tolerance=tolerance)
        if found.certificate.certified:
            report = SolverReport("two levels", found.iterations, len(groups), 0.0)
            return GroupSolution(found.gram, found.risk, found.certificate, report)
    return minimize_risk(groups, sampling, loss, tolerance=tolerance, time_limit=time_limit)
