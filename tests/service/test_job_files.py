"""What a job was asked for and what it left, downloaded."""

from __future__ import annotations

import errno
import io
import os
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from job_application import (
    THRESHOLD,
    TRAINING,
    application,
    code,
    fail,
    journal_of,
    npy,
    service_of,
    submit,
    succeed,
)
from starlette.testclient import TestClient

from jobs import paths
from jobs.store import ObjectStore

EMBEDDINGS = np.arange(12, dtype=np.float32).reshape(6, 2) - 4
LABELS = np.array([0, 0, 1, 1, 2, 2])


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with application(tmp_path_factory.mktemp("data")) as client:
        yield client


@pytest.fixture(scope="module")
def trained(jobs: TestClient) -> str:
    """A training job that has succeeded."""
    job_id = submit(jobs, TRAINING)
    files = {
        "result.json": b'{"steps":5}',
        "embeddings.npy": npy(EMBEDDINGS),
        "labels.npy": npy(LABELS),
        "checkpoint.safetensors": b"weights",
    }
    succeed(jobs, job_id, files)
    return job_id


class TestResult:
    def test_not_before_the_end(self, jobs: TestClient) -> None:
        job_id = submit(jobs)
        assert code(jobs.get(f"/jobs/{job_id}/result")) == (409, "not_finished")
        journal_of(jobs).start(job_id, "a worker")
        assert code(jobs.get(f"/jobs/{job_id}/result")) == (409, "not_finished")

    def test_of_a_failure(self, jobs: TestClient) -> None:
        job_id = submit(jobs)
        fail(jobs, job_id, "the loss became NaN")
        response = jobs.get(f"/jobs/{job_id}/result")
        assert code(response) == (409, "no_result")
        assert "the loss became NaN" in response.json()["detail"]
        assert "diverged" in response.json()["detail"]

    def test_is_what_was_stored(self, jobs: TestClient, trained: str) -> None:
        response = jobs.get(f"/jobs/{trained}/result")
        assert response.content == b'{"steps":5}'
        assert response.headers["content-type"] == "application/json"
        assert response.headers["content-length"] == "11"

    def test_archive(self, jobs: TestClient) -> None:
        job_id = submit(jobs)
        succeed(jobs, job_id, {"result.json": b"{}", "result.npz": b"PK"})
        archive = jobs.get(f"/jobs/{job_id}/result", headers={"Accept": "application/x-npz"})
        assert archive.content == b"PK"
        assert jobs.get(f"/jobs/{job_id}/result").content == b"{}"

    def test_no_archive(self, jobs: TestClient, trained: str) -> None:
        response = jobs.get(f"/jobs/{trained}/result", headers={"Accept": "application/x-npz"})
        assert code(response) == (406, "not_acceptable")

    def test_picture_can_be_had_again(self, jobs: TestClient) -> None:
        from jobs.computations.picture import picture_id

        job_id = submit(jobs)
        png = b"\x89PNG of a test"
        succeed(jobs, job_id, {"result.json": b"{}", "picture.png": png})
        assert jobs.get(f"/pictures/{picture_id(png)}.png").status_code == 404
        jobs.get(f"/jobs/{job_id}/result")
        assert jobs.get(f"/pictures/{picture_id(png)}.png").content == png
        assert jobs.get(jobs.get(f"/jobs/{job_id}").json()["links"]["picture"]).content == png


