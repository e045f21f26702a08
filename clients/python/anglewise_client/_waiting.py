"""How long to wait for a job, when to look again, how to follow its events; no I/O and no clock in here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx2

from anglewise_client._response import RETRIED, backoff
from anglewise_client.errors import AnglewiseError, NoService, ServiceError
from anglewise_client.job_models import Event

FIRST_LOOK, SLOWEST_LOOK, GROWTH = 0.1, 2.0, 1.4
PATIENCE = 600.0
"""Seconds without any answer of the service after which waiting without a timeout ends."""
LONGEST_REQUEST = 30.0
NOTHING_MORE = 204
"""Status of the events of a job that has ended, after the last of them."""


def passing(error: AnglewiseError) -> bool:
    """Whether an error may be over soon: the service restarts, or is busy."""
    return isinstance(error, NoService) or (isinstance(error, ServiceError) and error.status in RETRIED)


@dataclass
class Waiting:
    """One wait, from second ``started`` of some clock.

    Attributes:
        timeout: seconds; None: as long as the service answers.
        silent_since: when the service last answered.
    """

    timeout: float | None
    started: float
    silent_since: float
    looks: int = 0

    @classmethod
    def begin(cls, timeout: float | None, now: float) -> Waiting:
        return cls(timeout, now, now)

    def answered(self, now: float) -> None:
        self.silent_since = now

    def request_seconds(self, now: float) -> float:
        """How long the next request may take."""
        return LONGEST_REQUEST if self.timeout is None else min(LONGEST_REQUEST, max(0.1, self._left(now)))

    def pause(self, now: float) -> float | None:
        """Seconds until the next look; None: the time is up."""
        if self.timeout is not None and self._left(now) <= 0:
            return None
        if self.timeout is None and now - self.silent_since > PATIENCE:
            return None
        wait = min(FIRST_LOOK * GROWTH**self.looks, SLOWEST_LOOK)
        self.looks += 1
        return wait if self.timeout is None else min(wait, self._left(now))

    def _left(self, now: float) -> float:
        assert self.timeout is not None
        return self.started + self.timeout - now


@dataclass
class Following:
    """Where in the stream of events we are.

    Attributes:
        last_id: of the last event that was handed on.
        ended: an event announced a terminal state.
        fresh: the present connection has brought an event.
        failures: connections in a row that brought none.
    """

    last_id: str | None = None
    ended: bool = False
    fresh: bool = False
    failures: int = 0

    def connecting(self) -> None:
        self.fresh = False

    def take(self, sent: httpx2.ServerSentEvent) -> Event | None:
        """The event, or None for one that carries nothing (a sign of life)."""
        if not sent.data:
            return None
        self.last_id = sent.id or self.last_id
        self.fresh, self.failures = True, 0
        event = Event(id=sent.id, **_payload(sent))
        self.ended = self.ended or (event.state is not None and event.state.terminal)
        return event

    def pause(self) -> float:
        """Seconds before the next connection."""
        if not self.fresh:
            self.failures += 1
        return backoff(max(self.failures - 1, 0))


def _payload(sent: httpx2.ServerSentEvent) -> dict[str, Any]:
    """Type and data, whether the type stands in the stream or beside the data."""
    try:
        document = json.loads(sent.data)
    except ValueError:
        document = sent.data
    if not isinstance(document, dict):
        document = {"value": document}
    if isinstance(document.get("data"), dict):
        return {"type": sent.event, **document}
    return {"type": sent.event, "data": document}
