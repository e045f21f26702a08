"""The other processes of a training that several share, started by its runner on the same machine."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import torch

from anglewise.errors import InvalidInput
from jobs.training_spec import TrainingSpec
from worker.companion_process import Companion, end_abruptly
from worker.training.processes import ALONE, PeerLost, Processes, joined

logger = logging.getLogger("anglewise.worker")

END_SECONDS = 10.0
"""Companions end within this time after the last step."""
NOTICE_SECONDS = 5.0
"""The end of a connection is noticed at most so long before the end of the process behind it."""


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
            for companion in companions:
                companion.wait_ready()
            with joined(Processes(0, size, 0), meeting) as processes:
                yield processes
            for companion in companions:
                companion.wait(END_SECONDS)
        except PeerLost as error:
            _explain(error, companions)
        finally:
            for companion in companions:
                companion.end()


def _explain(error: PeerLost, companions: Sequence[Companion]) -> NoReturn:
    """Raise what the companion said that is the cause; end as it did if it said nothing.

    A connection ends before the process behind it does, and takes those of bystanders along. Where no cause
    is found the attempt counts as lost, and another one goes on.

    Raises:
        CompanionFailed
    """
    deadline = time.monotonic() + NOTICE_SECONDS
    while time.monotonic() < deadline:
        for companion in companions:
            if companion.failed:
                companion.explain(error)
        time.sleep(0.05)
    logger.error("a connection to a companion was lost: %s", error)
    end_abruptly()
