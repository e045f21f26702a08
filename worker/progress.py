"""How far a job is, and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Callable

from jobs.live import Progress

EVENTS = 200
"""About so many progress events a job may leave."""
SHORTEST_SECONDS = 1.0
LONGEST_SECONDS = 30.0


class ProgressMeter:
    """Of one attempt. The time to go is that of the steps so far, which need not be the first ones."""

    def __init__(self, attempt: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._attempt = attempt
        self._clock = clock
        self._first: tuple[int, float] | None = None
        self._event_step = 0
        self._event_at = clock()

    def at(self, step: int, total: int) -> Progress:
        """The progress after ``step`` of ``total`` steps."""
        now = self._clock()
        if self._first is None:
            self._first = (step, now)
        first_step, first_time = self._first
        done = step - first_step
        eta = (now - first_time) / done * (total - step) if done > 0 else None
        return Progress(attempt=self._attempt, step=step, total=total, eta_s=0.0 if step >= total else eta)

    def worth_an_event(self, step: int, total: int) -> bool:
        """Whether this step should be told; long jobs tell few of theirs."""
        since = self._clock() - self._event_at
        enough = since >= SHORTEST_SECONDS and step - self._event_step >= total / EVENTS
        if enough or since >= LONGEST_SECONDS or step >= total:
            self._event_step, self._event_at = step, self._clock()
            return True
        return False
