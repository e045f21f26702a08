"""Trainings in this process, without a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any

import numpy as np
import numpy.typing as npt

from jobs.training_spec import TrainingSpec
from worker.training.context import Stopping
from worker.training.trainer import train

Array = npt.NDArray[Any]
DATASET = "ds_01KBCJ6ZT0000000000000000Z"
"""What a spec calls the samples that `run` is given."""


@dataclass(frozen=True)
class Quiet:
    """A context that nobody watches."""

    samples: tuple[Array, Array] | None = None
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def stopping(self) -> Stopping | None:
        return None

    def check(self) -> None: ...

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


def run(spec: Mapping[str, Any], samples: tuple[Array, Array] | None = None) -> dict[str, Any]:
    """The summary of a training; ``samples`` are x and y of the data set `DATASET`."""
    return train(TrainingSpec.model_validate(spec), Quiet(samples))


def run_with_embeddings(
    spec: Mapping[str, Any], samples: tuple[Array, Array]
) -> tuple[dict[str, Any], Array, Array]:
    """The summary, the embeddings (n, d) and their classes (n,)."""
    context = Quiet(samples)
    summary = train(TrainingSpec.model_validate(spec), context)
    z, labels = (np.load(BytesIO(context.files[name])) for name in ("embeddings.npy", "labels.npy"))
    return summary, z, labels


def off_diagonal(gram: Any) -> npt.NDArray[np.float64]:
    """Cosines of pairs of different classes."""
    matrix = np.asarray(gram, dtype=np.float64)
    return matrix[np.triu_indices(len(matrix), 1)]
