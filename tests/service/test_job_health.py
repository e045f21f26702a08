"""Readiness, numbers for Prometheus, and limits of keys, where jobs are on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from job_application import NO_BROKER, THRESHOLD, TRAINING, application, code, journal_of, service_of, submit
from service_helpers import KEY, slow_map, wait_until
from starlette.testclient import TestClient

from jobs.live import Live, Worker
from service.settings import Settings

WORKER = Worker(id="w1", host="here", pid=1, device="cpu", started_at=datetime(2026, 1, 1, tzinfo=UTC))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def connected(home: Path, valkey_url: str) -> Iterator[TestClient]:
    with application(home, broker_url=valkey_url) as client:
        wait_until(lambda: bool(client.app_state["engine"].pool.pids), "a solver is there")
        yield client


@pytest.fixture
def worker(broker_url: str, connected: TestClient) -> Worker:
    """One that is alive."""
    service_of(connected).desk.live.register(WORKER, 60)
    return WORKER


class TestReady:
    def test_all_parts(self, connected: TestClient, worker: Worker) -> None:
        response = connected.get("/health/ready")
        assert response.status_code == 200
        parts = {name: response.json()[name] for name in ("status", "broker", "store", "job_workers")}
        assert parts == {"status": "ok", "broker": "ok", "store": "ok", "job_workers": 1}
        assert connected.head("/health/ready").status_code == 200

    def test_jobs_are_off(self, client: TestClient) -> None:
        answer = client.get("/health/ready").json()
        assert (answer["broker"], answer["store"], answer["job_workers"]) == ("off", "off", None)

    def test_no_worker_until_there_is_one(self, connected: TestClient, broker_url: str) -> None:
        response = connected.get("/health/ready")
        assert code(response) == (503, "not_ready")
        assert response.json()["detail"] == "down: job workers"
        service_of(connected).desk.live.register(WORKER, 60)
        assert connected.get("/health/ready").status_code == 200

    def test_broker_away_and_back(
        self, connected: TestClient, worker: Worker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk = service_of(connected).desk
        with monkeypatch.context() as away:
            away.setattr(desk, "live", Live(NO_BROKER))
            response = connected.get("/health/ready")
            assert code(response) == (503, "not_ready")
            assert response.json()["detail"] == "down: broker"
            assert connected.get("/health/live").status_code == 200
        assert connected.get("/health/ready").status_code == 200

    def test_store_away_and_back(self, connected: TestClient, worker: Worker, home: Path) -> None:
        (home / "objects").rename(home / "elsewhere")
        (home / "objects").touch()
        response = connected.get("/health/ready")
        assert code(response) == (503, "not_ready")
        assert response.json()["detail"] == "down: store"
        assert connected.get("/health/live").status_code == 200
        (home / "objects").unlink()
        (home / "elsewhere").rename(home / "objects")
        assert connected.get("/health/ready").status_code == 200


class TestMetricsPage:
    def test_counts(self, connected: TestClient, worker: Worker) -> None:
        job_id = submit(connected)
        journal_of(connected).start(job_id, "a worker")
        connected.get(f"/jobs/{job_id}")
        connected.get("/nowhere")
        response = connected.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain")
        lines = set(response.text.splitlines())
        assert 'anglewise_requests_total{method="GET",route="/jobs/{job_id}",status="200"} 1.0' in lines
        assert 'anglewise_requests_total{method="none",route="none",status="404"} 1.0' in lines
        assert 'anglewise_jobs_submitted_total{kind="collapse_threshold"} 1.0' in lines
        assert 'anglewise_jobs{state="running"} 1.0' in lines
        assert "anglewise_job_queue_length 1.0" in lines
        assert "anglewise_job_workers 1.0" in lines
        assert "anglewise_solvers 1.0" in lines
        assert 'anglewise_up{part="broker"} 1.0' in lines

    def test_without_jobs(self, client: TestClient) -> None:
        lines = client.get("/metrics").text.splitlines()
        assert "anglewise_solver_queue_length 0.0" in lines
        assert "anglewise_job_workers 0.0" in lines

    def test_needs_a_key(self, tiny: TestClient) -> None:
        assert code(tiny.get("/metrics", headers={"Authorization": ""})) == (401, "unauthorized")
        assert tiny.get("/metrics").status_code == 200


class TestTraining:
    def test_a_worker_that_can_is_enough(self, tmp_path: Path, broker_url: str) -> None:
        with application(tmp_path, broker_url=broker_url, training=False) as client:
            live = service_of(client).desk.live
            live.register(WORKER.model_copy(update={"training": False}), 60)
            assert code(client.post("/jobs", json=TRAINING)) == (503, "training_unavailable")
            live.register(WORKER.model_copy(update={"id": "w2"}), 60)
            assert client.post("/jobs", json=TRAINING).status_code == 202


def digest_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


class TestKeys:
    def test_idempotency_keys_of_others_are_others(self, tmp_path: Path) -> None:
        with application(tmp_path, api_keys=(digest_of(KEY), digest_of("another"))) as client:
            mine, theirs = ({**bearer(key), "Idempotency-Key": "k"} for key in (KEY, "another"))
            ids = [submit(client, THRESHOLD, **headers) for headers in (mine, theirs, mine)]
            assert ids[0] == ids[2] != ids[1]

    def test_requests_a_minute(self, tmp_path: Path) -> None:
        keys = (digest_of(KEY), digest_of("another"))
        with application(tmp_path, api_keys=keys, requests_per_minute=3) as client:
            statuses = [client.get("/jobs", headers=bearer(KEY)).status_code for _ in range(4)]
            assert statuses == [200, 200, 200, 429]
            response = client.get("/jobs", headers=bearer(KEY))
            assert code(response) == (429, "too_many_requests")
            assert 1 <= int(response.headers["retry-after"]) <= 60
            assert client.get("/jobs", headers=bearer("another")).status_code == 200
            assert client.get("/health/live", headers=bearer(KEY)).status_code == 200
            assert client.get("/jobs", headers=bearer("wrong")).status_code == 401

    def test_at_a_time(self, tmp_path: Path, background: Any) -> None:
        settings: dict[str, Any] = {"api_keys": (digest_of(KEY),), "concurrent_requests": 1, "warm_up": True}
        with application(tmp_path, **settings) as client:
            wait_until(lambda: bool(client.app_state["engine"].pool.pids), "a solver is there", 600)

            slow = background(client.post, "/collapse-map", json=slow_map(90), headers=bearer(KEY))
            metrics = client.app_state["metrics"]
            wait_until(lambda: metrics.running._value.get() == 1, "it is being computed")
            assert code(client.post("/jobs", json=THRESHOLD, headers=bearer(KEY))) == (
                429,
                "too_many_requests",
            )
            assert client.get("/jobs", headers=bearer(KEY)).status_code == 200
            assert slow.result().status_code == 200
            assert client.post("/jobs", json=THRESHOLD, headers=bearer(KEY)).status_code == 202


@pytest.fixture(scope="module")
def calling(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """With a secret for webhooks."""
    with application(tmp_path_factory.mktemp("data"), webhook_secret="a secret") as client:
        yield client


class TestWebhook:
    def test_is_kept(self, calling: TestClient) -> None:
        job_id = submit(calling, {**THRESHOLD, "webhook": {"url": "https://example.org/hook"}})
        assert journal_of(calling).read(job_id).submission.webhook == "https://example.org/hook"

    @pytest.mark.parametrize(
        "url",
        [
            "http://127.0.0.1/",
            "http://[::1]/",
            "http://169.254.169.254/",
            "ftp://example.org/",
            "x",
            "a" * 3000,
        ],
    )
    def test_refused(self, calling: TestClient, url: str) -> None:
        response = calling.post("/jobs", json={**THRESHOLD, "webhook": {"url": url}})
        assert code(response) == (422, "invalid_input")
        assert response.json()["errors"][0]["pointer"] == "/webhook/url"

    def test_private_if_allowed(self, tmp_path: Path) -> None:
        with application(tmp_path, webhook_secret="a secret", webhook_allow_private=True) as client:
            submit(client, {**THRESHOLD, "webhook": {"url": "http://127.0.0.1:1/"}})


def test_settings_of_jobs_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANGLEWISE_BROKER_URL", "redis://localhost:1/0")
    monkeypatch.setenv("ANGLEWISE_STORE_URL", "s3://bucket/prefix")
    monkeypatch.setenv("ANGLEWISE_TRAINING", "0")
    settings = Settings()
    assert settings.jobs_on
    assert settings.objects_url == "s3://bucket/prefix"
    assert not settings.training
    assert settings.job_limits.max_map_cells > settings.limits.max_map_cells
