"""Jobs and data sets of the real application; instead of a worker, these tests end the jobs."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from client_helpers import AppTransport

from anglewise_client import (
    Client,
    Conflict,
    Diagnosis,
    InvalidRequest,
    JobFailed,
    NotFound,
    State,
    Threshold,
    WaitTimeout,
)

pytest.importorskip("fastapi")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An application with a store of files, and a broker that does not answer: the store is enough."""
    from starlette.testclient import TestClient

    from service.app import create_app
    from service.settings import Settings

    settings = Settings(
        workers=1,
        warm_up=False,
        data_dir=tmp_path_factory.mktemp("data"),
        broker_url="unix:///nonexistent/valkey.sock",
    )
    with TestClient(create_app(settings), raise_server_exceptions=False) as running:
        yield running


@pytest.fixture(scope="module")
def client(app: Any) -> Iterator[Client]:
    with Client("http://testserver", transport=AppTransport(app)) as client:
        yield client


@pytest.fixture(scope="module")
def journal(app: Any) -> Any:
    return app.app_state["jobs"].desk.journal


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array), allow_pickle=False)
    return file.getvalue()


def succeed(journal: Any, job_id: str, files: dict[str, bytes], events: list[Any] | None = None) -> None:
    """What a worker does, in short."""
    from jobs import paths
    from jobs.events import EventLog
    from jobs.record import Artifact

    record = journal.start(job_id, "a worker")
    log = EventLog(journal.store, job_id, record.attempt)
    for type, data in events or []:
        log.add(type, data)
    log.flush()
    artifacts = []
    for name, content in files.items():
        journal.store.put(paths.artifact(job_id, record.attempt, name), content)
        kind = "application/json" if name.endswith("json") else "application/octet-stream"
        artifacts.append(Artifact(name=name, bytes=len(content), media_type=kind))
    journal.succeed(job_id, record.attempt, artifacts)


def test_a_computation_becomes_a_job(client: Client, journal: Any) -> None:
    answer = client.collapse_threshold(classes=5)
    job = client.jobs.submit(kind="collapse_threshold", spec={"classes": 5}, name="five")
    assert (job.state, job.record.name, job.record.kind) == (State.QUEUED, "five", "collapse_threshold")
    with pytest.raises(Conflict) as caught:
        job.result()
    assert caught.value.code == "not_finished"
    with pytest.raises(WaitTimeout):
        job.wait(timeout=0.0)
    succeed(journal, job.id, {"result.json": answer.model_dump_json().encode()})
    assert job.wait(timeout=60).finished_at is not None
    found = job.result()
    assert isinstance(found, Threshold)
    assert found == answer
    assert job.spec()["classes"] == 5
    assert [file.name for file in job.record.artifacts] == ["result.json"]
    assert client.jobs.get(job.id).state is State.SUCCEEDED


def deferred() -> dict[str, Callable[[Client], Any]]:
    weights = np.exp(-np.abs(np.subtract.outer(np.arange(150.0), np.arange(150.0))))
    large = np.random.default_rng(0).normal(size=(6000, 5))
    return {
        "optimal_geometry": lambda client: client.jobs.optimal_geometry(class_counts=[5, 2], full=True),
        "best_geometry": lambda client: client.jobs.best_geometry(weights=weights[:4, :4]),
        "collapse_threshold": lambda client: client.jobs.collapse_threshold(classes=12),
        "collapse_map": lambda client: client.jobs.collapse_map(
            x=("temperature", [0.1]), y=("classes", [3]), quantity="exact_threshold"
        ),
        "realizability": lambda client: client.jobs.realizability(weights=weights, temperature=0.5),
        "weights": lambda client: client.jobs.weights(simplex_class_counts=[4, 3]),
        "diagnose": lambda client: client.jobs.diagnose(embeddings=large, labels=np.arange(6000) % 2),
    }


@pytest.mark.parametrize("name", deferred())
def test_every_computation_may_be_a_job(client: Client, name: str) -> None:
    job = deferred()[name](client)
    assert job.record.kind == ("optimal_geometry" if name == "best_geometry" else name)
    assert job.state is State.QUEUED
    job.cancel()
    job.delete()


