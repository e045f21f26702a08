"""What the limits refuse, how it is said, and that the service goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import httpx2
import pytest
from service_helpers import KEY, slow_map, wait_until
from starlette.testclient import TestClient


def code(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


class TestCost:
    @pytest.mark.parametrize(
        ("path", "body", "pointer"),
        [
            ("/optimal-geometry", {"class_counts": [1] * 51}, "/class_counts"),
            ("/optimal-geometry", {"class_counts": [1, 2, 3, 4, 5, 6]}, "/class_counts"),
            ("/optimal-geometry", {"class_counts": [1, 2], "dimension": 51}, "/dimension"),
            ("/collapse-threshold", {"classes": 51}, "/classes"),
            ("/collapse-map", slow_map(1, cells=2601), "/x/values"),
        ],
    )
    def test_too_large(self, tiny: TestClient, path: str, body: Any, pointer: str) -> None:
        response = tiny.post(path, json=body)
        assert code(response) == (422, "too_large")
        assert response.json()["errors"][0]["pointer"] == pointer

    def test_at_the_limits(self, tiny: TestClient) -> None:
        response = tiny.post("/optimal-geometry", json={"class_counts": [5, 4, 3, 2, 1] * 10})
        assert response.status_code == 200
        assert response.json()["gram"] is None
        assert len(response.json()["groups"]["sizes"]) == 5

    def test_archive_too_large(self, tiny: TestClient) -> None:
        headers = {"Accept": "application/x-npz"}
        response = tiny.post("/optimal-geometry", json={"class_counts": [1] * 31}, headers=headers)
        assert code(response) == (422, "too_large")
        response = tiny.post("/optimal-geometry", json={"class_counts": [1] * 10}, headers=headers)
        assert response.status_code == 200


class TestBody:
    def test_declared_too_long(self, tiny: TestClient) -> None:
        response = tiny.post("/collapse-threshold", json={"classes": 3, "x": "y" * 5000})
        assert code(response) == (413, "body_too_large")

    def test_found_too_long_while_reading(self, tiny: TestClient) -> None:
        """Without a length in its headers, the body is read no further than the limit."""
        sent = []

        def chunks() -> Iterator[bytes]:
            for i in range(1000):
                sent.append(i)
                yield b" " * 1000

        headers = {"Content-Type": "application/json"}
        response = tiny.post("/collapse-threshold", content=chunks(), headers=headers)
        assert code(response) == (413, "body_too_large")

    def test_as_long_as_allowed(self, tiny: TestClient) -> None:
        body = b'{"classes": 3}'.ljust(4096)
        headers = {"Content-Type": "application/json"}
        assert tiny.post("/collapse-threshold", content=body, headers=headers).status_code == 200


class TestDeadline:
    def test_kills_and_recovers(self, tiny: TestClient) -> None:
        body = slow_map(5000, cells=2500) | {"classes": 50}
        response = tiny.post("/collapse-map", json=body)
        assert code(response) == (503, "deadline")
        wait_until(lambda: tiny.get("/health/ready").status_code == 200, "ready again")
        assert tiny.post("/collapse-threshold", json={"classes": 4}).status_code == 200

    def test_queue_is_bounded(
        self, tiny: TestClient, background: Callable[..., Future[httpx2.Response]]
    ) -> None:
        """One computes until its deadline, one waits, the others are told to come back."""
        bodies = [slow_map(6000 + i, cells=2500) | {"classes": 50} for i in range(6)]
        responses = [
            future.result() for future in [background(tiny.post, "/collapse-map", json=b) for b in bodies]
        ]
        codes = sorted(code(response)[1] for response in responses)
        assert codes.count("busy") >= 4
        assert set(codes) == {"busy", "deadline"}
        assert all(response.headers["retry-after"] for response in responses if code(response)[1] == "busy")
        wait_until(lambda: tiny.get("/health/ready").status_code == 200, "ready again")


class TestApiKeys:
    @pytest.mark.parametrize(
        "headers",
        [
            {"Authorization": ""},
            {"Authorization": "Bearer"},
            {"Authorization": "Bearer wrong"},
            {"Authorization": f"Basic {KEY}"},
            {"Authorization": "", "X-API-Key": KEY + "x"},
        ],
    )
    def test_refused(self, tiny: TestClient, headers: dict[str, str]) -> None:
        for path in ("/collapse-threshold", "/docs", "/openapi.json", "/nowhere"):
            response = tiny.get(path, headers=headers)
            assert code(response) == (401, "unauthorized")
            assert response.headers["www-authenticate"] == "Bearer"
            assert KEY not in response.text

    def test_accepted(self, tiny: TestClient) -> None:
        assert tiny.post("/collapse-threshold", json={"classes": 3}).status_code == 200
        headers = {"Authorization": "", "X-API-Key": KEY}
        assert tiny.post("/collapse-threshold", json={"classes": 3}, headers=headers).status_code == 200

    def test_health_needs_none(self, tiny: TestClient) -> None:
        assert tiny.get("/health/live", headers={"Authorization": ""}).status_code == 200
