"""The certified optimum for given class counts, sampling and loss."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, RootModel, Tag, model_validator

from anglewise.class_geometry import Geometry
from anglewise.errors import InvalidInput, TooLarge
from anglewise.optimum import MAX_TOLERANCE, MIN_TOLERANCE, optimal_geometry
from anglewise.sampling import EQUAL_PROPORTIONS
from jobs.computations import weighted_geometry
from jobs.computations.computation import Computation, Outcome
from jobs.computations.geometry_answer import GeometryAnswer, describe
from jobs.computations.geometry_archive import archive_writer
from jobs.computations.limits import Limits
from jobs.computations.schemas import InfoNCE, LossField, SamplingField, Strict
from jobs.computations.weighted_geometry import WeightedGeometryAnswer, WeightedGeometryRequest
from jobs.computations.weighted_schemas import exactly_one

Count = Annotated[int, Field(ge=1, lt=2**53)]
Proportion = Annotated[float, Field(gt=0, le=1)]


SOURCES = ("class_counts", "class_proportions")
WEIGHTS = ("weights", "log_weights")
BY_CLASSES, BY_WEIGHTS = "by classes", "by weights"
"""Names of the variants; none is a field, so that paths of errors are unambiguous."""


class GeometryOptions(Strict):
    """What is asked about class counts, besides the counts."""

    sampling: SamplingField = "supervised"
    loss: LossField = InfoNCE()
    dimension: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="of the class means; null: as many as the optimum needs"
    )
    nonnegative: bool = Field(default=False, description="features without negative coordinates (ReLU)")
    solver: Literal["auto", "cvxpy"] = "auto"
    tolerance: float = Field(
        default=1e-8,
        ge=MIN_TOLERANCE,
        le=MAX_TOLERANCE,
        description="largest relative gap that counts as certified",
    )
    groups: bool = Field(default=False, description="also answer by groups of equal proportions")


class ClassGeometryRequest(GeometryOptions):
    """Exactly one of `class_counts` and `class_proportions`."""

    model_config = ConfigDict(json_schema_extra=exactly_one(*SOURCES, absent=WEIGHTS))

    class_counts: Annotated[list[Count], Field(min_length=1, fail_fast=True)] | None = Field(
        default=None, description="samples of each class"
    )
    class_proportions: Annotated[list[Proportion], Field(min_length=1, fail_fast=True)] | None = Field(
        default=None, description="share of each class; they sum to 1 within 1e-6"
    )


def _source(value: Any) -> str:
    """Weights that are given decide; everything else is about class counts."""
    if isinstance(value, dict):
        return BY_WEIGHTS if any(value.get(name) is not None for name in WEIGHTS) else BY_CLASSES
    return BY_WEIGHTS if isinstance(value, WeightedGeometryRequest) else BY_CLASSES


class OptimalGeometryRequest(
    RootModel[
        Annotated[
            Annotated[ClassGeometryRequest, Tag(BY_CLASSES)]
            | Annotated[WeightedGeometryRequest, Tag(BY_WEIGHTS)],
            Discriminator(_source),
        ]
    ]
):
    """Exactly one of `class_counts`, `class_proportions`, `weights` and `log_weights`."""

    model_config = ConfigDict(frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_absent_sources(cls, value: Any) -> Any:
        """A source that is null is not given."""
        if isinstance(value, dict) and any(value.get(name, 0) is None for name in SOURCES + WEIGHTS):
            return {k: v for k, v in value.items() if v is not None or k not in SOURCES + WEIGHTS}
        return value


class OptimalGeometry(RootModel[GeometryAnswer | WeightedGeometryAnswer]):
    """For class counts and proportions, or for weights."""


def check(request: OptimalGeometryRequest, limits: Limits) -> None:
    if isinstance(request.root, WeightedGeometryRequest):
        weighted_geometry.check(request.root, limits)
    else:
        check_classes(request.root, limits)


def check_classes(request: ClassGeometryRequest, limits: Limits) -> None:
    request.loss.build()
    given = [name for name in SOURCES if getattr(request, name) is not None]
    if len(given) != 1:
        raise InvalidInput(
            (given[-1] if given else SOURCES[0],), "give exactly one of " + ", ".join(SOURCES + WEIGHTS)
        )
    field = given[0]
    values: list[float] = getattr(request, field)
    if len(values) > limits.max_classes:
        raise TooLarge((field,), f"may have at most {limits.max_classes} classes")
    if _distinct(values) > limits.max_distinct_proportions:
        raise TooLarge((field,), f"may have at most {limits.max_distinct_proportions} distinct values")
    if request.dimension is not None and request.dimension > limits.max_classes:
        raise TooLarge(("dimension",), f"may be at most {limits.max_classes}")
    if len(values) == 1 and request.sampling == "supervised":
        raise InvalidInput(
            ("sampling",), "supervised sampling needs at least two classes to draw negatives from"
        )


def _distinct(values: list[float]) -> int:
    """How many groups of equal proportions the core makes of them."""
    ranked = sorted(values, reverse=True)
    groups, largest = 1, ranked[0]
    for value in ranked:
        if largest - value > EQUAL_PROPORTIONS * largest:
            groups, largest = groups + 1, value
    return groups


def run(request: OptimalGeometryRequest, limits: Limits) -> Outcome:
    if isinstance(request.root, WeightedGeometryRequest):
        return weighted_geometry.run(request.root, limits)
    return run_classes(request.root, limits)


def solve(request: ClassGeometryRequest, limits: Limits) -> Geometry:
    return optimal_geometry(
        class_counts=request.class_counts,
        class_proportions=request.class_proportions,
        sampling=request.sampling,
        loss=request.loss.build(),
        dimension=request.dimension,
        nonnegative=request.nonnegative,
        solver=request.solver,
        tolerance=request.tolerance,
        time_limit=limits.soft_deadline_seconds,
    )


def run_classes(request: ClassGeometryRequest, limits: Limits) -> Outcome:
    geometry = solve(request, limits)
    cut_short = geometry.solver.seconds >= 0.9 * limits.soft_deadline_seconds
    return Outcome(
        document=lambda: describe(geometry, limits.max_inline_classes, with_groups=request.groups),
        archive=archive_writer(geometry, limits.max_archive_bytes),
        final=geometry.certificate.certified or not cut_short,
    )


COMPUTATION = Computation(
    name="optimal_geometry",
    request=OptimalGeometryRequest,
    answer=OptimalGeometry,
    run=run,
    check=check,
    offers_archive=True,
    warm_up=(
        {"class_counts": [50, 30, 20, 10, 5]},
        {"class_counts": [50, 30, 20, 10, 5], "sampling": "unsupervised"},
        {"class_counts": [90, 5, 5], "loss": {"name": "logistic"}},
        {"class_counts": list(range(1, 121))},  # many classes have kernels of their own
        {"class_counts": [5, 3, 2], "loss": {"name": "infonce", "negatives": 4, "hardness": 1.0}},
        {"class_counts": [9, 5, 3, 2], "loss": {"name": "infonce", "alpha": 0.0, "temperature": 0.04}},
        {"weights": {"name": "supcon", "class_counts": [6, 2, 2]}},
        {"weights": [[1.0, 0.2, 0.5], [0.7, 1.0, 0.1], [0.3, 0.4, 1.0]], "metric": "euclidean"},
    ),
)
