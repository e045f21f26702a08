"""What a job can be asked to do, as the body of POST /jobs, and how specs are stored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, RootModel, Tag

from jobs.computations import collapse_map, collapse_threshold, diagnose, realizability_request, weights
from jobs.computations.diagnose import DiagnoseOptions
from jobs.computations.optimal_geometry import OptimalGeometryRequest
from jobs.computations.realizability_array import SEPARATOR
from jobs.computations.schemas import Strict
from jobs.ids import ULID_PATTERN
from jobs.training_spec import TrainingSpec

TRAINING = "training"
KINDS = (
    TRAINING,
    "optimal_geometry",
    "realizability",
    "collapse_map",
    "collapse_threshold",
    "weights",
    "diagnose",
)
Kind = Literal[
    "training",
    "optimal_geometry",
    "realizability",
    "collapse_map",
    "collapse_threshold",
    "weights",
    "diagnose",
]
WITH_FILE = {
    "realizability_array": ("realizability", "application/x-npy"),
    "diagnose_archive": ("diagnose", "application/x-npz"),
}
"""Computations whose spec is a line of JSON and a file: the kind that clients see, and the file's type."""


class DiagnoseJobRequest(DiagnoseOptions):
    """The embeddings that a training job left."""

    job: Annotated[str, Field(pattern=f"^job_{ULID_PATTERN}$")] = Field(description="id of the training job")


def _source(value: Any) -> str:
    given = value.get("job") if isinstance(value, dict) else getattr(value, "job", None)
    return "of a job" if given is not None else "of embeddings"


class DiagnoseSpec(
    RootModel[
        Annotated[
            Annotated[diagnose.DiagnoseRequest, Tag("of embeddings")]
            | Annotated[DiagnoseJobRequest, Tag("of a job")],
            Discriminator(_source),
        ]
    ]
):
    """Embeddings and labels, or a training job that left some."""

    model_config = ConfigDict(frozen=True)


class Webhook(Strict):
    """Whom to tell that the job has ended, by a signed POST (Standard Webhooks)."""

    url: Annotated[str, Field(max_length=2048)] = Field(description="public, https:// or http://")


class JobFields(Strict):
    name: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="for people"
    )
    webhook: Webhook | None = None


class TrainingJob(JobFields):
    kind: Literal["training"]
    spec: TrainingSpec


class OptimalGeometryJob(JobFields):
    kind: Literal["optimal_geometry"]
    spec: OptimalGeometryRequest


class RealizabilityJob(JobFields):
    kind: Literal["realizability"]
    spec: realizability_request.RealizabilityRequest


class CollapseMapJob(JobFields):
    kind: Literal["collapse_map"]
    spec: collapse_map.CollapseMapRequest


class CollapseThresholdJob(JobFields):
    kind: Literal["collapse_threshold"]
    spec: collapse_threshold.CollapseThresholdRequest


class WeightsJob(JobFields):
    kind: Literal["weights"]
    spec: weights.WeightsRequest


class DiagnoseJob(JobFields):
    kind: Literal["diagnose"]
    spec: DiagnoseSpec


class JobRequest(
    RootModel[
        Annotated[
            TrainingJob
            | OptimalGeometryJob
            | RealizabilityJob
            | CollapseMapJob
            | CollapseThresholdJob
            | WeightsJob
            | DiagnoseJob,
            Field(discriminator="kind"),
        ]
    ]
):
    """A kind of job and its spec: the body of the computation's own route, or a training."""

    model_config = ConfigDict(frozen=True)


def public_kind(kind: str) -> str:
    """The kind as clients know it.

    >>> public_kind("realizability_array")
    'realizability'
    """
    return WITH_FILE[kind][0] if kind in WITH_FILE else kind


def stored_kinds(kind: str) -> set[str]:
    """The other way round: what may be stored under a kind."""
    return {kind} | {stored for stored, (public, _) in WITH_FILE.items() if public == kind}


def split_spec(kind: str, spec: bytes) -> tuple[bytes, bytes | None]:
    """The JSON of a spec, and its file, if there is one."""
    if kind not in WITH_FILE:
        return spec, None
    settings, _, file = spec.partition(SEPARATOR)
    return settings, file