def test_waiting_sees_the_end(client: Client, journal: Any) -> None:
    job = client.jobs.submit(kind="collapse_threshold", spec={"classes": 6})
    ending = threading.Timer(0.2, succeed, (journal, job.id, {"result.json": b"{}"}))
    ending.start()
    assert job.wait(timeout=60).state is State.SUCCEEDED
    ending.join()


def test_one_key_one_job(client: Client) -> None:
    spec = {"classes": 7}
    first = client.jobs.submit(kind="collapse_threshold", spec=spec, idempotency_key="seven")
    second = client.jobs.submit(kind="collapse_threshold", spec=spec, idempotency_key="seven")
    third = client.jobs.submit(kind="collapse_threshold", spec=spec)
    assert first.id == second.id != third.id
    with pytest.raises(InvalidRequest) as caught:
        client.jobs.submit(kind="collapse_threshold", spec={"classes": 8}, idempotency_key="seven")
    assert caught.value.code == "idempotency_mismatch"


def test_a_lost_answer_does_not_start_a_second_job(app: Any) -> None:
    class LosesAnswers(AppTransport):
        calls = 0

        def handle_request(self, request: httpx2.Request) -> httpx2.Response:
            response = super().handle_request(request)
            self.calls += 1
            if self.calls == 1:
                raise httpx2.ReadError("the connection broke after the service had stored the job")
            return response

    transport = LosesAnswers(app)
    client = Client("http://testserver", transport=transport, sleep=lambda _: None)
    job = client.jobs.submit(kind="collapse_threshold", spec={"classes": 9}, name="only one")
    assert transport.calls == 2
    assert [found.id for found in client.jobs.iterate() if found.record.name == "only one"] == [job.id]


def test_a_training_leaves_files_and_events(client: Client, journal: Any, tmp_path: Path) -> None:
    job = client.jobs.train(
        class_counts=np.array([6, 3, 2]), steps=5, loss="supcon", temperature=0.5, name="a run"
    )
    assert job.record.spec is not None
    assert job.record.spec["data"]["class_counts"] == [6, 3, 2]
    assert job.record.spec["loss"]["name"] == "supcon"
    labels = np.repeat(np.arange(3), [6, 3, 2])
    embeddings = np.eye(4)[labels] + 0.1
    files = {
        "result.json": json.dumps({"loss": 0.5}).encode(),
        "embeddings.npy": npy(embeddings),
        "labels.npy": npy(labels),
        "checkpoint.safetensors": b"tensors",
        "report.html": b"<h1>Report</h1>",
    }
    told = [
        ("progress", {"step": 1, "total": 5, "eta_s": 2.0}),
        ("metrics", {"step": 1, "values": {"loss": 1.0, "nc1": None}}),
        ("metrics", {"step": 5, "values": {"loss": 0.5, "nc1": 0.1}}),
    ]
    succeed(journal, job.id, files, told)
    events = list(job.events())
    assert [event.type for event in events] == ["state", "state", "progress", "metrics", "metrics", "state"]
    assert events[-1].state is State.SUCCEEDED
    assert [event.id for event in job.events(after=events[2].id)] == [event.id for event in events[3:]]
    assert list(job.events(after=events[-1].id)) == []
    job.wait()
    assert job.metrics().values("loss").tolist() == [1.0, 0.5]
    assert job.result().facts() == {"loss": 0.5}
    left = job.embeddings()
    np.testing.assert_array_equal(left.embeddings, embeddings)
    np.testing.assert_array_equal(left.labels, labels)
    assert job.checkpoint(tmp_path / "model").read_bytes() == b"tensors"
    assert job.report().text == "<h1>Report</h1>"
    assert job.download("labels.npy", tmp_path / "l.npy").read_bytes() == files["labels.npy"]
    with pytest.raises(NotFound):
        job.download("mystery", tmp_path / "m")


def test_a_training_is_diagnosed(client: Client, journal: Any) -> None:
    job = client.jobs.train(class_counts=[4, 2], steps=5)
    labels = np.repeat(np.arange(2), [4, 2])
    files = {"result.json": b"{}", "embeddings.npy": npy(np.eye(2)[labels]), "labels.npy": npy(labels)}
    succeed(journal, job.id, files)
    found = client.diagnose(job=job.id)
    assert isinstance(found, Diagnosis)
    assert (found.n, found.dimension) == (6, 2)


