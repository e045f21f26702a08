"""What keepers do about jobs, by a clock of the test and with a real broker."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from job_helpers import submit, wait_until
from ulid import ULID

from jobs import paths
from jobs.broker import BrokerUnavailable, connect
from jobs.journal import MAX_LOSSES, Journal, UnknownJob
from jobs.keeper import Keeper
from jobs.live import Live
from jobs.queue import Queue
from jobs.record import JobRecord, Step
from jobs.settings import JobOptions
from jobs.states import State
from jobs.store import STAGING, ObjectStore

OPTIONS = JobOptions(lease_seconds=6.0, heartbeat_seconds=1.0)
PATIENCE = 3.0


class World:
    """A keeper, and the clock that it sees."""

    def __init__(self, journal: Journal, live: Live, queue: Queue) -> None:
        self.journal, self.live, self.queue = journal, live, queue
        self.seconds = 100.0
        self.moment = datetime.now(UTC)
        self.delivered: list[str] = []
        self.answer = True

    def keeper(self, **changes: Any) -> Keeper:
        return Keeper(
            Journal(self.journal.store),
            self.live,
            self.queue,
            OPTIONS.model_copy(update=changes),
            self._deliver,
            lambda: self.seconds,
            lambda: self.moment,
        )

    def _deliver(self, store: ObjectStore, record: JobRecord, options: JobOptions) -> bool:
        self.delivered.append(record.id)
        return self.answer

    def rounds(self, keeper: Keeper, number: int, seconds: float = 1.0) -> None:
        for _ in range(number):
            self.seconds += seconds
            keeper.round()

    def running(self) -> str:
        job_id = submit(self.journal).id
        assert self.journal.start(job_id, "worker") is not None
        return job_id


@pytest.fixture
def world(live: Live, queue: Queue) -> World:
    return World(Journal(ObjectStore("memory:///")), live, queue)


def job_id_made(moment: datetime) -> str:
    return f"job_{ULID.from_datetime(moment)}"


def steps(record: JobRecord) -> list[Step]:
    return [entry.step for entry in record.entries]


def test_a_job_whose_worker_is_gone_waits_again(world: World) -> None:
    job_id, keeper = world.running(), world.keeper()
    world.rounds(keeper, 3)
    assert world.journal.read(job_id).state is State.RUNNING
    world.rounds(keeper, 1)
    assert world.journal.read(job_id).state is State.QUEUED
    assert world.queue.waiting_ids() == {job_id}
    world.rounds(keeper, 5)
    assert steps(world.journal.read(job_id)) == [Step.SUBMITTED, Step.STARTED, Step.LOST]
    assert world.queue.length() == 1


def test_a_job_with_a_lease_is_left_alone(world: World) -> None:
    job_id, keeper = world.running(), world.keeper()
    for _ in range(20):
        world.live.renew(job_id, 1, "worker")
        world.rounds(keeper, 1)
    assert world.journal.read(job_id).state is State.RUNNING


def test_a_lease_that_comes_back_starts_the_clock_again(world: World) -> None:
    job_id, keeper = world.running(), world.keeper()
    for _ in range(3):
        world.rounds(keeper, 3)
        world.live.renew(job_id, 1, "worker")
        world.rounds(keeper, 1)
        world.live.drop(job_id, 1)
    assert world.journal.read(job_id).state is State.RUNNING


def test_a_message_does_not_hide_that_a_worker_is_gone(world: World) -> None:
    job_id, keeper = world.running(), world.keeper()
    for _ in range(100):  # so many that a job is rarely in the sample
        world.queue.ring(submit(world.journal).id)
    world.queue.ring(job_id)
    world.live.renew(job_id, 1, "worker")
    world.rounds(keeper, 1)
    world.live.drop(job_id, 1)
    world.rounds(keeper, 4)
    assert world.journal.read(job_id).state is State.QUEUED


def test_each_attempt_has_a_clock_of_its_own(world: World) -> None:
    job_id, keeper = world.running(), world.keeper()
    world.rounds(keeper, 3)
    world.journal.release(job_id, 1)
    world.journal.start(job_id, "another")
    world.rounds(keeper, 3)
    assert world.journal.read(job_id).state is State.RUNNING
    world.rounds(keeper, 1)
    assert world.journal.read(job_id).state is State.QUEUED


def test_a_keeper_that_slept_gives_workers_time(world: World) -> None:
    job_id, keeper = world.running(), world.keeper()
    world.rounds(keeper, 1)
    world.rounds(keeper, 1, seconds=3_600)
    assert world.journal.read(job_id).state is State.RUNNING
    world.live.renew(job_id, 1, "worker")
    world.rounds(keeper, 5)
    assert world.journal.read(job_id).state is State.RUNNING


def test_nothing_is_lost_while_redis_is_away(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id, keeper = world.running(), world.keeper()

    def away(*arguments: object) -> None:
        raise BrokerUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(world.live, "generation", away)
        patch.setattr(world.queue, "ring", away)
        world.rounds(keeper, 100)
    assert world.journal.read(job_id).state is State.RUNNING
    world.rounds(keeper, 3)
    assert world.journal.read(job_id).state is State.RUNNING
    world.rounds(keeper, 1)
    assert world.journal.read(job_id).state is State.QUEUED


def test_a_server_that_was_started_anew_gives_workers_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id, keeper = world.running(), world.keeper()
    world.rounds(keeper, 3)
    monkeypatch.setattr(world.live, "generation", lambda: "another")
    world.rounds(keeper, 3)
    assert world.journal.read(job_id).state is State.RUNNING


def test_a_lost_job_that_was_to_be_cancelled_is_cancelled(world: World) -> None:
    job_id, keeper = world.running(), world.keeper()
    world.journal.request_cancel(job_id)
    world.rounds(keeper, 5)
    assert world.journal.read(job_id).state is State.CANCELLED
    assert world.queue.length() == 0


def test_a_poisonous_job_ends(world: World) -> None:
    job_id, keeper = submit(world.journal).id, world.keeper()
    for _ in range(MAX_LOSSES):
        assert world.journal.start(job_id, "worker") is not None
        world.rounds(keeper, 5)
    assert world.journal.read(job_id).state is State.FAILED
    world.rounds(keeper, 1)
    assert world.journal.active_ids() == []


def test_a_job_that_nobody_rang_for_is_rung_for(world: World) -> None:
    job_id, keeper = submit(world.journal).id, world.keeper()
    world.rounds(keeper, 1)
    assert world.queue.length() == 0
    world.rounds(keeper, 1)
    assert world.queue.waiting_ids() == {job_id}
    world.rounds(keeper, 10)
    assert world.queue.length() == 1


def test_a_queue_that_was_lost_is_filled_again(world: World, broker_url: str) -> None:
    ids = {submit(world.journal).id for _ in range(100)}
    for job_id in ids:
        world.queue.ring(job_id)
    keeper = world.keeper()
    world.rounds(keeper, 5)
    assert world.queue.length() == 100
    client = connect(broker_url)
    client.flushall()
    client.close()
    world.rounds(keeper, 3)
    assert world.queue.waiting_ids() == ids
    assert world.queue.length() == 100


def test_ended_jobs_are_settled_and_remembered(world: World) -> None:
    job_id, keeper = world.running(), world.keeper()
    record = world.journal.succeed(job_id, 1, [])
    world.rounds(keeper, 1)
    assert world.journal.active_ids() == []
    assert world.live.recall([job_id]) == {job_id: record}
    assert world.delivered == []


def test_a_job_with_a_webhook_is_settled_when_it_was_told(world: World) -> None:
    job_id, keeper = submit(world.journal, webhook="https://example.com/").id, world.keeper()
    world.answer = False
    world.journal.request_cancel(job_id)
    for number in range(1, 4):
        world.rounds(keeper, 1)
        wait_until(lambda number=number: len(world.delivered) == number)
        wait_until(lambda: all(call.done() for call in keeper._calls.values()))
        assert world.journal.active_ids() == [job_id]
    world.answer = True
    world.rounds(keeper, 1)
    wait_until(lambda: all(call.done() for call in keeper._calls.values()))
    world.rounds(keeper, 1)
    assert world.journal.active_ids() == []
    assert set(world.delivered) == {job_id}
    assert len(world.delivered) == 4


def test_an_error_of_a_webhook_is_tried_again(world: World) -> None:
    job_id = submit(world.journal, webhook="https://example.com/").id
    world.journal.request_cancel(job_id)
    answers: list[Callable[[], bool]] = [lambda: bool(1 / 0), lambda: True]
    keeper = world.keeper()
    keeper._deliver = lambda *arguments: answers.pop(0)()
    for _ in range(3):
        world.rounds(keeper, 1)
        wait_until(lambda: all(call.done() for call in keeper._calls.values()))
    assert answers == []
    assert world.journal.active_ids() == []


def test_ended_jobs_are_deleted_after_the_time_of_retention(world: World) -> None:
    now = world.moment
    old = job_id_made(now - timedelta(hours=3))
    still_running = job_id_made(now - timedelta(hours=2))
    young = job_id_made(now - timedelta(minutes=30))
    world.journal._now = lambda: now - timedelta(hours=2)
    submit(world.journal, old)
    submit(world.journal, still_running)
    world.journal.start(still_running, "worker")
    world.live.renew(still_running, 1, "worker")
    world.journal.request_cancel(old)
    world.live.remember(world.journal.read(old))
    world.journal._now = lambda: now
    submit(world.journal, young)
    world.journal.request_cancel(young)
    for keeper in (world.keeper(), world.keeper(retention_seconds=3 * 3_600.0)):
        world.rounds(keeper, 2, seconds=61)
        assert world.journal.ids() == [young, still_running, old]
    world.rounds(world.keeper(retention_seconds=3_600.0), 3, seconds=61)
    assert world.journal.ids() == [young, still_running]
    assert world.live.recall([old]) == {}
    assert [name for name in world.journal.store.names("jobs") if old in name] == []


def test_what_an_interrupted_submission_left_is_removed(world: World) -> None:
    store = world.journal.store
    old = job_id_made(world.moment - timedelta(hours=2))
    young = job_id_made(world.moment - timedelta(minutes=5))
    for job_id in (old, young):
        store.put(paths.active(job_id), b"")
        store.put(paths.spec(job_id), b"{}")
    world.rounds(world.keeper(), 2)
    assert world.journal.active_ids() == [young]
    assert store.names("jobs") == [paths.spec(young)]


def test_an_interrupted_deletion_is_finished(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = submit(world.journal, job_id_made(world.moment - timedelta(hours=2))).id
    world.journal.request_cancel(job_id)
    store = world.journal.store
    with monkeypatch.context() as patch:
        patch.setattr(store, "delete_folder", lambda prefix: world.journal.spec("none"))
        with pytest.raises(UnknownJob):
            world.journal.delete(job_id)
    assert store.names("jobs") != []
    world.rounds(world.keeper(), 1)
    assert store.names("") == []


def test_a_submission_under_an_old_id_survives_the_tidying(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = world.journal.store
    job_id = job_id_made(world.moment - timedelta(hours=2))
    store.put(paths.active(job_id), b"")
    store.put(paths.spec(job_id), b"{}")
    delete_folder = store.delete_folder

    def meanwhile(prefix: str) -> None:
        names = store.names(prefix)
        submit(world.journal, job_id)
        store.delete(*names)

    monkeypatch.setattr(store, "delete_folder", meanwhile)
    world.rounds(world.keeper(), 1)
    monkeypatch.setattr(store, "delete_folder", delete_folder)
    assert world.journal.read(job_id).state is State.QUEUED
    assert world.journal.spec(job_id) == b"{}"
    assert world.journal.active_ids() == [job_id]


def test_unfinished_files_are_removed(world: World, tmp_path: Path) -> None:
    store = ObjectStore(tmp_path.as_uri())
    for name, age in (("old", 7_200.0), ("young", 60.0)):
        path = tmp_path / STAGING / name
        path.write_bytes(b"")
        moment = path.stat().st_mtime - age
        os.utime(path, (moment, moment))
    world.journal = Journal(store)
    world.rounds(world.keeper(), 1)
    assert [path.name for path in (tmp_path / STAGING).iterdir()] == ["young"]


def test_other_names_among_the_active_ones_are_passed_over(world: World) -> None:
    world.journal.store.put(f"{paths.ACTIVE}/something", b"")
    world.rounds(world.keeper(), 3)


def test_many_keepers_do_as_one(world: World) -> None:
    lost = [world.running() for _ in range(10)]
    unrung = [submit(world.journal).id for _ in range(10)]
    ended = [world.running() for _ in range(10)]
    for job_id in ended:
        world.journal.succeed(job_id, 1, [])
    keepers = [world.keeper() for _ in range(4)]
    for _ in range(8):
        world.seconds += 1.0
        threads = [threading.Thread(target=keeper.round) for keeper in keepers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert world.queue.waiting_ids() == {*lost, *unrung}
    for job_id in lost:
        assert steps(world.journal.read(job_id)) == [Step.SUBMITTED, Step.STARTED, Step.LOST]
    assert set(world.journal.active_ids()) == {*lost, *unrung}


def test_a_keeper_goes_on_after_errors(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper, stopped, calls = world.keeper(), threading.Event(), []

    def failing() -> None:
        calls.append(None)
        if len(calls) == 3:
            stopped.set()
        raise ValueError("something unforeseen")

    monkeypatch.setattr("jobs.keeper.ROUND_SECONDS", 0.001)
    monkeypatch.setattr(keeper, "round", failing)
    keeper.run(stopped)
    assert len(calls) == 3
