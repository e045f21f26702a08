"""Looks after every job that has not ended: what its worker lost, what nobody rang for, what is left behind.

Any number of keepers may run; each step is one that the log of the job allows or refuses.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from ulid import ULID

from jobs.broker import BrokerUnavailable
from jobs.datasets.catalog import Catalog
from jobs.ids import is_job_id
from jobs.journal import Journal, NotEnded, Superseded, UnknownJob
from jobs.leftovers import clear_interrupted, clear_staging
from jobs.live import Live
from jobs.queue import Queue
from jobs.record import JobRecord
from jobs.settings import JobOptions
from jobs.states import State
from jobs.store import ObjectStore, StoreUnavailable
from jobs.webhooks import deliver_due

logger = logging.getLogger("anglewise.jobs")

ROUND_SECONDS = 2.0
SAMPLE = 50
"""Jobs that seem well and are looked at nevertheless, a round."""
INTERRUPTED_AFTER = timedelta(hours=1)
"""A job without a log is one whose submission or deletion was cut off, if its id is as old as this."""
TIDY_SECONDS = 60.0
MAX_DELETIONS = 100
WEBHOOK_THREADS = 4

Deliver = Callable[[ObjectStore, JobRecord, JobOptions], bool]
"""As `deliver_due`."""


class Keeper:
    """One keeper, for one thread."""

    def __init__(
        self,
        journal: Journal,
        live: Live,
        queue: Queue,
        options: JobOptions,
        deliver: Deliver = deliver_due,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._journal = journal
        self._live = live
        self._queue = queue
        self._options = options
        self._deliver = deliver
        self._clock = clock
        self._now = now
        self._patience = max(options.lease_seconds / 2, 3 * options.heartbeat_seconds)
        self._absent: dict[str, tuple[int, float]] = {}
        self._held: set[str] = set()
        self._unrung: set[str] = set()
        self._last_round = clock()
        self._generation: str | None = None
        self._others: deque[str] = deque()
        self._webhooks = ThreadPoolExecutor(WEBHOOK_THREADS, "webhook")
        self._calls: dict[str, Future[bool]] = {}
        self._tidy_at = clock()

    def run(self, stopped: threading.Event) -> None:
        """Do one round after the other until ``stopped`` is set."""
        while not stopped.wait(ROUND_SECONDS):
            try:
                self.round()
            except StoreUnavailable as error:
                logger.warning("the object store does not answer: %s", error)
            except Exception:
                logger.exception("a round of the keeper failed")
        self._webhooks.shutdown(wait=False, cancel_futures=True)

    def round(self) -> None:
        """Look at every job that may need something, and do it.

        Raises:
            StoreUnavailable
        """
        now = self._clock()
        elapsed = min(now - self._last_round, self._patience / 2)  # after a pause, leases come back first
        self._last_round = now
        active = [job_id for job_id in self._journal.active_ids() if is_job_id(job_id)]
        waiting, leased = self._signs(active)
        for job_id in self._unsure(active, waiting or set(), leased or set()):
            self._look_after(job_id, waiting, leased, elapsed)
        self._forget_all_but(set(active))
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_SECONDS
            self._tidy(set(active))

    def _signs(self, active: list[str]) -> tuple[set[str] | None, set[str] | None]:
        """Jobs with a message in the queue, and jobs with a lease; None and None while Redis is away."""
        try:
            generation = self._live.generation()
            waiting, leased = self._queue.waiting_ids(), set(self._live.holders(active))
        except BrokerUnavailable as error:
            logger.warning("the broker does not answer: %s", error)
            generation, waiting, leased = None, None, None
        if generation != self._generation:  # leases may have vanished with it: give workers time to renew
            self._absent.clear()
            self._unrung.clear()
        self._generation = generation
        return waiting, leased

    def _unsure(self, active: list[str], waiting: set[str], leased: set[str]) -> list[str]:
        """Jobs that have neither lease nor message, or had a lease before; and a few others each time."""
        self._held |= leased
        self._unrung -= waiting
        for job_id in leased:
            self._absent.pop(job_id, None)
        well = leased | (waiting - self._held)
        if not self._others:
            self._others.extend(sorted(well))
        others = [self._others.popleft() for _ in range(min(SAMPLE, len(self._others)))]
        return [
            *(job_id for job_id in active if job_id not in well),
            *(job_id for job_id in others if job_id in well),
        ]

    def _look_after(
        self, job_id: str, waiting: set[str] | None, leased: set[str] | None, elapsed: float
    ) -> None:
        try:
            record = self._journal.read(job_id)
        except UnknownJob:
            if self._now() - _made_at(job_id) > INTERRUPTED_AFTER:
                clear_interrupted(self._journal.store, job_id)
            return
        if record.state.terminal:
            self._attend_end(record)
        elif record.held and leased is not None:
            self._watch_lease(record, leased, elapsed)
        elif record.state is State.QUEUED and waiting is not None:
            self._watch_queue(record, waiting)

    def _watch_lease(self, record: JobRecord, leased: set[str], elapsed: float) -> None:
        """Give an attempt up whose lease has been absent long enough by this keeper's clock."""
        if record.id in leased:
            return
        attempt, absent = self._absent.get(record.id, (record.attempt, -elapsed))
        if attempt != record.attempt:
            absent = -elapsed
        absent += elapsed
        self._absent[record.id] = (record.attempt, absent)
        if absent < self._patience:
            return
        del self._absent[record.id]
        logger.warning("attempt %d of %s was lost", record.attempt, record.id)
        with contextlib.suppress(Superseded, UnknownJob):
            if not self._journal.lose(record.id, record.attempt).state.terminal:
                self._ring(record.id)
            with contextlib.suppress(BrokerUnavailable):
                self._live.notify(record.id)

    def _watch_queue(self, record: JobRecord, waiting: set[str]) -> None:
        """Ring for a job that no message stands for, twice in a row: one may be on its way to a worker."""
        self._held.discard(record.id)
        if record.id in waiting:
            return
        if record.id in self._unrung:
            self._unrung.discard(record.id)
            self._ring(record.id)
        else:
            self._unrung.add(record.id)

    def _ring(self, job_id: str) -> None:
        with contextlib.suppress(BrokerUnavailable):  # a later round rings
            self._queue.ring(job_id)

    def _attend_end(self, record: JobRecord) -> None:
        """Settle an ended job once its webhook, if it has one, needs no more calls."""
        if record.submission.webhook is not None and not self._called(record):
            return
        with contextlib.suppress(BrokerUnavailable):
            self._live.remember(record)
        self._journal.settle(record.id)

    def _called(self, record: JobRecord) -> bool:
        """Whether the webhook needs no more calls; calls it, in another thread, when that is due."""
        call = self._calls.pop(record.id, None)
        if call is not None and not call.done():
            self._calls[record.id] = call
            return False
        if call is not None:
            if error := call.exception():
                logger.warning("the webhook of %s was not called: %s", record.id, error)
            elif call.result():
                return True
        store = self._journal.store
        self._calls[record.id] = self._webhooks.submit(self._deliver, store, record, self._options)
        return False

    def _forget_all_but(self, active: set[str]) -> None:
        self._unrung &= active
        self._held &= active
        self._absent = {job_id: value for job_id, value in self._absent.items() if job_id in active}
        self._calls = {job_id: call for job_id, call in self._calls.items() if job_id in active}

    def _tidy(self, active: set[str]) -> None:
        clear_staging(self._journal.store, INTERRUPTED_AFTER)
        Catalog(self._journal.store).clear_interrupted(self._now())
        if self._options.retention_seconds is not None:
            oldest_kept = self._now() - timedelta(seconds=self._options.retention_seconds)
            self._delete_ended_before(oldest_kept, self._journal.ids()[::-1], active)

    def _delete_ended_before(self, moment: datetime, job_ids: Iterable[str], active: set[str]) -> None:
        deleted = 0
        for job_id in filter(is_job_id, job_ids):
            if _made_at(job_id) >= moment or deleted >= MAX_DELETIONS:
                return
            if job_id in active:
                continue
            with contextlib.suppress(UnknownJob, NotEnded):
                ended = self._journal.read(job_id).finished_at
                if ended is not None and ended < moment:
                    self._journal.delete(job_id)
                    deleted += 1
                    with contextlib.suppress(BrokerUnavailable):
                        self._live.forget(job_id)


def _made_at(job_id: str) -> datetime:
    return ULID.from_str(job_id.removeprefix("job_")).datetime
