"""An application with jobs and without workers: tests end jobs through the journal, as a worker would."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from starlette.testclient import TestClient

from jobs import paths
from jobs.events import EventLog
from jobs.journal import Journal
from jobs.record import Artifact, JobRecord
from jobs.states import Reason, ReasonCode
from service.app import create_app
from service.job_service import JobService
from service.settings import Settings

NO_BROKER = "unix:///nonexistent/valkey.sock"
THRESHOLD = {"kind": "collapse_threshold", "spec": {"classes": 5}}
TRAINING = {"kind": "training", "spec": {"data": {"class_counts": [6, 3, 2]}, "steps": 5}}


@contextmanager
def application(folder: Path, **changes: Any) -> Iterator[TestClient]:
    """One with a store of files below ``folder``, and a broker that does not answer unless one is given."""
    settings = Settings(
        **{"workers": 1, "warm_up": False, "data_dir": folder, "broker_url": NO_BROKER, **changes}
    )
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client


def service_of(client: TestClient) -> JobService:
    service: JobService = client.app_state["jobs"]
    return service


def journal_of(client: TestClient) -> Journal:
    return service_of(client).desk.journal


def code(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


def submit(client: TestClient, body: dict[str, Any] = THRESHOLD, **headers: str) -> str:
    """Id of a new job."""
    response = client.post("/jobs", json=body, headers=headers)
    assert response.status_code == 202, response.text
    job_id: str = response.json()["id"]
    assert response.headers["location"] == f"/jobs/{job_id}"
    return job_id


def succeed(client: TestClient, job_id: str, files: dict[str, bytes]) -> JobRecord:
    """What a worker does, in short."""
    journal = journal_of(client)
    started = journal.start(job_id, "a worker")
    assert started is not None
    return journal.succeed(job_id, started.attempt, store_files(client, started, files))


def store_files(client: TestClient, record: JobRecord, files: dict[str, bytes]) -> Sequence[Artifact]:
    types = {"json": "application/json", "npy": "application/x-npy", "png": "image/png"}
    for name, data in files.items():
        journal_of(client).store.put(paths.artifact(record.id, record.attempt, name), data)
    return [
        Artifact(
            name=name,
            bytes=len(data),
            media_type=types.get(name.rpartition(".")[2], "application/octet-stream"),
        )
        for name, data in files.items()
    ]


def fail(client: TestClient, job_id: str, message: str = "it diverged") -> JobRecord:
    journal = journal_of(client)
    started = journal.start(job_id, "a worker")
    assert started is not None
    return journal.fail(job_id, started.attempt, Reason(code=ReasonCode.DIVERGED, message=message))


def event_log(client: TestClient, job_id: str, attempt: int) -> EventLog:
    return EventLog(journal_of(client).store, job_id, attempt)


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array), allow_pickle=False)
    return file.getvalue()


def events_in(text: str) -> list[tuple[str, int, str]]:
    """Type, id and data of each server-sent event."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "event" in fields:
            found.append((fields["event"], int(fields["id"]), fields["data"]))
    return found
