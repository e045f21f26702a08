"""Runners, and jobs that misbehave, for tests of the workers."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobs import paths
from jobs.computations.limits import Limits
from jobs.events import Event, state_events, stored_events
from jobs.frames import Frame
from jobs.ids import new_job_id
from jobs.journal import Journal
from jobs.live import Live
from jobs.queue import Queue
from jobs.record import Submission
from jobs.settings import JobOptions
from jobs.store import ObjectStore
from worker.messages import ENDINGS, Order
from worker.runner_process import RunnerProcess
from worker.supervisor import Supervisor

PATIENCE = 60.0
"""Seconds before a test gives up; nothing is expected to take so long."""


def test_environment() -> dict[str, str]:
    """Runners started with it know the kinds of `job_kinds`."""
    folder = str(Path(__file__).parent)
    return dict(os.environ) | {"ANGLEWISE_JOB_KINDS": "job_kinds", "PYTHONPATH": folder}


test_environment.__test__ = False  # type: ignore[attr-defined]


def start_runner(store_url: str, memory_bytes: int = 0, **environment: str) -> RunnerProcess:
    configuration = {"store_url": store_url, "memory_bytes": memory_bytes, "limits": Limits().model_dump()}
    runner = RunnerProcess(test_environment() | environment, configuration)
    runner.wait_ready()
    return runner


def order(runner: RunnerProcess, job_id: str, kind: str, spec: bytes = b"{}", attempt: int = 1) -> None:
    runner.send(Order.RUN, {"job": job_id, "kind": kind, "attempt": attempt}, spec)


def reports(runner: RunnerProcess) -> list[dict[str, Any]]:
    """Everything up to the end of the job; flushes are answered.

    Raises:
        EOFError: the runner died before.
    """
    found: list[dict[str, Any]] = []
    while not found or found[-1]["type"] not in ENDINGS:
        found.append(next_report(runner)[0])
        if found[-1]["type"] == "flush":
            runner.send(Order.FLUSHED, {"stored": True})
    return found


def next_report(runner: RunnerProcess) -> Frame:
    frame = runner.receive(PATIENCE)
    assert frame is not None, "the runner says nothing"
    return frame


def eventually(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """The first true value of a condition."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)
    return value


class Bench:
    """A supervisor with its services, and what tests do with them."""

    def __init__(
        self, broker_url: str, store_url: str, spare_runners: list[RunnerProcess] | None, **settings: Any
    ) -> None:
        options = {"heartbeat_seconds": 0.1, "lease_seconds": 2.0} | settings
        self.settings = JobOptions(broker_url=broker_url, store_url=store_url, **options)
        self.journal = Journal(ObjectStore(store_url))
        self.live = Live(broker_url, self.settings.lease_seconds)
        self.queue = Queue(broker_url)
        self.supervisor = Supervisor(
            self.journal, self.live, self.queue, self.settings, "worker", test_environment(), Limits()
        )
        self._spare_runners = spare_runners
        if spare_runners:
            self.supervisor._runner = spare_runners.pop()
        self._threads: list[threading.Thread] = []

    def submit(self, kind: str, **spec: Any) -> str:
        job_id, body = new_job_id(), json.dumps(spec).encode()
        self.journal.submit(job_id, Submission(kind=kind, spec_bytes=len(body)), body)
        return job_id

    def begin(self, job_id: str) -> threading.Thread:
        """Work on a job in another thread."""
        self.supervisor.prepare()
        thread = threading.Thread(target=self.supervisor.work, args=(job_id,), daemon=True)
        thread.start()
        self._threads.append(thread)
        return thread

    def events(self, job_id: str) -> list[Event]:
        record = self.journal.read(job_id)
        return sorted(
            state_events(record) + stored_events(self.journal.store, record), key=lambda event: event.sequence
        )

    def states(self, job_id: str) -> list[str]:
        """Every state the job went through."""
        return [event.data["state"] for event in self.events(job_id) if event.type == "state"]

    def result(self, job_id: str) -> Any:
        record = self.journal.read(job_id)
        return json.loads(self.journal.store.get(paths.artifact(job_id, record.attempt, "result.json")))

    def wait_for_steps(self, job_id: str, steps: int = 1) -> None:
        """Until a worker has shown so much progress."""

        def far_enough() -> bool:
            progress = self.live.progress([job_id]).get(job_id)
            return progress is not None and progress.step >= steps

        eventually(far_enough)

    def close(self) -> None:
        self.supervisor.stop()
        for thread in self._threads:
            thread.join(PATIENCE)
        runner = self.supervisor._runner
        # Runners end with the thread that started them: those of other threads are no use.
        unharmed = runner is not None and runner.reusable and not runner.ended and not self._threads
        if runner is not None and unharmed and self._spare_runners is not None:
            self._spare_runners.append(runner)
        else:
            self.supervisor.close()
        self.queue.close()
        self.live.close()
