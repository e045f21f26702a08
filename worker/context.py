"""What a job sees of its surroundings; see `worker.training.context.Context`."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt

from jobs import paths
from jobs.record import Artifact
from jobs.store import Missing, ObjectStore, StoreUnavailable
from jobs.training_spec import Data
from worker.channel import Channel
from worker.messages import Report
from worker.training.context import Stopped, Stopping

T = TypeVar("T")

PROGRESS_SECONDS = 0.2
"""Progress is reported no more often than this, except for the last step."""
KEPT_CHECKPOINTS = 2
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses while the store is away; the last one again and again."""
ARTIFACT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
MAX_MESSAGE = 1000


class JobContext:
    """Of one attempt, in the runner. What it writes goes below the folder of the attempt."""

    def __init__(self, channel: Channel, store: ObjectStore, job_id: str, attempt: int) -> None:
        self._channel = channel
        self._store = store
        self._job_id = job_id
        self.attempt = attempt
        self._artifacts: dict[str, Artifact] = {}
        self._saved: list[int] = []
        self._reported = -math.inf

    @property
    def artifacts(self) -> list[Artifact]:
        """What was left so far."""
        return list(self._artifacts.values())

    @property
    def store_url(self) -> str:
        """Where companions find the data sets."""
        return self._store.url

    @property
    def stopping(self) -> Stopping | None:
        return self._channel.stopping

    def progress(self, step: int, total: int) -> None:
        now = time.monotonic()
        if now - self._reported >= PROGRESS_SECONDS or step >= total:
            self._reported = now
            self._channel.send(Report.PROGRESS, step=step, total=total)

    def metrics(self, step: int, values: Mapping[str, float | None]) -> None:
        finite, reasons = finite_values(values)
        data: dict[str, Any] = {"step": step, "values": finite}
        if reasons:
            data["reasons"] = reasons
        self._channel.send(Report.METRICS, data=data)

    def event(self, message: str) -> None:
        self._channel.send(Report.LOG, data={"message": message[:MAX_MESSAGE]})

    def save_checkpoint(self, step: int, data: bytes) -> None:
        """A checkpoint that cannot be stored now is left out: the next one may be."""
        # Metrics up to here come first: an attempt that goes on from this step will not repeat them.
        try:
            if not self._channel.flush():
                raise StoreUnavailable("the events before it are not stored")
            self._store.put(paths.checkpoint(self._job_id, self.attempt, step), data)
            self._saved = [*(saved for saved in self._saved if saved != step), step]
            while len(self._saved) > KEPT_CHECKPOINTS:
                self._store.delete(paths.checkpoint(self._job_id, self.attempt, self._saved[0]))
                del self._saved[0]
        except StoreUnavailable as error:
            self.event(f"the checkpoint of step {step} could not be stored: {error}")

    def load_checkpoint(self) -> tuple[int, bytes] | None:
        found = self.patiently(self._newest_checkpoint)
        if found is not None:
            step, attempt, data = found
            self._channel.send(Report.RESUMED, data={"step": step, "attempt": attempt})
            return step, data
        if self.attempt > 1:  # what earlier attempts measured will be measured again
            self._channel.send(Report.RESUMED, data={"step": 0, "attempt": self.attempt - 1})
        return None

    def artifact(self, name: str, data: bytes, media_type: str) -> None:
        path = self._artifact_path(name)
        self.patiently(lambda: self._store.put(path, data))
        self._artifacts[name] = Artifact(name=name, bytes=len(data), media_type=media_type)

    def artifact_file(self, name: str, file: BinaryIO, media_type: str) -> None:
        """The whole of an open file, in parts."""
        path = self._artifact_path(name)

        def store() -> None:
            file.seek(0)
            self._store.put_file(path, file)

        self.patiently(store)
        size = file.seek(0, os.SEEK_END)
        self._artifacts[name] = Artifact(name=name, bytes=size, media_type=media_type)

    def _artifact_path(self, name: str) -> str:
        if not ARTIFACT_NAME.fullmatch(name):
            raise ValueError(f"{name!r} cannot name an artifact")
        return paths.artifact(self._job_id, self.attempt, name)

    def dataset(self, dataset_id: str) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]:
        from jobs.datasets.loading import load  # brings readers of tables, which few jobs need

        return self.patiently(lambda: load(self._store, Data(dataset=dataset_id)))

    def _newest_checkpoint(self) -> tuple[int, int, bytes] | None:
        while True:
            found = [
                (int(name.rpartition("/")[2].partition(".")[0]), attempt, name)
                for attempt in range(1, self.attempt + 1)
                for name in self._store.names(paths.checkpoints(self._job_id, attempt))
            ]
            if not found:
                return None
            step, attempt, name = max(found)
            try:
                return step, attempt, self._store.get(name)
            except Missing:  # an attempt that was given up still cleans up after itself
                continue

    def patiently(self, action: Callable[[], T]) -> T:
        """Try until the store takes it, or the job is told to stop."""
        failures = 0
        while True:
            try:
                return action()
            except StoreUnavailable as error:
                if failures == 0:
                    self.event(f"the store does not answer, trying again: {error}")
                pause = RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)]
                failures += 1
                if self._channel.stop_requested.wait(pause):
                    raise Stopped from None


def finite_values(
    values: Mapping[str, float | None],
) -> tuple[dict[str, float | None], dict[str, str]]:
    """Metrics with null in place of what is no finite number, and why.

    >>> finite_values({"loss": 2.0, "nc1": float("nan"), "r2": None})
    ({'loss': 2.0, 'nc1': None, 'r2': None}, {'nc1': 'not a finite number: nan'})
    """
    finite: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    for name, value in values.items():
        if value is None or math.isfinite(value):
            finite[name] = None if value is None else float(value)
        else:
            finite[name] = None
            reasons[name] = f"not a finite number: {float(value)}"
    return finite, reasons
