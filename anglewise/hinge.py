"""The optimal class geometry of the squared hinge and triplet losses, which are not strictly convex.

    S(A) = collisions + Σ_{i≠j} ω_ij φ(A_ij + b),   φ(x) = max(0, x)² or max(0, x),   b = m - 1.

With a margin m ≤ C/(C-1) the simplex makes every term zero, and so does any geometry with all A_ij ≤ -b.
Larger margins are solved on a factor of the group Gram matrix. The squared hinge is smooth: Newton steps and
the usual certificate. The triplet loss is piecewise linear; max(0, x) = max_{0≤g≤1} g x gives for all slopes

    S(B) ≥ collisions + Σ ω_ij g_ij b + min_B Σ ω_ij g_ij B_ij                                       (dual)

on the whole elliptope. With m ≥ 2 all slopes are 1 and a semidefinite program with a linear objective is
left, solved on a factor; in between, and where the factor stalls, a splitting method finds geometry and
slopes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from anglewise.blas import single_threaded_blas
from anglewise.certificate import (
    certify,
    dual_on_groups,
    dual_weights,
    make_feasible,
    min_gram_eigenvalue,
    relative,
    weighted_gap,
)
from anglewise.errors import InvalidInput
from anglewise.geometry import Certificate, GroupSolution, SolverReport
from anglewise.group_factor import ValueAndGradient, factor_objective, factor_of, gram_of, row_curvature
from anglewise.losses import SquaredHinge, Triplet
from anglewise.risk import Risk, multiplicity
from anglewise.sampling import FloatArray, Groups, Sampling
from anglewise.spheres import minimize_on_spheres
from anglewise.splitting import HingeSplitting

MAX_RANK = 200
MAX_ROUNDS = 6
MAX_SPLITTING_STEPS = 6000
CHECK_EVERY = 25


def minimize_hinge(
    groups: Groups,
    sampling: Sampling,
    loss: SquaredHinge | Triplet,
    *,
    tolerance: float = 1e-8,
    time_limit: float | None = None,
) -> GroupSolution:
    """The optimal group Gram matrix with its certificate.

    Args:
        tolerance: bound on the relative gap to reach.
        time_limit: seconds, after which the best answer so far is returned with its own gap.

    Returns:
        ``unique`` is True only where uniqueness is proven.

    Raises:
        InvalidInput: another loss, hardness > 0, or supervised sampling with one class.
    """
    if not isinstance(loss, SquaredHinge | Triplet):
        raise InvalidInput(("loss",), "must be the squared hinge or the triplet loss")
    begun = time.monotonic()
    deadline = None if time_limit is None else begun + time_limit
    problem = _Hinge(Risk(groups, sampling, loss), loss, tolerance)
    with single_threaded_blas():
        if groups.classes == 1 or loss.margin <= groups.classes / (groups.classes - 1):
            answer, method = problem.answer(simplex(groups), evaluations=1), "simplex"
        elif isinstance(loss, SquaredHinge):
            answer, method = _squared_hinge(problem, deadline), "factor"
        else:
            answer, method = _triplet(problem, deadline)
    unique = problem.unique(answer)
    return GroupSolution(
        gram=answer.A,
        risk=answer.risk,
        certificate=answer.certificate,
        report=SolverReport(method, answer.evaluations, len(groups), time.monotonic() - begun),
        unique=unique,
        warnings=() if unique else (_not_unique(problem, answer),),
    )


@dataclass(frozen=True)
class _Answer:
    A: FloatArray
    risk: float
    certificate: Certificate
    evaluations: int


def simplex(groups: Groups) -> FloatArray:
    """(G, G) group Gram matrix of the simplex ETF."""
    A = np.full((len(groups), len(groups)), -1 / max(groups.classes - 1, 1))
    A[np.diag_indices(len(groups))] = np.where(groups.sizes > 1, np.diag(A), 1.0)
    return A


class _Hinge:
    """The problem: risk, weights ω per ordered pair of classes, pair counts, and the two lower bounds."""

    def __init__(self, risk: Risk, loss: SquaredHinge | Triplet, tolerance: float) -> None:
        self.risk, self.loss, self.tolerance, self.groups = risk, loss, tolerance, risk.groups
        self.b = loss.margin - 1.0
        self.weights = multiplicity(loss) * risk.pair
        self.pairs = self.groups.sizes[:, None] * risk.law.neighbors
        at_zero = max(0.0, loss.margin) ** (2 if isinstance(loss, SquaredHinge) else 1)
        self.collisions = multiplicity(loss) * float(risk.anchor @ risk.law.own) * at_zero

    def answer(self, A: FloatArray, evaluations: int, lower_bound: float = -np.inf) -> _Answer:
        """A made feasible, its exact risk, and the best of the proven bounds."""
        A = make_feasible(self.groups, A)
        value, H = self.risk.value_and_gradient(A)
        certificate = certify(self.risk, value, H, A, tolerance=self.tolerance)
        gap = min(certificate.gap, max(0.0, value - max(self.collisions, lower_bound)))
        relative_gap = relative(self.risk, value, gap)
        certificate = replace(
            certificate,
            gap=gap,
            relative_gap=relative_gap,
            lower_bound=value - gap,
            certified=relative_gap <= self.tolerance,
            min_gram_eigenvalue=min_gram_eigenvalue(self.groups, A),
        )
        return _Answer(A, value, certificate, evaluations)

    def dual_bound(self, A: FloatArray, g: FloatArray) -> float:
        """(dual) for slopes 0 ≤ g ≤ 1, its minimum bounded by Z = ωg - Diag(y), y_i = (ωg A)_ii."""
        H = self.weights * np.clip(g, 0.0, 1.0)
        Z, inside, y = dual_on_groups(self.groups, H, A)
        deficits = [weighted_gap(self.groups, Z, inside, w)[0] for w in (np.ones(len(y)), dual_weights(y))]
        return self.collisions + float((self.pairs * H * (A + self.b)).sum()) - min(deficits)

    def unique(self, answer: _Answer) -> bool:
        """Whether uniqueness is proven.

        A squared hinge whose terms are all positive at the answer is strongly convex around it: a minimizer
        where some term vanishes would be at least ω x² below, x the smallest term's root.
        """
        if self.groups.classes == 1:
            return True
        active = self.pairs > 0
        x = answer.A[active] + self.b
        if self.groups.classes == 2:  # A = -1 is optimal, and alone if the loss still decreases there
            return bool(x.min() >= 0 and self.loss.margin >= 2)
        if not isinstance(self.loss, SquaredHinge):
            return False
        if self.loss.margin > 2:
            return True
        both = (self.weights + self.weights.T)[active]
        return bool(x.min() > 0 and answer.certificate.gap < float(both.min()) * float(x.min()) ** 2)


def _not_unique(problem: _Hinge, answer: _Answer) -> str:
    if answer.risk <= problem.collisions * (1 + 1e-12):
        return (
            f"Every geometry whose cosines are all at most {-problem.b:.6g} has the same, minimal risk; "
            "the simplex is one of them."
        )
    return "The loss is not strictly convex: other geometries may have the same risk."


def _squared_hinge(problem: _Hinge, deadline: float | None) -> _Answer:
    return _descend(problem, problem.risk.value_and_gradient, deadline, lambda A: -np.inf)


def _descend(
    problem: _Hinge,
    value_and_gradient: ValueAndGradient,
    deadline: float | None,
    lower_bound: Callable[[FloatArray], float],
) -> _Answer:
    """Descent on the factor in rounds, each judged by its certificate."""
    groups = problem.groups
    # The noise of the start lets every direction take part.
    U = factor_of(groups, simplex(groups), min(len(groups), MAX_RANK))
    best, evaluations = None, 0
    for _ in range(MAX_ROUNDS):
        minimum = minimize_on_spheres(
            factor_objective(groups, value_and_gradient),
            U,
            max_iterations=500,
            newton_steps=60,
            curvature=row_curvature(groups, problem.weights),
            deadline=deadline,
        )
        U, evaluations = minimum.U, evaluations + minimum.evaluations
        A = gram_of(groups, U)
        answer = problem.answer(A, evaluations, lower_bound(A))
        if best is None or answer.certificate.gap < best.certificate.gap:
            best = answer
        if best.certificate.certified or (deadline is not None and time.monotonic() > deadline):
            break
    assert best is not None
    return replace(best, evaluations=evaluations)


def _triplet(problem: _Hinge, deadline: float | None) -> tuple[_Answer, str]:
    """The linear program on the factor when no term can vanish; otherwise, or if that stalls, splitting."""
    if problem.loss.margin < 2:
        return _split(problem, simplex(problem.groups), None, deadline), "splitting"
    half = None if deadline is None else (time.monotonic() + deadline) / 2
    answer = _descend(problem, _linear(problem), half, lambda A: problem.dual_bound(A, np.ones_like(A)))
    if answer.certificate.certified:
        return answer, "factor"
    return _split(problem, answer.A, answer, deadline), "splitting"


def _linear(problem: _Hinge) -> ValueAndGradient:
    """<ω, A + b>: the triplet risk without collisions for a margin of at least 2."""
    return lambda A: (float((problem.pairs * problem.weights * (A + problem.b)).sum()), problem.weights)


def _split(problem: _Hinge, start: FloatArray, best: _Answer | None, deadline: float | None) -> _Answer:
    """The lowest risk and the highest bound of the splitting method, which need not be of one step."""
    bound = -np.inf if best is None else best.certificate.lower_bound
    earlier = 0 if best is None else best.evaluations
    method = HingeSplitting(problem.groups, problem.weights, problem.b, start)
    for count in range(1, MAX_SPLITTING_STEPS + 1):
        method.advance()
        expired = deadline is not None and time.monotonic() > deadline
        if count % CHECK_EVERY and not (expired and best is None):
            if expired:
                break
            continue
        A = make_feasible(problem.groups, method.gram)
        slopes = np.ones_like(A) if problem.loss.margin >= 2 else method.slopes
        bound = max(bound, problem.dual_bound(A, slopes))
        answer = problem.answer(A, earlier + count, bound)
        if best is None or answer.risk < best.risk:
            best = answer
        elif bound > best.certificate.lower_bound:
            best = problem.answer(best.A, earlier + count, bound)
        if best.certificate.certified or expired:
            break
    assert best is not None
    return replace(best, evaluations=earlier + count)
