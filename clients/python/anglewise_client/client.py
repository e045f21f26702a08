"""The client that waits for each answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self, TypeVar

import httpx2

from anglewise_client._attempts import pause_before_retry
from anglewise_client._call import Call, Config, build_request, opened
from anglewise_client._config import configured
from anglewise_client._methods import method
from anglewise_client._response import parse_response, problem_error, transport_error
from anglewise_client.calls import computations, jobs
from anglewise_client.datasets import Datasets
from anglewise_client.jobs import Jobs

T = TypeVar("T")


class Client:
    """Asks an anglewise service; every route is a method of the same name.

    >>> client = Client("http://127.0.0.1:8000")
    >>> client
    Client('http://127.0.0.1:8000')

    Use it as a context manager, or `close` it, to give its connections back. Threads may share it.

    Args:
        base_url: of the service; default: ``ANGLEWISE_URL``, or http://127.0.0.1:8000.
        api_key: default: ``ANGLEWISE_API_KEY``.
        timeout: seconds that one attempt may take; None: forever. Computations end after 30 s by default.
        retries: further attempts after 408, 429, 502, 503, 504 and broken connections, with growing pauses,
            or those that the service asks for (up to 60 s).
        headers: sent with every request.
        transport: what carries requests instead of the network, such as ``httpx2.MockTransport``.
        sleep: how to pause between attempts.

    Raises (every method):
        anglewise_client.errors.AnglewiseError: one of its leaves.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float | None = 60.0,
        retries: int = 3,
        headers: Mapping[str, str] | None = None,
        transport: httpx2.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._config = configured(base_url, api_key, timeout, retries, headers)
        self._http = httpx2.Client(transport=transport)
        self._sleep = sleep

    optimal_geometry = method(computations.optimal_geometry)
    best_geometry = method(computations.best_geometry)
    collapse_threshold = method(computations.collapse_threshold)
    collapse_map = method(computations.collapse_map)
    realizability = method(computations.realizability)
    weights = method(computations.weights)
    diagnose = method(computations.diagnose)
    health = method(jobs.health)
    live = method(jobs.live)

    @property
    def jobs(self) -> Jobs:
        """Long computations and trainings."""
        return Jobs(self)

    @property
    def datasets(self) -> Datasets:
        """Data that the service keeps for trainings."""
        return Datasets(self)

    @property
    def config(self) -> Config:
        """Where and how requests are sent."""
        return self._config

    def with_options(self, **options: Any) -> Self:
        """The same connections with another ``timeout``, ``retries``, ``api_key`` or ``headers``."""
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__ | {"_config": replace(self._config, **options)}
        return other

    def send(self, call: Call[T]) -> T:
        """Send one call, as often as it takes, and read its answer."""
        attempt = 0
        with opened(call) as files:
            while True:
                outcome: httpx2.Response | httpx2.TransportError
                try:
                    request = build_request(self._config, call, files)
                    outcome = self._http.send(request, follow_redirects=call.redirected)
                except httpx2.TransportError as error:
                    outcome = error
                pause = pause_before_retry(self._config, call, attempt, outcome)
                if pause is None:
                    break
                self._sleep(pause)
                attempt += 1
        if isinstance(outcome, httpx2.Response):
            return parse_response(call, outcome)
        raise transport_error(outcome, self._config.base_url) from outcome

    @contextmanager
    def stream(self, call: Call[Any]) -> Iterator[httpx2.Response]:
        """One attempt, with a body that comes bit by bit.

        Raises:
            httpx2.TransportError: as it comes, also while the body is read.
        """
        response = self._http.send(build_request(self._config, call, {}), stream=True)
        try:
            if not response.is_success:
                response.read()
                raise problem_error(response)
            yield response
        finally:
            response.close()

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._config.base_url!r})"
