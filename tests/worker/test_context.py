"""What a job learns of earlier attempts, and what those who watch it learn."""

from __future__ import annotations

import errno
import io
import os
import tempfile
import threading
from typing import Any

import numpy as np
import pytest

from jobs import paths
from jobs.computations.diagnose_archive import SEPARATOR
from jobs.computations.limits import Limits
from jobs.store import ObjectStore
from worker.context import JobContext
from worker.kinds import find_kind
from worker.messages import Report

JOB = "job_01KBCJ6ZT0000000000000000Z"


class Recorder:
    """In place of the channel to the supervisor."""

    stopping = None

    def __init__(self) -> None:
        self.sent: list[tuple[Report, dict[str, Any]]] = []
        self.stop_requested = threading.Event()

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


@pytest.mark.parametrize("needed", ["TemporaryDirectory", "TemporaryFile"])
def test_a_computation_waits_for_space_for_its_files(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch, needed: str
) -> None:
    """One to work on an uploaded archive, one to put its own together."""
    monkeypatch.setattr("worker.context.RETRY_SECONDS", (0.0,))
    use, tries = getattr(tempfile, needed), 0

    def nearly_full(**options: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return use(**options)

    monkeypatch.setattr(tempfile, needed, nearly_full)
    channel: Any = Recorder()
    context = JobContext(channel, store, JOB, 1)
    if needed == "TemporaryDirectory":
        archive = io.BytesIO()
        np.savez(archive, embeddings=np.eye(4), labels=[0, 0, 1, 1])
        find_kind("diagnose_archive").run(b"{}" + SEPARATOR + archive.getvalue(), context, Limits())
    else:
        find_kind("optimal_geometry").run(b'{"class_counts": [3, 2, 1]}', context, Limits())
    assert tries == 3
    assert "result.json" in {artifact.name for artifact in context.artifacts}
    assert len([report for report, _ in channel.sent if report is Report.LOG]) == 1
