"""A training run in a folder, without a service."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from anglewise.errors import InvalidInput
from jobs.training_spec import TrainingSpec
from worker.training.context import Stopped, Stopping

Array = npt.NDArray[np.generic]


class FolderContext:
    """Prints evaluations; keeps the checkpoint and the artifacts in the folder.

    Attributes:
        stopping: set it to end the run after the current step.
    """

    def __init__(self, folder: Path, samples: tuple[Array, Array] | None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._samples = folder, samples
        self.stopping: Stopping | None = None

    def belong_to(self, spec: TrainingSpec) -> None:
        """The folder is for runs of this spec from now on, by however many processes.

        Raises:
            InvalidInput: it has a run of another one.
        """
        path = self._folder / "spec.json"
        document = spec.model_dump_json(exclude={"processes"}).encode()
        if path.exists() and path.read_bytes() != document:
            raise InvalidInput((), f"{self._folder} has a run of another spec; take a new folder")
        self._write(path.name, document)

    def check(self) -> None:
        if self.stopping is not None:
            raise Stopped

    def progress(self, step: int, total: int) -> None:
        """Evaluations tell enough."""

    def metrics(self, step: int, values: Mapping[str, float | None]) -> None:
        known = (f"{name} {value:.4g}" for name, value in values.items() if value is not None)
        print(f"step {step}: {', '.join(known)}", flush=True)

    def event(self, message: str) -> None:
        print(message, file=sys.stderr, flush=True)

    def save_checkpoint(self, step: int, data: bytes) -> None:
        self._write("resume.safetensors", data)

    def load_checkpoint(self) -> tuple[int, bytes] | None:
        path = self._folder / "resume.safetensors"
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
