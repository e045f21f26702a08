"""The risk with hard negatives: a sampling law that leans towards similar classes [Robinson2021] (A8).

A negative of an anchor of class i is drawn from

    w(j|i) = p(j|i) e^{η A_ij} / Σ_l p(l|i) e^{η A_il},

p the law of [P1], A_ij the cosine of the class means and A_ii = 1 for collisions (unsupervised). The law
moves with the geometry, so the risk is not convex in A. The tilt orders draws by their own t, hence w
dominates p stochastically, and every ψ of the family is increasing:

    risk with hardness η at A  ≥  risk with hardness 0 at A  ≥  the convex minimum,

which is the lower bound reported for it. It is attained where all t of an anchor are equal, for instance by
the simplex for balanced classes under supervised sampling.
"""

from __future__ import annotations

import math

import numpy as np

from anglewise.losses import Exponential, InfoNCE, Logistic, Loss, SquaredHinge, Triplet
from anglewise.parallel import over_rows
from anglewise.risk import THREADED_GROUPS, log_sum_form, multiplicity
from anglewise.sampling import FloatArray, Groups, Sampling, negative_law
from anglewise.tilted_quadrature import weighted_log_sum_rows


def single_class_groups(proportions: FloatArray) -> Groups:
    """Every class a group of its own, in the caller's order."""
    C = len(proportions)
    return Groups(proportions, np.ones(C, dtype=np.int64), np.arange(C, dtype=np.int64))


def expected_loss(loss: Loss, t: FloatArray, w: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """E ψ over independent draws, for N anchors with laws over M values.

    Args:
        t: (N, M) values of one draw, at most 0.
        w: (N, M) their probabilities.

    Returns:
        (N,) E ψ; (N, M) derivative by t; (N, M) derivative by w, centered (Σ_j w_j effect_j = 0).
    """
    form = log_sum_form(loss)
    if form is None or form.draws == 1:
        phi, slope = _term(loss, t)
        m = multiplicity(loss)
        value = m * (w * phi).sum(axis=1)
        return value, m * w * slope, m * phi - value[:, None]
    assert isinstance(loss, InfoNCE)
    if math.isinf(form.draws):
        return _infinitely_many(form.log_alpha, form.log_beta, loss.temperature, t, w)
    log_x = np.ascontiguousarray(t / loss.temperature)
    law = np.ascontiguousarray(w)
    value, share, effect = np.empty(len(t)), np.empty_like(log_x), np.empty_like(log_x)

    def rows(start: int, stop: int) -> None:
        weighted_log_sum_rows(
            start, stop, log_x, law, form.draws, form.log_alpha, form.log_beta, value, share, effect
        )

    over_rows(rows, len(t), threaded=t.size >= THREADED_GROUPS**2)
    return value, law * share / loss.temperature, effect


def _term(loss: Loss, t: FloatArray) -> tuple[FloatArray, FloatArray]:
    """φ(t) and φ'(t) of a loss that is a sum over its negatives, or has one."""
    if isinstance(loss, Logistic | InfoNCE):
        form = log_sum_form(loss)
        assert form is not None
        x = form.log_beta + t / loss.temperature
        total = np.logaddexp(form.log_alpha, x)
        return total, np.exp(x - total) / loss.temperature
    if isinstance(loss, Exponential):
        x = np.exp(t / loss.temperature)
        return x, x / loss.temperature
    assert isinstance(loss, SquaredHinge | Triplet)
    excess = np.maximum(t + loss.margin, 0.0)
    if isinstance(loss, SquaredHinge):
        return excess**2, 2.0 * excess
    return excess, (excess > 0).astype(np.float64)


def _infinitely_many(
    log_alpha: float, log_beta: float, T: float, t: FloatArray, w: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """log(α + β Σ_j w_j e^{t_j/T})."""
    scale = np.where(w > 0, t, -np.inf).max(axis=1, keepdims=True) / T
    X = np.exp(np.minimum(t / T - scale, 0.0))
    m = (w * X).sum(axis=1)
    log_m = log_beta + scale[:, 0] + np.log(m)
    value = np.logaddexp(log_alpha, log_m)
    relative = (X / m[:, None]) * np.exp(log_m - value)[:, None]
    return value, w * relative / T, relative - (w * relative).sum(axis=1, keepdims=True)


class TiltedRisk:
    """The risk of (C, C) Gram matrices with unit diagonal under hardness η ≥ 0; η = 0 is the risk of [P1].

    Args:
        proportions: (C,) class proportions.

    Raises:
        InvalidInput: supervised sampling with one class.
    """

    def __init__(self, proportions: FloatArray, sampling: Sampling, loss: Loss) -> None:
        law = negative_law(single_class_groups(proportions), sampling)
        self.proportions, self.loss = proportions, loss
        P = law.group + np.diag(law.own)
        with np.errstate(divide="ignore"):
            self.log_law = np.log(P)

    def law(self, A: FloatArray) -> FloatArray:
        """(C, C) w(j|i)."""
        logits = self.log_law + self.loss.hardness * A
        logits = logits - logits.max(axis=1, keepdims=True)
        w = np.exp(logits)
        return np.asarray(w / w.sum(axis=1, keepdims=True), dtype=np.float64)

    def value(self, A: FloatArray) -> float:
        """The risk at A."""
        return self.value_and_gradient(A)[0]

    def value_and_gradient(self, A: FloatArray) -> tuple[float, FloatArray]:
        """The risk and (C, C) ∂/∂A_ij through anchor i, zero on the diagonal.

        ∂/∂A_ij = λ_i w_ij (∂ψ/∂t_ij + η effect_ij): the second term is the law moving with A.
        """
        t = A - 1.0
        np.fill_diagonal(t, 0.0)
        w = self.law(t + 1.0)
        value, by_t, effect = expected_loss(self.loss, t, w)
        # effect is meaningful only where w > 0
        moved = self.loss.hardness * w * np.where(w > 0, effect, 0.0)
        H = self.proportions[:, None] * (by_t + moved)
        np.fill_diagonal(H, 0.0)
        return float(self.proportions @ value), H
