"""The words for what happens to a job."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class State(StrEnum):
    QUEUED = "queued"
    """Stored, and waiting for a worker; also between two attempts."""
    RUNNING = "running"
    """A worker holds it."""
    CANCELLING = "cancelling"
    """Somebody asked to cancel it while a worker held it; the worker is being stopped."""
    SUCCEEDED = "succeeded"
    """Ended, and its result is stored."""
    FAILED = "failed"
    """Ended without a result; the reason says why."""
    CANCELLED = "cancelled"
    """Ended because somebody asked for it."""

    @property
    def terminal(self) -> bool:
        """Whether the job has ended; such a state never changes again."""
        return self in (State.SUCCEEDED, State.FAILED, State.CANCELLED)


class ReasonCode(StrEnum):
    WORKER_LOST = "worker_lost"
    """Its worker ended without a word, as often as a job may be tried."""
    OUT_OF_MEMORY = "out_of_memory"
    """It needed more memory than a job may use."""
    TIMEOUT = "timeout"
    """It ran longer than a job may run."""
    DIVERGED = "diverged"
    """The loss of a training stopped being a finite number."""
    INVALID_DATA = "invalid_data"
    """The request or its data turned out to be unusable."""
    NUMERICAL_FAILURE = "numerical_failure"
    """The computation broke down."""
    USER = "user"
    """Somebody asked to cancel it."""
    INTERNAL = "internal"
    """An error of the software; the log of the worker has its details."""


class Reason(BaseModel):
    """Why a job ended as it did."""

    model_config = ConfigDict(frozen=True)

    code: ReasonCode
    message: str
