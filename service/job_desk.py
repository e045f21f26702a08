"""What routes about jobs work with: the journal, the queue, live news; and their failures as problems."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from jobs.broker import BrokerUnavailable
from jobs.events import Event
from jobs.ids import is_job_id
from jobs.journal import Journal, UnknownJob
from jobs.live import Live, Progress, Worker
from jobs.problems import Problem
from jobs.queue import Queue
from jobs.record import JobRecord
from jobs.store import Missing, ObjectStore, StoreFull, StoreUnavailable
from service.cache import AnswerCache
from service.settings import Settings

T = TypeVar("T")

THREADS = 16
HISTORY_THREADS = 2
"""A job may have hundreds of thousands of events: few are read at a time, and nobody else waits for that."""
RETRY_AFTER = {"Retry-After": "5"}
BROKER_PAUSE_SECONDS = 1.0
"""A broker that did not answer is left alone for this time: requests must not all wait for it."""
SPEC_CACHE_BYTES = 16 * 2**20


class JobDesk:
    """One for the application. `run` and `look_back` call its other methods, which wait, in threads."""

    def __init__(self, settings: Settings) -> None:
        assert settings.broker_url is not None
        self.settings = settings
        self.store = ObjectStore(settings.objects_url)
        self.journal = Journal(self.store)
        self.live = Live(settings.broker_url, settings.lease_seconds)
        self.queue = Queue(settings.broker_url)
        self.specs = AnswerCache(SPEC_CACHE_BYTES)
        self._threads = ThreadPoolExecutor(THREADS, "jobs")
        self._history_threads = ThreadPoolExecutor(HISTORY_THREADS, "history")
        self._broker_back_at = 0.0

    def close(self) -> None:
        for threads in (self._threads, self._history_threads):
            threads.shutdown(wait=False, cancel_futures=True)
        self.queue.close()
        self.live.close()

    async def run(self, action: Callable[..., T], *arguments: object) -> T:
        """The result of ``action``, called in a thread.

        Raises:
            Problem: not_found, storage_full, storage_unavailable, or what ``action`` raises.
        """
        return await _run(self._threads, action, *arguments)

    async def look_back(self, action: Callable[..., T], *arguments: object) -> T:
        """The same for what reads all the events of a job."""
        return await _run(self._history_threads, action, *arguments)

    def read(self, job_id: str) -> JobRecord:
        """
        Raises:
            UnknownJob, StoreUnavailable
        """
        if not is_job_id(job_id):  # it would become part of a path
            raise UnknownJob(job_id)
        return self.journal.read(job_id)

    def spec(self, record: JobRecord) -> bytes:
        """
        Raises:
            UnknownJob, StoreUnavailable
        """
        spec = self.specs.get(record.id.encode())
        if spec is None:
            spec = self.journal.spec(record.id)
            self.specs.put(record.id.encode(), spec)
        return spec

    def progress(self, job_ids: Sequence[str]) -> dict[str, Progress]:
        """Of running jobs; empty while the broker is away."""
        found = self.ask_broker(lambda: self.live.progress(job_ids)) if job_ids else None
        return found or {}

    def fresh_events(self, job_id: str, after: int) -> list[Event] | None:
        """None while the broker is away."""
        return self.ask_broker(lambda: self.live.events_after(job_id, after))

    def workers(self) -> list[Worker] | None:
        """None while the broker is away."""
        return self.ask_broker(self.live.workers)

    def tell(self, job_id: str) -> None:
        """Let those who watch a job know that its log has a new entry, if the broker is there."""
        self.ask_broker(lambda: self.live.notify(job_id))

    def forget(self, job_id: str) -> None:
        """Drop what the broker has about a deleted job, if it is there."""
        self.ask_broker(lambda: self.live.forget(job_id))

    def ring(self, job_id: str) -> None:
        """Call for a worker. A keeper does it later if the broker is away."""
        self.ask_broker(lambda: self.queue.ring(job_id))

    def ask_broker(self, action: Callable[[], T]) -> T | None:
        """None if the broker is away, or was a moment ago."""
        if time.monotonic() < self._broker_back_at:
            return None
        try:
            return action()
        except BrokerUnavailable:
            self._broker_back_at = time.monotonic() + BROKER_PAUSE_SECONDS
            return None


async def _run(threads: ThreadPoolExecutor, action: Callable[..., T], *arguments: object) -> T:
    loop = asyncio.get_running_loop()
    try:
        return await loop.run_in_executor(threads, action, *arguments)
    except (UnknownJob, Missing, StoreUnavailable) as error:
        raise problem_of_store(error) from error


def problem_of_store(error: Exception) -> Problem:
    """What a failure of the journal or the store is to a client."""
    if isinstance(error, UnknownJob):
        return Problem("not_found", "there is no such job")
    if isinstance(error, Missing):
        return Problem("not_found", "this is not, or no longer, in the store")
    if isinstance(error, StoreFull):
        return Problem("storage_full", "the object store is full; nothing was accepted")
    return Problem("storage_unavailable", "the object store does not answer", headers=RETRY_AFTER)
