"""Makes a worker known, and ends it when it does not hear the queue any more."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from datetime import UTC, datetime

from jobs.broker import BrokerUnavailable
from jobs.live import Live, Worker
from jobs.queue import Queue
from worker.supervisor import Supervisor

logger = logging.getLogger("anglewise.worker")

DEAF_SECONDS = 10.0
"""An idle worker beside a queue that is not empty for so long has lost its connection without a word."""
KNOWN_BEATS = 5
"""A worker that missed so many is gone."""


class Presence(threading.Thread):
    """Says each heartbeat that the worker is there, and what it does."""

    def __init__(
        self,
        live: Live,
        queue: Queue,
        supervisor: Supervisor,
        heartbeat_seconds: float,
        worker_id: str,
        device: str,
        can_train: bool,
    ) -> None:
        super().__init__(name="presence", daemon=True)
        self._live = live
        self._queue = queue
        self._supervisor = supervisor
        self._heartbeat = heartbeat_seconds
        self._waiting_since: float | None = None
        self._worker = Worker(
            id=worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            device=device,
            training=can_train,
            started_at=datetime.now(UTC),
        )

    def run(self) -> None:
        while not self._supervisor.stopping:
            try:
                self._show()
                if self.deaf(self._queue.length() > 0):
                    logger.critical("jobs wait, and this worker does not hear of them: it is started anew")
                    os._exit(1)
            except BrokerUnavailable:
                self._waiting_since = None
            time.sleep(self._heartbeat)

    def deaf(self, jobs_wait: bool) -> bool:
        """Whether jobs have been waiting for long while this worker was idle all the time."""
        if not jobs_wait or self._supervisor.job is not None:
            self._waiting_since = None
            return False
        if self._waiting_since is None:
            self._waiting_since = time.monotonic()
        idle_since = self._supervisor.idle_since
        since = max(self._waiting_since, idle_since if idle_since is not None else time.monotonic())
        return time.monotonic() - since > DEAF_SECONDS

    def _show(self) -> None:
        worker = self._worker.model_copy(update={"job": self._supervisor.job})
        self._live.register(worker, KNOWN_BEATS * self._heartbeat)
