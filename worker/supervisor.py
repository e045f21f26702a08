"""Takes jobs for one device, one at a time, and has runners do them. Loads neither torch nor numba."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from jobs.broker import BrokerUnavailable
from jobs.computations.limits import Limits
from jobs.job_limits import job_limits
from jobs.journal import Journal, UnknownJob
from jobs.live import Live
from jobs.queue import Queue
from jobs.record import JobRecord
from jobs.settings import JobOptions
from jobs.states import State
from jobs.store import StoreUnavailable
from worker.attempt import TRAINING, Attempt, Services
from worker.runner_process import RunnerProcess

logger = logging.getLogger("anglewise.worker")

JOBS_PER_RUNNER = 200
"""A process that has done so many is replaced: memory it did not give back is then."""
CLAIM_SECONDS = 60.0
CLAIM_PAUSE = 0.5


class Supervisor:
    """Of one device.

    Attributes:
        job: id of the job that is being done.
        idle_since: on the monotonic clock, while there is none; None otherwise.
    """

    def __init__(
        self,
        journal: Journal,
        live: Live,
        queue: Queue,
        settings: JobOptions,
        worker_id: str,
        environment: Mapping[str, str],
        limits: Limits,
        can_train: bool = True,
    ) -> None:
        self._limits = limits
        self._services = Services(journal, live, settings, threading.Event())
        self._queue = queue
        self._worker_id = worker_id
        self._environment = environment
        self._can_train = can_train
        self._runner: RunnerProcess | None = None
        self.job: str | None = None
        self.idle_since: float | None = time.monotonic()

    @property
    def stopping(self) -> bool:
        return self._services.stopping.is_set()

    def stop(self) -> None:
        """Give the running job back soon, and begin no other. May be called from a signal handler."""
        self._services.stopping.set()

    def prepare(self) -> None:
        """Start a runner, if there is none; it loads its code while there is nothing to do."""
        if self._runner is None or self._runner.ended:
            self._drop_runner()
            self._runner = RunnerProcess(self._environment, self._configuration())

    def work(self, job_id: str) -> JobRecord | None:
        """Do a job if it waits for somebody; the job afterwards, None if there was nothing to do.

        Raises:
            RunnerFailed: this worker cannot do any job.
        """
        self.idle_since, self.job = None, job_id
        try:
            return self._work(job_id)
        finally:
            self.idle_since, self.job = time.monotonic(), None

    def close(self) -> None:
        """End the runner."""
        self._drop_runner()

    def _work(self, job_id: str) -> JobRecord | None:
        if self.stopping or not self._waits_for_us(job_id):
            return None
        self.prepare()
        runner = self._runner
        assert runner is not None
        runner.wait_ready()  # before the job is claimed: it is not to blame for a runner that does not start
        record = self._claim(job_id)
        if record is None:
            return None
        try:
            ended = Attempt(self._services, runner, record).carry_out()
        finally:
            self._renew_runner()
        logger.info("%s: %s", job_id, "given up" if ended is None else ended.state.value)
        if ended is not None and ended.state is State.QUEUED:
            self._ring(job_id)
        return ended

    def _waits_for_us(self, job_id: str) -> bool:
        try:
            record = self._services.journal.read(job_id)
        except UnknownJob:
            return False
        except StoreUnavailable:
            return True  # the claim will tell
        return record.state is State.QUEUED and (self._can_train or record.kind != TRAINING)

    def _claim(self, job_id: str) -> JobRecord | None:
        """Begin an attempt; None if somebody else did, or the store is away for long: it is rung for again.

        The owner is a new word each time, so that a write whose answer got lost is recognized.
        """
        journal, owner = self._services.journal, f"{self._worker_id}/{uuid.uuid4().hex[:12]}"
        deadline = time.monotonic() + CLAIM_SECONDS
        while not self.stopping and time.monotonic() < deadline:
            try:
                record = journal.start(job_id, owner) or journal.read(job_id)
                return record if record.held and record.owner == owner else None
            except UnknownJob:
                return None
            except StoreUnavailable as error:
                logger.warning("%s: the store is away: %s", job_id, error)
                time.sleep(CLAIM_PAUSE)
        return None

    def _renew_runner(self) -> None:
        """Have a runner ready for the next job."""
        runner = self._runner
        if runner is not None and (not runner.reusable or runner.jobs >= JOBS_PER_RUNNER):
            self._drop_runner()
        if not self.stopping:
            self.prepare()

    def _drop_runner(self) -> None:
        if self._runner is not None:
            self._runner.kill()
            self._runner = None

    def _ring(self, job_id: str) -> None:
        try:
            self._queue.ring(job_id)
        except BrokerUnavailable:
            logger.info("%s: waits until Redis is back", job_id)

    def _configuration(self) -> dict[str, Any]:
        settings = self._services.settings
        # CUDA reserves far more addresses than it uses: with it, only the use is watched.
        bound = 0 if self._environment.get("CUDA_VISIBLE_DEVICES") else settings.job_memory_bytes
        return {
            "store_url": settings.objects_url,
            "memory_bytes": bound,
            "limits": job_limits(self._limits, settings.computation_job_seconds).model_dump(),
        }
