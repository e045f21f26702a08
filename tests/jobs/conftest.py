"""Stores of every kind, and jobs in them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.journal import Journal
from jobs.live import Live
from jobs.queue import Queue
from jobs.store import ObjectStore

BUCKET = "anglewise"  # of the fixture s3_environment


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty store; the test runs with one in memory and with one of files."""
    return ObjectStore("memory:///" if request.param == "memory" else (tmp_path / "objects").as_uri())


@pytest.fixture
def journal(store: ObjectStore) -> Journal:
    return Journal(store)


@pytest.fixture
def live(broker_url: str) -> Iterator[Live]:
    live = Live(broker_url)
    yield live
    live.close()


@pytest.fixture
def queue(broker_url: str) -> Iterator[Queue]:
    queue = Queue(broker_url)
    yield queue
    queue.close()


@pytest.fixture
def s3_store(s3_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """An empty part of an S3 bucket."""
    for name, value in s3_environment.items():
        monkeypatch.setenv(name, value)
    return ObjectStore(f"s3://{BUCKET}/{uuid.uuid4().hex}")
