"""Trainings in this process, without a service."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import BytesIO
from multiprocessing import get_context
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from jobs.training_spec import TrainingSpec
from worker.training.context import Stopping
from worker.training.trainer import train

Array = npt.NDArray[Any]
DATASET = "ds_01KBCJ6ZT0000000000000000Z"
"""What a spec calls the images of its training."""


@dataclass(frozen=True, eq=False)
class Training:
    """One training of an experiment.

    Attributes:
        cells: the first cells of its row; trainings that differ only in their seed share a row.
        spec: of a training job.
        images: x and y of the data set `DATASET`.
    """

    cells: tuple[str | float, ...]
    spec: Mapping[str, Any]
    images: tuple[Array, Array] | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a training gave: its summary and the files it wrote."""

    training: Training
    summary: Mapping[str, Any]
    files: Mapping[str, bytes]

    @cached_property
    def measured(self) -> npt.NDArray[np.float64]:
        """(C, C) inner products of class means."""
        return np.asarray(self.summary["measured_gram"], dtype=np.float64)

    @cached_property
    def predicted(self) -> npt.NDArray[np.float64]:
        """(C, C) the certified optimum."""
        return np.asarray(self.summary["predicted"]["gram"], dtype=np.float64)

    @property
    def difference(self) -> float:
        """The largest of a cosine to the prediction."""
        return float(np.abs(self.measured - self.predicted).max())

    def metric(self, name: str) -> float:
        return float(self.summary["metrics"][name])

    def array(self, name: str) -> Array:
        found: Array = np.load(BytesIO(self.files[name]), allow_pickle=False)
        return found


@dataclass(frozen=True)
class Quiet:
    """A context that nobody watches."""

    samples: tuple[Array, Array] | None = None
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def stopping(self) -> Stopping | None:
        return None

    def progress(self, step: int, total: int) -> None: ...

    def metrics(self, step: int, values: Mapping[str, float | None]) -> None: ...

    def event(self, message: str) -> None: ...

    def save_checkpoint(self, step: int, data: bytes) -> None: ...

    def load_checkpoint(self) -> tuple[int, bytes] | None:
        return None

    def artifact(self, name: str, data: bytes, media_type: str) -> None:
        self.files[name] = data

    def dataset(self, dataset_id: str) -> tuple[Array, Array]:
        assert self.samples is not None
        return self.samples


def seeded(training: Training, seeds: Sequence[int]) -> list[Training]:
    """The training from each seed."""
    return [replace(training, spec={**training.spec, "seed": seed}) for seed in seeds]


def run(trainings: Sequence[Training], processes: int | None = 1) -> list[Outcome]:
    """Train, on the GPU if there is one.

    Args:
        processes: at work at a time, each with one thread; None: as many as there are cores; 1: this one,
            with all of them.
    """
    if processes == 1 or len(trainings) < 2:
        return [_run(training) for training in trainings]
    spawn = get_context("spawn")  # torch does not survive a fork
    with ProcessPoolExecutor(processes, spawn, torch.set_num_threads, (1,)) as pool:
        return list(pool.map(_run, trainings))


def _run(training: Training) -> Outcome:
    context = Quiet(training.images)
    summary = train(TrainingSpec.model_validate(training.spec), context)
    return Outcome(training, summary, context.files)


def off_diagonal(gram: Any) -> npt.NDArray[np.float64]:
    """Cosines of pairs of different classes."""
    matrix = np.asarray(gram, dtype=np.float64)
    return matrix[np.triu_indices(len(matrix), 1)]
