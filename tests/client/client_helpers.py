"""What the tests of the client share: transports that need no network."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import httpx2

from anglewise_client import AsyncClient, Client, NoService, ServiceFailed

if TYPE_CHECKING:
    from starlette.testclient import TestClient

URL = "http://service.test"
START_SECONDS = 600
"""Compiling every kernel on a fresh checkout takes this long at worst."""
Server = Callable[[httpx2.Request], httpx2.Response]


class AppTransport(httpx2.BaseTransport):
    """Carries requests to an application that runs in this process."""

    def __init__(self, running: TestClient) -> None:
        self.running = running

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        request.read()
        response = self.running.send(request)
        return httpx2.Response(response.status_code, headers=response.headers, content=response.content)


class Script:
    """A server that gives prepared answers in order; exceptions are raised. The last one stays."""

    def __init__(self, answers: Iterable[httpx2.Response | Exception]) -> None:
        self.answers = list(answers)
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        request.read()
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        # A response can be sent once only.
        return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)

    def body(self, index: int = -1) -> Any:
        return json.loads(self.requests[index].content)


def client_of(server: Server, **options: Any) -> tuple[Client, list[float]]:
    """A client of a scripted server, and the pauses it makes (without making them)."""
    pauses: list[float] = []
    client = Client(URL, transport=httpx2.MockTransport(server), sleep=pauses.append, **options)
    return client, pauses


def async_client_of(server: Server, **options: Any) -> tuple[AsyncClient, list[float]]:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    return AsyncClient(URL, transport=httpx2.MockTransport(server), sleep=sleep, **options), pauses


def answer(document: Any, status: int = 200, **headers: str) -> httpx2.Response:
    return httpx2.Response(
        status, json=document, headers={k.replace("_", "-"): v for k, v in headers.items()}
    )


def problem(
    status: int, code: str, errors: Iterable[tuple[str, str]] = (), **headers: str
) -> httpx2.Response:
    document = {
        "type": f"urn:anglewise:problem:{code}",
        "title": code,
        "status": status,
        "detail": f"{code} happened",
        "code": code,
        "errors": [{"pointer": pointer, "message": message} for pointer, message in errors],
        "request_id": "abc",
    }
    return answer(document, status, **headers)


def job(state: str = "queued", **fields: Any) -> dict[str, Any]:
    """A job as the service describes it."""
    given: Mapping[str, Any] = {
        "id": "job_01",
        "kind": "training",
        "name": None,
        "state": state,
        "attempt": 1,
        "progress": {"step": 3, "total": 10, "eta_s": 1.5},
        "reason": None,
        "created_at": "2026-12-01T00:00:00Z",
        "started_at": None,
        "finished_at": None,
        "spec": {},
        "links": {},
    }
    return {**given, **fields}


def sse(*events: tuple[str, str, Mapping[str, Any]]) -> bytes:
    """(id, type, data) as a stream of server-sent events."""
    return "".join(
        f"id: {id}\nevent: {type}\ndata: {json.dumps(data)}\n\n" for id, type, data in events
    ).encode()


def wait_ready(client: Client) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            client.with_options(retries=0).health()
            return
        except (NoService, ServiceFailed):
            assert time.monotonic() < deadline, "not ready in time"
            time.sleep(0.05)


THRESHOLD = {
    "exact_threshold": 0.9,
    "one_minus_threshold": 0.1,
    "log10_one_minus_threshold": -1.0,
    "sufficient_threshold": None,
    "imbalance_ratio": 81.0,
    "also_below": False,
    "reason": None,
    "sampling": "supervised",
    "loss": {"name": "infonce", "negatives": 256, "reduction": "sum", "hardness": 0.0, "temperature": 0.1}
    | {"alpha": 1.0, "beta": 1.0},
    "classes": 10,
}
