"""Samples and labels for a training."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt

from anglewise.errors import InvalidInput
from jobs import paths
from jobs.computations.array_files import read_any_header
from jobs.datasets.builtin import load_builtin
from jobs.datasets.catalog import Catalog, UnknownDataset
from jobs.datasets.content import HEADER_BYTES, X, Y
from jobs.datasets.generators import gaussian_classes
from jobs.store import Missing, ObjectStore
from jobs.training_spec import Data

Labeled = tuple[npt.NDArray[Any], npt.NDArray[Any]]


def load(store: ObjectStore, data: Data) -> Labeled:
    """x (n, …) and y (n,) of whatever ``data`` refers to, before any subsampling.

    Raises:
        InvalidInput: at ``("data", "dataset")``: there is no such data set.
        StoreUnavailable
    """
    if data.builtin is not None:
        return load_builtin(data.builtin)
    if data.generator is not None:
        return gaussian_classes(data.generator)
    if data.dataset is None:
        raise InvalidInput(("data",), "refers to no samples")
    try:
        return load_dataset(store, data.dataset)
    except UnknownDataset:
        raise InvalidInput(("data", "dataset"), "there is no such data set") from None


def load_dataset(store: ObjectStore, dataset_id: str) -> Labeled:
    """x (n, …), of the type it was stored with, and y (n,), the labels as they were given.

    Raises:
        UnknownDataset, StoreUnavailable
    """
    record = Catalog(store).get(dataset_id)
    try:
        x = _read(store, f"{paths.dataset(dataset_id)}/{X}")
        codes = _read(store, f"{paths.dataset(dataset_id)}/{Y}")
    except Missing:  # it is being deleted
        raise UnknownDataset(dataset_id) from None
    return x, np.array(record.labels)[codes]


def _read(store: ObjectStore, path: str) -> npt.NDArray[Any]:
    size, chunks = store.chunks(path)
    buffer = np.empty(size, dtype=np.uint8)
    position = 0
    for chunk in chunks:
        buffer[position : position + len(chunk)] = np.frombuffer(chunk, np.uint8)
        position += len(chunk)
    header = read_any_header(io.BytesIO(buffer[:HEADER_BYTES].tobytes()), ())
    data: npt.NDArray[Any] = buffer[header.start :].view(header.dtype)
    return data.reshape(header.shape)
