"""How an attempt ends, and the entry of the job's log that says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.journal import CANCELLED_BY_USER, Journal
from jobs.record import Artifact, JobRecord, Step
from jobs.states import Reason


@dataclass(frozen=True)
class Ending:
    """The last step of an attempt; None for one that was given up by others and must say nothing."""

    step: Step | None
    reason: Reason | None = None
    artifacts: Sequence[Artifact] = ()


SUPERSEDED = Ending(None)
CANCELLED = Ending(Step.CANCELLED, CANCELLED_BY_USER)
RELEASED = Ending(Step.RELEASED)
LOST = Ending(Step.LOST)


def write_ending(journal: Journal, job_id: str, attempt: int, ending: Ending) -> JobRecord | None:
    """Write it; None where there is nothing to write.

    Raises:
        UnknownJob, Superseded, StoreUnavailable
    """
    match ending.step:
        case Step.SUCCEEDED:
            return journal.succeed(job_id, attempt, ending.artifacts)
        case Step.FAILED | Step.CANCELLED:  # the log makes it "cancelled" where that was asked for
            assert ending.reason is not None
            return journal.fail(job_id, attempt, ending.reason, ending.artifacts)
        case Step.RELEASED:
            return journal.release(job_id, attempt)
        case Step.LOST:
            return journal.lose(job_id, attempt)
        case _:
            return None
