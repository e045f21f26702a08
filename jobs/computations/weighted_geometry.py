"""The best achievable geometry for weights, as a body of /optimal-geometry."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO, Literal

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from anglewise.collapse import describe_collapse
from anglewise.errors import TooLarge
from anglewise.named import NamedWeighting
from anglewise.optimum import MAX_TOLERANCE, MIN_TOLERANCE
from anglewise.sampling import Groups, IntArray
from anglewise.weighted import best_geometry
from anglewise.weighted_geometry import WeightedGeometry
from anglewise.weights import LogWeights
from jobs.computations.array_archive import array_archive
from jobs.computations.computation import Outcome
from jobs.computations.geometry_answer import CertificateAnswer, CollapseAnswer, SolverAnswer
from jobs.computations.limits import Limits
from jobs.computations.schemas import Answer
from jobs.computations.weighted_schemas import Metric, WeightedRequest, exactly_one, renamed
from jobs.problems import Problem

OF_CLASS_COUNTS = ("sampling", "loss", "nonnegative", "solver", "class_counts", "class_proportions")
MATRICES = ("gram", "squared_distances", "class_means")


class WeightedGeometryRequest(WeightedRequest):
    """Exactly one of `weights` and `log_weights`. The weights define the loss."""

    model_config = ConfigDict(
        json_schema_extra=exactly_one("weights", "log_weights", absent=("class_counts", "class_proportions"))
    )

    dimension: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="of the embedding; null: as many as the optimum needs"
    )
    tolerance: float = Field(
        default=1e-8,
        ge=MIN_TOLERANCE,
        le=MAX_TOLERANCE,
        description="largest gap relative to the loss that counts as certified",
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_other_fields(cls, value: Any) -> Any:
        given = [name for name in OF_CLASS_COUNTS if isinstance(value, dict) and name in value]
        if given:
            errors = [(f"/{name}", "does not go with weights") for name in given]
            raise Problem("invalid_input", f"{given[0]}: does not go with weights", errors)
        return value


class WeightedGeometryAnswer(Answer):
    """Row i is item i, or class i of a weighting over classes. Large matrices are null;
    `Accept: application/x-npz` returns them."""

    level: Literal["class", "item"] = Field(description="what one row stands for")
    metric: Metric
    gram: list[list[float]] | None = Field(description="of `class_means`; Euclidean: about their mean")
    squared_distances: list[list[float]] | None = Field(description="Euclidean metric only")
    class_means: list[list[float]] | None = Field(description="rows of the embedding")
    dimension: int
    rank: int
    unique: bool
    attained: bool = Field(description="false: the loss is only approached as distances grow")
    loss: float
    risk: float = Field(description="the loss again")
    entropy_bound: float
    entropy_gap: float = Field(description="loss - entropy_bound")
    anchors: int = Field(description="items")
    anchors_used: int = Field(description="items with a positive weight, which the loss averages over")
    certificate: CertificateAnswer
    collapse: CollapseAnswer | None = Field(description="null for the Euclidean metric")
    comparators: dict[str, dict[str, Any]]
    solver: SolverAnswer
    warnings: list[str]
    groups: None


def check(request: WeightedGeometryRequest, limits: Limits) -> None:
    request.check_weights(limits)
    if request.dimension is not None and request.dimension > limits.max_items:
        raise TooLarge(("dimension",), f"may be at most {limits.max_items}")


def run(request: WeightedGeometryRequest, limits: Limits) -> Outcome:
    solved = solve(request, limits)
    cut_short = solved.geometry.report.seconds >= 0.9 * limits.soft_deadline_seconds
    return Outcome(
        document=lambda: describe(solved, limits.max_inline_classes),
        archive=_archive(solved, limits),
        final=solved.geometry.certificate.certified or not cut_short,
    )


@dataclass(frozen=True, eq=False)
class Solved:
    """The geometry and its weights, what their rows stand for, and how many items each class has."""

    geometry: WeightedGeometry
    log_weights: LogWeights
    level: Literal["class", "item"]
    counts: IntArray | None


def solve(request: WeightedGeometryRequest, limits: Limits) -> Solved:
    """
    Raises:
        InvalidInput: in the words of the request.
    """
    weighting = request.build()
    level: Literal["class", "item"] = "item"
    counts = None
    if not isinstance(weighting, NamedWeighting):
        weights = weighting
    elif request.metric == "euclidean" and request.self_pairs == "excluded":  # equal items stay apart
        if weighting.items > limits.max_items:
            raise TooLarge(("weights",), f"more than {limits.max_items} items")
        weights = weighting.per_item()
    else:
        level, weights, counts = weighting.level, weighting.log_weights, weighting.counts
    given = "log_weights" if request.weights is None else "weights"
    with renamed("log_weights", given), renamed("counts", given):
        geometry = best_geometry(
            weights,
            counts=counts,
            metric=request.metric,
            temperature=request.temperature,
            self_pairs=request.self_pairs,
            dimension=request.dimension,
            tolerance=request.tolerance,
            time_limit=limits.soft_deadline_seconds,
        )
    return Solved(geometry, weights, level, counts if level == "class" else None)


def describe(solved: Solved, max_inline: int) -> dict[str, Any]:
    """The answer as `WeightedGeometryAnswer` documents it."""
    geometry = solved.geometry
    inline = max(geometry.embedding.shape) <= max_inline
    warnings = list(geometry.warnings)
    if not inline:
        warnings.append(
            f"Matrices of more than {max_inline} rows are not in the JSON answer; "
            "ask for them with Accept: application/x-npz."
        )
    return {
        "level": solved.level,
        "metric": geometry.metric,
        **(_matrices(geometry) if inline else dict.fromkeys(MATRICES)),
        "dimension": geometry.dimension,
        "rank": geometry.rank,
        "unique": geometry.unique,
        "attained": geometry.attained,
        "loss": geometry.loss,
        "risk": geometry.loss,
        "entropy_bound": geometry.entropy_bound,
        "entropy_gap": geometry.entropy_gap,
        "anchors": geometry.anchors,
        "anchors_used": geometry.anchors_used,
        "certificate": dataclasses.asdict(geometry.certificate),
        "collapse": _collapse(geometry, solved.counts),
        "comparators": {},
        "solver": dataclasses.asdict(geometry.report),
        "warnings": warnings,
        "groups": None,
    }


def _matrices(geometry: WeightedGeometry) -> dict[str, Any]:
    return {
        "gram": geometry.gram,
        "squared_distances": geometry.squared_distances,
        "class_means": geometry.embedding,
    }


def _archive(solved: Solved, limits: Limits) -> Callable[[BinaryIO], None]:
    metadata = describe(solved, max_inline=0)
    return array_archive(_matrices(solved.geometry), metadata, limits.max_archive_bytes)


def _collapse(geometry: WeightedGeometry, counts: IntArray | None) -> dict[str, Any] | None:
    """Which rows share a direction, read off the Gram matrix as for class counts."""
    if geometry.metric != "cosine":
        return None
    n = len(geometry.gram)
    shares = np.full(n, 1 / n) if counts is None else counts / counts.sum()
    each_alone = Groups(index=np.arange(n), sizes=np.ones(n, dtype=np.int64), proportions=shares)
    return dataclasses.asdict(describe_collapse(each_alone, geometry.gram))
