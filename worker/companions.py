"""The other processes of a training that several share, started by its runner on the same machine."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from anglewise.errors import InvalidInput
from jobs.states import Reason
from jobs.training_spec import TrainingSpec
from worker.training.context import TrainingError
from worker.training.processes import ALONE, Processes, joined

logger = logging.getLogger("anglewise.worker")

END_SECONDS = 10.0
"""Companions end within this time after the last step."""
GRACE_SECONDS = 5.0
"""A run notices within this time that a companion is gone, or hangs in a library."""
REASON_SECONDS = 180.0
"""One that said why waits to be asked: the first process may be reading data, or predicting."""
NOTICE_SECONDS = 2.0
"""The end of a connection is noticed so long before the end of the process behind it."""


class CompanionFailed(TrainingError):
    """A companion gave a reason why it cannot go on."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message)
        self.code = reason.code


def wanted_processes(spec: TrainingSpec) -> int:
    """How many processes share this run on this worker.

    Raises:
        InvalidInput: more than it has GPUs, or processor cores.
    """
    if spec.exact:
        return 1
    wanted = spec.processes
    if spec.device == "cpu" or not torch.cuda.is_available():
        cores = os.cpu_count() or 1
        if wanted is not None and wanted > cores:
            raise InvalidInput(("processes",), f"this worker has {cores} processor cores")
        return wanted or 1
    gpus = torch.cuda.device_count()
    if wanted is not None and wanted > gpus:
        message = f"this worker has {gpus} GPU(s); ANGLEWISE_DEVICES gives it several, as cuda:0+1"
        raise InvalidInput(("processes",), message)
    counts = spec.data.counts()
    batch = spec.batch_size if counts is None else spec.batch(sum(counts))
    return wanted or max(1, min(gpus, batch // 2))  # normalization needs two samples in each


@contextmanager
def shared_by_processes(spec: TrainingSpec, store_url: str) -> Iterator[Processes]:
    """This process as the first of those that share the run; the others run until this ends.

    Raises:
        CompanionFailed
    """
    size = wanted_processes(spec)
    if size == 1:
        yield ALONE
        return
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
    with tempfile.TemporaryDirectory(prefix="anglewise-") as folder:
        meeting = (Path(folder) / "meeting").as_uri()
        order: dict[str, str | int] = {
            "spec": spec.model_dump_json(),
            "store_url": store_url,
            "meeting": meeting,
            "size": size,
        }
        companions = [Companion(rank, order) for rank in range(1, size)]
        try:
            with joined(Processes(0, size, 0), meeting) as processes:
                yield processes
            for companion in companions:
                companion.wait(END_SECONDS)
        except RuntimeError as error:  # perhaps the end of a connection, noticed before that of a process
            for companion in companions:
                companion.explain(error, NOTICE_SECONDS)
            raise
        finally:
            for companion in companions:
                companion.end()


class Companion:
    """One of the others; when it is lost, this process ends as it did.

    Attributes:
        rank: its place among the processes of the run.
    """

    def __init__(self, rank: int, order: dict[str, str | int]) -> None:
        self.rank = rank
        self._said = b""
        self._gone, self._ending = threading.Event(), threading.Event()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "worker.companion"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        body = json.dumps({**order, "rank": rank}).encode()
        self._thread = threading.Thread(target=self._attend, args=(body,), name="companion", daemon=True)
        self._thread.start()

    def _attend(self, body: bytes) -> None:
        """Give it its order, hear what it says at its end, and end this process if that does not do so
        by itself: it may wait for the lost one without end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(len(body).to_bytes(8, "big") + body)
            self._process.stdin.flush()  # and kept open: its end says that this process is gone
        self._said = self._process.stdout.read()
        failed = self._process.wait() != 0
        self._gone.set()
        if failed and not self._ending.wait(REASON_SECONDS if self._said else GRACE_SECONDS):
            self._follow_it()

    def _follow_it(self) -> None:
        logger.error("companion %d ended with status %d", self.rank, self._process.returncode)
        os.kill(os.getpid(), signal.SIGKILL)

    def explain(self, error: Exception, seconds: float) -> None:
        """Raise what it said when it ended, if it ends within this time; end as it did if it was lost.

        Raises:
            CompanionFailed
        """
        if not self._gone.wait(seconds) or self._process.returncode == 0:
            return
        if not self._said:
            self._follow_it()
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
