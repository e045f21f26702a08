"""The client for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Self, TypeVar

import httpx2

from anglewise_client._attempts import pause_before_retry
from anglewise_client._call import Call, Config, build_request, opened
from anglewise_client._config import configured
from anglewise_client._methods import async_method
from anglewise_client._response import parse_response, problem_error, transport_error
from anglewise_client.async_jobs import AsyncDatasets, AsyncJobs
from anglewise_client.calls import computations, jobs

T = TypeVar("T")


class AsyncClient:
    """`Client` for asyncio: the same methods, to be awaited.

    >>> AsyncClient("http://127.0.0.1:8000")
    AsyncClient('http://127.0.0.1:8000')

    Args and errors are those of `Client`; ``transport`` is an asynchronous one, such as
    ``httpx2.ASGITransport(app)``.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        timeout: float | None = 60.0,
        retries: int = 3,
        headers: Mapping[str, str] | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._config = configured(base_url, api_key, timeout, retries, headers)
        self._http = httpx2.AsyncClient(transport=transport)
        self._sleep = sleep

    optimal_geometry = async_method(computations.optimal_geometry)
    best_geometry = async_method(computations.best_geometry)
    collapse_threshold = async_method(computations.collapse_threshold)
    collapse_map = async_method(computations.collapse_map)
    realizability = async_method(computations.realizability)
    weights = async_method(computations.weights)
    diagnose = async_method(computations.diagnose)
    health = async_method(jobs.health)
    live = async_method(jobs.live)

    @property
    def jobs(self) -> AsyncJobs:
        """Long computations and trainings."""
        return AsyncJobs(self)

    @property
    def datasets(self) -> AsyncDatasets:
        """Data that the service keeps for trainings."""
        return AsyncDatasets(self)

    @property
    def config(self) -> Config:
        """Where and how requests are sent."""
        return self._config

    def with_options(self, **options: Any) -> Self:
        """The same connections with another ``timeout``, ``retries``, ``api_key`` or ``headers``."""
        other = object.__new__(type(self))
        other.__dict__ |= self.__dict__ | {"_config": replace(self._config, **options)}
        return other

    async def send(self, call: Call[T]) -> T:
        """Send one call, as often as it takes, and read its answer."""
        attempt = 0
        with opened(call) as files:
            while True:
                outcome: httpx2.Response | httpx2.TransportError
                try:
                    request = build_request(self._config, call, files)
                    outcome = await self._http.send(request, follow_redirects=call.redirected)
                except httpx2.TransportError as error:
                    outcome = error
                pause = pause_before_retry(self._config, call, attempt, outcome)
                if pause is None:
                    break
                await self._sleep(pause)
                attempt += 1
        if isinstance(outcome, httpx2.Response):
            return parse_response(call, outcome)
        raise transport_error(outcome, self._config.base_url) from outcome

    @asynccontextmanager
    async def stream(self, call: Call[Any]) -> AsyncIterator[httpx2.Response]:
        """One attempt, with a body that comes bit by bit.

        Raises:
            httpx2.TransportError: as it comes, also while the body is read.
        """
        response = await self._http.send(build_request(self._config, call, {}), stream=True)
        try:
            if not response.is_success:
                await response.aread()
                raise problem_error(response)
            yield response
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._config.base_url!r})"
