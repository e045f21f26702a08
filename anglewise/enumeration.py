"""Every way to draw k negatives, one by one: the exact risk without any quadrature.

For an anchor of class i the k draws matter only through their counts n_1, …, n_C, which are multinomial.
There are binom(C + k - 1, k) of them, so this is for small problems: it is the independent second route
to every risk of the library.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, logsumexp, xlogy

from anglewise.errors import InvalidInput, TooLarge
from anglewise.losses import Exponential, InfoNCE, Logistic, Loss, SquaredHinge, Triplet
from anglewise.sampling import FloatArray, IntArray, Sampling

TERMS_LIMIT = 20_000


@dataclass(frozen=True)
class Outcomes:
    """All outcomes of all anchors.

    Attributes:
        anchor: (N,) class of the anchor.
        counts: (N, C) how often each class was drawn; for infinitely many negatives the limit of
            counts / k, which is the law itself.
        weights: (N,) probability of the outcome times the proportion of the anchor.
    """

    anchor: IntArray
    counts: FloatArray
    weights: FloatArray


def draw_probabilities(proportions: FloatArray, sampling: Sampling) -> FloatArray:
    """(C, C) p(j|i), the probability that one negative of an anchor of class i has class j ([P1])."""
    C = len(proportions)
    P = np.tile(proportions, (C, 1))
    if sampling == "unsupervised":
        return P
    if C == 1:
        raise InvalidInput(("sampling",), "supervised sampling needs at least two classes")
    np.fill_diagonal(P, 0.0)
    return np.asarray(P / P.sum(axis=1, keepdims=True), dtype=np.float64)


def _binomial_within(n: int, k: int, limit: int) -> bool:
    """Whether binom(n, k) ≤ limit, by logarithms first: the number itself may have millions of digits."""
    log_value = float(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))
    return log_value < math.log(limit) + 1 and math.comb(n, k) <= limit


def _count_vectors(parts: int, total: int) -> FloatArray:
    """(binom(parts + total - 1, total), parts) all count vectors with this total, by stars and bars."""
    slots = total + parts - 1
    if parts == 1:
        return np.array([[float(total)]])
    bars = np.array(list(itertools.combinations(range(slots), parts - 1)), dtype=np.float64)
    edges = np.hstack([np.full((len(bars), 1), -1.0), bars, np.full((len(bars), 1), float(slots))])
    return np.asarray(np.diff(edges, axis=1) - 1, dtype=np.float64)


def _draws(loss: Loss) -> float:
    """Draws that must be enumerated jointly: one for a ψ that is a sum over negatives."""
    return loss.negatives if isinstance(loss, InfoNCE) else 1


def enumerate_outcomes(
    proportions: FloatArray, sampling: Sampling, loss: Loss, *, terms_limit: int = TERMS_LIMIT
) -> Outcomes:
    """Every outcome of the draws of every anchor with its probability.

    A ψ that is a sum over negatives needs one draw only, by linearity of the expectation.

    Raises:
        TooLarge: more than ``terms_limit`` outcomes over all anchors.
    """
    C, k = len(proportions), _draws(loss)
    P = draw_probabilities(proportions, sampling)
    if math.isinf(k):
        if terms_limit < C * C:
            raise _too_large(terms_limit)
        return Outcomes(anchor=np.arange(C), counts=P, weights=proportions)
    drawn = C - (sampling == "supervised")
    if not _binomial_within(drawn + int(k) - 1, int(k), max(1, terms_limit // C)):
        raise _too_large(terms_limit)
    vectors = _count_vectors(drawn, int(k))
    anchors, counts, weights = [], [], []
    for i in range(C):
        classes = [j for j in range(C) if sampling == "unsupervised" or j != i]
        full = np.zeros((len(vectors), C))
        full[:, classes] = vectors
        log_probability = gammaln(k + 1) + (xlogy(full, P[i]) - gammaln(full + 1)).sum(axis=1)
        anchors.append(np.full(len(vectors), i))
        counts.append(full)
        weights.append(proportions[i] * np.exp(log_probability))
    return Outcomes(np.concatenate(anchors), np.concatenate(counts), np.concatenate(weights))


def _too_large(terms_limit: int) -> TooLarge:
    return TooLarge(
        ("solver",), f"the reference solver enumerates at most {terms_limit} draws; use another solver"
    )


def repetitions(loss: Loss) -> float:
    """How often a ψ that is a sum over negatives repeats its term: k, or 1 for the mean."""
    return loss.negatives if loss.reduction == "sum" else 1.0


def pair_weights(loss: Loss, outcomes: Outcomes) -> FloatArray:
    """(C, C) ω_ij, the weight of φ(t_ij) in the risk of a ψ that is a sum over negatives."""
    C = outcomes.counts.shape[1]
    weights = np.zeros((C, C))
    np.add.at(weights, outcomes.anchor, outcomes.weights[:, None] * outcomes.counts)
    return np.asarray(repetitions(loss) * weights, dtype=np.float64)


def infonce_scale(loss: InfoNCE) -> float:
    """Coefficient of Σ_j n_j e^{t_j/T}: β, divided by k for the mean over finitely many negatives."""
    finite_mean = loss.reduction == "mean" and not math.isinf(loss.negatives)
    return loss.beta / loss.negatives if finite_mean else loss.beta


def separable_term(loss: Loss, t: FloatArray) -> tuple[FloatArray, FloatArray]:
    """φ(t) and φ'(t) of a ψ = Σ_l φ(t_l)."""
    if isinstance(loss, Logistic):
        u = (t + loss.margin) / loss.temperature
        return np.logaddexp(0.0, u), np.exp(-np.logaddexp(0.0, -u)) / loss.temperature
    if isinstance(loss, Exponential):
        value = np.exp(t / loss.temperature)
        return value, value / loss.temperature
    if isinstance(loss, SquaredHinge):
        positive = np.maximum(0.0, t + loss.margin)
        return positive**2, 2 * positive
    if isinstance(loss, Triplet):
        positive = np.maximum(0.0, t + loss.margin)
        return positive, (positive > 0).astype(np.float64)
    raise InvalidInput(("loss",), f"{type(loss).__name__} has no term per negative")


