"""``python -m jobs.local`` with a client that submits jobs through HTTP, whatever happens to the service."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx2
from cluster import PATIENCE, ROOT, Cluster

from jobs.journal import Journal
from jobs.store import ObjectStore
from jobs.valkey import free_port

QUICK = {
    "ANGLEWISE_WARM_UP": "0",
    "ANGLEWISE_WORKERS": "1",
    "ANGLEWISE_LOG_LEVEL": "ERROR",
    "ANGLEWISE_DEVICES": "cpu,cpu",
    "ANGLEWISE_LEASE_SECONDS": "2",
    "ANGLEWISE_HEARTBEAT_SECONDS": "0.3",
    "OMP_NUM_THREADS": "1",
}


class LocalSystem:
    """A whole system on one machine, started as users start it."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder / "data"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        store_url = (environment or {}).get("ANGLEWISE_STORE_URL") or (self.folder / "objects").as_uri()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jobs.local", "--port", str(self.port), "--without-training"],
            env={**os.environ, **QUICK, **(environment or {}), "ANGLEWISE_DATA_DIR": str(self.folder)},
            cwd=ROOT,
            process_group=0,
        )
        Cluster.wait_for(self.answers)
        self.journal = Journal(ObjectStore(store_url))

    def answers(self) -> bool:
        try:
            return httpx2.get(f"{self.url}/health/live", timeout=2).status_code == 200
        except httpx2.HTTPError:
            return False

    def pids(self) -> dict[str, int]:
        """Of the processes that it started: valkey, service, worker."""
        try:
            noted = json.loads((self.folder / "processes.json").read_text())
        except (OSError, ValueError):
            return {}
        names = ("valkey", "service", "worker")
        found = {}
        for pid in map(int, noted):
            command = command_of(pid).partition("conf")[0]
            found.update({name: pid for name in names if name in command})
        return found

    def forget_queue(self) -> None:
        """Remove the broker's files while it runs: it starts with nothing the next time."""
        shutil.rmtree(self.folder / "valkey" / "appendonlydir", ignore_errors=True)

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Submitter(threading.Thread):
    """Posts jobs until each was accepted, with the same key when an answer was lost.

    Attributes:
        accepted: ids of all answers 202.
    """

    def __init__(self, system: LocalSystem, jobs: list[dict[str, Any]], pause_seconds: float) -> None:
        super().__init__(daemon=True)
        self.accepted: list[str] = []
        self._system = system
        self._jobs = jobs
        self._pause = pause_seconds

    def run(self) -> None:
        with httpx2.Client(base_url=self._system.url, timeout=10) as client:
            for job in self._jobs:
                self.accepted.append(post(client, job))
                time.sleep(self._pause)


def post(client: httpx2.Client, job: dict[str, Any]) -> str:
    """Id of the accepted job."""
    key, deadline = uuid.uuid4().hex, time.monotonic() + PATIENCE
    while True:
        try:
            answer = client.post("/jobs", json=job, headers={"Idempotency-Key": key})
            if answer.status_code == 202:
                return str(answer.json()["id"])
            assert answer.status_code in (429, 503), answer.text
        except httpx2.HTTPError:
            pass
        assert time.monotonic() < deadline, "the service does not come back"
        time.sleep(0.2)


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def ask(system: LocalSystem, path: str, ok: Callable[[httpx2.Response], bool]) -> httpx2.Response:
    """The first answer that is as wanted."""

    def once() -> httpx2.Response | None:
        try:
            answer = httpx2.get(system.url + path, timeout=10)
        except httpx2.HTTPError:
            return None
        return answer if ok(answer) else None

    found: httpx2.Response = Cluster.wait_for(once)
    return found
