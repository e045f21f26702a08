"""A body of /optimal-geometry without counts, completed by the class counts of measured embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from anglewise.metrics import Weighting
from anglewise.optimum import MAX_TOLERANCE, MIN_TOLERANCE
from anglewise.sampling import FloatArray, IntArray
from jobs.computations import optimal_geometry, weighted_geometry
from jobs.computations.geometry_answer import describe as describe_classes
from jobs.computations.limits import Limits
from jobs.computations.optimal_geometry import BY_CLASSES, BY_WEIGHTS, ClassGeometryRequest, GeometryOptions
from jobs.computations.schemas import Strict, Temperature
from jobs.computations.weighted_geometry import WeightedGeometryRequest
from jobs.computations.weighted_schemas import SelfPairs, below


class SupConRule(Strict):
    name: Literal["supcon"]


class SoftSupConRule(Strict):
    name: Literal["soft_supcon"]
    epsilon: Annotated[float, Field(gt=0, le=1)]


class WeightedOptions(Strict):
    """A weighting over classes; the loss is weighted InfoNCE with cosines."""

    weights: Annotated[SupConRule | SoftSupConRule, Field(discriminator="name")]
    metric: Literal["cosine"] = "cosine"
    temperature: Temperature = 0.1
    self_pairs: SelfPairs = "included"
    dimension: Annotated[int, Field(ge=1)] | None = None
    tolerance: float = Field(default=1e-8, ge=MIN_TOLERANCE, le=MAX_TOLERANCE)


def _kind(value: Any) -> str:
    weighted = "weights" in value if isinstance(value, dict) else isinstance(value, WeightedOptions)
    return BY_WEIGHTS if weighted else BY_CLASSES


PredictionField = Annotated[
    Annotated[GeometryOptions, Tag(BY_CLASSES)] | Annotated[WeightedOptions, Tag(BY_WEIGHTS)],
    Discriminator(_kind),
]


@dataclass(frozen=True, eq=False)
class Prediction:
    """What is predicted, if anything.

    Attributes:
        gram: (C, C) cosines between class means.
        weighting: the loss as weights between classes, for the entropic gap.
        document: the answer of /optimal-geometry.
        warnings: why there is no prediction.
    """

    gram: FloatArray | None = None
    weighting: Weighting | None = None
    document: Mapping[str, Any] | None = None
    warnings: tuple[str, ...] = ()


def predict(options: GeometryOptions | WeightedOptions, counts: IntArray, limits: Limits) -> Prediction:
    """The optimal geometry for these counts.

    Raises:
        InvalidInput: below ``("prediction",)``.
    """
    with below("prediction"):
        if isinstance(options, WeightedOptions):
            return _of_weights(options, counts, limits)
        return _of_classes(options, counts, limits)


def _of_classes(options: GeometryOptions, counts: IntArray, limits: Limits) -> Prediction:
    if len(counts) == 1 and options.sampling == "supervised":
        return Prediction(warnings=("No prediction: supervised sampling needs at least two classes.",))
    request = ClassGeometryRequest(class_counts=counts.tolist(), **dict(options))
    optimal_geometry.check_classes(request, limits)
    geometry = optimal_geometry.solve(request, limits)
    document = describe_classes(geometry, limits.max_inline_classes, with_groups=options.groups)
    return Prediction(geometry.gram, None, document)


def _of_weights(options: WeightedOptions, counts: IntArray, limits: Limits) -> Prediction:
    fields = options.model_dump()
    fields["weights"] |= {"class_counts": counts.tolist()}
    request = WeightedGeometryRequest.model_validate(fields)
    weighted_geometry.check(request, limits)
    solved = weighted_geometry.solve(request, limits)
    weighting = Weighting(solved.log_weights.values, options.temperature, options.metric, options.self_pairs)
    document = weighted_geometry.describe(solved, limits.max_inline_classes)
    return Prediction(solved.geometry.gram, weighting, document)
