"""What people pass, as JSON and files have it."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from anglewise_client._arrays import host_array, listed
from anglewise_client._call import ARCHIVE, ARRAY, JSON, Upload

TYPES = {".npz": ARCHIVE, ".npy": ARRAY, ".csv": "text/csv", ".parquet": "application/vnd.apache.parquet"}
SPOOLED = 8 * 2**20
"""Bytes of a file that are kept in memory."""


def npy(array: npt.NDArray[Any]) -> bytes:
    """An .npy file."""
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return file.getvalue()


def npz_upload(**arrays: npt.NDArray[Any]) -> Upload:
    """An .npz file, made when it is opened; on disk where it is large."""

    def open_() -> IO[bytes]:
        file = tempfile.SpooledTemporaryFile(SPOOLED)  # noqa: SIM115 (whoever opens it closes it)
        members: dict[str, Any] = dict(arrays)
        try:
            np.savez(file, allow_pickle=False, **members)
        except BaseException:
            file.close()
            raise
        file.seek(0)
        return cast("IO[bytes]", file)

    return Upload("arrays.npz", open_, ARCHIVE)


def file_upload(path: str | os.PathLike[str]) -> Upload:
    """A file as it is."""
    source = Path(path)
    media_type = TYPES.get(source.suffix.lower(), "application/octet-stream")
    return Upload(source.name, lambda: source.open("rb"), media_type)


def given(**fields: Any) -> dict[str, Any]:
    """Only what was given; the service has the defaults."""
    return {name: value for name, value in fields.items() if value is not None}


def accept(full: bool) -> str:
    return f"{ARCHIVE}, {JSON};q=0.9" if full else JSON


def fields_of(value: Any) -> Any:
    """A model or a mapping as JSON has it."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True, fallback=plain)
    if isinstance(value, Mapping):
        return {name: fields_of(item) for name, item in value.items() if item is not None}
    if isinstance(value, float) and value == float("inf"):
        return "infinite"
    return value


def plain(value: Any) -> Any:
    return host_array(value).tolist()


def weights_of(values: Any) -> Any:
    if isinstance(values, BaseModel | Mapping):
        return fields_of(values)
    return listed(values)


def log_weights_of(values: Any) -> Any:
    """-inf is the logarithm of zero, which JSON has no word for."""
    if values is None:
        return None
    if isinstance(values, np.ndarray):
        cells = values.astype(object)
        cells[np.isneginf(values.astype(np.float64))] = None
        return cells.tolist()
    zero = (None, float("-inf"))
    return [[None if value in zero else value for value in row] for row in values]


def axis_of(axis: Any) -> dict[str, Any]:
    if isinstance(axis, Mapping):
        return dict(axis)
    name, values = axis
    return {"name": name, "values": [fields_of(value) for value in np.asarray(values, dtype=object).tolist()]}
