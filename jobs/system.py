"""Processes that make up a system: started in order, started anew when they end, stopped in order."""

from __future__ import annotations

import http.client
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jobs.children import spawn, stop
from jobs.data_folder import DataFolder

LOOK_SECONDS = 0.2
STEADY_SECONDS = 30.0
"""A process that ran so long is started anew at once; one that fails at once waits ever longer."""
MAX_PAUSE_SECONDS = 5.0
MAX_EARLY_FAILURES = 3
"""Of a service that has never answered."""
SERVICE_SECONDS, WORKER_SECONDS, BROKER_SECONDS = 5.0, 12.0, 5.0
"""For each to end politely."""


@dataclass
class Part:
    """One process of the system.

    Attributes:
        name: for people.
        command: makes the command, before every start.
        environment: variables added to those of this process.
        failed: called when it ended by itself with an error.
    """

    name: str
    command: Callable[[], list[str]]
    folder: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    failed: Callable[[], None] = lambda: None
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    failures: int = 0
    due: float = 0.0

    def start(self, children_lock: int) -> None:
        """Start it; later, if that is not possible now, for example because the disk is full."""
        self.started = time.monotonic()
        try:
            self.process = spawn(
                self.command(), environment=self.environment, folder=self.folder, keep=[children_lock]
            )
        except OSError as error:
            self.due = self.started + MAX_PAUSE_SECONDS
            print(f"{self.name} cannot be started now: {error}", flush=True)

    def look(self) -> int | None:
        """The status with which it has ended since the last look, if it has."""
        if self.process is None or (status := self.process.poll()) is None:
            return None
        self.process = None
        if time.monotonic() - self.started > STEADY_SECONDS:
            self.failures = 0
        pause = min(2.0**self.failures - 1, MAX_PAUSE_SECONDS)
        self.failures += 1
        self.due = time.monotonic() + pause
        if status > 0:
            self.failed()
        ended = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        print(f"{self.name} {ended}; starting it again in {pause:.0f} s", flush=True)
        return status

    def end(self, seconds: float) -> None:
        if self.process is not None:
            stop(self.process, seconds)
            self.process = None


class System:
    """Broker, service and worker; the first and the last may be missing."""

    def __init__(
        self,
        folder: DataFolder,
        *,
        broker: Part | None,
        service: Part,
        worker: Part | None,
        address: tuple[str, int],
        announce: str,
    ) -> None:
        self._folder = folder
        self._broker = broker
        self._service = service
        self._worker = worker
        self._address = address
        self._announce = announce
        self._answered = False

    def run(self, stopping: threading.Event) -> int:
        """Keep everything running until ``stopping`` is set; the exit status.

        In the main thread: the processes end with the thread that started them.
        """
        status = 0
        try:
            while not stopping.is_set():
                early = self._look_after_all()
                if early is not None:
                    status = early
                    break
                self._note_answer()
                stopping.wait(LOOK_SECONDS if self._answered else LOOK_SECONDS / 10)
        finally:
            self._stop()
        return status

    def stop_now(self) -> None:
        """End everything by force."""
        for part in self._parts():
            if part.process is not None:
                part.process.kill()

    def _parts(self) -> list[Part]:
        return [part for part in (self._broker, self._service, self._worker) if part is not None]

    def _look_after_all(self) -> int | None:
        """Start what is due; a status if the service turns out not to be able to run."""
        changed = False
        for part in self._parts():
            status = part.look()
            early = part is self._service and not self._answered
            if status is not None and early and (status == 2 or part.failures >= MAX_EARLY_FAILURES):
                return status if status > 0 else 1
            waits = part is self._worker and not self._answered  # the service comes first
            if part.process is None and not waits and time.monotonic() >= part.due:
                part.start(self._folder.children_lock)
                changed = True
        if changed:
            self._folder.note_processes(part.process.pid for part in self._parts() if part.process)
        return None

    def _note_answer(self) -> None:
        if not self._answered and self._service.process is not None and _answers(*self._address):
            self._answered = True
            print(self._announce, flush=True)

    def _stop(self) -> None:
        """Service and worker together, then the broker they talk to."""
        for part in (self._service, self._worker):
            if part is not None and part.process is not None:
                part.process.terminate()
        self._service.end(SERVICE_SECONDS)
        if self._worker is not None:
            self._worker.end(WORKER_SECONDS)
        if self._broker is not None:
            self._broker.end(BROKER_SECONDS)
        self._folder.note_processes([])


def _answers(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=1.0)
    try:
        connection.request("GET", "/health/live")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
