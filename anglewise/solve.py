"""min S(A) over the elliptope, certified: InfoNCE, logistic and exponential losses ([P1]; A3 to A6)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from anglewise.barrier import MAX_GROUPS as MAX_BARRIER_GROUPS
from anglewise.barrier import minimize_by_barrier
from anglewise.blas import single_threaded_blas
from anglewise.certificate import certify, make_feasible, relative
from anglewise.dual import solve_dual
from anglewise.dual.method import simplex
from anglewise.errors import InvalidInput
from anglewise.geometry import Certificate, GroupSolution, SolverReport
from anglewise.group_factor import factor_descent
from anglewise.linear_risk import is_linear, minimize_linear
from anglewise.losses import Exponential, InfoNCE, Logistic, Loss
from anglewise.risk import Risk
from anglewise.sampling import FloatArray, Groups, Sampling

MAX_FACTOR_GROUPS = 150
"""A descent on the factor takes up to a minute at this size; it is the last resort where the dual stalls."""

INNER_TOLERANCE = 1e-9
"""The solver aims at this relative gap when less is asked: it costs at most one more round."""


def minimize_risk(
    groups: Groups,
    sampling: Sampling,
    loss: Loss,
    *,
    tolerance: float = 1e-8,
    time_limit: float | None = None,
) -> GroupSolution:
    """The optimal group Gram matrix of InfoNCE, Logistic or Exponential with hardness 0.

    Args:
        groups: the class proportions.
        sampling: "supervised" or "unsupervised" negatives.
        loss: see `anglewise.losses`.
        tolerance: relative gap at which the answer counts as certified.
        time_limit: seconds; the best point found by then is returned with its certificate.

    Returns:
        The best point found. It is always feasible and its certificate always holds;
        ``certificate.certified`` says whether the tolerance was met.

    Raises:
        InvalidInput: another loss, hardness > 0, or one class with supervised sampling.
    """
    if not isinstance(loss, (InfoNCE, Logistic, Exponential)):
        raise InvalidInput(("loss",), "must be infonce, logistic or exponential")
    start = time.monotonic()
    deadline = math.inf if time_limit is None else start + time_limit
    risk = Risk(groups, sampling, loss)
    # Overflow is caught by value: every result is checked to be finite.
    with single_threaded_blas(), np.errstate(all="ignore"):
        found = _Finder(risk, tolerance, deadline).find()
    unique, warnings = _uniqueness(groups, loss)
    certificate = found.certificate
    if not certificate.certified:
        late = " The time limit was reached." if time.monotonic() > deadline else ""
        warnings = (
            *warnings,
            f"The relative gap {certificate.relative_gap:.1e} is above the tolerance {tolerance:.1e}.{late}",
        )
    report = SolverReport(found.method, found.iterations, len(groups), time.monotonic() - start)
    return GroupSolution(found.gram, found.risk, certificate, report, unique, warnings)


@dataclass(frozen=True)
class _Found:
    gram: FloatArray
    risk: float
    certificate: Certificate
    method: str
    iterations: int


class _Finder:
    """Tries the methods in turn until one is certified, and keeps the best point."""

    def __init__(self, risk: Risk, tolerance: float, deadline: float) -> None:
        self.risk, self.tolerance, self.deadline = risk, tolerance, deadline
        self.aim = min(tolerance, INNER_TOLERANCE)

    def find(self) -> _Found:
        groups = self.risk.groups
        closed = _closed_form(groups)
        if closed is not None:
            return self._certified(*closed, 0)
        best: _Found | None = None
        for method in self._methods():
            try:
                new = method(best)
            except (np.linalg.LinAlgError, ArithmeticError, ValueError):
                continue
            if best is None or new.certificate.gap < best.certificate.gap:
                best = new
            if best.certificate.certified or time.monotonic() > self.deadline:
                break
        return best or self._simplex()

    def _simplex(self) -> _Found:
        groups = self.risk.groups
        A = simplex(groups.sizes.astype(np.float64), groups.classes)
        return self._certified(A, "simplex ETF", 0)

    def _methods(self) -> list[Callable[[_Found | None], _Found]]:
        methods: list[Callable[[_Found | None], _Found]] = [self._dual]
        if is_linear(self.risk.loss):
            methods.insert(0, self._linear)
        if len(self.risk.groups) <= MAX_BARRIER_GROUPS:
            methods.append(self._barrier)
        elif len(self.risk.groups) <= MAX_FACTOR_GROUPS:
            methods.append(self._factor)
        return methods

    def _dual(self, best: _Found | None) -> _Found:
        answer = solve_dual(self.risk, tolerance=self.aim, deadline=self.deadline)
        at = answer.best.at
        method = f"dual of rank {answer.columns}"
        return self._judged(answer.best.A, at.risk, at.gradient, method, answer.rounds, answer.best.gap)

    def _linear(self, best: _Found | None) -> _Found:
        best = best or self._simplex()
        A, steps = minimize_linear(self.risk, gap=self._wanted(best), deadline=self.deadline)
        return self._certified(A, "interior point (linear risk)", steps)

    def _barrier(self, best: _Found | None) -> _Found:
        best = best or self._simplex()
        A, steps = minimize_by_barrier(self.risk, best.gram, gap=self._wanted(best), deadline=self.deadline)
        return self._certified(A, "barrier Newton", best.iterations + steps)

    def _factor(self, best: _Found | None) -> _Found:
        best = best or self._simplex()
        limit = None if math.isinf(self.deadline) else self.deadline
        evaluate = self.risk.value_and_gradient
        A, minimum = factor_descent(self.risk.groups, evaluate, best.gram, deadline=limit)
        return self._certified(A, "descent on a factor", best.iterations + minimum.evaluations)

    def _wanted(self, best: _Found) -> float:
        """The gap to aim at, in units of the risk."""
        return 0.3 * self.aim / relative(self.risk, best.risk, 1.0)

    def _certified(self, A: FloatArray, method: str, iterations: int) -> _Found:
        A = make_feasible(self.risk.groups, A)
        value, H = self.risk.value_and_gradient(A)
        return self._judged(A, value, H, method, iterations)

    def _judged(
        self, A: FloatArray, value: float, H: FloatArray, method: str, iterations: int, gap: float = math.inf
    ) -> _Found:
        certificate = certify(self.risk, value, H, A, tolerance=self.tolerance, proven=gap)
        return _Found(A, value, certificate, method, iterations)


def _closed_form(groups: Groups) -> tuple[FloatArray, str] | None:
    """One class, two classes (antipodal) and equal proportions (simplex ETF)."""
    if groups.classes == 1:
        return np.ones((1, 1)), "closed form (one class)"
    if groups.classes == 2 or len(groups) == 1:
        method = "closed form (antipodal)" if groups.classes == 2 else "closed form (simplex ETF)"
        return simplex(groups.sizes.astype(np.float64), groups.classes), method
    return None


def _uniqueness(groups: Groups, loss: Loss) -> tuple[bool, tuple[str, ...]]:
    """With α = 0 and one negative the risk is linear in A, and four or more classes may move freely."""
    if not is_linear(loss) or groups.classes <= 3:
        return True, ()
    return False, (
        "With alpha = 0 and one negative the risk is linear in the Gram matrix: "
        "the minimizer may not be unique.",
    )
