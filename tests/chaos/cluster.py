"""A broker, a store and workers as real processes, for tests that kill them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from jobs import paths
from jobs.broker import BrokerUnavailable
from jobs.events import Event, series, state_events, stored_events
from jobs.ids import new_job_id
from jobs.journal import Journal
from jobs.live import Live, Worker
from jobs.queue import Queue
from jobs.record import JobRecord, Step, Submission
from jobs.store import ObjectStore
from jobs.valkey import Valkey

ROOT = Path(__file__).resolve().parent.parent.parent
KINDS = ROOT / "tests" / "worker"
PATIENCE = 90.0
"""Seconds before a test gives up; nothing is expected to take so long."""
TERMINAL = (Step.SUCCEEDED, Step.FAILED, Step.CANCELLED)


class Node:
    """``python -m worker``: the workers of one machine."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "worker"], env=dict(environment), cwd=ROOT, process_group=0
        )

    def kill(self) -> None:
        """Without a chance to say goodbye."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> float:
        """Ask it to end, as a service manager does; seconds it took."""
        start = time.monotonic()
        self.process.terminate()
        # One that has hardly begun to run does not know yet that it should end politely.
        assert self.process.wait(20) in (0, -signal.SIGTERM)
        return time.monotonic() - start


class Cluster:
    """Starts nothing by itself but the broker.

    Args:
        folder: with a short name, for the broker and the objects.
        store_url: of objects elsewhere.
        settings: as in `JobSettings`, for all processes.
    """

    def __init__(
        self,
        folder: Path,
        store_url: str | None = None,
        environment: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        self.valkey = Valkey(folder / "vk")
        self.valkey.start()
        url = store_url or (folder / "objects").as_uri()
        self.settings = {
            "broker_url": self.valkey.url,
            "store_url": url,
            "devices": "cpu",
            "lease_seconds": 2.0,
            "heartbeat_seconds": 0.3,
        } | settings
        self.environment = {
            **os.environ,
            **(environment or {}),
            **{f"ANGLEWISE_{name.upper()}": str(value) for name, value in self.settings.items()},
            "ANGLEWISE_JOB_KINDS": "job_kinds",
            "PYTHONPATH": str(KINDS),
            "OMP_NUM_THREADS": "1",
        }
        self.journal = Journal(ObjectStore(url))
        self.live = Live(self.valkey.url)
        self.queue = Queue(self.valkey.url)
        self.nodes: list[Node] = []

    def start_node(self) -> Node:
        self.nodes.append(Node(self.environment))
        return self.nodes[-1]

    def start_workers(self, count: int = 1) -> None:
        """Nodes of one device each, ready for jobs."""
        for _ in range(count):
            self.start_node()
        self.wait_for(lambda: len(self.workers()) >= count)

    def submit(self, kind: str, **spec: Any) -> str:
        """As the service does: the store first, then the bell, which may be broken."""
        job_id, body = new_job_id(), json.dumps(spec).encode()
        self.journal.submit(job_id, Submission(kind=kind, spec_bytes=len(body)), body)
        with suppress(BrokerUnavailable):
            self.queue.ring(job_id)
        return job_id

    def read(self, job_id: str) -> JobRecord:
        return self.journal.read(job_id)

    def wait_end(self, *job_ids: str, seconds: float = PATIENCE) -> list[JobRecord]:
        """The jobs after their end."""
        for job_id in job_ids:
            self.wait_for(lambda job_id=job_id: self.read(job_id).state.terminal, seconds)  # type: ignore[misc]
        return [self.read(job_id) for job_id in job_ids]

    def wait_steps(self, job_id: str, steps: int = 1) -> None:
        """Until so much progress is shown."""
        self.wait_for(lambda: self.steps(job_id) >= steps)

    def steps(self, job_id: str) -> int:
        try:
            progress = self.live.progress([job_id]).get(job_id)
        except BrokerUnavailable:
            return 0
        return progress.step if progress is not None else 0

    def workers(self) -> list[Worker]:
        try:
            return self.live.workers()
        except BrokerUnavailable:
            return []

    def worker_of(self, job_id: str) -> Worker:
        found: list[Worker] = self.wait_for(lambda: [w for w in self.workers() if w.job == job_id])
        return found[0]

    def result(self, job_id: str) -> Any:
        record = self.read(job_id)
        return json.loads(self.journal.store.get(paths.artifact(job_id, record.attempt, "result.json")))

    def events(self, job_id: str) -> list[Event]:
        record = self.read(job_id)
        events = state_events(record) + stored_events(self.journal.store, record)
        return sorted(events, key=lambda event: event.sequence)

    def series(self, job_id: str) -> dict[str, list[dict[str, Any]]]:
        return series(self.events(job_id))

    def check_ended_once(self, job_id: str) -> JobRecord:
        """Exactly one entry of the log is an end, and it is the last; no number of an event comes twice."""
        record = self.read(job_id)
        steps = [entry.step for entry in record.entries]
        assert [step in TERMINAL for step in steps].count(True) == 1, steps
        assert steps[-1] in TERMINAL, steps
        numbers = [event.sequence for event in self.events(job_id)]
        assert numbers == sorted(set(numbers))
        return record

    def kill_valkey(self) -> None:
        assert self.valkey.process is not None
        self.valkey.process.kill()
        self.valkey.process.wait()

    def restart_valkey(self, wiped: bool = False) -> None:
        if wiped:
            self.valkey.discard_data()
        self.valkey.start()

    @staticmethod
    def wait_for(condition: Callable[[], Any], seconds: float = PATIENCE) -> Any:
        deadline = time.monotonic() + seconds
        while not (value := condition()):
            assert time.monotonic() < deadline, "it never happened"
            time.sleep(0.02)
        return value

    def close(self) -> None:
        for node in self.nodes:
            node.process.send_signal(signal.SIGTERM)
        for node in self.nodes:
            try:
                node.process.wait(15)
            except subprocess.TimeoutExpired:
                node.process.kill()
                node.process.wait()
        self.queue.close()
        self.live.close()
        self.valkey.stop()
