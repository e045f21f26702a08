"""Building requests, reading responses, and deciding when to try again; nothing is sent anywhere."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import httpx2
import numpy as np
import pytest
from client_helpers import THRESHOLD, URL, Script, answer, async_client_of, client_of, problem

from anglewise_client import (
    AnglewiseError,
    Client,
    Conflict,
    DeadlineMet,
    InvalidRequest,
    NoService,
    NotFound,
    NumericalFailure,
    RateLimited,
    RequestTimeout,
    ServiceError,
    ServiceFailed,
    TooLarge,
    Unauthorized,
    UnexpectedAnswer,
)
from anglewise_client._call import Config, build_request, encode
from anglewise_client._response import backoff, retry_after
from anglewise_client.calls import computations

OK = answer(THRESHOLD)


def ask(client: Client) -> Any:
    return client.collapse_threshold(classes=10)


def test_a_request_says_who_asks_for_what() -> None:
    config = Config("http://host/prefix/", api_key="secret", headers={"X-Trace": "1"}, timeout=5.0)
    request = build_request(config, computations.collapse_threshold(classes=10), {})
    assert str(request.url) == "http://host/prefix/collapse-threshold"
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.headers["X-Trace"] == "1"
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["User-Agent"].startswith("anglewise-client/")
    assert request.content == b'{"classes":10}'
    assert request.extensions["timeout"] == {"connect": 5.0, "read": 5.0, "write": 5.0, "pool": 5.0}
    assert "secret" not in repr(config)


def test_what_is_left_out_is_not_sent() -> None:
    call = computations.optimal_geometry(class_counts=np.array([3, 2]), loss={"negatives": float("inf")})
    assert call.body == {"class_counts": [3, 2], "loss": {"negatives": "infinite"}}


def test_zero_weights_have_a_logarithm() -> None:
    matrix = [[0.0, -np.inf], [None, 0.0]]
    assert computations.best_geometry(log_weights=matrix).body["log_weights"] == [[0.0, None], [None, 0.0]]
    array = np.array([[0.0, -np.inf], [-1.0, 0.0]])
    assert computations.best_geometry(log_weights=array).body["log_weights"] == [[0.0, None], [-1.0, 0.0]]


def test_nan_is_for_the_service_to_refuse() -> None:
    assert encode({"a": np.array([1.0, np.nan])}) == b'{"a":[1.0,NaN]}'


def test_large_matrices_travel_as_arrays() -> None:
    weights = np.ones((200, 200))
    call = computations.realizability(weights=weights, temperature=0.5)
    assert call.query == {"temperature": 0.5, "holds": "weights"}
    assert call.media_type == "application/x-npy"
    assert call.content is not None
    assert call.content.startswith(b"\x93NUMPY")
    small = computations.realizability(weights=weights[:3, :3])
    assert small.content is None


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": " 0 "}, 0.0),
        ({"Retry-After": "Tue, 01 Dec 2026 00:00:10 GMT"}, 10.0),
        ({"Retry-After": "Tue, 01 Dec 2026 00:00:10"}, 10.0),
        ({"Retry-After": "Mon, 30 Nov 2026 00:00:00 GMT"}, 0.0),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "-1"}, None),
    ],
)
def test_retry_after_is_a_number_or_a_date(given: dict[str, str], seconds: float | None) -> None:
    now = datetime(2026, 12, 1, tzinfo=UTC)
    assert retry_after(httpx2.Headers(given), now) == seconds


def test_pauses_grow_and_differ() -> None:
    assert [backoff(n, draw=lambda: 0.0) for n in range(6)] == [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    assert [backoff(n, draw=lambda: 1.0) for n in range(3)] == [0.375, 0.75, 1.5]


PASSING = [
    problem(408, "upload_timeout"),
    problem(429, "rate_limited"),
    answer({"no": "problem"}, 502),
    problem(503, "busy"),
    httpx2.Response(504, text="<html>gateway</html>"),
    httpx2.ConnectError("refused"),
    httpx2.ReadError("reset"),
    httpx2.ReadTimeout("slow"),
    httpx2.RemoteProtocolError("closed"),
]


@pytest.mark.parametrize("failure", PASSING, ids=str)
def test_what_may_pass_is_tried_again(failure: httpx2.Response | Exception) -> None:
    server = Script([failure, OK])
    client, pauses = client_of(server)
    assert ask(client).exact_threshold == 0.9
    assert len(server.requests) == 2
    assert len(pauses) == 1
    assert 0.375 <= pauses[0] <= 0.5


@pytest.mark.parametrize("failure", PASSING, ids=str)
def test_the_async_client_tries_again_as_well(failure: httpx2.Response | Exception) -> None:
    async def run() -> tuple[float | None, int]:
        client, pauses = async_client_of(Script([failure, OK]))
        async with client:
            found = await client.collapse_threshold(classes=10)
        return found.exact_threshold, len(pauses)

    assert asyncio.run(run()) == (0.9, 1)


def test_attempts_end() -> None:
    server = Script([problem(503, "busy")])
    client, pauses = client_of(server, retries=2)
    with pytest.raises(ServiceFailed):
        ask(client)
    assert len(server.requests) == 3
    assert len(pauses) == 2


@pytest.mark.parametrize(
    "final",
    [
        problem(400, "malformed_json"),
        problem(422, "invalid_input"),
        problem(500, "internal_error"),
        problem(503, "deadline"),
    ],
    ids=str,
)
def test_what_will_not_pass_is_not_tried_again(final: httpx2.Response) -> None:
    server = Script([final])
    client, _ = client_of(server)
    with pytest.raises(ServiceError):
        ask(client)
    assert len(server.requests) == 1


def test_the_service_says_how_long_to_wait() -> None:
    client, pauses = client_of(Script([problem(429, "rate_limited", Retry_After="60"), OK]))
    ask(client)
    assert pauses == [60.0]


def test_nobody_waits_longer_than_a_minute() -> None:
    server = Script([problem(503, "busy", Retry_After="61")])
    client, pauses = client_of(server)
    with pytest.raises(ServiceFailed) as caught:
        ask(client)
    assert pauses == []
    assert caught.value.retry_after == 61.0


ERRORS = [
    (400, "malformed_json", InvalidRequest),
    (401, "unauthorized", Unauthorized),
    (403, "http_error", Unauthorized),
    (404, "not_found", NotFound),
    (409, "not_finished", Conflict),
    (413, "body_too_large", TooLarge),
    (415, "unsupported_media_type", InvalidRequest),
    (422, "invalid_input", InvalidRequest),
    (422, "too_large", TooLarge),
    (422, "numerical_failure", NumericalFailure),
    (429, "rate_limited", RateLimited),
    (500, "internal_error", ServiceFailed),
    (503, "deadline", DeadlineMet),
    (507, "storage_full", ServiceFailed),
]


@pytest.mark.parametrize(("status", "code", "kind"), ERRORS)
def test_each_problem_has_its_error(status: int, code: str, kind: type[ServiceError]) -> None:
    client, _ = client_of(Script([problem(status, code, [("/loss", "is wrong")])]), retries=0)
    with pytest.raises(ServiceError) as caught:
        ask(client)
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.code, error.request_id) == (status, code, "abc")
    assert [(field.pointer, field.message) for field in error.errors] == [("/loss", "is wrong")]
    assert error.problem.type == f"urn:anglewise:problem:{code}"
    assert "/loss" in str(error)


def test_the_whole_tree_has_one_root() -> None:
    import anglewise_client.errors as errors

    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, Exception)]
    assert all(issubclass(c, AnglewiseError) for c in classes)
    assert all(c.__name__ in str(errors.__doc__) for c in classes)


@pytest.mark.parametrize(
    "response",
    [
        httpx2.Response(502, text="<h1>Bad gateway</h1>"),
        httpx2.Response(500, content=b"\xff\xfe"),
        answer({"detail": "Not Found"}, 500),
        answer(["a", "list"], 500),
    ],
    ids=str,
)
def test_failures_of_others_become_problems_too(response: httpx2.Response) -> None:
    client, _ = client_of(Script([response]), retries=0)
    with pytest.raises(ServiceFailed) as caught:
        ask(client)
    assert caught.value.status == response.status_code
    assert caught.value.code == "http_error"


@pytest.mark.parametrize(
    "response",
    [
        httpx2.Response(200, text="<html>a login page</html>"),
        answer({"exact_threshold": 0.9}),
        answer([1, 2]),
        httpx2.Response(200, content=b"PK garbage", headers={"Content-Type": "application/x-npz"}),
        httpx2.Response(200, content=b"PK\x03\x04 cut", headers={"Content-Type": "application/x-npz"}),
        httpx2.Response(302, headers={"Location": "https://elsewhere.test/"}),
    ],
    ids=str,
)
def test_answers_of_others_are_not_believed(response: httpx2.Response) -> None:
    client, _ = client_of(Script([response]))
    with pytest.raises(UnexpectedAnswer):
        ask(client)


def test_pickles_are_not_loaded() -> None:
    import io

    file = io.BytesIO()
    np.savez(file, metadata=np.array([object()], dtype=object))
    client, _ = client_of(
        Script([httpx2.Response(200, content=file.getvalue(), headers={"Content-Type": "application/x-npz"})])
    )
    with pytest.raises(UnexpectedAnswer, match="pickle"):
        client.optimal_geometry(class_counts=[2, 1], full=True)


def test_no_service_says_how_to_start_one() -> None:
    client, _ = client_of(Script([httpx2.ConnectError("Connection refused")]))
    with pytest.raises(NoService, match=r"python3 run\.py serve") as caught:
        ask(client)
    assert URL in str(caught.value)


def test_silence_is_a_timeout() -> None:
    client, _ = client_of(Script([httpx2.ReadTimeout("")]), retries=0)
    with pytest.raises(RequestTimeout, match="in time"):
        ask(client)


def test_the_environment_names_service_and_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANGLEWISE_URL", "http://elsewhere:1234")
    monkeypatch.setenv("ANGLEWISE_API_KEY", "from the environment")
    server = Script([OK])
    client = Client(transport=httpx2.MockTransport(server))
    ask(client)
    assert server.requests[0].url.host == "elsewhere"
    assert server.requests[0].headers["Authorization"] == "Bearer from the environment"
    assert Client("http://given", api_key="given").config.api_key == "given"
    monkeypatch.delenv("ANGLEWISE_URL")
    assert Client().config.base_url == "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    "wrong", [{"base_url": "localhost:8000"}, {"timeout": 0.0}, {"retries": -1}], ids=str
)
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must"):
        Client(**wrong)


def test_options_change_in_a_copy() -> None:
    client, _ = client_of(Script([OK]))
    other = client.with_options(timeout=1.0, retries=0)
    assert (other.config.timeout, other.config.retries) == (1.0, 0)
    assert client.config.timeout == 60.0
    assert ask(other).classes == 10


def test_methods_keep_signature_and_words() -> None:
    import inspect

    signature = inspect.signature(Client("http://host").collapse_threshold)
    assert list(signature.parameters) == ["classes", "sampling", "loss"]
    assert signature.return_annotation == "Threshold"
    assert "minorities" in str(Client.__dict__["collapse_threshold"].__doc__)
    with pytest.raises(TypeError):
        Client("http://host").collapse_threshold(10)  # type: ignore[call-arg]
