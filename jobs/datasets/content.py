"""Samples and labels on their way to disk: checked block by block, hashed, never all in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from anglewise.errors import InvalidInput, TooLarge
from jobs.computations.limits import Limits
from jobs.datasets.labels import Field, IntArray
from jobs.datasets.record import DatasetContent

X, Y = "x.npy", "y.npy"
"""Samples (n, …), and the class of each (n,) as int32."""
HEADER_BYTES = 128
MAX_SAMPLES = 10_000_000
MAX_SAMPLE_NUMBERS = 2**24
BLOCK_BYTES = 4 * 2**20


def rows_of_block(row_bytes: int) -> int:
    """How many rows to look at together."""
    return max(1, BLOCK_BYTES // max(1, row_bytes))


class SampleFile:
    """Writes samples (n, …) of a shape and a dtype to an .npy file; n is known at the end."""

    def __init__(
        self,
        path: Path,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        limits: Limits,
        cell: Callable[[tuple[int, ...]], Field],
    ) -> None:
        """
        Args:
            shape: of one sample.
            cell: the field of a number by its index, for messages; of everything by ().
        """
        self.shape = shape
        self.dtype = dtype.newbyteorder("<")
        self.samples = 0
        self.hash = hashlib.sha256()
        self._limits = limits
        self.cell = cell
        self._file = path.open("wb")
        self._file.write(bytes(HEADER_BYTES))

    def add(self, block: npt.NDArray[Any]) -> None:
        """
        Raises:
            InvalidInput: a number is not finite.
            TooLarge: there are too many samples or bytes.
        """
        self._require_finite(block)
        self.samples += len(block)
        if self.samples > MAX_SAMPLES:
            raise TooLarge(self.cell(()), f"may have at most {MAX_SAMPLES} samples")
        data = np.ascontiguousarray(block, dtype=self.dtype).data.cast("B") if block.size else b""
        if self._file.tell() + len(data) > self._limits.max_upload_bytes + HEADER_BYTES:
            most = self._limits.max_upload_bytes
            raise TooLarge(self.cell(()), f"takes more than {most} bytes as {self.dtype} numbers")
        self.hash.update(data)
        self._file.write(data)

    def finish(self) -> int:
        """Bytes of the file."""
        size = self._file.tell()
        self._file.seek(0)
        self._file.write(npy_header((self.samples, *self.shape), self.dtype))
        self._file.close()
        return size

    def close(self) -> None:
        self._file.close()

    def _require_finite(self, block: npt.NDArray[Any]) -> None:
        if block.dtype.kind != "f":
            return
        finite = np.isfinite(block)
        if not finite.all():
            index = tuple(int(i) for i in np.argwhere(~finite)[0])
            what = "is not a number (NaN)" if np.isnan(block[index]) else "is infinite"
            raise InvalidInput(self.cell((self.samples + index[0], *index[1:])), what)


def npy_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """Of a C-ordered array, in exactly `HEADER_BYTES` bytes."""
    text = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': {shape}, }}"
    length = HEADER_BYTES - 10
    return b"\x93NUMPY\x01\x00" + length.to_bytes(2, "little") + text.ljust(length - 1).encode() + b"\n"


def finish_content(
    samples: SampleFile, labels: list[int] | list[str], codes: IntArray, folder: Path
) -> DatasetContent:
    """Write the labels beside the samples.

    Raises:
        InvalidInput: the numbers of samples and labels differ, or are 0.
    """
    if len(codes) != samples.samples:
        message = f"must be one for each of the {samples.samples} samples, not {len(codes)}"
        raise InvalidInput(("y",), message)
    if not samples.samples:
        raise InvalidInput(samples.cell(())[:1], "has no samples")
    codes = codes.astype("<i4")
    samples.hash.update(codes.tobytes())
    samples.hash.update(description(samples.dtype, samples.shape, labels))
    size = samples.finish()
    with (folder / Y).open("wb") as file:
        file.write(npy_header(codes.shape, codes.dtype))
        file.write(codes.tobytes())
        size += file.tell()
    return DatasetContent(
        samples=samples.samples,
        shape=samples.shape,
        dtype=samples.dtype.name,
        labels=tuple(labels),  # type: ignore[arg-type]
        counts=tuple(np.bincount(codes, minlength=len(labels)).tolist()),
        sha256=samples.hash.hexdigest(),
        bytes=size,
    )


def description(dtype: np.dtype[Any], shape: tuple[int, ...], labels: list[int] | list[str]) -> bytes:
    """What the hash covers besides the numbers."""
    return json.dumps([dtype.str, shape, labels]).encode()
