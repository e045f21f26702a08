"""From an HTTP response to a result, to the error it stands for, or to the decision to try again."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TypeVar

import httpx2
from pydantic import ValidationError

from anglewise_client._call import Call
from anglewise_client.errors import (
    NoService,
    RequestTimeout,
    ServiceError,
    UnexpectedAnswer,
    error_class,
)
from anglewise_client.problem import ProblemDocument

T = TypeVar("T")

RETRIED = frozenset({408, 429, 502, 503, 504})
HOPELESS_CODES = frozenset({"deadline"})
"""The same computation would meet the same deadline again."""
LONGEST_WAIT = 60.0
"""Seconds: a service that asks for a longer pause is not waited for."""
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0
JITTER = 0.25
SHOWN = 200


def parse_response(call: Call[T], response: httpx2.Response) -> T:
    """The result of a response whose body has been read.

    Raises:
        ServiceError: the response is a problem.
        UnexpectedAnswer: it is neither that nor what was asked for.
    """
    if not response.is_success:
        raise problem_error(response)
    try:
        return call.read(response)
    except (ValidationError, ValueError, KeyError, OSError) as error:
        kind = response.headers.get("content-type", "no media type")
        raise UnexpectedAnswer(
            f"{call.method} {call.path} answered {response.status_code} with {kind} that this client cannot "
            f"read: {_first_line(error)}"
        ) from error


def problem_error(response: httpx2.Response) -> ServiceError | UnexpectedAnswer:
    """The error that a response of status 300 or more stands for."""
    try:
        problem = ProblemDocument.model_validate_json(response.content)
    except ValidationError:
        problem = _foreign(response)
    if response.status_code < 400:
        return UnexpectedAnswer(f"{response.request.url} answered with status {response.status_code}")
    return error_class(response.status_code, problem.code)(problem, retry_after(response.headers))


def _foreign(response: httpx2.Response) -> ProblemDocument:
    """Proxies and other services fail in their own words."""
    status = response.status_code
    title = response.reason_phrase or f"status {status}"
    text = " ".join(response.text.split())[:SHOWN]
    return ProblemDocument(
        type="about:blank",
        title=title,
        status=status,
        detail=f"{title}; not from anglewise: {text}" if text else title,
        code="http_error",
        errors=[],
        request_id=response.headers.get("X-Request-ID"),
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def transport_error(error: httpx2.TransportError, base_url: str) -> NoService:
    """What a failure below HTTP means to the user."""
    if isinstance(error, httpx2.TimeoutException) and not isinstance(error, httpx2.ConnectTimeout):
        return RequestTimeout(f"{base_url} did not answer in time ({type(error).__name__})")
    return NoService(
        f"no service answers at {base_url} ({str(error) or type(error).__name__}); "
        "start one with: python3 run.py serve"
    )


def retry_after(headers: httpx2.Headers, now: datetime | None = None) -> float | None:
    """Seconds that a ``Retry-After`` header asks to wait, given as a number or a date; None without one.

    >>> retry_after(httpx2.Headers({"Retry-After": "3"}))
    3.0
    """
    given = headers.get("retry-after", "").strip()
    if given.isdecimal():
        return float(given)
    try:
        date = parsedate_to_datetime(given)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - (now or datetime.now(UTC))).total_seconds())


def pause_after_response(
    response: httpx2.Response, attempt: int, draw: Callable[[], float] = random.random
) -> float | None:
    """Seconds before attempt number ``attempt + 1`` (the first is 0), or None: another would not help."""
    if response.status_code not in RETRIED:
        return None
    if response.status_code == HTTPStatus.SERVICE_UNAVAILABLE and _code(response) in HOPELESS_CODES:
        return None
    asked = retry_after(response.headers)
    if asked is None:
        return backoff(attempt, draw)
    return asked if asked <= LONGEST_WAIT else None


def backoff(attempt: int, draw: Callable[[], float] = random.random) -> float:
    """0.5, 1, 2, 4, 8, 8, … seconds, each shortened at random by up to a quarter.

    >>> [backoff(attempt, draw=lambda: 0.0) for attempt in range(6)]
    [0.5, 1.0, 2.0, 4.0, 8.0, 8.0]
    """
    pause: float = min(FIRST_PAUSE * 2.0**attempt, LONGEST_PAUSE)
    return pause * (1.0 - JITTER * draw())


def _code(response: httpx2.Response) -> str:
    try:
        return ProblemDocument.model_validate_json(response.content).code
    except ValidationError:
        return ""
