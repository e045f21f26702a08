"""A class geometry as an .npz archive, written block by block: the full matrices are never in memory."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from anglewise.class_geometry import Geometry
from anglewise.errors import TooLarge
from anglewise.sampling import FloatArray
from jobs.computations.encoding import encode, require_finite
from jobs.computations.geometry_answer import describe

Block = npt.NDArray[np.float64] | npt.NDArray[np.uint8]

BLOCK_BYTES = 8 * 2**20
FLOAT_BYTES = 8
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time stamp of every member, so that equal answers are equal files."""


def archive_writer(geometry: Geometry, max_bytes: int) -> Callable[[BinaryIO], None]:
    """Writes ``gram`` (C, C), ``class_means`` (C, d), ``proportions`` (C,) and ``metadata``, the rest of the
    JSON answer as UTF-8 bytes.

    Raises (when writing):
        TooLarge: the arrays exceed ``max_bytes``.
    """
    return lambda file: _write(geometry, file, max_bytes)


def _write(geometry: Geometry, file: BinaryIO, max_bytes: int) -> None:
    count, d = geometry.classes, geometry.dimension
    size = FLOAT_BYTES * count * (count + d + 1)
    if size > max_bytes:
        raise TooLarge((), f"the arrays take {size} bytes, more than the {max_bytes} an archive may have")
    metadata = encode(describe(geometry, max_inline_classes=0, with_groups=True))
    proportions = geometry.groups.proportions[geometry.groups.index]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _member(archive, "gram", (count, count), _blocks(geometry.gram_rows, count, count))
        _member(archive, "class_means", (count, d), _blocks(geometry.mean_rows, count, d))
        _member(archive, "proportions", (count,), iter([proportions]))
        _member(archive, "metadata", (len(metadata),), iter([np.frombuffer(metadata, dtype=np.uint8)]))


def _blocks(rows: Callable[[int, int], FloatArray], count: int, width: int) -> Iterator[Block]:
    step = max(1, BLOCK_BYTES // (FLOAT_BYTES * max(width, 1)))
    for start in range(0, count, step):
        yield require_finite(rows(start, min(start + step, count)), "the matrix")


def _member(archive: zipfile.ZipFile, name: str, shape: tuple[int, ...], blocks: Iterator[Block]) -> None:
    first = next(blocks)
    header = io.BytesIO()
    description = {"descr": np.lib.format.dtype_to_descr(first.dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, description)
    with archive.open(zipfile.ZipInfo(f"{name}.npy", EPOCH), "w", force_zip64=True) as member:
        member.write(header.getvalue())
        member.write(first.tobytes())
        for block in blocks:
            member.write(block.tobytes())
