"""Optimal geometries where the angles hardly move the risk, as at low temperatures.

At temperature 0.01 a supervised InfoNCE risk is about 1e-60: every geometry near the simplex is optimal to
within any meaningful gap, and yet the optimum differs from the simplex by a tenth in a cosine. As the terms
β e^{t/T} vanish beside α and the collisions, the part of the risk that depends on A becomes

    S(A) - const = Σ_{i≠j} ω_ij e^{A_ij/T},

whose logarithm is convex too and can be minimized at any scale:  F(A) = T log Σ_{i≠j} ω_ij e^{A_ij/T}.
A gap of F, divided by T, is a gap relative to that part of the risk.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import numpy as np

from anglewise.blas import single_threaded_blas
from anglewise.certificate import certify, dual_on_groups, dual_weights, make_feasible, weighted_gap
from anglewise.geometry import GroupSolution, SolverReport
from anglewise.group_factor import factor_descent
from anglewise.losses import Exponential, InfoNCE, Logistic
from anglewise.risk import Risk
from anglewise.sampling import FloatArray

LARGEST_PART = 1e-9
"""Only where the angles decide less than this of the risk, the terms being of size one without angles."""
LARGEST_SHARE = 1e-6
"""Of the terms e^{t/T} beside α in the logarithm of any anchor: beyond it that logarithm is not linear."""
REFERENCE_EXPONENT = 300.0
"""Weights are read off where the terms are e^-300: far too small to bend the risk, and no underflow."""
VISIBLE_GAP = 1e-4
"""Of that part: larger ones leave the angles open by more than a hundredth of T."""
MAX_GROUPS = 300
ROUNDS = 3
UNDETERMINED = (
    "The angles hardly change this risk: the certificate holds, but geometries with visibly other angles "
    "have the same risk to within its rounding."
)


def may_have_tiny_terms(risk: Risk) -> bool:
    """False where a temperature is too high for it at any geometry: every e^{t/T} is at least e^{-2/T}."""
    loss = risk.loss
    if len(risk.groups) == 1 or risk.groups.classes == 2:
        return False
    if isinstance(loss, Exponential):
        return -2.0 / loss.temperature < math.log(LARGEST_PART)
    if risk.form is None or math.isinf(risk.form.log_alpha):
        return False
    assert isinstance(loss, (InfoNCE, Logistic))
    log_beta = risk.form.log_beta + (0.0 if math.isinf(risk.form.draws) else math.log(risk.form.draws))
    at_most_collisions = log_beta - np.logaddexp(risk.form.log_alpha, log_beta)
    return bool(at_most_collisions - 2.0 / loss.temperature < math.log(LARGEST_PART))


def has_tiny_terms(risk: Risk, H: FloatArray) -> bool:
    """Whether the angles decide so little of the risk that it is linear in the terms e^{t/T}.

    Args:
        H: gradient of the risk at a geometry as good as the simplex.
    """
    if not may_have_tiny_terms(risk):
        return False
    form = risk.form
    parts = _parts(risk, H)
    if form is None:
        return bool(parts.sum() < LARGEST_PART)
    share = parts / risk.anchor / form.multiplicity
    return bool(parts.sum() < LARGEST_PART and share.max() < LARGEST_SHARE)


def _parts(risk: Risk, H: FloatArray) -> FloatArray:
    """(G,) the part of the risk that depends on angles, by group of the anchor."""
    assert isinstance(risk.loss, (InfoNCE, Logistic, Exponential))
    n = risk.groups.sizes
    return np.asarray(risk.loss.temperature * n * (risk.law.neighbors * H).sum(axis=1), dtype=np.float64)


@dataclass(frozen=True)
class LogRisk:
    """F on groups.

    Attributes:
        temperature: T.
        log_weights: (G, G) log ω of one ordered pair of classes, up to a common constant.
        pairs: (G, G) number of ordered pairs.
    """

    temperature: float
    log_weights: FloatArray
    pairs: FloatArray

    @classmethod
    def of(cls, risk: Risk) -> LogRisk:
        """Of a risk that `has_tiny_terms`."""
        assert isinstance(risk.loss, (InfoNCE, Logistic, Exponential))
        T = risk.loss.temperature
        rates = _seen_from_afar(risk, T) if _collisions_matter(risk) else risk.pair
        pairs = risk.groups.sizes[:, None] * risk.law.neighbors
        with np.errstate(divide="ignore"):
            return cls(T, np.where(pairs > 0, np.log(rates), -np.inf), pairs)

    def value_and_gradient(self, A: FloatArray) -> tuple[float, FloatArray]:
        """F(A) and ∂F/∂A_ij for one ordered pair of classes."""
        exponents = self.log_weights + A / self.temperature
        largest = exponents[self.pairs > 0].max()
        terms = np.exp(exponents - largest)
        total = float((self.pairs * terms).sum())
        return self.temperature * (float(largest) + float(np.log(total))), terms / total


def _collisions_matter(risk: Risk) -> bool:
    """Whether the logarithms log(α + β·collisions + …) differ between anchors before any angle counts."""
    if risk.form is None or not risk.law.own.any():
        return False
    draws = 0.0 if math.isinf(risk.form.draws) else math.log(risk.form.draws)
    return risk.form.log_beta + draws - risk.form.log_alpha > math.log(float(np.finfo(np.float64).eps))


def _seen_from_afar(risk: Risk, T: float) -> FloatArray:
    """(G, G) weights of the terms up to a factor: the gradient where all of them are equal and tiny."""
    cosine = 1.0 - min(1.0, REFERENCE_EXPONENT * T)
    return risk.evaluate(np.full_like(risk.pair, cosine)).gradient


def refine(
    risk: Risk, solution: GroupSolution, deadline: float | None = None, *, minimize: bool = True
) -> GroupSolution:
    """The solution itself, or with the angles that minimize the tiny part of the risk that they decide.

    Args:
        deadline: `time.monotonic` seconds.
        minimize: otherwise angles that are not optimal get a warning.
    """
    if not may_have_tiny_terms(risk):
        return solution
    tolerance = solution.certificate.tolerance
    with np.errstate(all="ignore"):
        H = risk.evaluate(solution.gram).gradient
        if not has_tiny_terms(risk, H) or solution.certificate.gap < tolerance * _parts(risk, H).sum():
            return solution
        log_risk = LogRisk.of(risk)
        if not np.isfinite(log_risk.log_weights[log_risk.pairs > 0]).all():
            return _undetermined(solution)
        if _gap(risk, log_risk, solution.gram) <= tolerance:
            return solution
        if minimize and len(risk.groups) <= MAX_GROUPS:
            found = _minimized(risk, log_risk, solution, deadline)
            if found.certificate.gap <= solution.certificate.gap:
                solution = found
        return solution if _tells_angles(risk, log_risk, solution) else _undetermined(solution)


def _tells_angles(risk: Risk, log_risk: LogRisk, solution: GroupSolution) -> bool:
    """Whether the gap is small against the part that depends on angles, exactly or in the limit."""
    part = float(_parts(risk, risk.evaluate(solution.gram).gradient).sum())
    if solution.certificate.gap < VISIBLE_GAP * part:
        return True
    return _gap(risk, log_risk, solution.gram) <= solution.certificate.tolerance


def _minimized(
    risk: Risk, log_risk: LogRisk, solution: GroupSolution, deadline: float | None
) -> GroupSolution:
    begun, A, evaluations = time.monotonic(), solution.gram, 0
    best, gap = A, _gap(risk, log_risk, A)
    tolerance = solution.certificate.tolerance
    with single_threaded_blas():
        for _ in range(ROUNDS):
            A, minimum = factor_descent(
                risk.groups, log_risk.value_and_gradient, A, newton_steps=60, deadline=deadline
            )
            evaluations += minimum.evaluations
            A = make_feasible(risk.groups, A)
            if (new := _gap(risk, log_risk, A)) < gap:
                best, gap = A, new
            if gap <= tolerance or (deadline is not None and time.monotonic() > deadline):
                break
    value, H = risk.value_and_gradient(best)
    certificate = certify(risk, value, H, best, tolerance=tolerance)
    report = SolverReport("factor (low temperature)", evaluations, len(risk.groups), time.monotonic() - begun)
    return replace(solution, gram=best, risk=value, certificate=certificate, report=report, warnings=())


def _gap(risk: Risk, log_risk: LogRisk, A: FloatArray) -> float:
    """A bound on the gap relative to the part of the risk that depends on angles."""
    Z, inside, y = dual_on_groups(risk.groups, log_risk.value_and_gradient(A)[1], A)
    w = dual_weights(y)
    gaps = [weighted_gap(risk.groups, Z, inside, u)[0] for u in (np.ones_like(w), np.sqrt(w), w)]
    return min(gaps) / log_risk.temperature


def _undetermined(solution: GroupSolution) -> GroupSolution:
    return replace(solution, warnings=(*solution.warnings, UNDETERMINED))
