"""What is known about jobs only while they run, in Redis: leases, progress, fresh events, workers.

All of it may vanish at any moment, and none of it decides anything: the log of a job does.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter

from jobs.broker import connect, translated
from jobs.events import Event
from jobs.record import Entry, JobRecord, first_record

CHANNEL = "anglewise:changed"
"""Carries the id of a job of which something new can be read."""
KEPT_EVENTS = 10_000
EVENTS_SECONDS = 3_600
PROGRESS_SECONDS = 86_400
SUMMARY_SECONDS = 86_400

ENTRIES: TypeAdapter[list[Entry]] = TypeAdapter(list[Entry])

RENEW = """
local held = redis.call('GET', KEYS[1])
if held then
  local lease = cjson.decode(held)
  if lease.attempt > tonumber(ARGV[1]) then return 0 end
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
"""
DROP = """
local held = redis.call('GET', KEYS[1])
if held and cjson.decode(held).attempt == tonumber(ARGV[1]) then return redis.call('DEL', KEYS[1]) end
return 0
"""


class Lease(BaseModel):
    """The sign of life of an attempt."""

    model_config = ConfigDict(frozen=True)

    attempt: int
    owner: str


class Progress(BaseModel):
    """How far a running job is: ``step`` of ``total``; ``eta_s`` seconds to go, None if nobody knows."""

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="null")

    attempt: int
    step: int
    total: int | None = None
    eta_s: float | None = None
    at: AwareDatetime = Field(default_factory=lambda: datetime.now(UTC))


class Worker(BaseModel):
    """A process that runs jobs on one device.

    Attributes:
        device: "cpu", "cuda:0", …
        device_name: as its maker calls it.
        training: whether it can train.
        job: what it runs now.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    host: str
    pid: int
    device: str
    device_name: str | None = None
    training: bool = True
    job: str | None = None
    started_at: AwareDatetime


