"""A training context that keeps everything in memory."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from worker.training.context import Stopping

Array = npt.NDArray[np.generic]


class MemoryContext:
    """Asks to stop after ``stop_after`` more steps, for ``reason``; starts from ``checkpoint``."""

    def __init__(
        self,
        *,
        checkpoint: tuple[int, bytes] | None = None,
        stop_after: int | None = None,
        reason: Stopping = "shutdown",
        datasets: Mapping[str, tuple[Array, Array]] | None = None,
    ) -> None:
        self.checkpoint, self.stop_after, self.reason = checkpoint, stop_after, reason
        self.datasets = datasets or {}
        self.series: dict[int, dict[str, float | None]] = {}
        self.events: list[str] = []
        self.artifacts: dict[str, tuple[bytes, str]] = {}
        self.steps: list[tuple[int, int]] = []

    @property
    def stopping(self) -> Stopping | None:
        done = self.stop_after is not None and len(self.steps) >= self.stop_after
        return self.reason if done else None

    def progress(self, step: int, total: int) -> None:
        self.steps.append((step, total))

    def metrics(self, step: int, values: Mapping[str, float | None]) -> None:
        self.series[step] = dict(values)

    def event(self, message: str) -> None:
        self.events.append(message)

    def save_checkpoint(self, step: int, data: bytes) -> None:
        self.checkpoint = (step, data)

    def load_checkpoint(self) -> tuple[int, bytes] | None:
        return self.checkpoint

    def artifact(self, name: str, data: bytes, media_type: str) -> None:
        self.artifacts[name] = (data, media_type)

    def dataset(self, dataset_id: str) -> tuple[Array, Array]:
        return self.datasets[dataset_id]
