"""What a realizability question consists of."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from anglewise.question import LARGEST_TOLERANCE, MAX_DIMENSION, SMALLEST_TOLERANCE
from jobs.computations.weighted_schemas import SimilaritySettings, WeightedRequest, exactly_one


class RealizabilitySettings(SimilaritySettings):
    dimension: Annotated[int, Field(ge=1, le=MAX_DIMENSION)] | None = Field(
        default=None, description="largest dimension allowed; null: any"
    )
    tolerance: Annotated[float, Field(ge=SMALLEST_TOLERANCE, le=LARGEST_TOLERANCE)] | None = Field(
        default=None,
        description="relative, for sign and rank of eigenvalues; null: 1e-9, or what the "
        "rounding of the weights allows; never less than that",
    )


class RealizabilityRequest(RealizabilitySettings, WeightedRequest):
    """Exactly one of `weights` and `log_weights`."""

    model_config = ConfigDict(json_schema_extra=exactly_one("weights", "log_weights"))
