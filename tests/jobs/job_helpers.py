"""What several tests of jobs use."""

from __future__ import annotations

import time
from collections.abc import Callable

from jobs.ids import new_job_id
from jobs.journal import Journal
from jobs.record import JobRecord, Submission


def submit(journal: Journal, job_id: str | None = None, **fields: object) -> JobRecord:
    """A new job."""
    submission = Submission.model_validate({"kind": "training", "spec_bytes": 2, **fields})
    return journal.submit(job_id or new_job_id(), submission, b"{}")


def wait_until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Come back when the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
