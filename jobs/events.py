"""What happens during a job, as numbered events; kept in files of JSON lines beside its log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

from jobs import paths
from jobs.record import SEQUENCES, JobRecord, Step
from jobs.store import Missing, ObjectStore

GIVEN_UP = SEQUENCES - 2
"""Number, within its attempt, of the event that says that the attempt was lost or released."""
ENDED = SEQUENCES - 1
"""Number, within its attempt, of the event that says that the job has ended."""
FIRST_FLUSH_SECONDS = 2.0
LAST_FLUSH_SECONDS = 30.0

EventType = Literal["state", "progress", "metrics", "log", "resumed"]


class Event(BaseModel):
    """One thing that happened.

    Attributes:
        sequence: attempt times `SEQUENCES`, plus the number within the attempt, which starts at 1 for what
            a worker reports. Later events of a job have larger ones.
        data: by type --
            state: ``{"state", "attempt"}``, and ``"reason": {"code", "message"}`` where there is one;
            progress: ``{"step", "total", "eta_s"}``;
            metrics: ``{"step", "values": {name: number or null}}``;
            log: ``{"message"}``;
            resumed: ``{"step"}``, the checkpoint from which this attempt goes on.
    """

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="null")

    sequence: int
    at: AwareDatetime
    type: EventType
    data: dict[str, Any]


def state_events(record: JobRecord) -> list[Event]:
    """The events that the log of a job tells, in order."""
    events = []
    for entry in record.entries:
        match entry.step:
            case Step.SUBMITTED:
                events.append(_state(0, entry.at, "queued", 0))
            case Step.STARTED:
                events.append(_state(entry.attempt * SEQUENCES, entry.at, "running", entry.attempt))
            case Step.RELEASED | Step.LOST:
                number = entry.attempt * SEQUENCES + GIVEN_UP
                events.append(_state(number, entry.at, "queued", entry.attempt, cause=entry.step.value))
            case Step.SUCCEEDED | Step.FAILED | Step.CANCELLED:
                number = entry.attempt * SEQUENCES + ENDED
                reason = entry.reason and entry.reason.model_dump(mode="json")
                events.append(_state(number, entry.at, entry.step.value, entry.attempt, reason=reason))
            case Step.CANCEL_REQUESTED:  # its place among the worker's events is known to the worker only
                pass
    return events


def _state(sequence: int, at: datetime, state: str, attempt: int, **more: Any) -> Event:
    data = {"state": state, "attempt": attempt, **{name: value for name, value in more.items() if value}}
    return Event(sequence=sequence, at=at, type="state", data=data)


class EventLog:
    """Numbers the events of one attempt and stores them, many to a file. Usable from several threads.

    Files are written at most every two seconds at first, and ever more rarely, down to two a minute, so that
    long jobs do not end with a hundred thousand of them.
    """

    def __init__(
        self, store: ObjectStore, job_id: str, attempt: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._job_id = job_id
        self._attempt = attempt
        self._clock = clock
        self._next = attempt * SEQUENCES + 1
        self._waiting: list[Event] = []
        self._pause = FIRST_FLUSH_SECONDS
        self._due = clock() + self._pause
        self._lock = threading.Lock()
        self._flushing = threading.Lock()

    def add(self, type: EventType, data: Mapping[str, Any]) -> Event:
        """The event with its number; it is stored by one of the next flushes."""
        with self._lock:
            event = Event(sequence=self._next, at=datetime.now(UTC), type=type, data=dict(data))
            self._next += 1
            self._waiting.append(event)
        return event

    def flush_if_due(self) -> None:
        """Store what waits, if the last time is long enough ago.

        Raises:
            StoreUnavailable: it goes on waiting.
        """
        if self._clock() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Store what waits.

        Raises:
            StoreUnavailable: it goes on waiting.
        """
        with self._flushing:
            with self._lock:
                batch = list(self._waiting)
            if batch:
                lines = b"".join(event.model_dump_json().encode() + b"\n" for event in batch)
                self._store.put(paths.event_file(self._job_id, self._attempt, batch[0].sequence), lines)
                with self._lock:
                    del self._waiting[: len(batch)]
                self._pause = min(self._pause * 1.2, LAST_FLUSH_SECONDS)
            self._due = self._clock() + self._pause


def stored_events(store: ObjectStore, record: JobRecord, after: int = -1) -> list[Event]:
    """Events that workers stored, with numbers above ``after``, in order.

    Raises:
        StoreUnavailable
    """
    events: list[Event] = []
    for attempt in range(max(1, after // SEQUENCES), record.attempt + 1):
        for path in _files_after(store.names(paths.events(record.id, attempt)), after):
            try:
                lines = store.get(path).splitlines()
            except Missing:  # the job was deleted meanwhile
                continue
            events += [event for event in map(Event.model_validate_json, lines) if event.sequence > after]
    return events


def _files_after(names: list[str], after: int) -> list[str]:
    """Those of an attempt's files that may hold numbers above ``after``: each ends where the next begins."""
    firsts = [int(name.rpartition("/")[2].removesuffix(".jsonl")) for name in names]
    return [
        name
        for name, following in zip(names, [*firsts, None][1:], strict=True)
        if following is None or following > after + 1
    ]


def series(events: Iterable[Event]) -> dict[str, list[dict[str, Any]]]:
    """Each metric over the steps, ``{name: [{"step", "value"}]}``, in order of steps and none twice.

    An attempt that resumed at a step repeats what earlier ones did after it; theirs are dropped.
    """
    found: dict[str, dict[int, Any]] = {}
    for event in events:
        if event.type == "resumed":
            step = event.data["step"]
            found = {
                name: {s: value for s, value in points.items() if s <= step} for name, points in found.items()
            }
        elif event.type == "metrics":
            for name, value in event.data["values"].items():
                found.setdefault(name, {})[event.data["step"]] = value
    return {
        name: [{"step": step, "value": value} for step, value in sorted(points.items())]
        for name, points in found.items()
        if points
    }
