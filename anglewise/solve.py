"""min S(A) over the elliptope, certified: InfoNCE, logistic and exponential losses ([P1]; A3 to A6)."""

from __future__ import annotations

import math
import time
from contextlib import nullcontext

import numpy as np

from anglewise.blas import single_threaded_blas
from anglewise.certificate import certify
from anglewise.dual import solve_dual
from anglewise.dual.method import simplex
from anglewise.errors import InvalidInput
from anglewise.geometry import GroupSolution, SolverReport
from anglewise.losses import Exponential, InfoNCE, Logistic, Loss
from anglewise.risk import Risk
from anglewise.sampling import FloatArray, Groups, Sampling

INNER_TOLERANCE = 1e-9
"""The solver aims at this relative gap when less is asked: it costs at most one more round."""

THREADED_BLAS_GROUPS = 256


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
    threads = single_threaded_blas() if len(groups) < THREADED_BLAS_GROUPS else nullcontext()
    with threads:
        closed = _closed_form(groups)
        if closed is not None:
            gram, method, rounds = *closed, 0
            value, H = risk.value_and_gradient(gram)
        else:
            answer = solve_dual(risk, tolerance=min(tolerance, INNER_TOLERANCE), deadline=deadline)
            gram, rounds = answer.best.A, answer.rounds
            value, H = answer.best.at.risk, answer.best.at.gradient
            method = f"dual of rank {answer.columns}"
        certificate = certify(risk, value, H, gram, tolerance=tolerance)
    unique, warnings = _uniqueness(groups, loss)
    if not certificate.certified:
        late = " The time limit was reached." if time.monotonic() > deadline else ""
        warnings = (
            *warnings,
            f"The relative gap {certificate.relative_gap:.1e} is above the tolerance {tolerance:.1e}.{late}",
        )
    report = SolverReport(method, rounds, len(groups), time.monotonic() - start)
    return GroupSolution(gram, value, certificate, report, unique, warnings)


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
    linear = isinstance(loss, InfoNCE) and loss.alpha == 0 and loss.negatives == 1
    if not linear or groups.classes <= 3:
        return True, ()
    return False, (
        "With alpha = 0 and one negative the risk is linear in the Gram matrix: "
        "the minimizer may not be unique.",
    )
