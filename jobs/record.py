"""A job's log, entry by entry, and what it says about the job.

The log is the truth about a job.  Entry n + 1 is written with a create-only write by whoever has read entry n
and finds the step allowed; of several writers one succeeds and the others read again.  So every job goes one
way through its states, ends once, and an attempt that was given up can add nothing any more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict

from jobs.states import Reason, State

SEQUENCES = 10**9
"""Events of attempt n are numbered from n times this: later attempts always come after earlier ones."""


class Step(StrEnum):
    """What an entry of the log says."""

    SUBMITTED = "submitted"
    STARTED = "started"
    """A worker began an attempt."""
    RELEASED = "released"
    """A worker that is stopping gave the job back, with a checkpoint; this is not counted against it."""
    LOST = "lost"
    """The worker of the attempt gave no sign of life."""
    CANCEL_REQUESTED = "cancel_requested"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Submission(BaseModel):
    """What was asked for. The spec itself is an object beside the log: it may be large.

    Attributes:
        kind: "training" or the name of a computation.
        spec_bytes: size of the spec.
        webhook: address to tell when the job has ended.
        idempotency: path of the record that ties an idempotency key to this job.
    """

    model_config = ConfigDict(frozen=True)

    kind: str
    name: str | None = None
    spec_bytes: int
    webhook: str | None = None
    idempotency: str | None = None


class Artifact(BaseModel):
    """A file that an attempt left: ``jobs/{id}/attempts/{attempt}/artifacts/{name}``."""

    model_config = ConfigDict(frozen=True)

    name: str
    bytes: int
    media_type: str


class Entry(BaseModel):
    """One step of a job's log; ``submission`` belongs to the first."""

    model_config = ConfigDict(frozen=True)

    step: Step
    at: AwareDatetime
    attempt: int = 0
    owner: str | None = None
    reason: Reason | None = None
    artifacts: tuple[Artifact, ...] = ()
    submission: Submission | None = None


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """The state of a job after the entries read so far.

    Attributes:
        attempt: number of the latest attempt, from 1; 0 before the first.
        losses: how many attempts ended with the loss of their worker.
        owner: of the running attempt.
        entries: the whole log.
        artifacts: what the deciding attempt left.
    """

    id: str
    submission: Submission
    state: State
    created_at: datetime
    attempt: int = 0
    losses: int = 0
    owner: str | None = None
    reason: Reason | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    artifacts: tuple[Artifact, ...] = ()
    entries: tuple[Entry, ...] = field(default=(), repr=False)

    @property
    def kind(self) -> str:
        return self.submission.kind

    @property
    def held(self) -> bool:
        """Whether a worker holds it."""
        return self.state in (State.RUNNING, State.CANCELLING)

    def holds(self, attempt: int) -> bool:
        """Whether this attempt is the one that holds it."""
        return self.held and attempt == self.attempt

    def after(self, entry: Entry) -> JobRecord:
        """The record with one more entry, which has been found allowed."""
        return replace(self, entries=(*self.entries, entry), **_changes(self, entry))


def first_record(job_id: str, entry: Entry) -> JobRecord:
    """The record of a job that has just been submitted."""
    assert entry.submission is not None
    return JobRecord(
        id=job_id,
        submission=entry.submission,
        state=State.QUEUED,
        created_at=entry.at,
        entries=(entry,),
    )


def _changes(record: JobRecord, entry: Entry) -> dict[str, Any]:
    match entry.step:
        case Step.STARTED:
            return {
                "state": State.RUNNING,
                "attempt": entry.attempt,
                "owner": entry.owner,
                "started_at": record.started_at or entry.at,
            }
        case Step.RELEASED:
            return {"state": State.QUEUED, "owner": None}
        case Step.LOST:
            return {"state": State.QUEUED, "owner": None, "losses": record.losses + 1}
        case Step.CANCEL_REQUESTED:
            return {"state": State.CANCELLING}
        case Step.SUCCEEDED | Step.FAILED | Step.CANCELLED:
            return {
                "state": State(entry.step.value),
                "owner": None,
                "reason": entry.reason,
                "finished_at": entry.at,
                "artifacts": entry.artifacts,
            }
        case Step.SUBMITTED:
            raise ValueError("a job is submitted once")
