"""Expected derivative of the loss with respect to one negative, where all minorities have merged.

At the collapsed point (majority u, every minority -u) only two values of t = fᵀ(f⁻ - f⁺) occur: 0 for
a negative on the anchor's side, -2 for one across. The k - 1 companions of a negative are then counted by one
binomial variable: J of them lie on the anchor's side. With x = e^{-2/T} and D₀, D₁ > 0,

    E ∂ψ/∂t = (β/T) e^{t/T} E[1/(D₀ + D₁ J)],   D₀ = α + β(e^{t/T} + x(k-1)),   D₁ = β(1 - x).

All quantities are kept as logarithms: e^{-2/T} leaves double precision at T = 0.0027.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from anglewise.losses import Exponential, InfoNCE, Logistic, Loss, SquaredHinge, Triplet
from anglewise.sampling import FloatArray, Sampling

NODE_STEP = 0.1
"""Trapezoid step; the integral agrees with summation over J to 2e-12 or better."""

FIRST_NODE = -3.7
TAIL = 60.0


@dataclass(frozen=True)
class CollapsedGradients:
    """Logarithms of the three expected derivatives, times k and T (common factors of all three).

    Attributes:
        across_majority: E1, majority anchor and minority negative, t = -2.
        across_minority: E2, minority anchor and majority negative, t = -2.
        within: E3, minority anchor and another minority as negative, t = 0.
    """

    across_majority: FloatArray
    across_minority: FloatArray
    within: FloatArray


def collapsed_gradients(
    loss: Loss, sampling: Sampling, minorities: int, log_odds: FloatArray
) -> CollapsedGradients:
    """E1, E2, E3 of A7 at majority proportions l given by log((1 - l)/l).

    Kinks of the hinge losses count in favor of collapse: the largest slope at t = -2, the smallest at 0.
    """
    if not isinstance(loss, InfoNCE):
        across, within = _separable_slopes(loss)
        return CollapsedGradients(*(np.full_like(log_odds, e) for e in (across, across, within)))
    majority, minority = _same_side(sampling, minorities, log_odds)
    return CollapsedGradients(
        _infonce_slope(loss, -2.0, *majority),
        _infonce_slope(loss, -2.0, *minority),
        _infonce_slope(loss, 0.0, *minority),
    )


def log_proportions(log_odds: FloatArray) -> tuple[FloatArray, FloatArray]:
    """log l and log(1 - l) from log((1 - l)/l)."""
    log_majority = -np.logaddexp(0.0, log_odds)
    return log_majority, log_odds + log_majority


def _same_side(
    sampling: Sampling, minorities: int, log_odds: FloatArray
) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
    """(log r, log(1 - r)), r = P(a negative lies on the anchor's side), for both kinds of anchor."""
    log_l, log_rest = log_proportions(log_odds)
    if sampling == "unsupervised":
        return (log_l, log_rest), (log_rest, log_l)
    never = np.full_like(log_odds, -np.inf)
    log_others = log_rest + math.log((minorities - 1) / minorities)
    log_all = np.logaddexp(log_l, log_others)
    return (never, np.zeros_like(log_odds)), (log_others - log_all, log_l - log_all)


def _separable_slopes(loss: Loss) -> tuple[float, float]:
    """log φ'(-2) and log φ'(0) of Σ_l φ(t_l), up to a common constant."""
    match loss:
        case Exponential(temperature=T):
            return -2 / T, 0.0
        case Logistic(temperature=T, margin=margin):
            return (
                -float(np.logaddexp(0.0, (2 - margin) / T)),
                -float(np.logaddexp(0.0, -margin / T)),
            )
        case SquaredHinge(margin=margin):
            return _log(max(0.0, margin - 2)), _log(max(0.0, margin))
        case Triplet(margin=margin):
            return _log(float(margin >= 2)), _log(float(margin > 0))
    raise TypeError(f"no slopes known for {type(loss).__name__}")


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def _infonce_slope(loss: InfoNCE, t: float, log_r: FloatArray, log_q: FloatArray) -> FloatArray:
    """log E[ k e^{t/T} / (α' + e^{t/T} + Σ of k - 1 others) ], α' = α/β, or kα/β for the mean."""
    log_x, log_e = -2 / loss.temperature, t / loss.temperature
    log_alpha = _log(loss.alpha) - math.log(loss.beta)
    if math.isinf(loss.negatives):
        sum_of_all = np.logaddexp(log_x + log_q, log_r)
        return np.asarray(log_e - np.logaddexp(log_alpha, sum_of_all), dtype=np.float64)
    k = float(loss.negatives)
    if loss.reduction == "mean":
        log_alpha += math.log(k)
    others = math.log(k - 1) + log_x if k > 1 else -math.inf
    log_d0 = float(np.logaddexp(log_alpha, np.logaddexp(log_e, others)))
    log_d1 = math.log(-math.expm1(log_x))
    return math.log(k) + log_e + log_expected_reciprocal(log_d0, log_d1, k - 1, log_r, log_q)


def log_expected_reciprocal(
    log_d0: float, log_d1: float, draws: float, log_r: FloatArray, log_q: FloatArray
) -> FloatArray:
    """log E[1/(D₀ + D₁ J)], J ~ Binomial(draws, r), q = 1 - r, all given as logarithms.

    The event J = 0 is split off because 1/D₀ may exceed everything else by e^{2/T}; the rest is

        (1/D₁) ∫₀^∞ e^{-sδ} [(q + r e^{-s})^K - q^K] ds,   δ = D₀/D₁,

    by the trapezoid rule in v, s = exp(v - e^{-v})/(δ + max(1, Kr)).
    """
    none_drawn = draws * log_q - log_d0 if draws > 0 else np.full_like(log_q, -log_d0)
    if draws == 0:
        return none_drawn
    delta, r = math.exp(log_d0 - log_d1), np.exp(log_r)
    scale = delta + np.maximum(1.0, draws * r)
    last = math.log(TAIL * float(scale.max()) / (delta + 1)) + 0.5
    v = np.arange(FIRST_NODE, last + NODE_STEP, NODE_STEP)
    s = np.exp(v - np.exp(-v)) / scale[..., None]
    weight = s * (1 + np.exp(-v)) * NODE_STEP
    log_power = draws * _log_mixture(s, r[..., None], log_r[..., None], log_q[..., None])
    odds = (log_r - log_q)[..., None] - s
    at_least_one = -np.expm1(-draws * np.logaddexp(0.0, odds))
    integral = (weight * np.exp(log_power - delta * s) * at_least_one).sum(axis=-1)
    with np.errstate(divide="ignore"):
        return np.asarray(np.logaddexp(none_drawn, np.log(integral) - log_d1), dtype=np.float64)


def _log_mixture(s: FloatArray, r: FloatArray, log_r: FloatArray, log_q: FloatArray) -> FloatArray:
    """log(q + r e^{-s}) to full relative accuracy near 0 (it is multiplied by up to 1e9)."""
    lost = r * np.expm1(-s)
    near_zero = np.log1p(np.maximum(lost, -0.5))
    return np.asarray(np.where(lost > -0.5, near_zero, np.logaddexp(log_q, log_r - s)), dtype=np.float64)
