"""What Redis keeps of running jobs, against a real server."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from job_helpers import submit

from jobs.broker import BrokerUnavailable, connect
from jobs.events import Event
from jobs.ids import new_job_id
from jobs.journal import Journal
from jobs.live import CHANNEL, Lease, Live, Progress, Worker
from jobs.record import SEQUENCES
from jobs.valkey import free_port


def events(*sequences: int) -> list[Event]:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    return [
        Event(sequence=number, at=moment, type="log", data={"message": str(number)}) for number in sequences
    ]


def test_a_lease_belongs_to_the_latest_attempt(live: Live) -> None:
    job_id = new_job_id()
    assert live.holder(job_id) is None
    assert live.renew(job_id, 1, "a")
    assert live.renew(job_id, 1, "a")
    assert live.holder(job_id) == Lease(attempt=1, owner="a")
    assert live.renew(job_id, 2, "b")
    assert not live.renew(job_id, 1, "a")
    live.drop(job_id, 1)
    assert live.holder(job_id) == Lease(attempt=2, owner="b")
    live.drop(job_id, 2)
    assert live.holders([job_id, new_job_id()]) == {}


def test_a_lease_ends_by_itself(broker_url: str) -> None:
    live, job_id = Live(broker_url, lease_seconds=0.05), new_job_id()
    live.renew(job_id, 1, "a")
    end = time.monotonic() + 10
    while live.holder(job_id) is not None:
        assert time.monotonic() < end
        time.sleep(0.01)
    live.close()


def test_progress_of_many_jobs(live: Live) -> None:
    first, second, third = (new_job_id() for _ in range(3))
    live.set_progress(first, Progress(attempt=1, step=3, total=10, eta_s=2.5))
    live.set_progress(second, Progress(attempt=2, step=1))
    live.set_progress(second, Progress(attempt=2, step=2))
    found = live.progress([first, second, third])
    assert set(found) == {first, second}
    assert (found[first].step, found[first].total, found[first].eta_s) == (3, 10, 2.5)
    assert (found[second].step, found[second].total) == (2, None)
    assert live.progress([]) == {}


def test_workers_come_and_go(live: Live) -> None:
    def worker(name: str, job: str | None = None) -> Worker:
        started = datetime(2026, 1, 1, tzinfo=UTC)
        return Worker(id=name, host="h", pid=1, device="cpu", started_at=started, job=job)

    live.register(worker("b"), ttl=60)
    live.register(worker("a", "job_1"), ttl=60)
    live.register(worker("short"), ttl=0.01)
    time.sleep(0.05)
    assert live.workers() == [worker("a", "job_1"), worker("b")]
    live.register(worker("a"), ttl=60)
    live.unregister("b")
    assert live.workers() == [worker("a")]


def test_fresh_events_are_read_by_number(live: Live) -> None:
    job_id = new_job_id()
    first, second = events(SEQUENCES + 1, SEQUENCES + 2)
    live.publish(job_id, [first])
    live.publish(job_id, [second])
    assert live.events_after(job_id, -1) == [first, second]
    assert live.events_after(job_id, first.sequence) == [second]
    assert live.events_after(job_id, second.sequence) == []
    assert live.events_after(new_job_id(), -1) == []


def test_events_of_a_superseded_attempt_are_left_out(live: Live) -> None:
    job_id = new_job_id()
    old, new, newer = events(SEQUENCES + 5, 2 * SEQUENCES + 1, 2 * SEQUENCES + 2)
    live.publish(job_id, [new])
    live.publish(job_id, [old])
    live.publish(job_id, [new, newer])
    assert live.events_after(job_id, -1) == [new, newer]


def test_changes_are_told(live: Live, broker_url: str) -> None:
    listener = connect(broker_url)
    subscription = listener.pubsub(ignore_subscribe_messages=True)
    subscription.subscribe(CHANNEL)
    subscription.get_message(timeout=5)
    first, second = new_job_id(), new_job_id()
    live.publish(first, events(SEQUENCES + 1))
    live.notify(second)
    told = []
    while len(told) < 2:
        message = subscription.get_message(timeout=5)
        assert message is not None
        told.append(message["data"].decode())
    assert told == [first, second]
    subscription.close()
    listener.close()


def test_ended_jobs_are_recalled_as_they_were(live: Live, journal: Journal) -> None:
    job_id = submit(journal, name="a name").id
    journal.start(job_id, "a")
    record = journal.succeed(job_id, 1, [])
    live.remember(record)
    assert live.recall([job_id, new_job_id()]) == {job_id: record}
    live.forget(job_id)
    assert live.recall([job_id]) == {}


def test_everything_says_when_redis_is_away() -> None:
    live = Live(f"redis://127.0.0.1:{free_port()}/0")
    job_id = new_job_id()
    for ask in (
        live.ping,
        live.generation,
        live.workers,
        lambda: live.renew(job_id, 1, "a"),
        lambda: live.holder(job_id),
        lambda: live.drop(job_id, 1),
        lambda: live.set_progress(job_id, Progress(attempt=1, step=1)),
        lambda: live.progress([job_id]),
        lambda: live.publish(job_id, events(1)),
        lambda: live.notify(job_id),
        lambda: live.events_after(job_id, 0),
        lambda: live.recall([job_id]),
        lambda: live.forget(job_id),
    ):
        with pytest.raises(BrokerUnavailable):
            ask()
    live.close()


def test_a_generation_lasts_as_long_as_the_server(live: Live) -> None:
    assert live.generation() == live.generation() != ""
