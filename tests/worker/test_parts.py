"""The parts of a worker that decide something, without processes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from worker_helpers import Bench

from anglewise.errors import InvalidInput, NumericalFailure
from jobs.journal import Journal
from jobs.problems import Problem
from jobs.states import ReasonCode, State
from jobs.store import StoreFull, StoreUnavailable
from worker import attempt as attempt_module
from worker import presence as presence_module
from worker.devices import runner_environment
from worker.failures import reason_for
from worker.presence import Presence
from worker.progress import ProgressMeter
from worker.training.context import Diverged

MakeBench = Callable[..., Bench]


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (MemoryError(), ReasonCode.OUT_OF_MEMORY, "memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate"), ReasonCode.OUT_OF_MEMORY, "memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), ReasonCode.OUT_OF_MEMORY, "memory"),
        (Diverged("the loss became nan"), ReasonCode.DIVERGED, "nan"),
        (NumericalFailure("no convergence"), ReasonCode.NUMERICAL_FAILURE, "no convergence"),
        (InvalidInput(("data", 3), "is wrong"), ReasonCode.INVALID_DATA, "/data/3: is wrong"),
        (Problem("too_large", "too many"), ReasonCode.INVALID_DATA, "too many"),
        (Problem("numerical_failure", "broke"), ReasonCode.NUMERICAL_FAILURE, "broke"),
        (KeyError("secret"), ReasonCode.INTERNAL, "KeyError"),
    ],
)
def test_failures_have_reasons(error: Exception, code: ReasonCode, text: str) -> None:
    reason = reason_for(error)
    assert reason.code is code
    assert text in reason.message
    assert "secret" not in reason.message


def test_the_time_to_go_counts_from_where_this_attempt_began() -> None:
    now = 0.0
    meter = ProgressMeter(2, clock=lambda: now)
    assert meter.at(600, 1000).eta_s is None
    now = 10.0
    assert meter.at(700, 1000).eta_s == pytest.approx(30.0)
    assert meter.at(1000, 1000).eta_s == 0.0


def test_long_jobs_tell_few_of_their_steps() -> None:
    now, told = 0.0, 0
    meter = ProgressMeter(1, clock=lambda: now)
    for step in range(1, 100_001):
        now += 0.01
        told += meter.worth_an_event(step, 100_000)
    assert 100 < told <= 201
    assert meter.worth_an_event(100_000, 100_000)


def test_a_runner_sees_its_device_and_no_other() -> None:
    cpu = runner_environment("cpu", 2, {"CUDA_VISIBLE_DEVICES": "0,1", "OMP_NUM_THREADS": "3"})
    assert cpu["CUDA_VISIBLE_DEVICES"] == ""
    assert cpu["OMP_NUM_THREADS"] == "3"
    assert int(cpu["MKL_NUM_THREADS"]) >= 1
    assert runner_environment("cuda:1", 1, {})["CUDA_VISIBLE_DEVICES"] == "1"
    slices = {"CUDA_VISIBLE_DEVICES": "MIG-a, MIG-b"}
    assert runner_environment("cuda:1", 1, slices)["CUDA_VISIBLE_DEVICES"] == "MIG-b"


def test_a_worker_is_deaf_if_it_is_idle_beside_waiting_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(presence_module.time, "monotonic", lambda: now)
    supervisor: Any = SimpleNamespace(job=None, idle_since=0.0, stopping=False)
    nothing: Any = None
    presence = Presence(nothing, nothing, supervisor, 1.0, "worker", "cpu", True)
    assert not presence.deaf(jobs_wait=True)
    now = presence_module.DEAF_SECONDS + 1
    assert presence.deaf(jobs_wait=True)
    assert not presence.deaf(jobs_wait=False)  # somebody took it
    now += presence_module.DEAF_SECONDS + 1
    assert not presence.deaf(jobs_wait=True)
    supervisor.job = "job"
    now += presence_module.DEAF_SECONDS + 1
    assert not presence.deaf(jobs_wait=True)  # it is busy
    supervisor.job, supervisor.idle_since = None, now
    assert not presence.deaf(jobs_wait=True)


class Unsure:
    """A journal whose write succeeds, but whose answer gets lost, as often as wanted."""

    def __init__(self, journal: Journal, times: int) -> None:
        self._start = journal.start
        self.times = times

    def start(self, job_id: str, owner: str) -> Any:
        record = self._start(job_id, owner)
        if self.times > 0:
            self.times -= 1
            raise StoreUnavailable("the answer got lost")
        return record


def test_a_claim_whose_answer_got_lost_is_recognized(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = bench()
    job_id = here.submit("collapse_threshold", classes=5)
    monkeypatch.setattr(here.journal, "start", Unsure(here.journal, 1).start)
    record = here.supervisor.work(job_id)
    assert record is not None
    assert (record.state, record.attempt) == (State.SUCCEEDED, 1)


def test_a_full_store_is_waited_for(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    here = bench()
    job_id = here.submit("collapse_threshold", classes=5)
    succeed, failures = here.journal.succeed, iter(range(3))

    def full_at_first(*arguments: Any) -> Any:
        if next(failures, None) is not None:
            raise StoreFull("no space left")
        return succeed(*arguments)

    monkeypatch.setattr(here.journal, "succeed", full_at_first)
    record = here.supervisor.work(job_id)
    assert record is not None
    assert record.state is State.SUCCEEDED


def test_a_process_that_the_system_ended_for_want_of_memory_says_so(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = bench()
    kills = iter([7, 8])
    monkeypatch.setattr(attempt_module, "system_kills", lambda: next(kills))
    job_id = here.submit("die", signal=signal.SIGKILL)
    record = here.supervisor.work(job_id)
    assert record is not None
    assert record.reason is not None
    assert record.reason.code is ReasonCode.OUT_OF_MEMORY
    assert "the machine ran out of memory" in record.reason.message


def test_training_jobs_are_left_to_workers_that_can_train(bench: MakeBench) -> None:
    here = bench()
    here.supervisor._can_train = False
    job_id = here.submit("training")
    assert here.supervisor.work(job_id) is None
    assert here.journal.read(job_id).state is State.QUEUED


def test_a_store_that_hangs_does_not_keep_a_job_from_its_time_limit(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = bench(computation_job_seconds=0.5)
    job_id = here.submit("deaf")
    read, hanging, goes_on = here.journal.read, threading.Event(), threading.Event()

    def hang(wanted: str) -> Any:
        if threading.current_thread().name.startswith("watch"):
            hanging.set()
            goes_on.wait(30)
        return read(wanted)

    monkeypatch.setattr(here.journal, "read", hang)
    killed = threading.Event()
    runner_kill = here.supervisor.prepare() or here.supervisor._runner
    assert runner_kill is not None
    kill = runner_kill.kill
    monkeypatch.setattr(runner_kill, "kill", lambda: (killed.set(), kill()))
    thread = here.begin(job_id)
    assert hanging.wait(60)
    assert killed.wait(60)
    goes_on.set()
    thread.join(30)
    record = read(job_id)
    assert record.reason is not None
    assert record.reason.code is ReasonCode.TIMEOUT
