"""Which weights have the wanted geometry as their optimum?"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from anglewise.design import Design, design_weights
from anglewise.errors import InvalidInput
from jobs.computations.array_archive import array_archive
from jobs.computations.computation import Computation, Outcome
from jobs.computations.limits import Limits
from jobs.computations.realizability import RealizabilityAnswer, class_entropy_bound
from jobs.computations.realizability import describe as describe_verdict
from jobs.computations.schemas import Answer, Strict
from jobs.computations.weighted_schemas import (
    Counts,
    Row,
    SimilaritySettings,
    check_square,
    exactly_one,
    require_few_items,
)

TARGETS = ("gram", "squared_distances", "simplex")
MATRICES = ("gram", "squared_distances")


class Simplex(Strict):
    class_counts: Counts = Field(description="items of each class; the classes become a centered simplex")


class Target(Strict):
    """Exactly one of `gram`, `squared_distances` and `simplex`."""

    model_config = ConfigDict(json_schema_extra=exactly_one(*TARGETS))

    gram: Annotated[list[Row], Field(min_length=1, fail_fast=True)] | None = Field(
        default=None, description="n × n inner products; the diagonal is 1 for the cosine metric"
    )
    squared_distances: Annotated[list[Row], Field(min_length=1, fail_fast=True)] | None = None
    simplex: Simplex | None = None


class WeightsRequest(SimilaritySettings):
    target: Target


class NamedAnswer(Answer):
    name: Literal["soft_supcon"]
    epsilon: float
    class_counts: list[int]


class WeightsAnswer(Answer):
    """Row i is item i of the target, or class i of the simplex."""

    level: Literal["item", "class"]
    weights: list[list[float]] | None = Field(
        description="null where one of them is below the range of double precision"
    )
    log_weights: list[list[float]] | None = Field(description="always exact; null above the inline limit")
    named: NamedAnswer | None = Field(description="the weighting as a request can name it")
    epsilon: float | None = Field(description="weight between classes of a simplex; null where it underflows")
    log_epsilon: float | None
    largest_temperature: float | Literal["unbounded"] | None = Field(
        description="up to which these weights stay realizable; null: not known"
    )
    proof: RealizabilityAnswer
    warnings: list[str]


def check(request: WeightsRequest, limits: Limits) -> None:
    target = request.target
    given = [name for name in TARGETS if getattr(target, name) is not None]
    if len(given) != 1:
        path = ("target", given[-1]) if given else ("target",)
        raise InvalidInput(path, "give exactly one of " + ", ".join(TARGETS))
    if target.simplex is not None:
        require_few_items(len(target.simplex.class_counts), ("target", "simplex", "class_counts"), limits)
        return
    for name in MATRICES:
        rows = getattr(target, name)
        if rows is not None:
            check_square(("target", name), rows, limits)


def run(request: WeightsRequest, limits: Limits) -> Outcome:
    target = request.target
    design = design_weights(
        gram=target.gram,
        squared_distances=target.squared_distances,
        simplex_class_counts=None if target.simplex is None else target.simplex.class_counts,
        metric=request.metric,
        temperature=request.temperature,
        self_pairs=request.self_pairs,
    )
    if design.level == "class" and request.self_pairs == "included":
        entropy = class_entropy_bound(design.log_weights, design.counts)
        design = dataclasses.replace(design, proof=dataclasses.replace(design.proof, entropy_bound=entropy))
    proof_level = "class" if len(design.counts) == _rows(design) and design.level == "class" else "item"
    return Outcome(
        document=lambda: describe(design, proof_level, limits.max_inline_classes),
        archive=array_archive(
            {"weights": design.weights, "log_weights": design.log_weights.values},
            describe(design, proof_level, max_inline=0),
            limits.max_archive_bytes,
        ),
    )


def _rows(design: Design) -> int:
    """Of the matrices of the proof."""
    matrix = design.proof.gram if design.proof.gram is not None else design.proof.squared_distances
    return len(design.counts) if matrix is None else len(matrix)


def describe(design: Design, proof_level: str, max_inline: int) -> dict[str, Any]:
    """The answer as `WeightsAnswer` documents it."""
    inline = len(design.log_weights) <= max_inline
    warnings = []
    if design.weights is None:
        warnings.append("A weight is below the range of double precision; use the logarithms.")
    if not inline:
        warnings.append(
            f"Matrices of more than {max_inline} rows are not in the JSON answer; "
            "ask for them with Accept: application/x-npz."
        )
    return {
        "level": design.level,
        "weights": design.weights if inline else None,
        "log_weights": design.log_weights.values if inline else None,
        "named": None if design.named is None else _named(design),
        "epsilon": design.epsilon,
        "log_epsilon": design.log_epsilon,
        "largest_temperature": design.largest_temperature,
        "proof": describe_verdict(design.proof, proof_level, max_inline),
        "warnings": warnings,
    }


def _named(design: Design) -> dict[str, Any]:
    return {"name": "soft_supcon", "epsilon": design.epsilon, "class_counts": design.counts.tolist()}


COMPUTATION = Computation(
    name="weights",
    request=WeightsRequest,
    answer=WeightsAnswer,
    run=run,
    check=check,
    offers_archive=True,
)
