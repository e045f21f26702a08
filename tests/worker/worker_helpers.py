"""Runners, and jobs that misbehave, for tests of the workers."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobs.computations.limits import Limits
from jobs.frames import Frame
from worker.messages import ENDINGS, Order
from worker.runner_process import RunnerProcess

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
