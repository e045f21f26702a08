"""Cancelling at every moment of a job's life."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from worker_helpers import Bench

from jobs.journal import AlreadyEnded
from jobs.record import Step
from jobs.states import State
from jobs.store import StoreUnavailable

MakeBench = Callable[..., Bench]


def steps_of(bench: Bench, job_id: str) -> list[Step]:
    return [entry.step for entry in bench.journal.read(job_id).entries]


def test_between_the_message_and_the_claim(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    here = bench()
    job_id = here.submit("steps", steps=10, seconds=0)
    start = here.journal.start

    def cancelled_first(*arguments: Any) -> Any:
        here.journal.request_cancel(job_id)
        return start(*arguments)

    monkeypatch.setattr(here.journal, "start", cancelled_first)
    assert here.supervisor.work(job_id) is None
    assert steps_of(here, job_id) == [Step.SUBMITTED, Step.CANCELLED]


def test_just_after_the_claim(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    here = bench()
    job_id = here.submit("deaf")
    start = here.journal.start

    def cancelled_after(*arguments: Any) -> Any:
        record = start(*arguments)
        here.journal.request_cancel(job_id)
        return record

    monkeypatch.setattr(here.journal, "start", cancelled_after)
    record = here.supervisor.work(job_id)
    assert record is not None
    assert record.state is State.CANCELLED


def test_between_the_last_step_and_the_end(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is there, but the log says "cancelling": whoever cancelled was told that it will end so."""
    here = bench()
    job_id = here.submit("collapse_threshold", classes=5)
    succeed = here.journal.succeed

    def cancelled_before(*arguments: Any) -> Any:
        here.journal.request_cancel(job_id)
        return succeed(*arguments)

    monkeypatch.setattr(here.journal, "succeed", cancelled_before)
    record = here.supervisor.work(job_id)
    assert record is not None
    assert record.state is State.CANCELLED
    assert steps_of(here, job_id)[-2:] == [Step.CANCEL_REQUESTED, Step.CANCELLED]


def test_after_the_end(bench: MakeBench) -> None:
    here = bench()
    job_id = here.submit("collapse_threshold", classes=5)
    here.supervisor.work(job_id)
    with pytest.raises(AlreadyEnded):
        here.journal.request_cancel(job_id)
    assert here.journal.read(job_id).state is State.SUCCEEDED


def test_twice_at_the_same_moment(bench: MakeBench) -> None:
    here = bench()
    job_id = here.submit("deaf")
    thread = here.begin(job_id)
    here.wait_for_steps(job_id)
    both = [threading.Thread(target=here.journal.request_cancel, args=(job_id,)) for _ in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    thread.join(30)
    assert steps_of(here, job_id) == [Step.SUBMITTED, Step.STARTED, Step.CANCEL_REQUESTED, Step.CANCELLED]


def test_of_a_job_whose_worker_is_lost_as_well(bench: MakeBench) -> None:
    here = bench()
    job_id = here.submit("deaf")
    record = here.journal.start(job_id, "a worker that is gone")
    assert record is not None
    here.journal.request_cancel(job_id)
    assert here.journal.lose(job_id, record.attempt).state is State.CANCELLED


def test_while_the_store_does_not_take_the_end(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    here = bench()
    job_id = here.submit("collapse_threshold", classes=5)
    succeed, refused = here.journal.succeed, threading.Event()

    def away_at_first(*arguments: Any) -> Any:
        if not refused.is_set():
            refused.set()
            here.journal.request_cancel(job_id)
            raise StoreUnavailable("away")
        return succeed(*arguments)

    monkeypatch.setattr(here.journal, "succeed", away_at_first)
    record = here.supervisor.work(job_id)
    assert record is not None
    assert record.state is State.CANCELLED
