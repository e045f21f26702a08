"""What a training run needs from its surroundings: the job machinery, a test or a shell provides it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

Stopping = Literal["cancel", "shutdown"]


class Stopped(Exception):
    """The run was asked to stop, and did; on "shutdown" it has saved a checkpoint."""


class TrainingError(Exception):
    """The run cannot go on.

    Attributes:
        code: the reason code of the failed job.
    """

    code = "invalid_data"


class Diverged(TrainingError):
    """The loss is no longer a finite number; raised before the optimizer used it."""

    code = "diverged"


class Samples(Protocol):
    """Where stored data sets come from."""

    def dataset(self, dataset_id: str) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]:
        """x (n, …) and y (n,) of a stored data set.

        Raises:
            Exception: it is not there or not readable; the run ends with it.
        """


class Context(Samples, Protocol):
    """Called from the training loop, so every method should return soon.

    After a resume the steps since the checkpoint are reported again, with the same numbers: the later
    report of a step counts.
    """

    @property
    def stopping(self) -> Stopping | None:
        """Why the run should stop, if it should; asked for before every step."""

    def progress(self, step: int, total: int) -> None:
        """``step`` of ``total`` optimizer steps are done; called after every step."""

    def metrics(self, step: int, values: Mapping[str, float | None]) -> None:
        """One evaluation; None where a metric has no value."""

    def event(self, message: str) -> None:
        """A sentence for people."""

    def save_checkpoint(self, step: int, data: bytes) -> None:
        """Keep ``data`` in place of earlier checkpoints."""

    def load_checkpoint(self) -> tuple[int, bytes] | None:
        """The last checkpoint of this run, by whichever attempt."""

    def artifact(self, name: str, data: bytes, media_type: str) -> None:
        """A file of the finished run; a second one of the same name replaces the first."""