def test_cancelling_and_deleting(client: Client) -> None:
    job = client.jobs.submit(kind="collapse_threshold", spec={"classes": 11})
    with pytest.raises(Conflict):
        job.delete()
    assert job.cancel().state is State.CANCELLED
    with pytest.raises(JobFailed, match="cancelled"):
        job.wait()
    assert [event.state for event in job.events()] == [State.QUEUED, State.CANCELLED]
    job.delete()
    with pytest.raises(NotFound):
        job.reload()


def test_jobs_are_found(client: Client) -> None:
    ids = [client.jobs.submit(kind="weights", spec=WEIGHTS).id for _ in range(3)]
    page = client.jobs.list(limit=2, kind="weights")
    assert [record.id for record in page.items] == [ids[2], ids[1]]
    rest = client.jobs.list(cursor=page.next_cursor, kind="weights")
    assert [record.id for record in rest.items] == [ids[0]]
    assert [job.id for job in client.jobs.iterate(kind="weights", state="queued")] == ids[::-1]


WEIGHTS = {"target": {"simplex": {"class_counts": [3, 2]}}, "temperature": 0.5}


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "mystery", "spec": {}},
        {"kind": "collapse_threshold", "spec": {"classes": 0}},
        {"kind": "training", "spec": {"data": {"class_counts": [-1]}}},
    ],
    ids=str,
)
def test_wrong_jobs_are_refused(client: Client, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as caught:
        client.jobs.submit(**wrong)
    assert caught.value.errors


X = np.arange(24, dtype=np.float32).reshape(6, 4)
Y = np.array(["ant", "ant", "ant", "bee", "bee", "cat"])


def from_arrays(client: Client, folder: Path) -> Any:
    return client.datasets.create(x=X, y=Y, name="insects")


def from_npz(client: Client, folder: Path) -> Any:
    np.savez(folder / "insects.npz", x=X, y=Y)
    return client.datasets.create(path=folder / "insects.npz", name="insects")


def from_pair(client: Client, folder: Path) -> Any:
    np.save(folder / "x.npy", X)
    np.save(folder / "y.npy", Y)
    return client.datasets.create(x=folder / "x.npy", y=str(folder / "y.npy"), name="insects")


def from_csv(client: Client, folder: Path) -> Any:
    lines = [
        "a,b,c,d,species",
        *(",".join(map(str, row)) + f",{name}" for row, name in zip(X, Y, strict=True)),
    ]
    (folder / "insects.csv").write_text("\n".join(lines))
    return client.datasets.create(path=folder / "insects.csv", name="insects", label="species")


@pytest.mark.parametrize("create", [from_arrays, from_npz, from_pair, from_csv], ids=lambda f: f.__name__)
def test_data_sets(client: Client, create: Callable[[Client, Path], Any], tmp_path: Path) -> None:
    stored = create(client, tmp_path)
    assert (stored.name, stored.samples, stored.shape) == ("insects", 6, [4])
    assert stored.classes == {"ant": 3, "bee": 2, "cat": 1}
    assert stored.class_counts == [3, 2, 1]
    assert client.datasets.get(stored.id) == stored
    assert stored.id in [found.id for found in client.datasets.list().items]
    client.datasets.delete(stored.id)
    with pytest.raises(NotFound):
        client.datasets.get(stored.id)


def test_built_in_data_sets(client: Client) -> None:
    assert {"digits", "mnist5k"} <= {found.id for found in client.datasets.list().items if found.builtin}


def test_wrong_data_sets_are_refused(client: Client, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest):
        client.datasets.create(x=np.zeros((3, 2)), y=[0, 1])
    (tmp_path / "x.csv").write_text("not,a,data,set")
    with pytest.raises(InvalidRequest):
        client.datasets.create(path=tmp_path / "x.csv")
    with pytest.raises(ValueError, match="both"):
        client.datasets.create(x=tmp_path / "x.csv", y=[0])
    with pytest.raises(FileNotFoundError):
        client.datasets.create(path=tmp_path / "missing.csv")