class TestTraining:
    def test_embeddings(self, jobs: TestClient, trained: str) -> None:
        response = jobs.get(f"/jobs/{trained}/embeddings")
        assert response.headers["content-type"] == "application/x-npy"
        assert np.array_equal(np.load(io.BytesIO(response.content), allow_pickle=False), EMBEDDINGS)

    def test_embeddings_with_labels(self, jobs: TestClient, trained: str) -> None:
        response = jobs.get(f"/jobs/{trained}/embeddings", headers={"Accept": "application/x-npz"})
        assert int(response.headers["content-length"]) == len(response.content)
        with np.load(io.BytesIO(response.content), allow_pickle=False) as archive:
            assert np.array_equal(archive["embeddings"], EMBEDDINGS)
            assert np.array_equal(archive["labels"], LABELS)

    def test_no_space_to_put_an_archive_together(
        self, jobs: TestClient, trained: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(file: io.RawIOBase, data: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        raw = type("FullDisk", (io.FileIO,), {"write": full})
        monkeypatch.setattr(tempfile, "TemporaryFile", lambda: io.BufferedRandom(raw(os.devnull, "r+")))
        response = jobs.get(f"/jobs/{trained}/embeddings", headers={"Accept": "application/x-npz"})
        assert code(response) == (503, "storage_unavailable")

    def test_checkpoint(self, jobs: TestClient, trained: str) -> None:
        assert jobs.get(f"/jobs/{trained}/checkpoint").content == b"weights"

    def test_checkpoint_of_a_running_job(self, jobs: TestClient) -> None:
        job_id = submit(jobs, TRAINING)
        assert code(jobs.get(f"/jobs/{job_id}/checkpoint")) == (404, "not_found")
        journal_of(jobs).start(job_id, "a worker")
        for step in (5, 100):
            journal_of(jobs).store.put(paths.checkpoint(job_id, 1, step), b"step %d" % step)
        assert jobs.get(f"/jobs/{job_id}/checkpoint").content == b"step 100"

    def test_there_is_no_report(self, jobs: TestClient, trained: str) -> None:
        assert code(jobs.get(f"/jobs/{trained}/report")) == (404, "not_found")
        assert code(jobs.get(f"/jobs/{submit(jobs, TRAINING)}/report")) == (409, "not_finished")

    def test_a_report_is_a_page_that_runs_nothing_or_its_data(self, jobs: TestClient) -> None:
        job_id = submit(jobs, TRAINING)
        files = {"result.json": b"{}", "report.html": b"<p>fine</p>", "report.json": b'{"a": 1}'}
        succeed(jobs, job_id, {**files, "report.png": b"PNG"})
        page = jobs.get(f"/jobs/{job_id}/report", headers={"Accept": "text/html,*/*;q=0.8"})
        assert page.content == files["report.html"]
        assert page.headers["content-disposition"].startswith("inline")
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        for accept, content in (("application/json", files["report.json"]), ("image/png", b"PNG")):
            response = jobs.get(f"/jobs/{job_id}/report", headers={"Accept": accept})
            assert response.content == content
            assert response.headers["content-type"] == accept

    def test_computations_leave_no_embeddings(self, jobs: TestClient) -> None:
        job_id = submit(jobs)
        succeed(jobs, job_id, {"result.json": b"{}"})
        for name in ("embeddings", "checkpoint", "report"):
            assert code(jobs.get(f"/jobs/{job_id}/{name}")) == (404, "not_found")


class TestArtifacts:
    def test_listed_and_linked(self, jobs: TestClient, trained: str) -> None:
        listed = jobs.get(f"/jobs/{trained}/artifacts").json()["items"]
        assert [item["name"] for item in listed][:2] == ["result.json", "embeddings.npy"]
        for item in listed:
            response = jobs.get(f"/jobs/{trained}/artifacts/{item['name']}")
            assert len(response.content) == item["bytes"]
            assert response.headers["content-type"] == item["media_type"]

    @pytest.mark.parametrize("name", ["nothing", "..%2Fspec.json", "%2Fetc%2Fpasswd"])
    def test_only_what_is_listed(self, jobs: TestClient, trained: str, name: str) -> None:
        assert code(jobs.get(f"/jobs/{trained}/artifacts/{name}")) == (404, "not_found")

    def test_tag(self, jobs: TestClient, trained: str) -> None:
        address = f"/jobs/{trained}/artifacts/labels.npy"
        tag = jobs.get(address).headers["etag"]
        again = jobs.get(address, headers={"If-None-Match": tag})
        assert (again.status_code, again.content) == (304, b"")
        assert jobs.get(address, headers={"If-None-Match": '"other"'}).status_code == 200

    def test_lost_object(self, jobs: TestClient) -> None:
        job_id = submit(jobs)
        succeed(jobs, job_id, {"result.json": b"{}"})
        journal_of(jobs).store.delete(paths.artifact(job_id, 1, "result.json"))
        assert code(jobs.get(f"/jobs/{job_id}/result")) == (404, "not_found")

    def test_large_file(self, jobs: TestClient) -> None:
        job_id = submit(jobs)
        data = np.random.default_rng(0).bytes(3_000_001)
        succeed(jobs, job_id, {"large.bin": data})
        assert jobs.get(f"/jobs/{job_id}/artifacts/large.bin").content == data


class TestSignedAddresses:
    ADDRESS = "https://bucket.example.org/object?signature=x"

    @pytest.fixture(autouse=True)
    def _like_s3(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def sign(store: ObjectStore, path: str, expires: timedelta) -> str:
            return self.ADDRESS

        monkeypatch.setattr(ObjectStore, "signed_url", sign)

    def test_are_handed_out(self, jobs: TestClient, trained: str) -> None:
        response = jobs.get(f"/jobs/{trained}/result", follow_redirects=False)
        assert response.status_code == 307
        assert response.headers["location"] == self.ADDRESS

    def test_unless_told_otherwise(
        self, jobs: TestClient, trained: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = service_of(jobs).desk
        monkeypatch.setattr(desk, "settings", desk.settings.model_copy(update={"signed_downloads": False}))
        assert jobs.get(f"/jobs/{trained}/result", follow_redirects=False).status_code == 200


class TestSpec:
    def test_has_all_defaults(self, jobs: TestClient) -> None:
        spec = jobs.get(f"/jobs/{submit(jobs)}/spec").json()
        assert spec["classes"] == THRESHOLD["spec"]["classes"]  # type: ignore[index]
        assert spec["loss"]["negatives"] == 256


class TestDiagnosis:
    def test_of_a_training(self, jobs: TestClient, trained: str) -> None:
        body: dict[str, Any] = {"job": trained, "prediction": {}}
        direct = {"embeddings": EMBEDDINGS.tolist(), "labels": LABELS.tolist(), "prediction": {}}
        named, given = jobs.post("/diagnose", json=body), jobs.post("/diagnose", json=direct)
        assert named.status_code == given.status_code == 200
        assert named.json()["metrics"] == given.json()["metrics"]
        assert named.json()["n"] == 6

    def test_of_one_that_goes_on(self, jobs: TestClient) -> None:
        job_id = submit(jobs, TRAINING)
        assert code(jobs.post("/diagnose", json={"job": job_id})) == (409, "not_finished")

    @pytest.mark.parametrize(
        "body",
        [{"job": "x"}, {"job": 3}, {"job": "job_" + "0" * 26}, {"job": "job_" + "0" * 26, "labels": []}],
    )
    def test_refused(self, jobs: TestClient, body: Any) -> None:
        response = jobs.post("/diagnose", json=body)
        assert code(response) == (422, "invalid_input")
        assert response.json()["errors"][0]["pointer"] in ("/job", "/labels")

    def test_of_a_job_that_leaves_none(self, jobs: TestClient) -> None:
        response = jobs.post("/diagnose", json={"job": submit(jobs)})
        assert response.json()["errors"][0]["pointer"] == "/job"

    def test_as_a_job(self, jobs: TestClient, trained: str) -> None:
        """It keeps the embeddings: the training may be deleted before its turn comes."""
        from jobs.computations.limits import Limits
        from jobs.computations.registry import COMPUTATIONS

        key = {"Idempotency-Key": "diagnosis"}
        body = {"kind": "diagnose", "spec": {"job": trained, "prediction": {}}}
        job_id = submit(jobs, body, **key)
        assert submit(jobs, body, **key) == job_id
        record = journal_of(jobs).read(job_id)
        computation = COMPUTATIONS[record.kind]
        limits = Limits()
        outcome = computation.run(computation.parse(journal_of(jobs).spec(job_id), limits), limits)
        assert outcome.document()["n"] == 6
        job = jobs.get(f"/jobs/{job_id}").json()
        assert job["kind"] == "diagnose"
        assert job["spec"]["normalize"] is True
        with np.load(io.BytesIO(jobs.get(f"/jobs/{job_id}/spec").content), allow_pickle=False) as archive:
            assert np.array_equal(archive["embeddings"], EMBEDDINGS)
