"""The exact class-level risk S(A) and its gradient (A3, A4; [P1] Lemma 1).

S(A) = Σ_i λ_i E_{j_1..j_k ~ p(·|i)} ψ(A_{i j_1} - 1, …, A_{i j_k} - 1) on Gram matrices with unit diagonal,
in groups of equal proportions. InfoNCE is integrated once per anchor for any k; the separable losses need
no integral: S = m Σ_i λ_i Σ_j p(j|i) φ(A_ij - 1) with m = k for the sum and 1 for the mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit

from anglewise.errors import InvalidInput
from anglewise.losses import Exponential, InfoNCE, Logistic, Loss, SquaredHinge, Triplet
from anglewise.parallel import over_rows
from anglewise.quadrature import log_sum_rows, single_draw_rows
from anglewise.sampling import FloatArray, Groups, Sampling, negative_law

THREADED_GROUPS = 48
"""From this many groups on the rows are shared between threads."""


@dataclass(frozen=True)
class LogSum:
    """A loss as multiplicity · log(α + β Σ_l e^{t_l/T}) over ``draws`` negatives.

    ``draws`` = ∞ stands for log(α + β E e^{t/T}).
    """

    multiplicity: float
    draws: float
    log_alpha: float
    log_beta: float


def _log(x: float) -> float:
    return math.log(x) if x > 0 else -math.inf


def multiplicity(loss: Loss) -> float:
    """k for a separable loss summed over its negatives, 1 for the average."""
    return 1.0 if loss.reduction == "mean" else float(loss.negatives)


def log_sum_form(loss: Loss) -> LogSum | None:
    """InfoNCE and Logistic in the form of `LogSum`; None for the other losses."""
    if isinstance(loss, Logistic):
        return LogSum(multiplicity(loss), 1.0, 0.0, loss.margin / loss.temperature)
    if not isinstance(loss, InfoNCE):
        return None
    k = loss.negatives
    averaged = loss.reduction == "mean" and not math.isinf(k)
    log_beta = math.log(loss.beta) - (math.log(k) if averaged else 0.0)
    return LogSum(1.0, k, _log(loss.alpha), log_beta)


@njit(cache=True, nogil=True, error_model="numpy")
def _curvatures(p: FloatArray, share: FloatArray, constant: FloatArray) -> FloatArray:
    """(E w)²/E w² of each row, see `RiskEvaluation`; ``constant`` is E (1 - w)²."""
    curvature = np.ones(constant.size)
    for g in range(constant.size):
        q = 0.0
        for h in range(p.shape[1]):
            q += p[g, h] * share[g, h]
        # E w² from E (1 - w)²; for small q that cancels, and there the row is nearly linear in e^t anyway.
        if q > 1e-3:
            second = max(constant[g] - 1.0 + 2.0 * q, q * q)
            curvature[g] = min(1.0, max(q * q / second, min(1.0, q)))
    return curvature


@dataclass(frozen=True)
class RiskEvaluation:
    """The risk at one Gram matrix.

    Attributes:
        risk: S(A).
        gradient: (G, G) H_gh = ∂S/∂A_ij through anchor i in g and negative j ≠ i in h, for one ordered
            pair of classes. The symmetric class-level gradient is (H + Hᵀ)/2.
        curvature: (G,) (E w)²/E w², w the share of e^{t/T} terms in the sum of an anchor of group g
            (1 where there is no such sum): how a common shift of a row bends its risk.
    """

    risk: float
    gradient: FloatArray
    curvature: FloatArray


class Risk:
    """S(A) for fixed proportions, sampling and loss (hardness 0).

    Raises:
        InvalidInput: a loss with hardness > 0, or a single class with supervised sampling.
    """

    def __init__(self, groups: Groups, sampling: Sampling, loss: Loss) -> None:
        if loss.hardness > 0:
            raise InvalidInput(("loss", "hardness"), "the exact class-level risk needs hardness 0")
        self.groups, self.sampling, self.loss = groups, sampling, loss
        self.law = negative_law(groups, sampling)
        self.anchor = groups.sizes * groups.proportions
        self.form = log_sum_form(loss)
        # λ_g p(j|i) for one pair of classes; the diagonal counts only where the group has another class.
        self.pair = groups.proportions[:, None] * np.where(self.law.neighbors > 0, self.law.one, 0.0)
        self.evaluations = 0

    def value(self, A: FloatArray) -> float:
        """S(A), every constant included."""
        if self.form is None or self.groups.classes == 1:
            return self.evaluate(A).risk
        self.evaluations += 1
        rows, _, _ = self._rows(self.form, np.asarray(A, dtype=np.float64))
        return self.form.multiplicity * float(self.anchor @ rows)

    def value_and_gradient(self, A: FloatArray) -> tuple[float, FloatArray]:
        """S(A) and H, see `RiskEvaluation`.

        Args:
            A: (G, G) group Gram matrix with entries in [-1, 1]; the diagonal is the inner product of two
                different classes of the group, 1 where the group has one class.
        """
        evaluation = self.evaluate(A)
        return evaluation.risk, evaluation.gradient

    def evaluate(self, A: FloatArray) -> RiskEvaluation:
        """S(A), H and the row curvatures."""
        self.evaluations += 1
        if self.form is not None:
            return self._log_sum(self.form, np.asarray(A, dtype=np.float64))
        return self._separable(np.asarray(A, dtype=np.float64))

    def _log_sum(self, form: LogSum, A: FloatArray) -> RiskEvaluation:
        if self.groups.classes == 1:
            total = np.logaddexp(form.log_alpha, form.log_beta + _log_draws(form.draws))
            return RiskEvaluation(form.multiplicity * float(total), np.zeros((1, 1)), np.ones(1))
        value, share, constant = self._rows(form, A)
        risk = form.multiplicity * float(self.anchor @ value)
        gradient = (form.multiplicity / self._temperature) * self.pair * share
        return RiskEvaluation(risk, gradient, _curvatures(self.law.group, share, constant))

    def _rows(self, form: LogSum, A: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Per anchor group the expected logarithm (G,), the shares (G, G) and E (1 - w)² (G,)."""
        G, log_x = len(self.groups), (A - 1.0) / self._temperature
        outputs = np.empty(G), np.empty((G, G)), np.empty(G)
        if math.isinf(form.draws):
            self._average_rows(form, log_x, *outputs)
        else:
            self._drawn_rows(form, log_x, *outputs)
        return outputs

    @property
    def _temperature(self) -> float:
        assert isinstance(self.loss, (InfoNCE, Logistic, Exponential))
        return self.loss.temperature

    def _drawn_rows(
        self, form: LogSum, log_x: FloatArray, value: FloatArray, share: FloatArray, constant: FloatArray
    ) -> None:
        p, own = self.law.group, self.law.own
        outputs = (value, share, constant)

        def rows(start: int, stop: int) -> None:
            if form.draws == 1:
                single_draw_rows(start, stop, log_x, p, own, form.log_alpha, form.log_beta, *outputs)
            else:
                log_sum_rows(
                    start, stop, log_x, p, own, float(form.draws), form.log_alpha, form.log_beta, *outputs
                )

        over_rows(rows, len(value), threaded=len(value) >= THREADED_GROUPS)

    def _average_rows(
        self, form: LogSum, log_x: FloatArray, value: FloatArray, share: FloatArray, constant: FloatArray
    ) -> None:
        """log(α + β m), m = own + Σ_j p_j X_j, scaled by its largest term."""
        p, own = self.law.group, self.law.own
        log_a = form.log_alpha - form.log_beta
        scale = np.maximum(log_a, np.where(own > 0, 0.0, np.where(p > 0, log_x, -np.inf).max(axis=1)))
        X = np.where(p > 0, np.exp(log_x - scale[:, None]), 0.0)
        a = np.exp(log_a - scale)
        fixed = own * np.exp(-np.maximum(scale, 0.0))
        m = fixed + (p * X).sum(axis=1)
        if math.isfinite(form.log_alpha):
            small = m < a
            ratio = np.where(small, m / np.where(small, a, 1.0), 1.0)
            value[:] = np.where(
                small, form.log_alpha + np.log1p(ratio), form.log_beta + scale + np.log(a + m)
            )
        else:
            value[:] = form.log_beta + scale + np.log(m)
        share[:] = X / (a + m)[:, None]
        constant[:] = ((a + fixed) / (a + m)) ** 2

    def _separable(self, A: FloatArray) -> RiskEvaluation:
        m, t = multiplicity(self.loss), A - 1.0
        phi, slope = self._pair_loss(t)
        at_zero = float(self._pair_loss(np.zeros(1))[0][0])
        rows = np.einsum("gh,gh->g", self.law.group, phi) + self.law.own * at_zero
        return RiskEvaluation(m * float(self.anchor @ rows), m * self.pair * slope, np.ones(len(self.groups)))

    def _pair_loss(self, t: FloatArray) -> tuple[FloatArray, FloatArray]:
        """φ(t) and a subgradient φ'(t) of a separable loss Σ_l φ(t_l)."""
        loss = self.loss
        if isinstance(loss, Exponential):
            x = np.exp(t / loss.temperature)
            return x, x / loss.temperature
        assert isinstance(loss, (SquaredHinge, Triplet))
        excess = np.maximum(t + loss.margin, 0.0)
        if isinstance(loss, SquaredHinge):
            return excess**2, 2.0 * excess
        return excess, np.where(excess > 0, 1.0, 0.0)


def _log_draws(draws: float) -> float:
    return 0.0 if math.isinf(draws) else math.log(draws)
