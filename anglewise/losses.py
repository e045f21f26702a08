"""The generalized contrastive loss family of [P1], ℓ_k = ψ(t_1, …, t_k), t_l = fᵀ(f⁻_l - f⁺).

Every ψ is convex and increasing in each argument. ``negatives`` is k; ``reduction`` says whether the
k terms are summed or averaged. Infinitely many negatives exist for the average only: the sum grows
without bound.

| class            | ψ                                  | strictly convex |
|------------------|------------------------------------|-----------------|
| `InfoNCE`        | log(α + β Σ_l e^{t_l/T})           | iff α > 0       |
| `Logistic`       | Σ_l log(1 + e^{(t_l + m)/T})       | yes             |
| `Exponential`    | Σ_l e^{t_l/T}                      | yes             |
| `SquaredHinge`   | Σ_l max(0, t_l + m)²               | no              |
| `Triplet`        | Σ_l max(0, t_l + m)                | no              |

With ``reduction="mean"`` the sum over l is divided by k. With ``hardness`` η > 0 negatives are drawn
with weights tilted by e^{η A_ij}, which makes the risk non-convex ([P1] treats η = 0 only).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from numbers import Real
from typing import Literal

from anglewise.errors import InvalidInput

Reduction = Literal["sum", "mean"]

MAX_NEGATIVES = 10**9
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-3, 1e4
MAX_COEFFICIENT = 1e12
MAX_HARDNESS = 1e3


def _require(condition: bool, field: str, message: str) -> None:
    if not condition:
        raise InvalidInput(("loss", field), message)


def require_loss(loss: object) -> None:
    """Refuses what is not a loss, such as its HTTP name.

    Raises:
        InvalidInput: naming ``loss``.
    """
    if not isinstance(loss, Loss):
        names = ", ".join(kind.__name__ for kind in LOSSES.values())
        raise InvalidInput(("loss",), f"must be one of {names}, such as InfoNCE(temperature=0.1)")


@dataclass(frozen=True, kw_only=True)
class Loss:
    """What all losses share.

    Attributes:
        negatives: k, a positive integer up to 1e9, or ``math.inf``.
        reduction: "sum" or "mean" over the k negatives; ``None`` means "sum", or "mean" when k is
            infinite.
        hardness: η ≥ 0, the tilt of the negative sampling law.

    Raises:
        InvalidInput: naming the attribute outside its domain.
    """

    negatives: float = 256
    reduction: Reduction | None = None
    hardness: float = 0.0

    def __post_init__(self) -> None:
        for attribute in fields(self):
            if attribute.name != "reduction":
                value = getattr(self, attribute.name)
                number = isinstance(value, Real) and not isinstance(value, bool)
                _require(number, attribute.name, f"must be a number, not {value!r}")
        k = self.negatives
        _require(
            k == math.inf or (1 <= k <= MAX_NEGATIVES and k == int(k)),
            "negatives",
            f"must be an integer from 1 to {MAX_NEGATIVES} or infinite",
        )
        reduction = self.reduction or ("mean" if math.isinf(k) else "sum")
        _require(reduction in ("sum", "mean"), "reduction", "must be 'sum' or 'mean'")
        _require(
            not (math.isinf(k) and reduction == "sum"),
            "reduction",
            "the sum over infinitely many negatives diverges; the reduction must be 'mean'",
        )
        object.__setattr__(self, "reduction", reduction)
        _require(0 <= self.hardness <= MAX_HARDNESS, "hardness", f"must be in [0, {MAX_HARDNESS:g}]")

    @property
    def strictly_convex(self) -> bool:
        """Whether ψ is strictly convex, so that the optimal Gram matrix is unique ([P1])."""
        return True


@dataclass(frozen=True, kw_only=True)
class _Tempered(Loss):
    """A loss with a temperature T in [1e-3, 1e4]."""

    temperature: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(
            MIN_TEMPERATURE <= self.temperature <= MAX_TEMPERATURE,
            "temperature",
            f"must be in [{MIN_TEMPERATURE:g}, {MAX_TEMPERATURE:g}]",
        )


@dataclass(frozen=True, kw_only=True)
class InfoNCE(_Tempered):
    """log(α + β Σ_l e^{t_l/T}), α ≥ 0, β > 0. α = 0 is the decoupled loss.

    >>> InfoNCE(negatives=256, temperature=0.1).reduction
    'sum'
    """

    alpha: float = 1.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(0 <= self.alpha <= MAX_COEFFICIENT, "alpha", "must be in [0, 1e12]")
        _require(1 / MAX_COEFFICIENT <= self.beta <= MAX_COEFFICIENT, "beta", "must be in [1e-12, 1e12]")

    @property
    def strictly_convex(self) -> bool:
        return self.alpha > 0


def _require_margin(margin: float) -> None:
    _require(-100 <= margin <= 100, "margin", "must be in [-100, 100]")


@dataclass(frozen=True, kw_only=True)
class Logistic(_Tempered):
    """Σ_l log(1 + e^{(t_l + m)/T}).  Equal to k · InfoNCE with one negative, α = 1, β = e^{m/T}."""

    margin: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_margin(self.margin)


@dataclass(frozen=True, kw_only=True)
class Exponential(_Tempered):
    """Σ_l e^{t_l/T}."""


@dataclass(frozen=True, kw_only=True)
class SquaredHinge(Loss):
    """Σ_l max(0, t_l + m)².  Not strictly convex: the minimizer may not be unique."""

    margin: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_margin(self.margin)

    @property
    def strictly_convex(self) -> bool:
        return False


@dataclass(frozen=True, kw_only=True)
class Triplet(Loss):
    """Σ_l max(0, t_l + m).  Piecewise linear: the minimizer may not be unique."""

    margin: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_margin(self.margin)

    @property
    def strictly_convex(self) -> bool:
        return False


LOSSES: dict[str, type[Loss]] = {
    "infonce": InfoNCE,
    "logistic": Logistic,
    "exponential": Exponential,
    "squared_hinge": SquaredHinge,
    "triplet": Triplet,
}
