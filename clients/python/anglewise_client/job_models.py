"""Jobs and data sets as the service describes them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from anglewise_client._answer import Answer, Part, data_frame

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

JobKind = Literal[
    "training",
    "optimal_geometry",
    "realizability",
    "collapse_map",
    "collapse_threshold",
    "weights",
    "diagnose",
]


class State(StrEnum):
    """What happens to a job: queued → running → succeeded | failed | cancelled."""

    QUEUED = "queued"
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether it has ended; such a state never changes again."""
        return self in (State.SUCCEEDED, State.FAILED, State.CANCELLED)


class Progress(Part):
    """How far a job is."""

    step: int | None = None
    total: int | None = None
    eta_s: float | None = None
    """Seconds left, estimated."""


class JobReason(Part):
    """Why a job ended as it did."""

    code: str
    message: str


class Artifact(Part):
    """A file that a job left."""

    name: str
    bytes: int
    media_type: str


class JobRecord(Answer):
    """One job as last seen.

    Attributes:
        attempt: number of the latest attempt; 0 before the first.
        spec: with all defaults; None where it is large.
    """

    id: str
    kind: str
    name: str | None = None
    state: State
    attempt: int = 0
    progress: Progress | None = None
    reason: JobReason | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    spec: dict[str, Any] | None = None
    artifacts: list[Artifact] = Field(default_factory=list)
    links: dict[str, str] = Field(default_factory=dict)

    def facts(self) -> Mapping[str, Any]:
        facts: dict[str, Any] = {"id": self.id, "kind": self.kind, "state": str(self.state)}
        if self.name is not None:
            facts["name"] = self.name
        if self.progress is not None and self.progress.step is not None:
            facts["progress"] = f"{self.progress.step} of {self.progress.total or '?'}"
        if self.reason is not None:
            facts["reason"] = f"{self.reason.code}: {self.reason.message}"
        return facts


class JobPage(Answer):
    """Some jobs, newest first; ``next_cursor`` asks for those after them."""

    items: list[JobRecord]
    next_cursor: str | None = None

    def facts(self) -> Mapping[str, Any]:
        return {"jobs": len(self.items), "more": self.next_cursor is not None}

    def to_dataframe(self) -> pd.DataFrame:
        """A row a job. Needs pandas."""
        return data_frame([record.facts() for record in self.items])


class Point(Part):
    """One value of one metric."""

    step: int
    value: float | None


class JobMetrics(Answer):
    """What a training logged, by name."""

    series: dict[str, list[Point]]

    def facts(self) -> Mapping[str, Any]:
        return {name: points[-1].value for name, points in self.series.items() if points}

    def steps(self, name: str) -> npt.NDArray[np.int64]:
        """Steps of one series."""
        return np.array([point.step for point in self.series[name]], dtype=np.int64)

    def values(self, name: str) -> npt.NDArray[np.float64]:
        """Values of one series; NaN where there was none."""
        return np.array([point.value for point in self.series[name]], dtype=np.float64)

    def plot(self, ax: Axes | None = None, names: list[str] | None = None) -> Axes:
        """Curves over steps. Needs matplotlib."""
        from anglewise_client import plots

        return plots.curves(self, ax=ax, names=names)

    def to_dataframe(self) -> pd.DataFrame:
        """Rows steps, columns names. Needs pandas."""
        columns = {
            name: {point.step: point.value for point in points} for name, points in self.series.items()
        }
        return data_frame(columns).sort_index().rename_axis(index="step")


class JobEmbeddings(Answer):
    """What a training left.

    Attributes:
        embeddings: (n, d)
        labels: (n,) or None.
    """

    embeddings: Any
    labels: Any = None

    def facts(self) -> Mapping[str, Any]:
        return {"embeddings": self.embeddings, "labels": self.labels}

    def write_npz(self, path: str | os.PathLike[str]) -> Path:
        """Write ``embeddings`` and ``labels`` to an .npz file, as `diagnose` takes them."""
        target = Path(path)
        arrays = {"embeddings": self.embeddings}
        if self.labels is not None:
            arrays["labels"] = self.labels
        with target.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        return target


class Report(Answer):
    """Report of a training job: a document, or a text of ``media_type``."""

    media_type: str
    document: dict[str, Any] | None = None
    text: str | None = None

    def facts(self) -> Mapping[str, Any]:
        return {"media type": self.media_type} | {
            name: value
            for name, value in (self.document or {}).items()
            if isinstance(value, int | float | str)
        }

    def _repr_html_(self) -> str:
        return self.text if self.text and self.media_type == "text/html" else super()._repr_html_()


class Event(Part):
    """One thing that happened to a job.

    Attributes:
        id: names it for `events(after=...)`.
        type: such as ``"state"``, ``"progress"`` or ``"metrics"``.
        data: what it carries.
    """

    id: str
    type: str
    data: dict[str, Any]

    @property
    def state(self) -> State | None:
        """The state it announces, if any."""
        given = self.data.get("state")
        return State(given) if given in list(State) else None


class Dataset(Answer):
    """A data set that the service keeps.

    Attributes:
        id: ``ds_…``, or the name of a built-in one.
        shape: of one sample: [d], [h, w] or [c, h, w].
        classes: samples of each class, in order of the sorted labels.
        label_type: ``"integer"`` or ``"string"``.
        sha256: of samples and labels: the same for the same data in any container.
        bytes: of the stored arrays.
    """

    id: str
    name: str | None = None
    samples: int
    shape: list[int]
    dtype: str
    classes: dict[str, int]
    label_type: str = "string"
    sha256: str | None = None
    bytes: int | None = None
    builtin: bool = False
    created_at: datetime | None = None

    @property
    def class_counts(self) -> list[int]:
        """Samples of each class, in order of the sorted labels."""
        return list(self.classes.values())

    def facts(self) -> Mapping[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "samples": self.samples,
            "shape": self.shape,
            "classes": len(self.classes),
        }


class DatasetPage(Answer):
    """Data sets."""

    items: list[Dataset]
    next_cursor: str | None = None

    def facts(self) -> Mapping[str, Any]:
        return {"data sets": len(self.items)}

    def to_dataframe(self) -> pd.DataFrame:
        """A row a data set. Needs pandas."""
        return data_frame([item.facts() for item in self.items])


class Health(Answer):
    """The service is alive."""

    status: Literal["ok"]

    def facts(self) -> Mapping[str, Any]:
        return {"status": self.status}


class Readiness(Health):
    """The service can compute.

    Attributes:
        workers: solver processes.
        broker, store: of jobs; ``"off"`` where there are none.
        job_workers: processes that run jobs; None where jobs are off.
    """

    workers: int
    broker: Literal["ok", "off"] = "off"
    store: Literal["ok", "off"] = "off"
    job_workers: int | None = None

    def facts(self) -> Mapping[str, Any]:
        return {"status": self.status, "workers": self.workers, "job workers": self.job_workers}
