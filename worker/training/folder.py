"""A training run in a folder, without a service."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from anglewise.errors import InvalidInput
from jobs.training_spec import TrainingSpec
from worker.training.context import Stopping

Array = npt.NDArray[np.generic]

RUN = "run.json"
"""The spec of the run, with its defaults."""
RESUME = "resume.safetensors"
"""Where it goes on from."""


class FolderContext:
    """Prints evaluations; keeps the checkpoint and the artifacts in the folder.

    Attributes:
        stopping: set it to end the run after the current step.
    """

    def __init__(self, folder: Path, samples: tuple[Array, Array] | None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._samples = folder, samples
        self.stopping: Stopping | None = None

    @contextmanager
    def held_for(self, spec: TrainingSpec) -> Iterator[None]:
        """Keep other runs from the folder, and those of another spec for good; processes may differ.

        Raises:
            InvalidInput: another run has it, or it has a run of another spec.
        """
        document = spec.model_dump_json(exclude={"processes"}).encode()
        path = self._folder / RUN
        with (self._folder / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InvalidInput((), f"{self._folder} is in use by another run") from None
            except OSError as error:  # some network file systems have no locks
                self.event(f"Nothing keeps another run from {self._folder}: {error.strerror}.")
            if path.exists() and (self._folder / RESUME).exists() and _without_processes(path) != document:
                raise InvalidInput((), f"{self._folder} has a run of another spec; take a new folder")
            self._write(RUN, document)
            yield

    def progress(self, step: int, total: int) -> None:
        """Evaluations tell enough."""

    def metrics(self, step: int, values: Mapping[str, float | None]) -> None:
        known = (f"{name} {value:.4g}" for name, value in values.items() if value is not None)
        print(f"step {step}: {', '.join(known)}", flush=True)

    def event(self, message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    def save_checkpoint(self, step: int, data: bytes) -> None:
        self._write(RESUME, data)

    def load_checkpoint(self) -> tuple[int, bytes] | None:
        path = self._folder / RESUME
        return (0, path.read_bytes()) if path.exists() else None

    def artifact(self, name: str, data: bytes, media_type: str) -> None:
        self._write(name, data)

    def dataset(self, dataset_id: str) -> tuple[Array, Array]:
        assert self._samples is not None
        return self._samples

    def _write(self, name: str, data: bytes) -> None:
        """The whole file or, whatever happens, the one before."""
        partial = self._folder / f".{name}.partial"
        partial.write_bytes(data)
        os.replace(partial, self._folder / name)


def _without_processes(path: Path) -> bytes | None:
    """The spec in a file as this version would write it; None if it is none."""
    try:
        spec = TrainingSpec.model_validate_json(path.read_bytes())
    except ValidationError:
        return None
    return spec.model_dump_json(exclude={"processes"}).encode()
