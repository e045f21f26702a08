"""Samples and labels as numpy arrays: an .npz with ``x`` and ``y``, or two .npy files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from anglewise.errors import InvalidInput, TooLarge
from jobs.computations.array_files import Header, read_any_header, require_unicode
from jobs.computations.embedding_archive import open_archive, unpack
from jobs.computations.limits import Limits
from jobs.datasets.content import (
    MAX_SAMPLE_NUMBERS,
    MAX_SAMPLES,
    SampleFile,
    X,
    finish_content,
    rows_of_block,
)
from jobs.datasets.labels import Field, LabelCodes
from jobs.datasets.record import DatasetContent

FLOAT_BYTES = (2, 4, 8)


def store_archive(path: Path, folder: Path, limits: Limits) -> DatasetContent:
    """Check ``x`` and ``y`` of an .npz archive and write them to ``folder``.

    Raises:
        InvalidInput: at ``("x", …)``, ``("y", …)`` or ``("file",)``.
        TooLarge
    """
    with open_archive(path) as archive:
        x = unpack(archive, "x", read_sample_header, path, limits.max_upload_bytes)
        y = unpack(archive, "y", read_label_header, path, limits.max_upload_bytes)
    return store_arrays(x, y, folder, limits)


def store_pair(x: Path, y: Path, folder: Path, limits: Limits) -> DatasetContent:
    """As `store_archive`, from two .npy files."""
    samples = _mapped(x, ("x",), read_sample_header)
    return store_arrays(samples, _mapped(y, ("y",), read_label_header), folder, limits)


def store_arrays(x: npt.NDArray[Any], y: npt.NDArray[Any], folder: Path, limits: Limits) -> DatasetContent:
    """Check arrays of any size and write them to ``folder``."""
    codes = LabelCodes(limits.max_classes, ("y",), lambda i: ("y", i))
    if len(x) != len(y):
        raise InvalidInput(("y",), f"must be one for each of the {len(x)} samples, not {len(y)}")
    rows = rows_of_block(y.dtype.itemsize)
    for start in range(0, len(y), rows):
        _add_labels(codes, y[start : start + rows], start)
    labels, numbers = codes.finish()
    samples = SampleFile(folder / X, x.shape[1:], x.dtype, limits, lambda index: ("x", *index))
    try:
        rows = rows_of_block(x[:1].nbytes)
        for start in range(0, len(x), rows):
            samples.add(x[start : start + rows])
        return finish_content(samples, labels, numbers, folder)
    finally:
        samples.close()


def _add_labels(codes: LabelCodes, block: npt.NDArray[Any], start: int) -> None:
    if block.dtype.kind == "U":
        require_unicode(block, ("y",), start)
        codes.add_strings(block.tolist())
    else:
        codes.add_integers(block)


def read_sample_header(file: BinaryIO, field: Field) -> Header:
    """
    Raises:
        InvalidInput: these can be no samples.
        TooLarge
    """
    header = read_any_header(file, field)
    kind, size = header.dtype.kind, header.dtype.itemsize
    if kind not in "iu" and not (kind == "f" and size in FLOAT_BYTES):
        hint = ": x.astype(numpy.uint8)" if kind == "b" else ""
        raise InvalidInput(
            field, f"is of type {header.dtype}; it must be float16, float32, float64 or integers{hint}"
        )
    if not 2 <= len(header.shape) <= 4:
        message = "must be n × d, n × h × w or n × c × h × w"
        raise InvalidInput(field, f"{message}, and has shape {header.shape}")
    if 0 in header.shape:
        raise InvalidInput(field, f"has no {'samples' if header.shape[0] == 0 else 'numbers in a sample'}")
    if header.shape[0] > MAX_SAMPLES:
        raise TooLarge(field, f"may have at most {MAX_SAMPLES} samples")
    if int(np.prod(header.shape[1:], dtype=np.float64)) > MAX_SAMPLE_NUMBERS:
        raise TooLarge(field, f"may have at most {MAX_SAMPLE_NUMBERS} numbers in a sample")
    return header


def read_label_header(file: BinaryIO, field: Field) -> Header:
    """
    Raises:
        InvalidInput: these can be no labels.
    """
    header = read_any_header(file, field)
    if header.dtype.kind not in "iuU":
        hint = "; convert them with y.astype(int)" if header.dtype.kind in "fb" else ""
        raise InvalidInput(field, f"is of type {header.dtype}; labels must be integers or strings{hint}")
    if len(header.shape) != 1:
        raise InvalidInput(field, f"must be one-dimensional, and has shape {header.shape}")
    return header


def _mapped(path: Path, field: Field, read: Any) -> npt.NDArray[Any]:
    with path.open("rb") as file:
        header: Header = read(file, field)
    available = path.stat().st_size - header.start
    if available != header.size:
        how = "cut off" if available < header.size else "too long"
        raise InvalidInput(
            field, f"is {how}: its header announces {header.size} bytes of data and {available} are there"
        )
    if header.size == 0:
        return np.zeros(header.shape, header.dtype)
    return np.memmap(path, header.dtype, "r", header.start, header.shape, header.order)
