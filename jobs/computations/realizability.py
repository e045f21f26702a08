"""Can any embedding attain the entropy bound of these weights?"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import numpy as np
from pydantic import Field

from anglewise.errors import TooLarge
from anglewise.named import NamedWeighting
from anglewise.realizability import realizability
from anglewise.sampling import IntArray
from anglewise.verdict import Verdict, VerdictName, WitnessKind
from anglewise.weights import LogWeights
from jobs.computations.array_archive import array_archive
from jobs.computations.computation import Computation, Outcome
from jobs.computations.limits import Limits
from jobs.computations.realizability_array import ArrayComputation, ArrayRequest, ArraySettings
from jobs.computations.realizability_request import RealizabilityRequest, RealizabilitySettings
from jobs.computations.schemas import Answer

MATRICES = ("gram", "squared_distances", "embedding", "second_embedding")
MAX_ITEMS_FOR_GAP = 500
"""The bound on the gap of a weighting over classes is proven on its items, up to so many."""


class ReasonAnswer(Answer):
    code: str = Field(description="stable word for programs")
    message: str


class OffsetAnswer(Answer):
    lower: float | None = Field(description="null: unbounded")
    upper: float | None = Field(description="null: unbounded")


class WitnessAnswer(Answer):
    kind: WitnessKind
    statement: str = Field(description="a fact about the weights that anyone can check")
    items: list[int] = Field(description="indices, in the order named in the statement")
    vector: list[float] | None = Field(description="the x of the statement")
    value: float | None


class RealizabilityAnswer(Answer):
    """Large matrices are null; `Accept: application/x-npz` returns them."""

    verdict: VerdictName
    attained: bool | None
    unique: bool
    reason: ReasonAnswer
    level: Literal["item", "class"] = Field(description="what one row stands for")
    required_dimension: int | None
    offset: OffsetAnswer | None = Field(
        description="feasible c in s = S0 + c, S0 the symmetrized log-weights; self pairs excluded only"
    )
    margin: float | None = Field(description="smallest eigenvalue of the required Gram matrix / scale")
    rank_margin: float | None = Field(description="eigenvalue number dimension + 1 / scale")
    scale: float | None
    close_call: bool = Field(description="a deciding number is within a factor 1000 of the tolerance")
    tolerance: float = Field(description="as used")
    largest_temperature: float | Literal["unbounded"] | None = Field(
        description="at which these weights attain the bound; 0: at none, null: not defined or not known"
    )
    witness: WitnessAnswer | None
    gram: list[list[float]] | None
    squared_distances: list[list[float]] | None
    embedding: list[list[float]] | None = Field(description="attains the bound")
    second_embedding: list[list[float]] | None = Field(description="attains it too, and is not congruent")
    residual: float | None
    entropy_bound: float
    gap_lower_bound: float = Field(description="proven, for any geometry; 0 where nothing better is")
    skipped_anchors: list[int] = Field(description="anchors without a positive weight, in no average")
    warnings: list[str]


def check(request: RealizabilityRequest, limits: Limits) -> None:
    request.check_weights(limits)


def run(request: RealizabilityRequest, limits: Limits) -> Outcome:
    return decide(request.build(), request, limits)


def decide(
    weighting: LogWeights | NamedWeighting, settings: RealizabilitySettings, limits: Limits
) -> Outcome:
    level, weights = "item", weighting
    if isinstance(weighting, NamedWeighting):
        level, weights = _rows(weighting, settings, limits)
    assert isinstance(weights, LogWeights)
    verdict = realizability(weights, **settings.model_dump(include=set(RealizabilitySettings.model_fields)))
    if isinstance(weighting, NamedWeighting) and level == "class":
        verdict = _for_items(verdict, weighting, settings)
    return Outcome(
        document=lambda: describe(verdict, level, limits.max_inline_classes),
        archive=array_archive(
            {name: getattr(verdict, name) for name in MATRICES},
            describe(verdict, level, max_inline=0),
            limits.max_archive_bytes,
        ),
    )


def _rows(
    weighting: NamedWeighting, settings: RealizabilitySettings, limits: Limits
) -> tuple[Literal["item", "class"], LogWeights]:
    """Items of one class ask for one point with self pairs included; excluded, they may stay apart."""
    if settings.self_pairs == "included":
        return weighting.level, weighting.log_weights
    if weighting.items > limits.max_items:
        raise TooLarge(
            ("weights",),
            f"with self pairs excluded every item counts, and {weighting.items} are more than "
            f"{limits.max_items}",
        )
    return "item", weighting.per_item()


def _for_items(verdict: Verdict, weighting: NamedWeighting, settings: RealizabilitySettings) -> Verdict:
    """The averages over anchors of a verdict on classes, as averages over items."""
    bound = 0.0
    if verdict.gap_lower_bound > 0 and weighting.items <= MAX_ITEMS_FOR_GAP:
        fields = settings.model_dump(include=set(RealizabilitySettings.model_fields))
        bound = realizability(weighting.per_item(), **fields, embed=False).gap_lower_bound
    return dataclasses.replace(
        verdict,
        entropy_bound=class_entropy_bound(weighting.log_weights, weighting.counts),
        gap_lower_bound=bound,
    )


def class_entropy_bound(weights: LogWeights, counts: IntArray) -> float:
    """(1/n) Σ_i H(p_i) over the items of classes, self pairs included."""
    log_shares = weights.values + np.log(counts)
    log_total = np.logaddexp.reduce(log_shares, axis=1)
    shares = np.exp(log_shares - log_total[:, None])
    logs = np.where(shares > 0, weights.values, 0.0)
    entropies = log_total - np.einsum("ij,ij->i", shares, logs)
    return float(counts @ entropies / counts.sum())


def describe(verdict: Verdict, level: str, max_inline: int) -> dict[str, Any]:
    """The answer as `RealizabilityAnswer` documents it."""
    document = {field.name: getattr(verdict, field.name) for field in dataclasses.fields(verdict)}
    largest = max(
        (max(matrix.shape) for name in MATRICES if (matrix := document[name]) is not None), default=0
    )
    warnings = []
    if largest > max_inline:
        document.update(dict.fromkeys(MATRICES))
        warnings.append(
            f"Matrices of more than {max_inline} rows are not in the JSON answer; "
            "ask for them with Accept: application/x-npz."
        )
    for name in ("reason", "offset", "witness"):
        if document[name] is not None:
            document[name] = dataclasses.asdict(document[name])
    return document | {"level": level, "warnings": warnings}


def run_array(request: ArrayRequest, limits: Limits) -> Outcome:
    return decide(request.weights, request.settings, limits)


COMPUTATION = Computation(
    name="realizability",
    request=RealizabilityRequest,
    answer=RealizabilityAnswer,
    run=run,
    check=check,
    offers_archive=True,
    warm_up=(
        {"weights": [[1.0, 0.3], [0.3, 1.0]]},
        {"weights": [[1.0, 0.5, 0.5], [0.5, 1.0, 0.5], [0.5, 0.5, 1.0]], "self_pairs": "excluded"},
        {"weights": [[1.0, 0.5], [0.5, 1.0]], "metric": "euclidean"},
        {"weights": [[1.0, 0.5, 0.9], [0.5, 1.0, 0.1], [0.9, 0.1, 1.0]], "temperature": 1.0},
        {"weights": [[1.0, 0.2, 0.5], [0.7, 1.0, 0.1], [0.3, 0.4, 1.0]]},
    ),
)

ARRAY_COMPUTATION = ArrayComputation(
    name="realizability_array",
    request=ArraySettings,
    answer=RealizabilityAnswer,
    run=run_array,
    offers_archive=True,
)
