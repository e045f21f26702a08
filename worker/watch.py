"""What an attempt has to do with the store while it runs: hear of a cancellation, keep its events."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from jobs.events import EventLog
from jobs.journal import Journal, UnknownJob
from jobs.states import State
from jobs.store import StoreUnavailable

logger = logging.getLogger("anglewise.worker")

END_SECONDS = 5.0

Flushed = Callable[[bool], None]


class Watch:
    """Works on a thread of its own: a store that hangs must not keep the supervisor from killing a runner.

    Attributes:
        cancelled: somebody asked to cancel the job.
        over: another attempt holds the job, or it has ended, or it was deleted.
    """

    def __init__(
        self,
        journal: Journal,
        events: EventLog,
        job_id: str,
        attempt: int,
        heartbeat_seconds: float,
        on_cancel: Callable[[], None],
    ) -> None:
        self.cancelled = False
        self.over = False
        self._journal = journal
        self._events = events
        self._job_id = job_id
        self._attempt = attempt
        self._heartbeat = heartbeat_seconds
        self._on_cancel = on_cancel
        self._requests: queue.SimpleQueue[Flushed | None] = queue.SimpleQueue()
        self._away = False
        self._thread = threading.Thread(target=self._run, name=f"watch-{job_id}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._requests.put(None)
        self._thread.join(END_SECONDS)

    def flush(self, done: Flushed) -> None:
        """Store the events so far, then call ``done`` with whether that worked."""
        self._requests.put(done)

    def _run(self) -> None:
        look = time.monotonic() + self._heartbeat
        while True:
            try:
                request = self._requests.get(timeout=max(look - time.monotonic(), 0.0))
            except queue.Empty:
                look = time.monotonic() + self._heartbeat
                self._look()
                continue
            if request is None:
                return
            request(self._flush(self._events.flush))

    def _look(self) -> None:
        try:
            record = self._journal.read(self._job_id)
        except UnknownJob:
            self.over = True
        except StoreUnavailable as problem:
            self._note(problem)
        else:
            self._note(None)
            self.over = not record.holds(self._attempt)
            if record.state is State.CANCELLING and not self.cancelled and not self.over:
                self.cancelled = True
                self._on_cancel()
        if not self.over:
            self._flush(self._events.flush_if_due)

    def _flush(self, store: Callable[[], None]) -> bool:
        if self.over:
            return False
        try:
            store()
        except StoreUnavailable as problem:
            self._note(problem)
            return False
        return True

    def _note(self, problem: Exception | None) -> None:
        if problem is not None and not self._away:
            logger.warning("%s: the store is away, the job goes on: %s", self._job_id, problem)
        self._away = problem is not None
