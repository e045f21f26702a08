from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import httpx2
from service_helpers import slow_map
from starlette.testclient import TestClient

from service.app import create_app
from service.settings import Settings


class TestLive:
    def test_answers_while_every_process_computes(
        self, client: TestClient, background: Callable[..., Future[httpx2.Response]]
    ) -> None:
        solves = [background(client.post, "/collapse-map", json=slow_map(100 * i)) for i in (11, 12, 13)]
        for _ in range(20):
            assert client.get("/health/live").json() == {"status": "ok"}
        assert not any(solve.done() for solve in solves)
        assert [solve.result().status_code for solve in solves] == [200, 200, 200]


class TestReady:
    def test_when_processes_are_warm(self, client: TestClient) -> None:
        response = client.get("/health/ready")
        assert response.status_code == 200
        assert response.json()["status"] == "ok"
        assert 1 <= response.json()["workers"] <= 2

    def test_not_before(self) -> None:
        with TestClient(create_app(Settings(workers=1))) as starting:
            response = starting.get("/health/ready")
            assert response.status_code == 503
            assert response.json()["code"] == "not_ready"
            assert response.headers["retry-after"] == "1"
            assert starting.get("/health/live").status_code == 200
