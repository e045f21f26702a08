"""What is known about a data set without reading its samples."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from jobs.computations.schemas import Answer


class DatasetContent(BaseModel):
    """What checking an upload found.

    Attributes:
        shape: of one sample.
        labels: of the classes, sorted; all integers or all strings.
        counts: samples of each class, in the same order.
        bytes: of the stored arrays.
    """

    model_config = ConfigDict(frozen=True)

    samples: int
    shape: tuple[int, ...]
    dtype: str
    labels: tuple[int, ...] | tuple[str, ...]
    counts: tuple[int, ...]
    sha256: str
    bytes: int


class DatasetRecord(DatasetContent):
    """A data set that trainings can use; a built-in one was not created at any time."""

    id: str
    name: str | None
    created_at: datetime | None

    @property
    def builtin(self) -> bool:
        return self.created_at is None

    def answer(self) -> DatasetAnswer:
        integers = isinstance(self.labels[0], int)
        return DatasetAnswer(
            id=self.id,
            name=self.name,
            samples=self.samples,
            shape=list(self.shape),
            dtype=self.dtype,
            classes={str(label): count for label, count in zip(self.labels, self.counts, strict=True)},
            label_type="integer" if integers else "string",
            sha256=self.sha256,
            bytes=self.bytes,
            builtin=self.builtin,
            created_at=self.created_at,
        )


class DatasetAnswer(Answer):
    """A data set."""

    id: str = Field(description="`ds_` and a ULID, or the name of a built-in one")
    name: str | None = Field(description="for people; the name of the file if none was given")
    samples: int
    shape: list[int] = Field(description="of one sample: [d], [h, w] or [c, h, w]")
    dtype: str
    classes: dict[str, int] = Field(description="samples of each class, in order of the sorted labels")
    label_type: str = Field(description="`integer` or `string`: what the labels are")
    sha256: str = Field(description="of samples and labels: the same for the same data in any container")
    bytes: int = Field(description="of the stored arrays")
    builtin: bool = Field(description="whether it comes with the service")
    created_at: datetime | None = Field(description="null for built-in ones")


class DatasetPageAnswer(Answer):
    """Data sets, newest first; the built-in ones are last."""

    items: list[DatasetAnswer]
    next_cursor: str | None
