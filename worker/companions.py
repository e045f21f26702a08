"""The other processes of a training that several share, started by its runner on the same machine."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
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
    return wanted or min(gpus, spec.batch_size)


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
        companions = Companions(order)
        try:
            with joined(Processes(0, size, 0), meeting) as processes:
                yield processes
            companions.wait()
        except RuntimeError as error:
            companions.explain(error)
            raise
        finally:
            companions.end()


class Companions:
    """Processes of ranks 1, 2, …; when one of them is lost, this process ends as it did."""

    def __init__(self, order: dict[str, str | int]) -> None:
        self._ending = threading.Event()
        self._processes: list[subprocess.Popen[bytes]] = []
        for rank in range(1, int(order["size"])):
            process = subprocess.Popen(
                [sys.executable, "-m", "worker.companion"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert process.stdin is not None
            process.stdin.write(json.dumps({**order, "rank": rank}).encode() + b"\n")
            process.stdin.flush()  # and kept open: its end tells the companion that this process is gone
            self._processes.append(process)
            threading.Thread(target=self._watch, args=(process,), name="companion", daemon=True).start()

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """End this process if it does not by itself: it may wait for the lost one without end."""
        if process.wait() != 0 and not self._ending.wait(GRACE_SECONDS):
            logger.error("a companion ended with status %d", process.returncode)
            os.kill(os.getpid(), signal.SIGKILL)

    def wait(self) -> None:
        """Until all have ended by themselves, but not for long."""
        deadline = time.monotonic() + END_SECONDS
        self._ending.set()
        for process in self._processes:
            try:
                process.wait(max(deadline - time.monotonic(), 0.0))
            except subprocess.TimeoutExpired:
                logger.error("a companion does not end by itself")

    def explain(self, error: RuntimeError) -> None:
        """Raise what ended a companion, if that may be why this process failed; end as it did if it was lost.

        Raises:
            CompanionFailed
        """
        deadline = time.monotonic() + NOTICE_SECONDS
        while time.monotonic() < deadline:
            for process in self._processes:
                status = process.poll()
                if status is None or status == 0:
                    continue
                said = b"" if process.stdout is None else process.stdout.read()
                if said:
                    raise CompanionFailed(Reason.model_validate_json(said)) from error
                logger.error("a companion ended with status %d", status)
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.05)

    def end(self) -> None:
        """Whatever happened, none is left."""
        self._ending.set()
        for process in self._processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
