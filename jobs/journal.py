"""Reading jobs and moving them from state to state, in any number of processes at once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from jobs import paths
from jobs.record import Artifact, Entry, JobRecord, Step, Submission, first_record
from jobs.states import Reason, ReasonCode, State
from jobs.store import Missing, ObjectStore

MAX_LOSSES = 3
"""A job whose worker was lost so often fails."""
KEPT_RECORDS = 20_000

CANCELLED_BY_USER = Reason(code=ReasonCode.USER, message="it was cancelled")
LOST_TOO_OFTEN = Reason(
    code=ReasonCode.WORKER_LOST,
    message=f"its worker ended without a word {MAX_LOSSES} times: killed, out of memory, or cut off",
)


class UnknownJob(LookupError):
    """There is no such job."""


class AlreadyEnded(Exception):
    """The job has ended in a way that does not fit what was asked."""

    def __init__(self, record: JobRecord) -> None:
        super().__init__(f"the job has {record.state.value} already")
        self.record = record


class NotEnded(Exception):
    """The job has to end first."""

    def __init__(self, record: JobRecord) -> None:
        super().__init__(f"the job is {record.state.value}")
        self.record = record


class Superseded(Exception):
    """The attempt does not hold the job any more: it must stop, and nothing it does counts."""


class Journal:
    """The logs of all jobs in a store. Entries never change, so those read once are kept in memory.

    Every method raises what `ObjectStore` raises when the store fails.
    """

    def __init__(self, store: ObjectStore, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.store = store
        self._now = now
        self._records: OrderedDict[str, JobRecord] = OrderedDict()
        self._lock = threading.Lock()

    def submit(self, job_id: str, submission: Submission, spec: bytes) -> JobRecord:
        """Store a new job. Once this returns it cannot be lost. Submitting it again changes nothing."""
        self.store.put(
            paths.active(job_id), b""
        )  # before the job: whatever is in it, or was about to be, is found
        self.store.put(paths.spec(job_id), spec)
        entry = Entry(step=Step.SUBMITTED, at=self._now(), submission=submission)
        if not self._write(job_id, 0, entry):
            return self.read(job_id)
        return self._keep(first_record(job_id, entry))

    def read(self, job_id: str) -> JobRecord:
        """The job as it is now.

        Raises:
            UnknownJob
        """
        with self._lock:
            record = self._records.get(job_id)
        if record is None:
            record = first_record(job_id, self._entry(job_id, 0))
        elif self.store.size(paths.entry(job_id, 0)) is None:
            self.forget(job_id)
            raise UnknownJob(job_id)
        while not record.state.terminal:
            try:
                record = record.after(self._entry(job_id, len(record.entries)))
            except UnknownJob:
                break
        return self._keep(record)

    def spec(self, job_id: str) -> bytes:
        """What was asked for, as JSON.

        Raises:
            UnknownJob
        """
        try:
            return self.store.get(paths.spec(job_id))
        except Missing:
            raise UnknownJob(job_id) from None

    def start(self, job_id: str, owner: str) -> JobRecord | None:
        """Begin the next attempt; None if the job is not waiting for one.

        Raises:
            UnknownJob
        """

        def decide(record: JobRecord) -> Entry | None:
            if record.state is not State.QUEUED:
                return None
            return Entry(step=Step.STARTED, at=self._now(), attempt=record.attempt + 1, owner=owner)

        record, written = self._advance(job_id, decide)
        return record if written else None

    def request_cancel(self, job_id: str) -> JobRecord:
        """Cancel at once what no worker holds, else have its worker stopped. Asking again changes nothing.

        Raises:
            UnknownJob
            AlreadyEnded: it succeeded or failed.
        """

        def decide(record: JobRecord) -> Entry | None:
            if record.state in (State.SUCCEEDED, State.FAILED):
                raise AlreadyEnded(record)
            if record.state is State.QUEUED:
                return self._end(record, Step.CANCELLED, CANCELLED_BY_USER)
            if record.state is State.RUNNING:
                return Entry(step=Step.CANCEL_REQUESTED, at=self._now(), attempt=record.attempt)
            return None

        return self._advance(job_id, decide)[0]

    def release(self, job_id: str, attempt: int) -> JobRecord:
        """Give a job back that this attempt holds, for another worker to go on with.

        Raises:
            UnknownJob, Superseded
        """

        def decide(record: JobRecord) -> Entry | None:
            _require(record, attempt)
            if record.state is State.CANCELLING:
                return self._end(record, Step.CANCELLED, CANCELLED_BY_USER)
            return Entry(step=Step.RELEASED, at=self._now(), attempt=attempt)

        return self._advance(job_id, decide)[0]

    def lose(self, job_id: str, attempt: int) -> JobRecord:
        """Say that the worker of an attempt is gone: the job waits again, or ends if that happened too often.

        Raises:
            UnknownJob, Superseded
        """

        def decide(record: JobRecord) -> Entry | None:
            _require(record, attempt)
            if record.state is State.CANCELLING:
                return self._end(record, Step.CANCELLED, CANCELLED_BY_USER)
            if record.losses + 1 >= MAX_LOSSES:
                return self._end(record, Step.FAILED, LOST_TOO_OFTEN)
            return Entry(step=Step.LOST, at=self._now(), attempt=attempt)

        return self._advance(job_id, decide)[0]

    def succeed(self, job_id: str, attempt: int, artifacts: Sequence[Artifact]) -> JobRecord:
        """End a job whose result is stored; as cancelled, if that was asked for before.

        Raises:
            UnknownJob, Superseded
        """

        def decide(record: JobRecord) -> Entry | None:
            _require(record, attempt)
            if record.state is State.CANCELLING:
                return self._end(record, Step.CANCELLED, CANCELLED_BY_USER, artifacts)
            return self._end(record, Step.SUCCEEDED, None, artifacts)

        return self._advance(job_id, decide)[0]

    def fail(
        self, job_id: str, attempt: int, reason: Reason, artifacts: Sequence[Artifact] = ()
    ) -> JobRecord:
        """End a job without a result; as cancelled, if that was asked for before.

        Raises:
            UnknownJob, Superseded
        """

        def decide(record: JobRecord) -> Entry | None:
            _require(record, attempt)
            if record.state is State.CANCELLING:
                return self._end(record, Step.CANCELLED, CANCELLED_BY_USER, artifacts)
            return self._end(record, Step.FAILED, reason, artifacts)

        return self._advance(job_id, decide)[0]

    def delete(self, job_id: str) -> None:
        """Remove an ended job and everything it left.

        Raises:
            UnknownJob
            NotEnded
        """
        record = self.read(job_id)
        if not record.state.terminal:
            raise NotEnded(record)
        self.store.put(paths.active(job_id), b"")  # so that a deletion that is cut off is found and finished
        if record.submission.idempotency is not None:  # first: a key must not lead to half a job
            self.store.delete(record.submission.idempotency)
        self.store.delete(paths.entry(job_id, 0))  # from here on the job is unknown, whatever happens
        self.store.delete_folder(paths.job(job_id))
        self.store.delete(paths.active(job_id))
        self.forget(job_id)

    def ids(self) -> list[str]:
        """Of all jobs, newest first; a few may turn out to be unknown when read."""
        return self.store.folders(paths.JOBS)[::-1]

    def active_ids(self) -> list[str]:
        """Of the jobs that may not have ended, or whose end was not attended to yet; oldest first."""
        return [name.rpartition("/")[2] for name in self.store.names(paths.ACTIVE)]

    def settle(self, job_id: str) -> None:
        """Note that an ended job needs no more attention."""
        self.store.delete(paths.active(job_id))

    def forget(self, job_id: str) -> None:
        """Drop what is kept in memory about a job."""
        with self._lock:
            self._records.pop(job_id, None)

    def _advance(self, job_id: str, decide: Callable[[JobRecord], Entry | None]) -> tuple[JobRecord, bool]:
        """Write the entry that ``decide`` wants, deciding anew whenever another writer was first."""
        while True:
            record = self.read(job_id)
            entry = decide(record)
            if entry is None:
                return record, False
            if self._write(job_id, len(record.entries), entry):
                return self._keep(record.after(entry)), True

    def _end(
        self, record: JobRecord, step: Step, reason: Reason | None, artifacts: Sequence[Artifact] = ()
    ) -> Entry:
        return Entry(
            step=step, at=self._now(), attempt=record.attempt, reason=reason, artifacts=tuple(artifacts)
        )

    def _write(self, job_id: str, position: int, entry: Entry) -> bool:
        """Whether the entry is in the log: also if the answer to a first try at writing it was lost."""
        written = self.store.create(paths.entry(job_id, position), entry.model_dump_json().encode())
        return written or self._entry(job_id, position) == entry

    def _entry(self, job_id: str, position: int) -> Entry:
        try:
            return Entry.model_validate_json(self.store.get(paths.entry(job_id, position)))
        except Missing:
            raise UnknownJob(job_id) from None

    def _keep(self, record: JobRecord) -> JobRecord:
        with self._lock:
            known = self._records.pop(record.id, record)
            newest = record if len(record.entries) >= len(known.entries) else known
            self._records[record.id] = newest
            while len(self._records) > KEPT_RECORDS:
                self._records.popitem(last=False)
        return newest


def _require(record: JobRecord, attempt: int) -> None:
    if not record.holds(attempt):
        raise Superseded(f"attempt {attempt} of {record.id} is over; the job is {record.state.value}")


def records(journal: Journal, job_ids: Sequence[str]) -> Iterator[JobRecord]:
    """The jobs of these ids, without those that were deleted meanwhile."""
    for job_id in job_ids:
        try:
            yield journal.read(job_id)
        except UnknownJob:
            continue
