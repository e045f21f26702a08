"""What a job learns of earlier attempts, and what those who watch it learn."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import paths
from jobs.store import ObjectStore
from worker.context import JobContext
from worker.messages import Report

JOB = "job_01KBCJ6ZT0000000000000000Z"


class Recorder:
    """In place of the channel to the supervisor."""

    stopping = None

    def __init__(self) -> None:
        self.sent: list[tuple[Report, dict[str, Any]]] = []

    def send(self, report: Report, **fields: Any) -> None:
        self.sent.append((report, fields))


@pytest.fixture
def store() -> ObjectStore:
    return ObjectStore("memory:///")


def load(store: ObjectStore, attempt: int) -> tuple[tuple[int, bytes] | None, list[dict[str, Any]]]:
    """The checkpoint that an attempt finds, and the resumptions it reports."""
    channel: Any = Recorder()
    found = JobContext(channel, store, JOB, attempt).load_checkpoint()
    return found, [fields["data"] for report, fields in channel.sent if report is Report.RESUMED]


def test_a_first_attempt_resumes_nothing(store: ObjectStore) -> None:
    assert load(store, 1) == (None, [])


def test_the_newest_checkpoint_of_any_attempt_counts(store: ObjectStore) -> None:
    store.put(paths.checkpoint(JOB, 1, 40), b"forty")
    store.put(paths.checkpoint(JOB, 2, 30), b"thirty")
    assert load(store, 3) == ((40, b"forty"), [{"step": 40, "attempt": 1}])


def test_an_attempt_that_starts_over_says_so(store: ObjectStore) -> None:
    """Otherwise metrics of the lost attempt would stay ahead of it."""
    assert load(store, 2) == (None, [{"step": 0, "attempt": 1}])