def enumerated_value_and_gradient(loss: Loss, outcomes: Outcomes, A: FloatArray) -> tuple[float, FloatArray]:
    """The risk of a (C, C) Gram matrix and its derivative by each ordered t_ij = A_ij - A_ii.

    At a kink of the triplet loss the derivative is the left one.
    """
    t = A - np.diag(A)[:, None]
    G = np.zeros_like(t)
    rows = t[outcomes.anchor]
    if isinstance(loss, InfoNCE):
        log_alpha = math.log(loss.alpha) if loss.alpha > 0 else -math.inf
        with np.errstate(divide="ignore"):
            terms = np.log(infonce_scale(loss) * outcomes.counts) + rows / loss.temperature
        values = np.logaddexp(log_alpha, logsumexp(terms, axis=1))
        shares = np.exp(terms - values[:, None]) / loss.temperature
    else:
        values_per_negative, slopes = separable_term(loss, rows)
        values = repetitions(loss) * (outcomes.counts * values_per_negative).sum(axis=1)
        shares = repetitions(loss) * outcomes.counts * slopes
    np.add.at(G, outcomes.anchor, outcomes.weights[:, None] * shares)
    return float(outcomes.weights @ values), G


def enumerated_risk(proportions: FloatArray, sampling: Sampling, loss: Loss, A: FloatArray) -> float:
    """S(A) of [P1], Lemma 1, as a plain sum over all draws.

    Args:
        proportions: (C,) class proportions.
        A: (C, C) Gram matrix of the class means.

    Raises:
        TooLarge: more than 20,000 draws.
    """
    outcomes = enumerate_outcomes(proportions, sampling, loss)
    return enumerated_value_and_gradient(loss, outcomes, A)[0]
