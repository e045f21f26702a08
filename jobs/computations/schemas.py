"""Schemas that several resources share: the loss, the sampling, strictness itself."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from anglewise import losses
from anglewise.losses import (
    LOSSES,
    MAX_COEFFICIENT,
    MAX_HARDNESS,
    MAX_NEGATIVES,
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
)


class Strict(BaseModel):
    """A request or a part of one: unknown fields, NaN, and strings or booleans for numbers are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class Answer(BaseModel):
    """Documents an answer. No defaults: every field is always there, null where it has no value."""

    model_config = ConfigDict(extra="forbid")


Sampling = Literal["supervised", "unsupervised"]
SamplingField = Annotated[
    Sampling,
    Field(description="negatives from the other classes (supervised) or from all of them (unsupervised)"),
]
Temperature = Annotated[float, Field(ge=MIN_TEMPERATURE, le=MAX_TEMPERATURE)]
Margin = Annotated[float, Field(ge=-100, le=100)]
Negatives = Annotated[int, Field(ge=1, le=MAX_NEGATIVES)] | Literal["infinite"]


class LossFields(Strict):
    negatives: Negatives = Field(default=256, description='k, or "infinite" (then the reduction is "mean")')
    reduction: Literal["sum", "mean"] | None = Field(
        default=None, description='over the k negatives; null: "sum", or "mean" for infinitely many'
    )
    hardness: float = Field(
        default=0.0, ge=0, le=MAX_HARDNESS, description="η, the tilt towards hard negatives"
    )

    def build(self) -> losses.Loss:
        """The loss of the core.

        Raises:
            InvalidInput: the fields exclude each other.
        """
        fields = self.model_dump(exclude={"name"})
        if fields["negatives"] == "infinite":
            fields["negatives"] = math.inf
        return LOSSES[getattr(self, "name")](**fields)  # noqa: B009


class InfoNCE(LossFields):
    """log(α + β Σ e^{t/T})"""

    name: Literal["infonce"] = "infonce"
    temperature: Temperature = 0.1
    alpha: float = Field(default=1.0, ge=0, le=MAX_COEFFICIENT)
    beta: float = Field(default=1.0, ge=1 / MAX_COEFFICIENT, le=MAX_COEFFICIENT)


class Logistic(LossFields):
    """Σ log(1 + e^{(t + m)/T})"""

    name: Literal["logistic"]
    temperature: Temperature = 0.1
    margin: Margin = 0.0


class Exponential(LossFields):
    """Σ e^{t/T}"""

    name: Literal["exponential"]
    temperature: Temperature = 0.1


class SquaredHinge(LossFields):
    """Σ max(0, t + m)²"""

    name: Literal["squared_hinge"]
    margin: Margin = 0.0


class Triplet(LossFields):
    """Σ max(0, t + m)"""

    name: Literal["triplet"]
    margin: Margin = 0.0


def _loss_name(value: Any) -> Any:
    """A loss without a name is InfoNCE."""
    if isinstance(value, dict):
        return value.get("name", "infonce")
    return getattr(value, "name", None)


LossField = Annotated[
    Annotated[InfoNCE, Tag("infonce")]
    | Annotated[Logistic, Tag("logistic")]
    | Annotated[Exponential, Tag("exponential")]
    | Annotated[SquaredHinge, Tag("squared_hinge")]
    | Annotated[Triplet, Tag("triplet")],
    Discriminator(
        _loss_name,
        custom_error_type="unknown_loss",
        custom_error_message="must be an object whose name is one of " + ", ".join(map(repr, LOSSES)),
    ),
    Field(description="default: InfoNCE with 256 negatives at temperature 0.1"),
]


def loss_document(loss: losses.Loss) -> dict[str, Any]:
    """A loss as a client would write it, with every default filled in."""
    name = next(name for name, kind in LOSSES.items() if type(loss) is kind)
    fields = {field: getattr(loss, field) for field in type(loss).__dataclass_fields__}
    return {"name": name, **fields, "negatives": _negatives(loss.negatives)}


def _negatives(count: float) -> int | str:
    return "infinite" if math.isinf(count) else int(count)
