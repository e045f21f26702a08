"""POST /collapse-map: one quantity of minority collapse over a grid of two parameters."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from anglewise.errors import InvalidInput, TooLarge
from anglewise.maps import collapse_map
from service.computation import Computation, Outcome
from service.routes import computation_router
from service.schemas import Answer, InfoNCE, LossField, SamplingField, Strict
from service.settings import Limits

AxisName = Literal["majority_proportion", "negatives", "temperature", "alpha", "classes"]
Quantity = Literal["largest_cosine", "exact_threshold", "smallest_angle_degrees"]


class Axis(Strict):
    name: AxisName
    values: Annotated[list[float], Field(min_length=1, fail_fast=True)]


class CollapseMapRequest(Strict):
    classes: int = Field(ge=3, description="C: one majority and C - 1 equal minorities")
    sampling: SamplingField = "supervised"
    loss: LossField = InfoNCE()
    x: Axis
    y: Axis
    quantity: Quantity


class CollapseMapAnswer(Answer):
    x: Axis
    y: Axis
    values: list[list[float | None]] = Field(
        description="one row per y, one column per x; null: undefined there"
    )


def check(request: CollapseMapRequest, limits: Limits) -> None:
    request.loss.build()
    if request.x.name == request.y.name:
        raise InvalidInput(("y", "name"), "must be another parameter than that of x")
    cells = len(request.x.values) * len(request.y.values)
    if cells > limits.max_map_cells:
        raise TooLarge(("x", "values"), f"{cells} cells; a map may have at most {limits.max_map_cells}")
    if request.classes > limits.max_classes:
        raise TooLarge(("classes",), f"may be at most {limits.max_classes}")


def run(request: CollapseMapRequest, limits: Limits) -> Outcome:
    values = collapse_map(
        request.classes,
        request.sampling,
        request.loss.build(),
        (request.x.name, request.x.values),
        (request.y.name, request.y.values),
        request.quantity,
    )

    def document() -> dict[str, Any]:
        return {"x": request.x.model_dump(), "y": request.y.model_dump(), "values": _nullable(values)}

    return Outcome(document)


def _nullable(values: np.ndarray[Any, np.dtype[np.float64]]) -> list[list[float | None]]:
    return [[value if np.isfinite(value) else None for value in row] for row in values.tolist()]


COMPUTATION = Computation(
    name="collapse_map",
    request=CollapseMapRequest,
    answer=CollapseMapAnswer,
    run=run,
    check=check,
)

router = computation_router(
    COMPUTATION,
    path="/collapse-map",
    tag="collapse",
    summary="A map of minority collapse",
    description="A quantity over two parameters, for one majority and C - 1 equal minorities.",
    examples={
        "threshold over temperature and number of negatives": {
            "classes": 10,
            "x": {"name": "temperature", "values": [0.2, 0.5, 1.0]},
            "y": {"name": "negatives", "values": [1, 16, 256]},
            "quantity": "exact_threshold",
        }
    },
    answer_example={},
)
