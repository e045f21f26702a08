"""From the bytes of a request to the bytes of its answer: validation, cache, shared flights, the pool."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from anglewise.version import __version__
from jobs.computations.computation import Computation
from jobs.computations.limits import Limits
from service.cache import AnswerCache
from service.pool import Job, Reply, SolverPool
from service.solver import canonical_request

INLINE_BYTES = 128 * 1024
"""Larger bodies are validated in a solver process: parsing them would hold up the event loop."""
UNSHARED = b""
"""The key of computations that are neither cached nor shared."""


CLIENT_CLOSED_REQUEST = 499
"""Status for the log; nobody receives it."""


class ClientGone(Exception):
    """The client hung up before its answer was there."""


@dataclass
class Flight:
    """One computation and the number of requests waiting for it."""

    job: Job
    waiting: int = 0


class Engine:
    """Answers requests; equal ones share one computation."""

    def __init__(self, limits: Limits, pool: SolverPool, cache: AnswerCache) -> None:
        self.limits = limits
        self.pool = pool
        self._cache = cache
        self._flights: dict[bytes, Flight] = {}

    async def answer(self, computation: Computation, body: bytes, client: Request) -> Reply:
        """The JSON answer.

        Raises:
            Problem, InvalidInput: whatever is wrong with the request or its computation.
            ClientGone: nobody is left to answer to.
        """
        body, key = await self._canonical(computation, body)
        if not computation.shared:
            return await self._land(Flight(self.pool.submit(computation.name, body)), UNSHARED, client)
        cached = self._cache.get(key)
        if cached is not None:
            return Reply(cached, final=True)
        flight = self._flights.get(key)
        if flight is None:
            flight = self._take_off(computation, body, key)
        return await self._land(flight, key, client)

    async def archive(self, computation: Computation, body: bytes, client: Request) -> Reply:
        """The answer as a file; never cached or shared."""
        body, _ = await self._canonical(computation, body)
        flight = Flight(self.pool.submit(computation.name, body, archive=True))
        return await self._land(flight, UNSHARED, client)

    async def check(self, name: str, body: bytes, limits: Limits, client: Request) -> bytes:
        """A request in its canonical form, checked in a solver process if it is large.

        Args:
            name: of a computation, or `job_request.NAME`.

        Raises:
            Problem, InvalidInput, ClientGone
        """
        if len(body) <= INLINE_BYTES:
            return canonical_request(name, body, limits)
        flight = Flight(self.pool.submit(name, body, check=limits))
        return (await self._land(flight, UNSHARED, client)).body

    async def _canonical(self, computation: Computation, body: bytes) -> tuple[bytes, bytes]:
        """The request with all defaults filled in, and its key. Large bodies stay as they came."""
        if len(body) <= INLINE_BYTES:
            body = computation.canonical(body, self.limits)
            digest = hashlib.sha256(body).digest()
        else:
            digest = await asyncio.to_thread(lambda: hashlib.sha256(body).digest())
        return body, f"{__version__} {computation.name} ".encode() + digest

    def _take_off(self, computation: Computation, body: bytes, key: bytes) -> Flight:
        flight = self._flights[key] = Flight(self.pool.submit(computation.name, body))

        def keep(future: asyncio.Future[Reply]) -> None:
            if self._flights.get(key) is flight:
                del self._flights[key]
            if not future.cancelled() and future.exception() is None and future.result().final:
                self._cache.put(key, future.result().body)

        flight.job.future.add_done_callback(keep)
        return flight

    async def _land(self, flight: Flight, key: bytes, client: Request) -> Reply:
        """Wait for the answer or for the client to hang up, whichever comes first."""
        flight.waiting += 1
        future = flight.job.future
        hung_up = asyncio.create_task(_disconnection(client))
        either: set[asyncio.Future[Any]] = {future, hung_up}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not future.done():
                raise ClientGone
            return future.result()
        finally:
            hung_up.cancel()
            flight.waiting -= 1
            if flight.waiting == 0 and not future.done():
                self._abandon(flight, key)

    def _abandon(self, flight: Flight, key: bytes) -> None:
        """Take it out of the queue. Once started it goes on: a client that asks again finds it cached."""
        if flight.job.started is None or key == UNSHARED:
            self._flights.pop(key, None)
            flight.job.future.cancel()


async def _disconnection(client: Request) -> None:
    while (await client.receive())["type"] != "http.disconnect":
        pass
