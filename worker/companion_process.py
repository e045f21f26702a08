"""The first process's side of a companion."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import NoReturn

from jobs.states import Reason
from worker.companion import BYSTANDER, READY
from worker.training.context import TrainingError

logger = logging.getLogger("anglewise.worker")

GRACE_SECONDS = 5.0
"""A run notices within this time that a companion is gone, or hangs in a library."""
REASON_SECONDS = 180.0
"""One that said why waits to be asked: the first process may be reading data, or predicting."""


class CompanionFailed(TrainingError):
    """A companion gave a reason why it cannot go on."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message)
        self.code = reason.code


def end_abruptly() -> NoReturn:
    """As a process does that is killed: the supervisor then looks for reasons, and begins anew."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit(1)  # where signals take a moment


class Companion:
    """One of the others; when it is lost, this process ends as it did.

    Attributes:
        rank: its place among the processes of the run.
    """

    def __init__(self, rank: int, order: Mapping[str, str | int]) -> None:
        self.rank = rank
        self._said = b""
        self._ready, self._gone, self._ending = threading.Event(), threading.Event(), threading.Event()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "worker.companion"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        body = json.dumps({**order, "rank": rank}).encode()
        self._thread = threading.Thread(target=self._attend, args=(body,), name="companion", daemon=True)
        self._thread.start()

    @property
    def failed(self) -> bool:
        """Whether it ended by a fault that was its own."""
        return self._gone.is_set() and self._process.returncode not in (0, BYSTANDER)

    def _attend(self, body: bytes) -> None:
        """Give it its order, hear what it says, and end this process if that does not do so by itself: it
        may wait for the lost one without end."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        with contextlib.suppress(BrokenPipeError):
            stdin.write(len(body).to_bytes(8, "big") + body)
            stdin.flush()  # and kept open: its end says that this process is gone
        line = stdout.readline()
        if line == READY:
            self._ready.set()
        self._said = stdout.read() if line == READY else line
        self._process.wait()
        self._gone.set()
        if self.failed and not self._ending.wait(REASON_SECONDS if self._said else GRACE_SECONDS):
            self._end_as_it_did()

    def _end_as_it_did(self) -> NoReturn:
        logger.error("companion %d ended with status %d", self.rank, self._process.returncode)
        end_abruptly()

    def wait_ready(self) -> None:
        """Until it can meet the others.

        Raises:
            CompanionFailed
        """
        while not self._ready.wait(0.05):
            if self._gone.is_set():
                self.explain(None)

    def explain(self, error: Exception | None) -> NoReturn:
        """Raise what it said at its end; end as it did if it was lost.

        Raises:
            CompanionFailed
        """
        if not self._said:
            self._end_as_it_did()
        raise CompanionFailed(Reason.model_validate_json(self._said)) from error

    def wait(self, seconds: float) -> None:
        """Until it has ended by itself, but not for long."""
        self._ending.set()
        if not self._gone.wait(seconds):
            logger.error("companion %d does not end by itself", self.rank)

    def end(self) -> None:
        """Whatever happened, it is gone."""
        self._ending.set()
        self._process.kill()
        self._process.wait()
        self._thread.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
