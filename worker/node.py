"""The workers of one machine: a process for each device, and a keeper of all jobs."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from types import FrameType

from jobs.journal import Journal
from jobs.keeper import Keeper
from jobs.live import Live
from jobs.queue import Queue
from jobs.settings import JobSettings
from jobs.store import ObjectStore, StoreUnavailable
from worker.devices import count_gpus
from worker.interpreter import with_packages

logger = logging.getLogger("anglewise.worker")

LOOK_SECONDS = 0.2
STORE_SECONDS = 2.0
STOP_SECONDS = 10.0
"""Devices give their jobs back within this time, or are killed."""
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
STEADY_SECONDS = 5.0
"""A process that ran so long starts anew at once when it ends."""


class DeviceProcess:
    """One worker process, started anew whenever it ends; ever later if it ends at once."""

    def __init__(self, device: str, share: int) -> None:
        self._command = [sys.executable, "-m", "worker.device", device, str(share)]
        self.device = device
        self._failures = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._next_start = 0.0

    def keep_running(self) -> None:
        """Called often."""
        now = time.monotonic()
        if self._process is not None and self._process.poll() is not None:
            status = self._process.returncode
            self._drop()
            pause = min(FIRST_PAUSE * 2.0**self._failures, LONGEST_PAUSE)
            self._failures = 0 if now - self._started > STEADY_SECONDS else self._failures + 1
            logger.error("the worker of %s ended (%s), next start in %g s", self.device, status, pause)
            self._next_start = now + pause
        if self._process is None and now >= self._next_start:
            # Its standard input ends when this process does; then it gives its job back and ends too.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, process_group=0, env=with_packages(os.environ)
            )
            self._started = now

    def terminate(self) -> None:
        """Ask it to give its job back and end."""
        if self._process is not None:
            self._process.terminate()

    def end(self, deadline: float) -> None:
        """Wait for its end until ``deadline``, on the monotonic clock, then kill it."""
        if self._process is None:
            return
        try:
            self._process.wait(max(deadline - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            logger.error("the worker of %s does not end by itself", self.device)
            self._process.kill()
            self._process.wait()
        self._drop()

    def _drop(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None


def run(settings: JobSettings) -> int:
    """Work until SIGTERM or SIGINT; the exit status."""
    if settings.broker_url is None:
        print("ANGLEWISE_BROKER_URL is not set: there is no queue to take jobs from", file=sys.stderr)
        return 2
    stopping = threading.Event()
    _stop_on_signals(stopping)
    names = settings.device_names(count_gpus() if settings.devices == "auto" else 0)
    devices = [DeviceProcess(name, len(names)) for name in names]
    threading.Thread(target=_keep_jobs, args=(settings, stopping), name="keeper", daemon=True).start()
    logger.info("workers on %s", ", ".join(names))
    while not stopping.is_set():
        for device in devices:
            device.keep_running()
        time.sleep(LOOK_SECONDS)
    for device in devices:
        device.terminate()
    deadline = time.monotonic() + STOP_SECONDS
    for device in devices:
        device.end(deadline)
    return 0


def _keep_jobs(settings: JobSettings, stopping: threading.Event) -> None:
    """Attend to all jobs, as soon as the store can be opened."""
    assert settings.broker_url is not None
    live = Live(settings.broker_url, settings.lease_seconds)
    queue = Queue(settings.broker_url)
    while not stopping.is_set():
        try:
            keeper = Keeper(Journal(ObjectStore(settings.objects_url)), live, queue, settings)
        except StoreUnavailable as error:
            logger.warning("the object store cannot be opened: %s", error)
            stopping.wait(STORE_SECONDS)
        else:
            keeper.run(stopping)


def _stop_on_signals(stopping: threading.Event) -> None:
    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
