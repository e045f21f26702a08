"""Jobs as clients see them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson
from pydantic import Field
from starlette.responses import Response

from jobs.computations.schemas import Answer
from jobs.live import Progress
from jobs.record import JobRecord
from jobs.states import ReasonCode, State
from service.job_artifacts import PICTURE, find
from service.job_desk import JobDesk
from service.job_kinds import TRAINING, WITH_FILE, Kind, public_kind, split_spec

JSON = "application/json"
INLINE_SPEC_BYTES = 64 * 1024
LISTED_SPEC_BYTES = 4 * 1024


class ProgressAnswer(Answer):
    step: int
    total: int | None
    eta_s: float | None = Field(description="seconds to go; null: unknown")


class JobReasonAnswer(Answer):
    code: ReasonCode
    message: str


class ArtifactAnswer(Answer):
    name: str
    bytes: int
    media_type: str


class JobAnswer(Answer):
    id: str
    kind: Kind
    name: str | None
    state: State
    attempt: int = Field(description="number of the latest attempt; 0 before the first")
    progress: ProgressAnswer | None = Field(description="of the running attempt, where it is known")
    reason: JobReasonAnswer | None = Field(description="why it failed or was cancelled")
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    spec: dict[str, Any] | None = Field(
        description="with all defaults; null where it is large: then `links.spec` has it"
    )
    artifacts: list[ArtifactAnswer] = Field(description="files that it left, at `links.artifacts`/{name}")
    links: dict[str, str]


class JobPageAnswer(Answer):
    items: list[JobAnswer]
    next_cursor: str | None = Field(description="`cursor` of the next page; null on the last one")


class PointAnswer(Answer):
    step: int
    value: float | None


class JobMetricsAnswer(Answer):
    series: dict[str, list[PointAnswer]] = Field(
        description="by name; null where a metric was not a finite number"
    )


class ArtifactListAnswer(Answer):
    items: list[ArtifactAnswer]


MODELS = (JobAnswer, JobPageAnswer, JobMetricsAnswer, ArtifactListAnswer)


def job_response(
    record: JobRecord, desk: JobDesk, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """One job. Waits for the store: call it in a thread."""
    progress = desk.progress([record.id]) if record.held else {}
    document = describe(record, desk, progress.get(record.id), INLINE_SPEC_BYTES)
    return json_response(document, status, headers)


def json_response(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Every answer about jobs may be another one a moment later."""
    given = {"Cache-Control": "no-store", **(headers or {})}
    return Response(orjson.dumps(document), status, given, JSON)


def describe(
    record: JobRecord, desk: JobDesk, progress: Progress | None, inline_bytes: int
) -> dict[str, Any]:
    """As `JobAnswer` documents it.

    Raises:
        UnknownJob, StoreUnavailable
    """
    current = progress if progress is not None and record.holds(progress.attempt) else None
    return {
        "id": record.id,
        "kind": public_kind(record.kind),
        "name": record.submission.name,
        "state": record.state,
        "attempt": record.attempt,
        "progress": current and {"step": current.step, "total": current.total, "eta_s": current.eta_s},
        "reason": record.reason and {"code": record.reason.code, "message": record.reason.message},
        "created_at": record.created_at,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
        "spec": _spec(record, desk, inline_bytes),
        "artifacts": [artifact.model_dump() for artifact in record.artifacts],
        "links": links(record),
    }


def links(record: JobRecord) -> dict[str, str]:
    """Addresses about a job; those that have nothing yet say so when asked."""
    base = f"/jobs/{record.id}"
    names = ["spec", "events", "metrics", "result", "artifacts"]
    if not record.state.terminal:
        names.append("cancel")
    if record.kind == TRAINING:
        names += ["embeddings", "checkpoint", "report"]
    found = {"self": base} | {name: f"{base}/{name}" for name in names}
    if find(record, PICTURE) is not None:
        found["picture"] = f"{base}/artifacts/{PICTURE}"
    return found


def _spec(record: JobRecord, desk: JobDesk, inline_bytes: int) -> Any:
    if record.submission.spec_bytes > inline_bytes and record.kind not in WITH_FILE:
        return None
    if record.kind in WITH_FILE and record.submission.spec_bytes > INLINE_SPEC_BYTES:
        return None
    return orjson.loads(split_spec(record.kind, desk.spec(record))[0])
