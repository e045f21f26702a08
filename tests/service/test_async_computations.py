"""Prefer: respond-async turns computations into jobs."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from job_application import application, code, journal_of
from starlette.testclient import TestClient

from jobs.computations.registry import COMPUTATIONS
from service.job_kinds import public_kind

ASYNC = {"Prefer": "respond-async"}
NPY = {"Content-Type": "application/x-npy"}
BODIES: dict[str, dict[str, Any]] = {
    "/optimal-geometry": {"class_counts": [3, 2, 1]},
    "/realizability": {"weights": {"name": "supcon", "class_counts": [3, 2]}},
    "/collapse-threshold": {"classes": 5},
    "/collapse-map": {
        "classes": 5,
        "x": {"name": "majority_proportion", "values": [0.5]},
        "y": {"name": "temperature", "values": [1.0]},
    },
    "/weights": {"target": {"simplex": {"class_counts": [3, 2]}}, "temperature": 0.5},
    "/diagnose": {"embeddings": [[1.0, 0.0], [0.0, 1.0]], "labels": [0, 1]},
}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with application(tmp_path_factory.mktemp("data"), max_array_bytes=10_000) as client:
        yield client


def answer_of(client: TestClient, job_id: str) -> Any:
    """What a worker would answer."""
    record = journal_of(client).read(job_id)
    computation = COMPUTATIONS[record.kind]
    limits = client.app_state["settings"].job_limits
    return computation.run(computation.parse(journal_of(client).spec(job_id), limits), limits).document()


@pytest.mark.parametrize("path", BODIES)
def test_every_computation(jobs: TestClient, path: str) -> None:
    response = jobs.post(path, json=BODIES[path], headers=ASYNC)
    assert response.status_code == 202
    assert response.headers["preference-applied"] == "respond-async"
    job = response.json()
    assert response.headers["location"] == f"/jobs/{job['id']}"
    assert job["kind"] == path.strip("/").replace("-", "_")
    assert job["state"] == "queued"


@pytest.mark.parametrize("prefer", ["wait=5, Respond-Async", "respond-async; x=1", "a,respond-async"])
def test_spellings(jobs: TestClient, prefer: str) -> None:
    response = jobs.post("/collapse-threshold", json={"classes": 5}, headers={"Prefer": prefer})
    assert response.status_code == 202


@pytest.mark.parametrize("prefer", ["", "wait=5", "respond-asynchronously", '"respond-async"'])
def test_other_preferences_are_not_followed(jobs: TestClient, prefer: str) -> None:
    response = jobs.post("/collapse-threshold", json={"classes": 5}, headers={"Prefer": prefer})
    assert response.status_code == 200
    assert "preference-applied" not in response.headers


def test_without_jobs_it_is_answered(client: TestClient) -> None:
    response = client.post("/collapse-threshold", json={"classes": 5}, headers=ASYNC)
    assert response.status_code == 200
    assert "preference-applied" not in response.headers


def test_bad_input_is_refused_at_once(jobs: TestClient) -> None:
    before = journal_of(jobs).ids()
    response = jobs.post("/optimal-geometry", json={"class_counts": [3, -1]}, headers=ASYNC)
    assert code(response) == (422, "invalid_input")
    assert response.json()["errors"][0]["pointer"] == "/class_counts/1"
    assert journal_of(jobs).ids() == before


def test_idempotency(jobs: TestClient) -> None:
    headers = {**ASYNC, "Idempotency-Key": "a key"}
    ids = {
        jobs.post("/collapse-threshold", json={"classes": 5}, headers=headers).json()["id"] for _ in range(3)
    }
    assert len(ids) == 1
    other = jobs.post("/collapse-threshold", json={"classes": 6}, headers=headers)
    assert code(other) == (422, "idempotency_mismatch")


class TestArray:
    def body(self, array: Any) -> bytes:
        file = io.BytesIO()
        np.save(file, array, allow_pickle=False)
        return file.getvalue()

    def test_becomes_a_job(self, jobs: TestClient) -> None:
        file = self.body(np.eye(3) + 0.5)
        response = jobs.post("/realizability?temperature=0.5", content=file, headers=NPY | ASYNC)
        assert response.status_code == 202
        job = response.json()
        assert (job["kind"], job["spec"]["temperature"]) == ("realizability", 0.5)
        direct = jobs.post("/realizability?temperature=0.5", content=file, headers=NPY)
        assert answer_of(jobs, job["id"])["verdict"] == direct.json()["verdict"]
        stored = jobs.get(job["links"]["spec"])
        assert (stored.content, stored.headers["content-type"]) == (file, "application/x-npy")
        assert public_kind(journal_of(jobs).read(job["id"]).kind) == "realizability"
        listed = jobs.get("/jobs", params={"kind": "realizability", "limit": 1}).json()["items"]
        assert listed[0]["id"] == job["id"]

    def test_is_checked_first(self, jobs: TestClient) -> None:
        response = jobs.post("/realizability", content=self.body(-np.eye(3)), headers=NPY | ASYNC)
        assert code(response) == (422, "invalid_input")
        response = jobs.post("/realizability", content=b"\x93NUMPY", headers=NPY | ASYNC)
        assert code(response) == (422, "invalid_input")


class TestForm:
    def form(self, **arrays: Any) -> dict[str, Any]:
        file = io.BytesIO()
        np.savez(file, **arrays)
        return {"file": ("embeddings.npz", file.getvalue())}

    def test_becomes_a_job(self, jobs: TestClient) -> None:
        files = self.form(embeddings=np.eye(4), labels=np.array([0, 0, 1, 1]))
        fields = {"prediction": json.dumps({"sampling": "supervised"})}
        headers = {**ASYNC, "Idempotency-Key": "a form"}
        responses = [jobs.post("/diagnose", files=files, data=fields, headers=headers) for _ in range(2)]
        assert {response.status_code for response in responses} == {202}
        assert responses[0].json()["id"] == responses[1].json()["id"], "boundaries differ, contents do not"
        job = responses[0].json()
        assert job["kind"] == "diagnose"
        assert answer_of(jobs, job["id"])["n"] == 4
        assert jobs.get(job["links"]["spec"]).content == files["file"][1]

    def test_is_checked_first(self, jobs: TestClient) -> None:
        response = jobs.post("/diagnose", files={"file": ("x.npz", b"PK nothing")}, headers=ASYNC)
        assert code(response) == (422, "invalid_input")
        assert response.json()["errors"][0]["pointer"] == "/file"
        files = self.form(embeddings=np.eye(4))
        assert code(jobs.post("/diagnose", files=files, headers=ASYNC)) == (422, "invalid_input")
