"""A supervisor: how attempts end, and what it leaves when something is away."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from job_kinds import state_after
from worker_helpers import Bench, eventually

from jobs import paths
from jobs.events import series
from jobs.journal import MAX_LOSSES
from jobs.record import Step
from jobs.states import Reason, ReasonCode, State
from worker import attempt as attempt_module

MakeBench = Callable[..., Bench]
LONG = {"steps": 10**6, "seconds": 0.005, "checkpoint_every": 50}


def steps_of(bench: Bench, job_id: str) -> list[Step]:
    return [entry.step for entry in bench.journal.read(job_id).entries]


def test_a_job_is_done_once(bench: MakeBench) -> None:
    here = bench()
    job_id = here.submit("collapse_threshold", classes=10)
    record = here.supervisor.work(job_id)
    assert record is not None
    assert record.state is State.SUCCEEDED
    assert 0 < here.result(job_id)["exact_threshold"] < 1
    assert here.supervisor.work(job_id) is None  # the same message again
    assert here.supervisor.work("job_01KBCJ6ZT0000000000000000Z") is None
    assert here.states(job_id) == ["queued", "running", "succeeded"]
    assert here.live.holder(job_id) is None


def test_events_and_progress_are_live_and_stored(bench: MakeBench) -> None:
    here = bench()
    job_id = here.submit("steps", steps=30, seconds=0.001)
    here.supervisor.work(job_id)
    assert here.result(job_id) == {"value": state_after(30)}
    stored, live = here.events(job_id), here.live.events_after(job_id, 0)
    assert [event.sequence for event in stored if event.sequence] == [event.sequence for event in live]
    assert [point["step"] for point in series(stored)["value"]] == list(range(1, 31))
    assert [event.data for event in stored if event.type == "progress"] == [
        {"step": 30, "total": 30, "eta_s": 0.0}
    ]
    assert here.live.progress([job_id])[job_id].step == 30


@pytest.mark.parametrize("kind", ["die", "exit"])
def test_a_poisonous_job_fails_after_three_losses_and_harms_nobody(kind: str, bench: MakeBench) -> None:
    here = bench()
    job_id, innocent = here.submit(kind), here.submit("collapse_threshold", classes=3)
    for _ in range(MAX_LOSSES):
        here.supervisor.work(job_id)
    record = here.journal.read(job_id)
    assert record.state is State.FAILED
    assert record.reason is not None
    assert record.reason.code is ReasonCode.WORKER_LOST
    assert here.supervisor.work(job_id) is None
    ended = here.supervisor.work(innocent)
    assert ended is not None
    assert ended.state is State.SUCCEEDED
    told = [event.data["message"] for event in here.events(job_id) if event.type == "log"]
    assert len(told) == MAX_LOSSES
    assert ("SIGKILL" if kind == "die" else "status 7") in told[0]


def test_a_lost_attempt_rings_again(bench: MakeBench) -> None:
    here = bench()
    job_id = here.submit("die", attempts=1)
    first = here.supervisor.work(job_id)
    assert first is not None
    assert first.state is State.QUEUED
    assert job_id in here.queue.waiting_ids()
    second = here.supervisor.work(job_id)
    assert second is not None
    assert (second.state, second.attempt, second.losses) == (State.SUCCEEDED, 2, 1)


@pytest.mark.parametrize("kind", ["steps", "deaf", "native_loop"])
def test_cancelling_stops_a_running_step(kind: str, bench: MakeBench) -> None:
    here = bench()
    job_id = here.submit(kind, **LONG)
    thread = here.begin(job_id)
    here.wait_for_steps(job_id)
    assert here.journal.request_cancel(job_id).state is State.CANCELLING
    thread.join(30)
    record = here.journal.read(job_id)
    assert record.state is State.CANCELLED
    assert record.reason is not None
    assert record.reason.code is ReasonCode.USER
    assert here.states(job_id) == ["queued", "running", "cancelling", "cancelled"]
    assert here.journal.request_cancel(job_id).state is State.CANCELLED  # asking again changes nothing


def test_a_queued_job_that_was_cancelled_is_never_begun(bench: MakeBench) -> None:
    here = bench()
    job_id = here.submit("steps", **LONG)
    here.journal.request_cancel(job_id)
    assert here.supervisor.work(job_id) is None
    assert steps_of(here, job_id) == [Step.SUBMITTED, Step.CANCELLED]


def test_a_job_without_end_meets_its_time_limit(bench: MakeBench) -> None:
    here = bench(computation_job_seconds=0.5)
    job_id = here.submit("deaf")
    record = here.supervisor.work(job_id)
    assert record is not None
    assert record.reason is not None
    assert record.reason.code is ReasonCode.TIMEOUT
    assert "0.5 s" in record.reason.message


def test_memory_is_watched_too(bench: MakeBench) -> None:
    here = bench(job_memory_bytes=2**29)
    job_id = here.submit("memory")
    record = here.supervisor.work(job_id)
    assert record is not None
    assert record.reason is not None
    assert record.reason.code is ReasonCode.OUT_OF_MEMORY


def test_failures_keep_their_reason_and_their_metrics(bench: MakeBench) -> None:
    here = bench()
    job_id = here.submit("nan")
    record = here.supervisor.work(job_id)
    assert record is not None
    assert record.reason is not None
    assert record.reason.code is ReasonCode.DIVERGED
    assert series(here.events(job_id))["loss"] == [{"step": 1, "value": None}]


def test_a_stopping_worker_gives_its_job_back_with_a_checkpoint(bench: MakeBench) -> None:
    here, there = bench(), bench()
    job_id = here.submit("steps", steps=200, seconds=0.005, checkpoint_every=10**6)
    thread = here.begin(job_id)
    here.wait_for_steps(job_id, 20)
    here.supervisor.stop()
    thread.join(30)
    assert steps_of(here, job_id) == [Step.SUBMITTED, Step.STARTED, Step.RELEASED]
    assert here.journal.read(job_id).losses == 0
    assert job_id in here.queue.waiting_ids()
    there.supervisor.work(job_id)
    assert there.result(job_id) == {"value": state_after(200)}
    events = there.events(job_id)
    assert [event.type for event in events].count("resumed") == 1
    assert [point["step"] for point in series(events)["value"]] == list(range(1, 201))
    assert here.supervisor.work(here.submit("steps", **LONG)) is None  # it begins nothing any more


@pytest.mark.parametrize("kind", ["deaf", "native_loop"])
def test_a_stopping_worker_does_not_wait_for_jobs_that_do_not_listen(
    kind: str, bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt_module, "SHUTDOWN_SECONDS", 0.5)
    here = bench()
    job_id = here.submit(kind)
    thread = here.begin(job_id)
    here.wait_for_steps(job_id)
    here.supervisor.stop()
    thread.join(30)
    assert here.journal.read(job_id).state is State.QUEUED


def test_an_attempt_that_was_given_up_writes_nothing(bench: MakeBench) -> None:
    here = bench()
    job_id = here.submit("steps", **LONG)
    thread = here.begin(job_id)
    here.wait_for_steps(job_id)
    here.journal.lose(job_id, 1)  # by a keeper that saw no lease
    here.journal.start(job_id, "another")
    thread.join(30)
    assert not thread.is_alive()
    assert steps_of(here, job_id) == [Step.SUBMITTED, Step.STARTED, Step.LOST, Step.STARTED]


def test_a_deleted_job_ends_quietly(bench: MakeBench) -> None:
    here = bench()
    job_id = here.submit("steps", **LONG)
    thread = here.begin(job_id)
    here.wait_for_steps(job_id)
    here.journal.fail(job_id, 1, Reason(code=ReasonCode.INTERNAL, message="given up"))
    here.journal.delete(job_id)
    thread.join(30)
    assert not thread.is_alive()
    assert not here.journal.store.names(paths.job(job_id) + "/log")


def test_a_job_goes_on_while_redis_is_away(bench: MakeBench, tmp_path: Path) -> None:
    here = bench()
    here.supervisor._services.live.redis.connection_pool.connection_kwargs["path"] = str(tmp_path / "none")
    here.supervisor._services.live.redis.connection_pool.disconnect()
    job_id = here.submit("steps", steps=30, seconds=0.001)
    record = here.supervisor.work(job_id)
    assert record is not None
    assert record.state is State.SUCCEEDED
    assert len(series(here.events(job_id))["value"]) == 30


def test_the_end_is_written_when_the_store_is_back(bench: MakeBench, tmp_path: Path) -> None:
    here = bench(store_url=f"file://{tmp_path}/objects")
    job_id = here.submit("steps", steps=100, seconds=0.005, checkpoint_every=10)
    objects, hidden = tmp_path / "objects", tmp_path / "hidden"
    thread = here.begin(job_id)
    here.wait_for_steps(job_id, 15)
    objects.rename(hidden)
    objects.touch()  # nothing can be read or written
    here.wait_for_steps(job_id, 100)
    threading.Event().wait(0.5)
    assert thread.is_alive()
    objects.unlink()
    hidden.rename(objects)
    thread.join(30)
    assert here.journal.read(job_id).state is State.SUCCEEDED
    assert here.result(job_id) == {"value": state_after(100)}
    assert [point["step"] for point in series(here.events(job_id))["value"]] == list(range(1, 101))


def test_a_runner_that_died_while_idle_is_replaced(bench: MakeBench) -> None:
    here = bench()
    here.supervisor.prepare()
    runner = here.supervisor._runner
    assert runner is not None
    runner.wait_ready()
    os.kill(runner.pid, signal.SIGKILL)
    eventually(lambda: runner.ended)
    job_id = here.submit("collapse_threshold", classes=4)
    record = here.supervisor.work(job_id)
    assert record is not None
    assert (record.state, record.losses) == (State.SUCCEEDED, 0)
