"""Submitting, looking at, listing, cancelling and deleting jobs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx2
import pytest
from job_application import THRESHOLD, TRAINING, application, code, fail, journal_of, submit, succeed
from starlette.testclient import TestClient

from jobs.ids import new_job_id
from jobs.states import State


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Without a broker: jobs are accepted, and wait."""
    with application(tmp_path_factory.mktemp("data")) as client:
        yield client


class TestCreate:
    def test_is_stored(self, jobs: TestClient) -> None:
        response = jobs.post("/jobs", json={**THRESHOLD, "name": "a name"})
        assert response.status_code == 202
        job = response.json()
        assert response.headers["location"] == job["links"]["self"] == f"/jobs/{job['id']}"
        assert (job["kind"], job["name"], job["state"], job["attempt"]) == (
            "collapse_threshold",
            "a name",
            "queued",
            0,
        )
        assert job["spec"]["classes"] == 5
        assert job["spec"]["sampling"] == "supervised"
        assert journal_of(jobs).read(job["id"]).state is State.QUEUED
        assert jobs.get(f"/jobs/{job['id']}").json() == job

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            ({"kind": "nothing", "spec": {}}, "/kind"),
            ({"spec": {"classes": 5}}, "/kind"),
            ({"kind": "collapse_threshold"}, "/spec"),
            ({"kind": "collapse_threshold", "spec": {"classes": "five"}}, "/spec/classes"),
            ({"kind": "collapse_threshold", "spec": {"classes": 30_000}}, "/spec/classes"),
            ({"kind": "collapse_threshold", "spec": {"classes": 5}, "priority": 1}, "/priority"),
            ({"kind": "collapse_threshold", "spec": {"classes": 5}, "name": ""}, "/name"),
            ({"kind": "optimal_geometry", "spec": {"class_counts": [3, 0]}}, "/spec/class_counts/1"),
            ({"kind": "optimal_geometry", "spec": {"class_counts": [3]}}, "/spec/sampling"),
            ({"kind": "optimal_geometry", "spec": {}}, "/spec/class_counts"),
            ({"kind": "realizability", "spec": {"weights": [[1.0, 2.0]]}}, "/spec/weights/0"),
            ({"kind": "training", "spec": {"data": {}}}, "/spec/data"),
            ({"kind": "training", "spec": {"data": {"builtin": "nothing"}}}, "/spec/data/builtin"),
            ({"kind": "training", "spec": {"data": {"dataset": "ds_" + "0" * 26}}}, "/spec/data/dataset"),
            ({"kind": "diagnose", "spec": {"job": "job_1"}}, "/spec/job"),
            ({"kind": "diagnose", "spec": {"job": new_job_id()}}, "/spec/job"),
            ({**THRESHOLD, "webhook": {"url": "https://example.org/"}}, "/webhook/url"),
        ],
    )
    def test_names_what_is_wrong(self, jobs: TestClient, body: Any, pointer: str) -> None:
        before = journal_of(jobs).ids()
        response = jobs.post("/jobs", json=body)
        assert response.status_code == 422, response.text
        assert response.json()["code"] in ("invalid_input", "too_large")
        assert [error["pointer"] for error in response.json()["errors"]] == [pointer]
        assert journal_of(jobs).ids() == before

    @pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'"x"', b"[" * 10_000, b'{"kind": NaN}'])
    def test_malformed(self, jobs: TestClient, body: bytes) -> None:
        response = jobs.post("/jobs", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code in (400, 422)

    def test_takes_more_than_the_route(self, jobs: TestClient) -> None:
        side = [i / 200 for i in range(1, 101)]
        spec = {
            "classes": 5,
            "x": {"name": "majority_proportion", "values": side},
            "y": {"name": "temperature", "values": side},
        }
        refused = jobs.post("/collapse-map", json=spec)
        assert code(refused) == (422, "too_large")
        assert "POST /jobs" in refused.json()["detail"]
        assert refused.json()["errors"][0]["pointer"] == "/x/values"
        submit(jobs, {"kind": "collapse_map", "spec": spec})

    def test_large_specs_are_linked(self, jobs: TestClient) -> None:
        counts = list(range(1, 15_000))
        job = jobs.get(
            f"/jobs/{submit(jobs, {'kind': 'optimal_geometry', 'spec': {'class_counts': counts}})}"
        ).json()
        assert job["spec"] is None
        assert jobs.get(job["links"]["spec"]).json()["class_counts"] == counts

    def test_every_kind(self, jobs: TestClient) -> None:
        specs = {
            "training": TRAINING["spec"],
            "weights": {"target": {"simplex": {"class_counts": [3, 2]}}, "temperature": 0.5},
            "diagnose": {"embeddings": [[1.0, 0.0], [0.0, 1.0]], "labels": ["a", "b"]},
            "realizability": {"weights": {"name": "supcon", "class_counts": [3, 2]}},
        }
        for kind, spec in specs.items():
            job_id = submit(jobs, {"kind": kind, "spec": spec})
            assert jobs.get(f"/jobs/{job_id}").json()["kind"] == kind


class TestWithoutRoom:
    def test_no_space_on_the_disk(self, tmp_path: Path) -> None:
        with application(tmp_path, disk_reserve_bytes=2**60) as full:
            assert code(full.post("/jobs", json=THRESHOLD)) == (507, "storage_full")
            assert journal_of(full).store.names("") == []

    def test_too_many_waiting(self, tmp_path: Path) -> None:
        with application(tmp_path, max_queued_jobs=2) as full:
            submit(full)
            submit(full)
            response = full.post("/jobs", json=THRESHOLD)
            assert code(response) == (503, "busy")
            assert response.headers["retry-after"]
            assert len(journal_of(full).ids()) == 2

    def test_store_is_away(self, tmp_path: Path) -> None:
        with application(tmp_path) as away:
            (tmp_path / "objects" / ".staging").rmdir()
            (tmp_path / "objects").chmod(0)
            (tmp_path / "objects").rename(tmp_path / "elsewhere")
            (tmp_path / "objects").touch()
            response = away.post("/jobs", json=THRESHOLD)
            assert code(response) == (503, "storage_unavailable")
            assert response.headers["retry-after"]
            (tmp_path / "objects").unlink()
            (tmp_path / "elsewhere").chmod(0o755)

    def test_off(self, client: TestClient) -> None:
        assert code(client.post("/jobs", json=THRESHOLD)) == (503, "jobs_unavailable")
        assert code(client.get("/jobs")) == (503, "jobs_unavailable")
        assert code(client.post("/diagnose", json={"job": new_job_id()})) == (503, "jobs_unavailable")

    def test_no_training(self, tmp_path: Path) -> None:
        with application(tmp_path, training=False) as untrained:
            response = untrained.post("/jobs", json=TRAINING)
            assert code(response) == (503, "training_unavailable")
            assert "--without-training" in response.json()["detail"]
            submit(untrained)


class TestIdempotency:
    def test_same_request(self, jobs: TestClient) -> None:
        key = {"Idempotency-Key": "twice"}
        first = jobs.post("/jobs", json=THRESHOLD, headers=key)
        second = jobs.post("/jobs", json=THRESHOLD, headers=key)
        assert first.status_code == second.status_code == 202
        assert first.json()["id"] == second.json()["id"]
        assert first.headers["location"] == second.headers["location"]

    def test_after_the_end(self, jobs: TestClient) -> None:
        key = {"Idempotency-Key": "late"}
        job_id = submit(jobs, **key)
        succeed(jobs, job_id, {"result.json": b"{}"})
        again = jobs.post("/jobs", json=THRESHOLD, headers=key)
        assert (again.status_code, again.json()["state"]) == (202, "succeeded")
        assert submit(jobs, **key) == job_id

    def test_other_request(self, jobs: TestClient) -> None:
        key = {"Idempotency-Key": "mismatch"}
        submit(jobs, **key)
        other = {"kind": "collapse_threshold", "spec": {"classes": 6}}
        assert code(jobs.post("/jobs", json=other, headers=key)) == (422, "idempotency_mismatch")
        assert code(jobs.post("/collapse-threshold", json={"classes": 5}, headers={**key, **ASYNC})) == (
            422,
            "idempotency_mismatch",
        )

    def test_race(self, jobs: TestClient, background: Callable[..., Future[httpx2.Response]]) -> None:
        key = {"Idempotency-Key": "race"}
        futures = [background(jobs.post, "/jobs", json=THRESHOLD, headers=key) for _ in range(20)]
        responses = [future.result() for future in futures]
        assert {response.status_code for response in responses} == {202}
        assert len({response.json()["id"] for response in responses}) == 1

    @pytest.mark.parametrize("key", ["", " ", "a" * 256, "a\tb", "\x7f"])
    def test_bounds(self, jobs: TestClient, key: str) -> None:
        response = jobs.post("/jobs", json=THRESHOLD, headers={"Idempotency-Key": key})
        assert code(response) == (422, "invalid_input")

    def test_longest(self, jobs: TestClient) -> None:
        submit(jobs, **{"Idempotency-Key": "a" * 255})

    def test_deleting_frees_the_key(self, jobs: TestClient) -> None:
        key = {"Idempotency-Key": "freed"}
        job_id = submit(jobs, **key)
        assert jobs.post(f"/jobs/{job_id}/cancel").status_code == 200
        assert jobs.delete(f"/jobs/{job_id}").status_code == 204
        assert submit(jobs, **key) != job_id


ASYNC = {"Prefer": "respond-async"}


class TestCancel:
    def test_queued(self, jobs: TestClient) -> None:
        """Ended before any worker has seen it, although the broker is away."""
        job_id = submit(jobs)
        for _ in range(2):
            response = jobs.post(f"/jobs/{job_id}/cancel")
            assert (response.status_code, response.json()["state"]) == (200, "cancelled")
            assert response.json()["reason"]["code"] == "user"
            assert "cancel" not in response.json()["links"]
        assert journal_of(jobs).start(job_id, "a worker") is None

    def test_running(self, jobs: TestClient) -> None:
        job_id = submit(jobs)
        journal_of(jobs).start(job_id, "a worker")
        for _ in range(2):
            response = jobs.post(f"/jobs/{job_id}/cancel")
            assert (response.status_code, response.json()["state"]) == (202, "cancelling")
        journal_of(jobs).succeed(job_id, 1, [])
        assert jobs.get(f"/jobs/{job_id}").json()["state"] == "cancelled"
        assert jobs.post(f"/jobs/{job_id}/cancel").status_code == 200

    def test_ended(self, jobs: TestClient) -> None:
        job_id = submit(jobs)
        fail(jobs, job_id)
        assert code(jobs.post(f"/jobs/{job_id}/cancel")) == (409, "already_ended")
        assert jobs.get(f"/jobs/{job_id}").json()["state"] == "failed"


class TestDelete:
    def test_leaves_nothing(self, jobs: TestClient) -> None:
        store = journal_of(jobs).store
        before = store.names("")
        job_id = submit(jobs, **{"Idempotency-Key": "deleted"})
        succeed(jobs, job_id, {"result.json": b"{}"})
        assert jobs.delete(f"/jobs/{job_id}").status_code == 204
        assert store.names("") == before
        assert code(jobs.get(f"/jobs/{job_id}")) == (404, "not_found")
        assert code(jobs.delete(f"/jobs/{job_id}")) == (404, "not_found")

    def test_not_before_the_end(self, jobs: TestClient) -> None:
        job_id = submit(jobs)
        assert code(jobs.delete(f"/jobs/{job_id}")) == (409, "not_finished")
        assert jobs.get(f"/jobs/{job_id}").json()["state"] == "queued"


class TestUnknown:
    @pytest.mark.parametrize("job_id", [new_job_id(), "job_1", "..%2F..%2Fetc", "%00", "job_" + "é" * 26])
    def test_not_found(self, jobs: TestClient, job_id: str) -> None:
        for path in ("", "/spec", "/result", "/events", "/metrics", "/embeddings", "/artifacts/x"):
            assert code(jobs.get(f"/jobs/{job_id}{path}")) == (404, "not_found")
        assert code(jobs.post(f"/jobs/{job_id}/cancel")) == (404, "not_found")
        assert code(jobs.delete(f"/jobs/{job_id}")) == (404, "not_found")


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, list[str]]]:
    """Twelve jobs, oldest first: every third failed, every fourth of another kind."""
    with application(tmp_path_factory.mktemp("listed")) as client:
        ids = [
            submit(
                client, THRESHOLD if i % 4 else {"kind": "optimal_geometry", "spec": {"class_counts": [2, 1]}}
            )
            for i in range(12)
        ]
        for job_id in ids[::3]:
            fail(client, job_id)
        yield client, sorted(ids)


