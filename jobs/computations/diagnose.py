"""How far are trained embeddings from the predicted geometry?"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field, model_validator

from anglewise.class_moments import label_array
from anglewise.diagnosis import Diagnosis
from anglewise.diagnosis import diagnose as measure
from anglewise.errors import InvalidInput, TooLarge
from jobs.computations.computation import Computation, Outcome
from jobs.computations.embedding_archive import read_embeddings
from jobs.computations.limits import Limits
from jobs.computations.optimal_geometry import OptimalGeometry
from jobs.computations.picture import draw, picture_id
from jobs.computations.prediction import Prediction, PredictionField, predict
from jobs.computations.schemas import Answer, Strict
from jobs.computations.weighted_schemas import Labels, Row
from jobs.problems import Problem

MAX_DIMENSION = 8_192
"""The scatter matrix is d × d."""

Labeled = tuple[npt.NDArray[np.floating], npt.NDArray[np.generic]]


class DiagnoseOptions(Strict):
    """What is asked about embeddings."""

    prediction: PredictionField | None = Field(
        default=None,
        description="a body of /optimal-geometry without counts: the class counts found are used. "
        "null: the embeddings are only measured",
    )
    normalize: bool = Field(default=True, description="divide each embedding by its norm first")


class DiagnoseRequest(DiagnoseOptions):
    embeddings: Annotated[list[Row], Field(min_length=1, fail_fast=True)] = Field(description="n × d")
    labels: Labels = Field(description="class of each embedding: all integers or all strings")

    @model_validator(mode="before")
    @classmethod
    def _refuse_jobs(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("job") is not None:
            message = "a job has embeddings of its own: send nothing else but prediction and normalize"
            raise Problem("invalid_input", f"job: {message}", [("/job", message)])
        return value


class ClassAnswer(Answer):
    label: int | str
    count: int
    norm: float = Field(description="length of the class mean")
    within_variance: float
    cosine_to_predicted: float | None = Field(description="after the best rotation of all class means")
    nearest: int | str | None = Field(description="the class with the most similar mean")
    nearest_cosine: float | None


class MetricsAnswer(Answer):
    """A metric without a value is null, and `reasons` says why."""

    nc1: float | None
    cdnv: float | None
    nc2: float | None
    gram_distance_max: float | None
    gram_distance_fro: float | None
    minority_collapse_index: float | None
    effective_rank: float | None
    alignment: float | None
    uniformity: float | None
    entropic_gap: float | None
    r2_similarity: float | None
    r2_procrustes: float | None
    procrustes_similarity: float | None
    reasons: dict[str, str]


class DiagnoseAnswer(Answer):
    n: int
    dimension: int
    classes: list[ClassAnswer] = Field(description="in order of the sorted labels, as every matrix here")
    metrics: MetricsAnswer
    measured_gram: list[list[float]] | None = Field(description="cosines between class means")
    predicted: OptimalGeometry | None
    merged: list[list[int | str]] = Field(
        description="classes whose measured means are linked by cosines ≥ 0.99"
    )
    predicted_merged: list[list[int | str]]
    predicted_near: list[list[int | str]] = Field(description="predicted to come within a cosine of 0.99")
    zero_embeddings: int
    verdict: str = Field(description="in plain words")
    picture: str | None = Field(description="address of a PNG image, kept for a while")
    warnings: list[str]


def check(request: DiagnoseRequest, limits: Limits) -> None:
    width = len(request.embeddings[0])
    for i, row in enumerate(request.embeddings):
        if len(row) != width:
            raise InvalidInput(("embeddings", i), f"has {len(row)} entries where the first row has {width}")
    _require_width(width)
    numbers = len(request.embeddings) * width
    if numbers > limits.max_embedding_numbers:
        raise TooLarge(
            ("embeddings",),
            f"{numbers} numbers; JSON may have {limits.max_embedding_numbers}: send an .npz file",
        )


def _require_width(width: int) -> None:
    if width == 0:
        raise InvalidInput(("embeddings",), "have no coordinates")
    if width > MAX_DIMENSION:
        raise TooLarge(("embeddings",), f"may have at most {MAX_DIMENSION} coordinates, not {width}")


def run(request: DiagnoseRequest, limits: Limits) -> Outcome:
    return answer(np.array(request.embeddings), _label_array(request.labels), request, limits)


def _label_array(labels: list[int | str]) -> npt.NDArray[np.generic]:
    is_text = isinstance(labels[0], str)
    for i, label in enumerate(labels):
        if isinstance(label, str) is not is_text:
            raise InvalidInput(("labels", i), "must be of the same kind as the first: integer or string")
    return label_array(labels)


def answer(
    embeddings: npt.NDArray[np.floating],
    labels: npt.NDArray[np.generic],
    options: DiagnoseOptions,
    limits: Limits,
) -> Outcome:
    """The diagnosis of arrays, wherever they came from."""
    _require_width(embeddings.shape[1])
    if embeddings.shape[0] != len(labels):
        raise InvalidInput(
            ("labels",), f"must be one for each of the {len(embeddings)} embeddings, not {len(labels)}"
        )
    counts = np.unique(labels, return_counts=True)[1]
    if len(counts) > limits.max_classes:
        raise TooLarge(("labels",), f"may be of at most {limits.max_classes} classes")
    prediction = Prediction() if options.prediction is None else predict(options.prediction, counts, limits)
    diagnosis = measure(
        embeddings,
        labels,
        predicted=prediction.gram,
        weighting=prediction.weighting,
        unit=options.normalize,
    )
    names = [report.label for report in diagnosis.classes]
    picture = draw(diagnosis.measured_gram, diagnosis.predicted_gram, names)
    return Outcome(lambda: describe(diagnosis, prediction, picture, limits), picture=picture)


def describe(
    diagnosis: Diagnosis, prediction: Prediction, picture: bytes, limits: Limits
) -> Mapping[str, Any]:
    """The answer as `DiagnoseAnswer` documents it."""
    warnings = list(prediction.warnings)
    inline = len(diagnosis.classes) <= limits.max_inline_classes
    if not inline:
        warnings.append(
            f"The measured Gram matrix of more than {limits.max_inline_classes} classes is left out."
        )
    return {
        "n": diagnosis.items,
        "dimension": diagnosis.dimension,
        "classes": [dataclasses.asdict(report) for report in diagnosis.classes],
        "metrics": diagnosis.metrics.values() | {"reasons": diagnosis.metrics.reasons},
        "measured_gram": diagnosis.measured_gram if inline else None,
        "predicted": prediction.document,
        "merged": diagnosis.merged,
        "predicted_merged": diagnosis.predicted_merged,
        "predicted_near": diagnosis.predicted_near,
        "zero_embeddings": diagnosis.zero_embeddings,
        "verdict": diagnosis.verdict,
        "picture": f"/pictures/{picture_id(picture)}.png",
        "warnings": warnings,
    }


class StoredFile(Strict):
    """What the API tells a solver process about an upload. Clients cannot send this."""

    path: str
    options: DiagnoseOptions


@dataclass(frozen=True)
class FileComputation(Computation):
    """A computation on a file that is already on disk."""

    def parse(self, body: bytes, limits: Limits) -> BaseModel:
        return StoredFile.model_validate_json(body)

    def canonical(self, body: bytes, limits: Limits) -> bytes:
        return body


def run_file(stored: StoredFile, limits: Limits) -> Outcome:
    embeddings, labels = read_embeddings(Path(stored.path), limits.max_upload_bytes)
    return answer(embeddings, labels, stored.options, limits)


COMPUTATION = Computation(
    name="diagnose",
    request=DiagnoseRequest,
    answer=DiagnoseAnswer,
    run=run,
    check=check,
    shared=False,
    warm_up=({"embeddings": [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.2]], "labels": [0, 1, 1], "prediction": {}},),
)

FILE_COMPUTATION = FileComputation(
    name="diagnose_file",
    request=DiagnoseOptions,
    answer=DiagnoseAnswer,
    run=run_file,
    shared=False,
)
