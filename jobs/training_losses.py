"""The losses a training job may minimize: those of the core over sampled negatives, and weighted InfoNCE."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from anglewise.losses import LOSSES, Loss
from jobs.computations import schemas
from jobs.computations.schemas import SamplingField, Strict, Temperature
from jobs.computations.weighted_schemas import Positive, SelfPairs, Targets


class Drawn(schemas.LossFields):
    """A loss over sampled negatives."""

    sampling: SamplingField = "supervised"

    def build(self) -> Loss:
        fields = self.model_dump(exclude={"name", "sampling"})
        if fields["negatives"] == "infinite":
            fields["negatives"] = math.inf
        return LOSSES[getattr(self, "name")](**fields)  # noqa: B009


class InfoNCELoss(Drawn, schemas.InfoNCE):
    """log(α + β Σ e^{t/T})"""


class LogisticLoss(Drawn, schemas.Logistic):
    """Σ log(1 + e^{(t + m)/T})"""


class ExponentialLoss(Drawn, schemas.Exponential):
    """Σ e^{t/T}"""


class SquaredHingeLoss(Drawn, schemas.SquaredHinge):
    """Σ max(0, t + m)²"""


class TripletLoss(Drawn, schemas.Triplet):
    """Σ max(0, t + m)"""


class Weighted(Strict):
    """Weighted InfoNCE over the batch: -Σ_j p_ij log q_ij, averaged over anchors with a positive."""

    temperature: Temperature = 0.1
    self_pairs: SelfPairs = "excluded"


class SupConLoss(Weighted):
    """w = 1 inside a class, 0 between classes."""

    name: Literal["supcon"]


class SoftSupConLoss(Weighted):
    """w = 1 inside a class, ε between classes."""

    name: Literal["soft_supcon"]
    epsilon: Annotated[float, Field(gt=0, le=1)]


class YAwareLoss(Weighted):
    """w = exp(-‖y_i - y_j‖² / (2σ²)) of class targets, cosine similarities."""

    name: Literal["y_aware"]
    sigma: Positive
    targets: Targets | None = Field(
        default=None,
        description="a number or vector for each class; null: the labels if they are integers, else 0, 1, …",
    )


class XCLRLoss(Weighted):
    """w = exp(cos(y_i, y_j) / T_w) of class targets."""

    name: Literal["x_clr"]
    label_temperature: Positive
    targets: Targets


class EuclideanLoss(Weighted):
    """w = exp(-‖y_i - y_j‖² / (2σ²)) of class targets, similarities -‖z_i - z_j‖²/T."""

    name: Literal["euclidean"]
    sigma: Positive
    targets: Targets | None = Field(
        default=None,
        description="a number or vector for each class; null: the labels if they are integers, else 0, 1, …",
    )
    self_pairs: SelfPairs = "included"


LOSS_NAMES = [*LOSSES, "supcon", "soft_supcon", "y_aware", "x_clr", "euclidean"]


def _loss_name(value: Any) -> Any:
    """A loss without a name is InfoNCE."""
    return value.get("name", "infonce") if isinstance(value, dict) else getattr(value, "name", None)


LossField = Annotated[
    Annotated[InfoNCELoss, Tag("infonce")]
    | Annotated[LogisticLoss, Tag("logistic")]
    | Annotated[ExponentialLoss, Tag("exponential")]
    | Annotated[SquaredHingeLoss, Tag("squared_hinge")]
    | Annotated[TripletLoss, Tag("triplet")]
    | Annotated[SupConLoss, Tag("supcon")]
    | Annotated[SoftSupConLoss, Tag("soft_supcon")]
    | Annotated[YAwareLoss, Tag("y_aware")]
    | Annotated[XCLRLoss, Tag("x_clr")]
    | Annotated[EuclideanLoss, Tag("euclidean")],
    Discriminator(
        _loss_name,
        custom_error_type="unknown_loss",
        custom_error_message="must be an object whose name is one of " + ", ".join(map(repr, LOSS_NAMES)),
    ),
]
