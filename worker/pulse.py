"""The signs of life of an attempt in Redis: its lease, its progress, its fresh events."""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType
from typing import Self

from jobs.broker import BrokerUnavailable
from jobs.events import Event
from jobs.live import Live, Progress

logger = logging.getLogger("anglewise.worker")

GATHER_SECONDS = 0.1
"""Events within this time are sent together."""
MAX_WAITING = 10_000
"""Events kept while Redis is away; the store has them all."""
END_SECONDS = 5.0


class Pulse:
    """Works on a thread of its own: Redis may be slow or away, and the job goes on all the same.

    Use as a context manager; leaving it sends what waits and ends the lease.
    """

    def __init__(self, live: Live, job_id: str, attempt: int, owner: str, heartbeat_seconds: float) -> None:
        self._live = live
        self._job_id = job_id
        self._attempt = attempt
        self._owner = owner
        self._heartbeat = heartbeat_seconds
        self._events: list[Event] = []
        self._progress: Progress | None = None
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._away = False
        self._thread = threading.Thread(target=self._run, name=f"pulse-{job_id}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._wake.set()
        self._thread.join(END_SECONDS)

    def tell(self, event: Event) -> None:
        """Pass an event on soon."""
        with self._lock:
            self._events.append(event)
            del self._events[:-MAX_WAITING]
        self._wake.set()

    def show(self, progress: Progress) -> None:
        """Pass the progress on soon; only the latest counts."""
        with self._lock:
            self._progress = progress
        self._wake.set()

    def _run(self) -> None:
        beat = 0.0
        while not self._ended.is_set():
            try:
                if time.monotonic() >= beat:
                    beat = time.monotonic() + self._heartbeat
                    self._live.renew(self._job_id, self._attempt, self._owner)
                self._pass_on()
                self._note(away=False)
                self._wake.wait(max(beat - time.monotonic(), 0.0))
                self._wake.clear()
                self._ended.wait(GATHER_SECONDS)
            except BrokerUnavailable as problem:
                self._note(away=True, problem=problem)
                self._ended.wait(self._heartbeat)
        self._finish()

    def _pass_on(self) -> None:
        with self._lock:
            events, progress = list(self._events), self._progress
            self._progress = None
        if progress is not None:
            self._live.set_progress(self._job_id, progress)
        if events:
            self._live.publish(self._job_id, events)
            with self._lock:
                sent = {event.sequence for event in events}
                self._events = [event for event in self._events if event.sequence not in sent]

    def _finish(self) -> None:
        try:
            self._pass_on()
            self._live.drop(self._job_id, self._attempt)
        except BrokerUnavailable:
            logger.info("%s: Redis was away at the end", self._job_id)

    def _note(self, away: bool, problem: Exception | None = None) -> None:
        if away and not self._away:
            logger.warning("%s: Redis is away, the job goes on: %s", self._job_id, problem)
        self._away = away
