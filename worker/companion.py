"""A companion of a runner: ``python -m worker.companion``.  Takes its part in one training.

Its order comes first on standard input, after its length in eight bytes; when the input ends its parent is
gone. To standard output it writes a line when it is ready, and if it cannot go on the reason, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from jobs.store import ObjectStore, StoreUnavailable
from jobs.training_spec import Data, TrainingSpec
from worker.failures import reason_for
from worker.logs import log_to_stderr
from worker.parent import die_with_parent

RETRY_SECONDS = 1.0
PIECE = 64 * 1024
READY = b"ready\n"
"""Said before it meets the others."""
BYSTANDER = 3
"""Exit status of one that ended because another one had."""


def main() -> None:
    order = json.loads(_read(int.from_bytes(_read(8), "big")))
    die_with_parent()
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever libraries print goes to the log of the worker
    log_to_stderr("companion")
    status = 0
    try:
        _take_part(order, answers)
    except Exception as error:
        status = BYSTANDER
        if type(error).__name__ != "PeerLost":  # torch, and so its class, may not have been loaded
            status = 1
            os.write(answers, reason_for(error).model_dump_json().encode())
    sys.stderr.flush()
    os._exit(status)  # threads of libraries would abort an orderly end now and then


def _take_part(order: dict[str, Any], answers: int) -> None:
    from worker.training.processes import Processes, joined, take_device
    from worker.training.trainer import follow

    spec = TrainingSpec.model_validate_json(order["spec"])
    here = Processes(order["rank"], order["size"], order["rank"])
    take_device(here)
    os.write(answers, READY)
    with joined(here, order["meeting"]) as processes:
        follow(spec, StoredSamples(order["store_url"]), processes)


def _read(length: int) -> bytes:
    """So much and no more: what follows is for the watch over the parent."""
    parts = []
    while length > 0:
        part = os.read(0, min(length, PIECE))
        if not part:
            sys.exit(0)
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


class StoredSamples:
    """See `worker.training.context.Samples`; waits while the store is away, as the runner does."""

    def __init__(self, store_url: str) -> None:
        self._store = ObjectStore(store_url)

    def dataset(self, dataset_id: str) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]:
        from jobs.datasets.loading import load

        while True:
            try:
                return load(self._store, Data(dataset=dataset_id))
            except StoreUnavailable:
                time.sleep(RETRY_SECONDS)


if __name__ == "__main__":
    main()
