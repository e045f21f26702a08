"""Checking an upload, in a process that may be killed: whatever is in the file stays there."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict

from anglewise.errors import InvalidInput
from jobs.computations.computation import Computation, Outcome
from jobs.computations.limits import Limits
from jobs.datasets.arrays import store_archive, store_pair
from jobs.datasets.csv_table import open_csv
from jobs.datasets.parquet_table import open_parquet
from jobs.datasets.record import DatasetAnswer, DatasetContent
from jobs.datasets.tables import FILE, LABEL, store_table
from jobs.problems import Problem

NPY, ZIP, PARQUET = b"\x93NUMPY", b"PK", b"PAR1"
COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"(\xb5/\xfd": "zstd"}
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


class StoredUpload(BaseModel):
    """What the API tells a solver process about an upload. Clients cannot send this.

    Attributes:
        folder: where the files are, and where the arrays go.
        form: "file", or "pair" for x and y.
    """

    model_config = ConfigDict(frozen=True)

    folder: str
    form: Literal["file", "pair"]
    label: str | None


@dataclass(frozen=True)
class UploadComputation(Computation):
    """A computation on files that are already on disk."""

    def parse(self, body: bytes, limits: Limits) -> BaseModel:
        return StoredUpload.model_validate_json(body)

    def canonical(self, body: bytes, limits: Limits) -> bytes:
        return body


def run(upload: StoredUpload, limits: Limits) -> Outcome:
    """Check an upload and leave its arrays in its folder, under the names of `jobs.datasets.content`."""
    folder = Path(upload.folder)
    with _disk():
        content = _stored(upload, folder, limits)
    return Outcome(lambda: content.model_dump(mode="json"))


def _stored(upload: StoredUpload, folder: Path, limits: Limits) -> DatasetContent:
    if upload.form == "pair":
        _refuse_label(upload)
        return store_pair(folder / "x", folder / "y", folder, limits)
    path = folder / "file"
    with path.open("rb") as file:
        start = file.read(16)
    if start.startswith(ZIP):
        _refuse_label(upload)
        return store_archive(path, folder, limits)
    if start.startswith(PARQUET):
        return store_table(open_parquet(path, upload.label, limits), folder, limits)
    _refuse_other_types(start)
    return store_table(open_csv(path, upload.label), folder, limits)


def _refuse_label(upload: StoredUpload) -> None:
    if upload.label is not None:
        raise InvalidInput(LABEL, "is for tables (.csv, .parquet); in arrays y holds the labels")


def _refuse_other_types(start: bytes) -> None:
    if not start:
        raise InvalidInput(FILE, "is empty")
    if start.startswith(NPY):
        raise InvalidInput(FILE, "is one .npy array; send two as the fields x and y, or an .npz with both")
    for magic, name in COMPRESSED.items():
        if start.startswith(magic):
            raise InvalidInput(FILE, f"is compressed with {name}; send it as it was before")


@contextlib.contextmanager
def _disk() -> Iterator[None]:
    """
    Raises:
        Problem: storage_full.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        raise Problem("storage_full", "there is no space left to unpack the upload") from None


COMPUTATION = UploadComputation(
    name="check_dataset",
    request=DatasetAnswer,  # only for the document; its route documents the form
    answer=DatasetAnswer,
    run=run,
    shared=False,
)
