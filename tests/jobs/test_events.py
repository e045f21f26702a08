"""Events: their numbers, their files, and the curves made of them."""

from __future__ import annotations

import math
from datetime import UTC, datetime

import pytest
from job_helpers import submit

from jobs import paths
from jobs.events import Event, EventLog, EventType, series, state_events, stored_events
from jobs.journal import Journal
from jobs.record import SEQUENCES
from jobs.states import Reason, ReasonCode
from jobs.store import ObjectStore, StoreUnavailable


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def event(sequence: int, type: EventType, **data: object) -> Event:
    return Event(sequence=sequence, at=datetime(2026, 1, 1, tzinfo=UTC), type=type, data=data)


def test_the_log_of_a_job_tells_its_states(journal: Journal) -> None:
    job_id = submit(journal).id
    journal.start(job_id, "a")
    journal.lose(job_id, 1)
    journal.start(job_id, "b")
    journal.release(job_id, 2)
    journal.start(job_id, "c")
    journal.request_cancel(job_id)
    record = journal.fail(job_id, 3, Reason(code=ReasonCode.INTERNAL, message="x"))
    assert [(event.sequence, event.data) for event in state_events(record)] == [
        (0, {"state": "queued", "attempt": 0}),
        (SEQUENCES, {"state": "running", "attempt": 1}),
        (2 * SEQUENCES - 2, {"state": "queued", "attempt": 1, "cause": "lost"}),
        (2 * SEQUENCES, {"state": "running", "attempt": 2}),
        (3 * SEQUENCES - 2, {"state": "queued", "attempt": 2, "cause": "released"}),
        (3 * SEQUENCES, {"state": "running", "attempt": 3}),
        (
            4 * SEQUENCES - 1,
            {
                "state": "cancelled",
                "attempt": 3,
                "reason": {"code": "user", "message": "it was cancelled"},
            },
        ),
    ]


def test_the_end_comes_after_everything_else(journal: Journal) -> None:
    waiting = submit(journal).id
    assert state_events(journal.request_cancel(waiting))[-1].sequence == SEQUENCES - 1
    lost = submit(journal).id
    journal.start(lost, "a")
    journal.lose(lost, 1)
    numbers = [event.sequence for event in state_events(journal.request_cancel(lost))]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 2 * SEQUENCES - 1


def test_stored_events_are_read_again_from_any_number(journal: Journal) -> None:
    job_id = submit(journal).id
    written = []
    for attempt in (1, 2):
        journal.start(job_id, "worker")
        log = EventLog(journal.store, job_id, attempt)
        for number in range(7):
            written.append(log.add("progress", {"step": number, "total": 7}))
            if number % 3 == 2:
                log.flush()
        log.flush()
        record = journal.release(job_id, attempt)
    assert [event.sequence for event in written[:2]] == [SEQUENCES + 1, SEQUENCES + 2]
    assert stored_events(journal.store, record) == written
    for after in range(SEQUENCES - 1, SEQUENCES + 9):
        expected = [event for event in written if event.sequence > after]
        assert stored_events(journal.store, record, after) == expected
    assert stored_events(journal.store, record, 2 * SEQUENCES + 6) == written[-1:]
    assert stored_events(journal.store, record, 10 * SEQUENCES) == []
    files = journal.store.names(paths.attempt(job_id, 1))
    assert [path.rpartition("/")[2] for path in files] == [
        "001000000001.jsonl",
        "001000000004.jsonl",
        "001000000007.jsonl",
    ]


def test_a_waiting_job_has_no_stored_events(journal: Journal) -> None:
    assert stored_events(journal.store, submit(journal)) == []


def test_files_are_written_ever_more_rarely(store: ObjectStore) -> None:
    clock = Clock()
    log = EventLog(store, "job", 1, clock)
    for second in range(1, 3_601):
        clock.now = float(second)
        log.add("log", {"message": "x"})
        log.flush_if_due()
    names = store.names("jobs")
    assert 3_600 / 30 <= len(names) < 200
    log.flush()
    assert sum(store.get(path).count(b"\n") for path in store.names("jobs")) == 3_600


def test_events_wait_while_the_store_is_away(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    log = EventLog(store, "job", 1)
    log.add("log", {"message": "first"})

    def away(path: str, data: bytes) -> None:
        raise StoreUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(store, "put", away)
        with pytest.raises(StoreUnavailable):
            log.flush()
    log.add("log", {"message": "second"})
    log.flush()
    (name,) = store.names("jobs")
    lines = store.get(name).splitlines()
    assert [Event.model_validate_json(line).data["message"] for line in lines] == ["first", "second"]


def test_numbers_that_are_none_are_null(store: ObjectStore) -> None:
    log = EventLog(store, "job", 1)
    log.add("metrics", {"step": 1, "values": {"loss": math.nan, "risk": math.inf, "nc1": None}})
    log.flush()
    (name,) = store.names("jobs")
    assert b'"values":{"loss":null,"risk":null,"nc1":null}' in store.get(name)


def test_curves_repeat_nothing_after_a_resumption() -> None:
    def measured(sequence: int, step: int, loss: float) -> Event:
        return event(sequence, "metrics", step=step, values={"loss": loss})

    events = [
        measured(1, 0, 9.0),
        measured(2, 10, 5.0),
        event(3, "metrics", step=15, values={"only once": 1.0}),
        measured(4, 20, 3.0),
        measured(5, 25, 2.5),
        event(11, "resumed", step=10),
        measured(12, 20, 4.0),
        event(13, "log", message="x"),
        measured(14, 30, None),  # type: ignore[arg-type]
    ]
    assert series(events) == {
        "loss": [
            {"step": 0, "value": 9.0},
            {"step": 10, "value": 5.0},
            {"step": 20, "value": 4.0},
            {"step": 30, "value": None},
        ]
    }


def test_curves_of_nothing_are_empty() -> None:
    assert series([]) == {}
