"""The optimum for one majority and n equal minorities, in one unknown.

By symmetry ([P1], Theorem 3) the Gram matrix has two cosines: c between the majority and a minority, a
between minorities. It is positive semidefinite iff n c² ≤ 1 + (n - 1) a, and the risk increases with a, so
a = (n c² - 1)/(n - 1). The risk is then convex in c, its derivative proportional to
H_12 + H_21 + 2 n c H_22.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from anglewise.certificate import certify
from anglewise.geometry import Certificate
from anglewise.losses import Loss
from anglewise.risk import Risk
from anglewise.sampling import FloatArray, Groups, Sampling
from anglewise.tiny_risk import LogRisk, has_tiny_terms


@dataclass(frozen=True)
class TwoLevels:
    """The optimum that is symmetric in the minorities.

    Attributes:
        gram: (2, 2) on the groups majority, minorities.
        risk: its exact risk.
        one_minus_cosine: 1 - a, between two minorities, without cancellation.
        unique: False where the loss is flat around this optimum.
        certificate: its proof.
        iterations: slopes evaluated.
    """

    gram: FloatArray
    risk: float
    one_minus_cosine: float
    unique: bool
    certificate: Certificate
    iterations: int


def two_level_groups(majority: float, minorities: int) -> Groups:
    """One class of proportion l in (1/C, 1) and n = C - 1 ≥ 2 classes of (1 - l)/n."""
    return Groups(
        proportions=np.array([majority, (1 - majority) / minorities]),
        sizes=np.array([1, minorities], dtype=np.int64),
        index=np.array([0] + [1] * minorities, dtype=np.int64),
    )


def has_two_levels(groups: Groups) -> bool:
    """Whether there is one majority and at least two equal minorities."""
    return len(groups) == 2 and groups.sizes[0] == 1 and groups.classes >= 3


def two_level_optimum(
    groups: Groups, sampling: Sampling, loss: Loss, *, tolerance: float = 1e-8
) -> TwoLevels:
    """Minimizes the risk over d = 1 + c in [0, 1].

    Args:
        groups: one majority and n ≥ 2 equal minorities, see `has_two_levels`.

    Raises:
        InvalidInput: hard negatives, for which the risk is not convex.
    """
    n = int(groups.sizes[1])
    risk = Risk(groups, sampling, loss)

    def slope(d: float) -> float:
        H = _gradient(risk, _gram(d, n))
        return float(H[0, 1] + H[1, 0] + 2 * n * (d - 1) * H[1, 1])

    at_collapse = slope(0.0)
    d = 0.0 if at_collapse >= 0 else float(brentq(slope, 0.0, 1.0, xtol=1e-15, rtol=1e-14))
    slopes = risk.evaluations
    A = _gram(d, n)
    value, H = risk.value_and_gradient(A)
    slopes_at_optimum = _gradient(risk, A)
    return TwoLevels(
        gram=A,
        risk=value,
        one_minus_cosine=n * d * (2 - d) / (n - 1),
        unique=bool(slopes_at_optimum[0, 1] + slopes_at_optimum[1, 0] > 0),
        certificate=certify(risk, value, H, A, tolerance=tolerance),
        iterations=slopes,
    )


def _gradient(risk: Risk, A: FloatArray) -> FloatArray:
    """The gradient of the risk; where it underflows, a multiple of it that does not."""
    H = risk.evaluate(A).gradient
    if not H.any() and has_tiny_terms(risk, H):
        return LogRisk.of(risk).value_and_gradient(A)[1]
    return H


def _gram(d: float, n: int) -> FloatArray:
    a = 1 - n * d * (2 - d) / (n - 1)
    return np.array([[1.0, d - 1], [d - 1, a]])