class TestList:
    def all_pages(self, client: TestClient, **query: Any) -> list[str]:
        found, cursor = [], {}
        while True:
            page = client.get("/jobs", params={**query, **cursor}).json()
            found += [job["id"] for job in page["items"]]
            if page["next_cursor"] is None:
                return found
            cursor = {"cursor": page["next_cursor"]}

    def test_newest_first(self, listed: tuple[TestClient, list[str]]) -> None:
        client, ids = listed
        assert self.all_pages(client) == ids[::-1]

    @pytest.mark.parametrize("limit", [1, 5, 11, 12, 200])
    def test_pages(self, listed: tuple[TestClient, list[str]], limit: int) -> None:
        client, ids = listed
        assert self.all_pages(client, limit=limit) == ids[::-1]
        assert len(client.get("/jobs", params={"limit": limit}).json()["items"]) == min(limit, 12)

    def test_filters(self, listed: tuple[TestClient, list[str]]) -> None:
        client, ids = listed
        failed = self.all_pages(client, state="failed", limit=3)
        queued = self.all_pages(client, state="queued", limit=3)
        assert len(failed) == 4
        assert sorted(failed + queued) == ids
        assert len(self.all_pages(client, kind="optimal_geometry", limit=2)) == 3
        assert len(self.all_pages(client, kind="optimal_geometry", state="failed")) == 1
        assert self.all_pages(client, state="running") == []

    def test_items_are_jobs(self, listed: tuple[TestClient, list[str]]) -> None:
        client, ids = listed
        [item] = client.get("/jobs", params={"limit": 1}).json()["items"]
        assert item == client.get(f"/jobs/{ids[-1]}").json()

    @pytest.mark.parametrize(
        ("query", "pointer"),
        [
            ("limit=0", "/limit"),
            ("limit=201", "/limit"),
            ("limit=x", "/limit"),
            ("state=gone", "/state"),
            ("kind=x", "/kind"),
            ("cursor=x", "/cursor"),
            ("order=asc", "/order"),
        ],
    )
    def test_refused(self, jobs: TestClient, query: str, pointer: str) -> None:
        response = jobs.get(f"/jobs?{query}")
        assert code(response) == (422, "invalid_input")
        assert response.json()["errors"][0]["pointer"] == pointer

    def test_finds_few_among_many(
        self, listed: tuple[TestClient, list[str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A page looks at so many jobs only, and the next one goes on from there."""
        monkeypatch.setattr("service.job_list.MAX_LOOKED_AT", 2)
        client, _ = listed
        assert len(self.all_pages(client, kind="optimal_geometry")) == 3


class TestWithBroker:
    @pytest.fixture
    def connected(self, tmp_path: Path, broker_url: str) -> Iterator[TestClient]:
        with application(tmp_path, broker_url=broker_url) as client:
            yield client

    def test_rings(self, connected: TestClient) -> None:
        job_id = submit(connected)
        assert connected.app_state["jobs"].desk.queue.waiting_ids() == {job_id}

    def test_progress(self, connected: TestClient) -> None:
        from jobs.live import Progress

        job_id = submit(connected)
        live = connected.app_state["jobs"].desk.live
        live.set_progress(job_id, Progress(attempt=1, step=3, total=10, eta_s=1.5))
        assert connected.get(f"/jobs/{job_id}").json()["progress"] is None
        journal_of(connected).start(job_id, "a worker")
        progress = {"step": 3, "total": 10, "eta_s": 1.5}
        assert connected.get(f"/jobs/{job_id}").json()["progress"] == progress
        assert connected.get("/jobs").json()["items"][0]["progress"] == progress


class TestLargeBody:
    """It is checked in a solver process: the API goes on answering."""

    def test_is_accepted(self, jobs: TestClient) -> None:
        counts = list(range(1, 20_001))
        padding = " " * 200_000
        body = (
            json.dumps({"kind": "optimal_geometry", "spec": {"class_counts": counts}, "name": "large"})
            + padding
        )
        response = jobs.post("/jobs", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == 202, response.text
        assert response.json()["name"] == "large"
        assert jobs.get(response.json()["links"]["spec"]).json()["class_counts"] == counts

    def test_is_refused(self, jobs: TestClient) -> None:
        spec = {"class_counts": [*range(1, 30_000), -1]}
        response = jobs.post("/jobs", json={"kind": "optimal_geometry", "spec": spec})
        assert code(response) == (422, "invalid_input")
        assert response.json()["errors"][0]["pointer"] == "/spec/class_counts/29999"

    def test_instead_of_an_answer(self, jobs: TestClient) -> None:
        counts = list(range(1, 20_001))
        body = json.dumps({"class_counts": counts}) + " " * 200_000
        headers = {"Content-Type": "application/json", "Prefer": "respond-async"}
        response = jobs.post("/optimal-geometry", content=body, headers=headers)
        assert response.status_code == 202, response.text
        assert response.json()["spec"] is None