class Live:
    """Usable from several threads. Every method raises `BrokerUnavailable` when Redis fails."""

    def __init__(self, url: str, lease_seconds: float = 6.0) -> None:
        self.url = url
        self.redis = connect(url)
        self.lease_seconds = lease_seconds
        self._renew = self.redis.register_script(RENEW)
        self._drop = self.redis.register_script(DROP)

    def ping(self) -> None:
        """Ask for a sign of life."""
        with translated():
            self.redis.ping()

    def generation(self) -> str:
        """Changes when Redis is started anew, perhaps without what it knew."""
        with translated():
            return str(self.redis.info("server")["run_id"])

    def close(self) -> None:
        """Close all connections."""
        self.redis.close()

    # leases

    def renew(self, job_id: str, attempt: int, owner: str) -> bool:
        """Say that the attempt is alive; False if a later attempt holds the job."""
        lease = Lease(attempt=attempt, owner=owner).model_dump_json()
        with translated():
            held = self._renew(keys=[_lease(job_id)], args=[attempt, lease, round(1000 * self.lease_seconds)])
        return bool(held)

    def holder(self, job_id: str) -> Lease | None:
        """Who showed to be alive within the last ``lease_seconds``."""
        return self.holders([job_id]).get(job_id)

    def holders(self, job_ids: Sequence[str]) -> dict[str, Lease]:
        """The same for many jobs; those without a lease are left out."""
        return {
            job_id: Lease.model_validate_json(value)
            for job_id, value in self._values(_lease, job_ids).items()
        }

    def drop(self, job_id: str, attempt: int) -> None:
        """End the lease of an attempt, if it is the one that has it."""
        with translated():
            self._drop(keys=[_lease(job_id)], args=[attempt])

    # progress

    def set_progress(self, job_id: str, progress: Progress) -> None:
        with translated():
            self.redis.set(_progress(job_id), progress.model_dump_json(), ex=PROGRESS_SECONDS)

    def progress(self, job_ids: Sequence[str]) -> dict[str, Progress]:
        """Of the jobs of which some is known."""
        return {
            job_id: Progress.model_validate_json(value)
            for job_id, value in self._values(_progress, job_ids).items()
        }

    # workers

    def register(self, worker: Worker, ttl: float) -> None:
        """Say that a worker is there, for ``ttl`` seconds."""
        with translated(), self.redis.pipeline() as pipe:
            pipe.sadd(WORKERS, worker.id)
            pipe.set(_worker(worker.id), worker.model_dump_json(), px=round(1000 * ttl))
            pipe.execute()

    def unregister(self, worker_id: str) -> None:
        """Say that a worker is gone."""
        with translated():
            self.redis.delete(_worker(worker_id))
            self.redis.srem(WORKERS, worker_id)

    def workers(self) -> list[Worker]:
        """Those that are there, in order of their ids."""
        with translated():
            ids = sorted(name.decode() for name in cast(set[bytes], self.redis.smembers(WORKERS)))
        found = self._values(_worker, ids)
        gone = [worker_id for worker_id in ids if worker_id not in found]
        if gone:
            with translated():
                self.redis.srem(WORKERS, *gone)
        return [Worker.model_validate_json(value) for value in found.values()]

    # events

    def publish(self, job_id: str, events: Sequence[Event]) -> None:
        """Make events of one job known at once. Those that come too late to be in order are left out."""
        key = _events(job_id)
        with translated(), self.redis.pipeline(transaction=False) as pipe:
            for event in events:
                fields: dict[Any, Any] = {"event": event.model_dump_json()}
                pipe.xadd(key, fields, id=f"{event.sequence}-1", maxlen=KEPT_EVENTS, approximate=True)
            pipe.expire(key, EVENTS_SECONDS)
            pipe.publish(CHANNEL, job_id)
            pipe.execute(raise_on_error=False)

    def notify(self, job_id: str) -> None:
        """Say that the log of a job has a new entry."""
        with translated():
            self.redis.publish(CHANNEL, job_id)

    def events_after(self, job_id: str, sequence: int) -> list[Event]:
        """Fresh events with numbers above ``sequence``, in order; older ones may be missing."""
        with translated():
            found = self.redis.xrange(_events(job_id), min=f"{max(0, sequence + 1)}-0")
        return [Event.model_validate_json(fields[b"event"]) for _, fields in cast(Any, found)]

    # ended jobs

    def remember(self, record: JobRecord) -> None:
        """Keep the log of an ended job at hand for lists."""
        with translated():
            self.redis.set(_summary(record.id), ENTRIES.dump_json(list(record.entries)), ex=SUMMARY_SECONDS)

    def recall(self, job_ids: Sequence[str]) -> dict[str, JobRecord]:
        """Ended jobs that are at hand."""
        return {job_id: _replayed(job_id, value) for job_id, value in self._values(_summary, job_ids).items()}

    def forget(self, job_id: str) -> None:
        """Drop everything about a deleted job."""
        with translated():
            self.redis.delete(_lease(job_id), _progress(job_id), _events(job_id), _summary(job_id))

    def _values(self, key: Any, names: Sequence[str]) -> dict[str, bytes]:
        if not names:
            return {}
        with translated():
            values = cast(list[bytes | None], self.redis.mget([key(name) for name in names]))
        return {name: value for name, value in zip(names, values, strict=True) if value is not None}


def _replayed(job_id: str, value: bytes) -> JobRecord:
    first, *rest = ENTRIES.validate_json(value)
    record = first_record(job_id, first)
    for entry in rest:
        record = record.after(entry)
    return record


WORKERS = "anglewise:workers"


def _lease(job_id: str) -> str:
    return f"anglewise:lease:{job_id}"


def _progress(job_id: str) -> str:
    return f"anglewise:progress:{job_id}"


def _events(job_id: str) -> str:
    return f"anglewise:events:{job_id}"


def _summary(job_id: str) -> str:
    return f"anglewise:summary:{job_id}"


def _worker(worker_id: str) -> str:
    return f"anglewise:worker:{worker_id}"
