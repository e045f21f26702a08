"""Minority collapse: at which majority proportion do all minorities share one direction? (A7)

One majority of proportion l and n = C - 1 equal minorities of m = (1 - l)/n each. The dual of the program of
[P1] at the collapsed point is positive semidefinite, and collapse therefore optimal, exactly when

    unsupervised:  l (E1 + E2) ≥ 2 (1 - l) E3
    supervised:    l (E1 + (1-l)/(1-m) E2) ≥ 2 (1-l)²/(1-m) E3

with the expected derivatives of `collapsed_gradients`. The condition is solved for log((1 - l)/l): at
low temperature 1 - l is far below the precision of l.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from anglewise.collapsed_gradients import collapsed_gradients, log_proportions
from anglewise.errors import InvalidInput
from anglewise.losses import InfoNCE, Loss, require_loss
from anglewise.sampling import FloatArray, Sampling

MAX_CLASSES = 20_000
FINE_STEP, COARSE_STEP = 0.2, 2.0
"""Steps in log((1 - l)/l) of the search for sign changes, and once the binomials are degenerate."""


@dataclass(frozen=True)
class Threshold:
    """The majority proportion from which on all minorities share one direction.

    Attributes:
        classes: C ≥ 3.
        exact_threshold: necessary and sufficient; ``None`` where there is none, see ``reason``.
        one_minus_threshold: 1 - ``exact_threshold`` to full relative precision (0 below 5e-324).
        log10_one_minus_threshold: its decimal logarithm, meaningful at every temperature.
        imbalance_ratio: majority over one minority at the threshold; ``None`` above 1.8e308.
        sufficient_threshold: the one of [P1], for InfoNCE at T = 1 and any C and k; ``None`` elsewhere.
            It proves collapse above it and says nothing below.
        also_below: whether the minorities merge on some interval below the threshold as well.
        reason: why ``exact_threshold`` or ``imbalance_ratio`` is ``None``.
    """

    classes: int
    exact_threshold: float | None
    one_minus_threshold: float | None
    log10_one_minus_threshold: float | None
    imbalance_ratio: float | None
    sufficient_threshold: float | None
    also_below: bool = False
    reason: str | None = None


def collapse_threshold(
    classes: int, sampling: Sampling = "supervised", loss: Loss | None = None
) -> Threshold:
    """The exact threshold of minority collapse, and the sufficient one of [P1] where it applies.

    Args:
        classes: C, from 3 to 20,000: one majority and C - 1 equal minorities.
        sampling: "supervised" or "unsupervised"; without supervision the threshold is the same for all C.
        loss: any of the family without hard negatives; InfoNCE() by default.

    Raises:
        InvalidInput: ``classes``, ``sampling`` or ``loss.hardness`` outside the domain above.

    >>> loss = InfoNCE(negatives=1, temperature=1.0)
    >>> round(collapse_threshold(3, "unsupervised", loss).exact_threshold, 8)
    0.80748973
    """
    loss = InfoNCE() if loss is None else loss
    require_loss(loss)
    _check(classes, sampling, loss)
    sufficient = sufficient_threshold(sampling, loss)
    absent = _no_threshold(loss)
    if absent is not None:
        return Threshold(classes, None, None, None, None, sufficient, reason=absent)
    roots = _sign_changes(loss, sampling, classes)
    log_odds = roots[-1]
    log_rest = float(log_proportions(np.asarray(log_odds))[1])
    log_ratio = math.log(classes - 1) - log_odds
    representable = log_ratio < math.log(np.finfo(np.float64).max)
    return Threshold(
        classes,
        exact_threshold=1 / (1 + math.exp(log_odds)),
        one_minus_threshold=math.exp(log_rest),
        log10_one_minus_threshold=log_rest / math.log(10),
        imbalance_ratio=math.exp(log_ratio) if representable else None,
        sufficient_threshold=sufficient,
        also_below=len(roots) > 1,
        reason=None if representable else "the imbalance ratio exceeds double precision",
    )


def collapse_margin(loss: Loss, sampling: Sampling, classes: int, log_odds: FloatArray) -> FloatArray:
    """Logarithm of left over right side of the condition above; collapse is optimal where it is ≥ 0.

    Args:
        log_odds: log((1 - l)/l), any shape.
    """
    e = collapsed_gradients(loss, sampling, classes - 1, log_odds)
    log_l, log_rest = log_proportions(log_odds)
    if sampling == "unsupervised":
        push = np.logaddexp(e.across_majority, e.across_minority)
        return np.asarray(push - math.log(2) - log_odds - e.within, dtype=np.float64)
    log_others = np.logaddexp(log_l, log_rest + math.log((classes - 2) / (classes - 1)))
    push = np.logaddexp(e.across_majority, e.across_minority + log_rest - log_others)
    pull = math.log(2) + log_rest - log_others + e.within
    return np.asarray(push - log_odds - pull, dtype=np.float64)


def sufficient_threshold(sampling: Sampling, loss: Loss) -> float | None:
    """The threshold of [P1] for InfoNCE at T = 1, in the closed form that gives the published digits.

    Supervised 2(1 + e²)/(3 + 2e²) = 0.94375; unsupervised the root 0.92921 of
    l(e^{-2} + l e^{-4}) = 2(1 - l).
    """
    if not (isinstance(loss, InfoNCE) and loss.temperature == 1 and loss.hardness == 0):
        return None
    if sampling == "supervised":
        return 2 * (1 + math.e**2) / (3 + 2 * math.e**2)
    a, b = math.exp(-4), 2 + math.exp(-2)
    return 4 / (b + math.sqrt(b * b + 8 * a))


def _check(classes: int, sampling: Sampling, loss: Loss) -> None:
    if isinstance(classes, bool) or not isinstance(classes, (int, np.integer)):
        raise InvalidInput(("classes",), "must be an integer")
    if not 3 <= classes <= MAX_CLASSES:
        raise InvalidInput(("classes",), f"must be from 3 (one majority, two minorities) to {MAX_CLASSES}")
    if sampling not in ("supervised", "unsupervised"):
        raise InvalidInput(("sampling",), "must be 'supervised' or 'unsupervised'")
    if loss.hardness > 0:
        raise InvalidInput(("loss", "hardness"), "the threshold is known without hard negatives only")


def _no_threshold(loss: Loss) -> str | None:
    """Losses flat at the collapsed point have no threshold: say which of the two cases it is."""
    if isinstance(loss, InfoNCE):
        return None
    e = collapsed_gradients(loss, "unsupervised", 2, np.zeros(1))
    if np.isneginf(e.within[0]):
        return "the loss is zero on every margin met: collapse is one of many optima at every proportion"
    if np.isneginf(e.across_minority[0]):
        return "the loss ignores classes that are already opposite: minorities never merge at any proportion"
    return None


def _sign_changes(loss: Loss, sampling: Sampling, classes: int) -> list[float]:
    """All roots of the margin for l in (1/C, 1), as log((1 - l)/l), in increasing order of l."""
    start, end = math.log(classes - 1), _certainly_collapsed(loss)

    def margin(log_odds: float) -> float:
        return float(collapse_margin(loss, sampling, classes, np.asarray(log_odds)))

    grid = _search_grid(start, end, loss.negatives)
    collapsed = collapse_margin(loss, sampling, classes, grid) >= 0
    changes = np.flatnonzero(collapsed[1:] != collapsed[:-1])
    return [float(brentq(margin, grid[i], grid[i + 1], xtol=1e-14, rtol=1e-15)) for i in changes]


def _search_grid(start: float, end: float, negatives: float) -> FloatArray:
    """Fine where the number of draws across the sides varies, coarse where it is surely 0."""
    settled = -(math.log(negatives) if math.isfinite(negatives) else 0.0) - 10.0
    fine_end = max(end, min(start, settled))
    fine = np.linspace(start, fine_end, max(2, math.ceil((start - fine_end) / FINE_STEP) + 1))
    if end >= fine_end:
        return fine
    coarse = np.linspace(fine_end, end, math.ceil((fine_end - end) / COARSE_STEP) + 1)
    return np.concatenate([fine, coarse[1:]])


def _certainly_collapsed(loss: Loss) -> float:
    """A log((1 - l)/l) below which the condition holds, from E1 ≥ 0 and bounds on E2 and E3.

    For InfoNCE with a = α/β, x = e^{-2/T}, y = 1 - l ≤ 1/2: Jensen's inequality gives
    E2 ≥ kx/(a + kx + ky), and E3 ≤ k/(a + 1), so that y (a + kx + ky) ≤ x (a + 1)/4 suffices. For infinite
    k the sums become means: k = 1 in the first bound, and E3 ≤ 1/(a + x).
    """
    if not isinstance(loss, InfoNCE):
        e = collapsed_gradients(loss, "unsupervised", 2, np.zeros(1))
        return float(e.across_minority[0] - e.within[0]) - math.log(2) - 1.0
    log_x = -2 / loss.temperature
    infinite = math.isinf(loss.negatives)
    log_k = 0.0 if infinite else math.log(loss.negatives)
    log_a = (math.log(loss.alpha) if loss.alpha > 0 else -math.inf) - math.log(loss.beta)
    if loss.reduction == "mean":
        log_a += log_k
    log_own = float(np.logaddexp(log_a, log_x if infinite else 0.0)) + log_x
    log_b = math.log(4) + float(np.logaddexp(log_a, log_k + log_x))
    log_root = 0.5 * float(np.logaddexp(2 * log_b, math.log(16) + log_k + log_own))
    log_y = math.log(2) + log_own - float(np.logaddexp(log_b, log_root))
    return min(log_y, 0.0) - 1.0
