"""From which majority proportion on do all minorities merge?"""

from __future__ import annotations

import dataclasses
from typing import Any

from pydantic import Field

from anglewise.errors import TooLarge
from anglewise.thresholds import collapse_threshold
from jobs.computations.computation import Computation, Outcome
from jobs.computations.limits import Limits
from jobs.computations.schemas import (
    Answer,
    InfoNCE,
    LossField,
    Sampling,
    SamplingField,
    Strict,
    loss_document,
)


class CollapseThresholdRequest(Strict):
    classes: int = Field(ge=3, description="C: one majority and C - 1 equal minorities")
    sampling: SamplingField = "supervised"
    loss: LossField = InfoNCE()


class CollapseThresholdAnswer(Answer):
    exact_threshold: float | None = Field(description="necessary and sufficient; null: see `reason`")
    one_minus_threshold: float | None = Field(description="to full relative precision")
    log10_one_minus_threshold: float | None
    sufficient_threshold: float | None = Field(
        description="the published one (arXiv 2605.11291), at temperature 1 only; says nothing below it"
    )
    imbalance_ratio: float | None = Field(description="majority over one minority, at the threshold")
    also_below: bool = Field(description="whether minorities also merge on some interval below")
    reason: str | None = Field(description="why the threshold or the ratio is null")
    sampling: Sampling
    loss: LossField
    classes: int


def check(request: CollapseThresholdRequest, limits: Limits) -> None:
    request.loss.build()
    if request.classes > limits.max_classes:
        raise TooLarge(("classes",), f"may be at most {limits.max_classes}")


def run(request: CollapseThresholdRequest, limits: Limits) -> Outcome:
    loss = request.loss.build()
    threshold = collapse_threshold(request.classes, request.sampling, loss)

    def document() -> dict[str, Any]:
        return dataclasses.asdict(threshold) | {"sampling": request.sampling, "loss": loss_document(loss)}

    return Outcome(document)


COMPUTATION = Computation(
    name="collapse_threshold",
    request=CollapseThresholdRequest,
    answer=CollapseThresholdAnswer,
    run=run,
    check=check,
    warm_up=({"classes": 10}, {"classes": 10, "sampling": "unsupervised", "loss": {"name": "logistic"}}),
)
