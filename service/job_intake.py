"""Taking a job in: whether it was sent before, whether there is room, and only then storing it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from jobs import paths
from jobs.idempotency import KeyReused, claim
from jobs.ids import new_job_id
from jobs.journal import UnknownJob
from jobs.problems import Problem
from jobs.record import JobRecord, Submission
from jobs.states import State
from service.job_desk import RETRY_AFTER, JobDesk

COUNT_SECONDS = 1.0
"""Waiting jobs are counted no more often than this."""


@dataclass(frozen=True)
class JobOrder:
    """What to submit.

    Attributes:
        kind: under which it is stored.
        digest: of the request as it came.
    """

    kind: str
    spec: bytes
    digest: str
    name: str | None = None
    webhook: str | None = None


@dataclass(frozen=True)
class IdempotencyKey:
    """What a client gave, and the client: keys of one say nothing about those of another."""

    owner: str
    key: str

    @property
    def path(self) -> str:
        return paths.idempotency(f"{self.owner}\0{self.key}")


class Intake:
    """One for the application; for threads."""

    def __init__(self, desk: JobDesk) -> None:
        self._desk = desk
        self._active = 0
        self._counted_at = -COUNT_SECONDS

    def submit(self, order: JobOrder, key: IdempotencyKey | None) -> JobRecord:
        """Store a job and call for a worker. Once this returns, the job cannot be lost.

        Raises:
            Problem: idempotency_mismatch, busy, storage_full, body_too_large.
            StoreUnavailable
        """
        job_id, journal = new_job_id(), self._desk.journal
        if key is not None and self._desk.store.size(key.path) is not None:
            job_id = self._claim(key, job_id, order)
            try:
                return journal.read(job_id)
            except UnknownJob:  # the first request got no further than its key
                pass
        self._require_room(order)
        if key is not None:
            job_id = self._claim(key, job_id, order)
        submission = Submission(
            kind=order.kind,
            name=order.name,
            spec_bytes=len(order.spec),
            webhook=order.webhook,
            idempotency=None if key is None else key.path,
        )
        record = journal.submit(job_id, submission, order.spec)
        self._active += 1
        if record.state is State.QUEUED:
            self._desk.ring(job_id)
        return record

    def _claim(self, key: IdempotencyKey, job_id: str, order: JobOrder) -> str:
        try:
            return claim(self._desk.store, key.path, job_id, order.digest)
        except KeyReused:
            raise Problem(
                "idempotency_mismatch", "this idempotency key came before, with another request"
            ) from None

    def _require_room(self, order: JobOrder) -> None:
        settings = self._desk.settings
        if len(order.spec) > settings.max_job_spec_bytes:
            raise Problem(
                "body_too_large", f"the spec of a job may have at most {settings.max_job_spec_bytes} bytes"
            )
        free = self._desk.store.free_bytes()
        if free is not None and free < settings.disk_reserve_bytes + len(order.spec):
            raise Problem("storage_full", "too little space is left; nothing was accepted")
        if time.monotonic() >= self._counted_at + COUNT_SECONDS:
            self._active = len(self._desk.journal.active_ids())
            self._counted_at = time.monotonic()
        if self._active >= settings.max_queued_jobs:
            raise Problem("busy", f"{self._active} jobs are waiting already", headers=RETRY_AFTER)
