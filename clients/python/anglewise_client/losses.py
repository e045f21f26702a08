"""Losses and weightings as a request names them; plain dictionaries with the same fields do as well."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, field_serializer, field_validator

from anglewise_client._arrays import listed

Counts: TypeAlias = list[int]


class _Named(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    def __repr_args__(self) -> Any:
        return ((name, value) for name, value in super().__repr_args__() if name in self.model_fields_set)


class _Loss(_Named):
    """What all losses have.

    Attributes:
        negatives: k, or ``"infinite"`` (then the reduction is ``"mean"``).
        reduction: over the k negatives; None: ``"sum"``, or ``"mean"`` for infinitely many.
        hardness: η, the tilt towards hard negatives.
    """

    negatives: int | Literal["infinite"] = 256
    reduction: Literal["sum", "mean"] | None = None
    hardness: float = 0.0

    @field_validator("negatives", mode="before")
    @classmethod
    def _infinite(cls, value: Any) -> Any:
        return "infinite" if value == float("inf") else value


class InfoNCE(_Loss):
    """log(α + β Σ e^{t/T})

    >>> InfoNCE(temperature=0.5)
    InfoNCE(temperature=0.5)
    """

    name: Literal["infonce"] = "infonce"
    temperature: float = 0.1
    alpha: float = 1.0
    beta: float = 1.0


class Logistic(_Loss):
    """Σ log(1 + e^{(t + m)/T})"""

    name: Literal["logistic"] = "logistic"
    temperature: float = 0.1
    margin: float = 0.0


class Exponential(_Loss):
    """Σ e^{t/T}"""

    name: Literal["exponential"] = "exponential"
    temperature: float = 0.1


class SquaredHinge(_Loss):
    """Σ max(0, t + m)²"""

    name: Literal["squared_hinge"] = "squared_hinge"
    margin: float = 0.0


class Triplet(_Loss):
    """Σ max(0, t + m)"""

    name: Literal["triplet"] = "triplet"
    margin: float = 0.0


AnyLoss = InfoNCE | Logistic | Exponential | SquaredHinge | Triplet


class _OverClasses(_Named):
    """Exactly one of ``labels`` (a class for each item) and ``class_counts`` (items of each class)."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    labels: Any = None
    class_counts: Any = None

    @field_serializer("labels", "class_counts")
    def _as_list(self, value: Any) -> Any:
        return listed(value)


class SupCon(_OverClasses):
    """1 inside a class, 0 between classes."""

    name: Literal["supcon"] = "supcon"


class SoftSupCon(_OverClasses):
    """1 inside a class, ε between classes."""

    name: Literal["soft_supcon"] = "soft_supcon"
    epsilon: float


class _OverTargets(_Named):
    """``targets``: a number or a vector for each item; with ``class_counts``, for each class."""

    targets: Any
    class_counts: Any = None

    @field_serializer("targets", "class_counts")
    def _as_list(self, value: Any) -> Any:
        return listed(value)


class YAware(_OverTargets):
    """exp(-‖y_i - y_j‖² / (2σ²)), for cosine similarities"""

    name: Literal["y_aware"] = "y_aware"
    sigma: float


class EuclideanWeights(_OverTargets):
    """exp(-‖y_i - y_j‖² / (2σ²)), for Euclidean similarities"""

    name: Literal["euclidean"] = "euclidean"
    sigma: float


class XCLR(_OverTargets):
    """exp(cos(y_i, y_j) / T_w)"""

    name: Literal["x_clr"] = "x_clr"
    label_temperature: float


AnyWeighting = SupCon | SoftSupCon | YAware | EuclideanWeights | XCLR
