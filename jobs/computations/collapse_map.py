"""One quantity of minority collapse over a grid of two parameters."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field

from anglewise import maps
from anglewise.errors import InvalidInput, TooLarge
from anglewise.maps import AxisName, Quantity
from jobs.computations.computation import Computation, Outcome
from jobs.computations.limits import Limits
from jobs.computations.schemas import Answer, InfoNCE, LossField, SamplingField, Strict


class Axis(Strict):
    name: AxisName
    values: Annotated[list[float | Literal["infinite"]], Field(min_length=1, fail_fast=True)] = Field(
        description='"infinite" for numbers of negatives'
    )

    def build(self) -> maps.Axis:
        return maps.Axis(
            self.name, tuple(math.inf if value == "infinite" else float(value) for value in self.values)
        )


class CollapseMapRequest(Strict):
    classes: Annotated[int, Field(ge=3)] | None = Field(
        default=None, description="C: one majority and C - 1 equal minorities; unless it is an axis"
    )
    majority_proportion: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description="for angles, unless it is an axis"
    )
    sampling: SamplingField = "supervised"
    loss: LossField = InfoNCE()
    x: Axis
    y: Axis
    quantity: Quantity = "largest_cosine"


class CollapseMapAnswer(Answer):
    x: Axis
    y: Axis
    quantity: Quantity
    values: list[list[float | None]] = Field(description="one row per y, one column per x")
    reasons: list[list[str | None]] = Field(description="why a value is null")


def check(request: CollapseMapRequest, limits: Limits) -> None:
    request.loss.build()
    cells = len(request.x.values) * len(request.y.values)
    if cells > limits.max_map_cells:
        raise TooLarge(("x", "values"), f"{cells} cells; a map may have at most {limits.max_map_cells}")
    if request.classes is not None and request.classes > limits.max_classes:
        raise TooLarge(("classes",), f"may be at most {limits.max_classes}")
    for side, axis in (("x", request.x), ("y", request.y)):
        if axis.name != "negatives" and "infinite" in axis.values:
            position = axis.values.index("infinite")
            raise InvalidInput((side, "values", position), "must be a number")


def run(request: CollapseMapRequest, limits: Limits) -> Outcome:
    result = maps.collapse_map(
        request.x.build(),
        request.y.build(),
        request.quantity,
        classes=request.classes,
        sampling=request.sampling,
        loss=request.loss.build(),
        majority_proportion=request.majority_proportion,
        max_cells=limits.max_map_cells,
    )

    def document() -> dict[str, Any]:
        axes = {"x": request.x.model_dump(), "y": request.y.model_dump()}
        return {**axes, "quantity": result.quantity, "values": result.values, "reasons": result.reasons}

    return Outcome(document)


COMPUTATION = Computation(
    name="collapse_map",
    request=CollapseMapRequest,
    answer=CollapseMapAnswer,
    run=run,
    check=check,
    warm_up=(
        {
            "classes": 3,
            "x": {"name": "majority_proportion", "values": [0.5]},
            "y": {"name": "temperature", "values": [1.0]},
        },
    ),
)
