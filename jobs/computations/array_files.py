"""Reading .npy data that strangers sent: the header is checked before anything is allocated, and nothing
is ever unpickled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from anglewise.errors import InvalidInput

VERSIONS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
MAX_LENGTH = 2**40
"""Of one dimension: an array without entries may claim anything in the others."""
MAX_CODE_POINT = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Header:
    """What the start of an .npy file claims.

    Attributes:
        shape, dtype, fortran: of the array.
        start: bytes before the data.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    start: int

    @property
    def size(self) -> int:
        """Bytes of the data."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def order(self) -> Any:
        return "F" if self.fortran else "C"


def read_header(file: BinaryIO, field: Path, kinds: str, rank: int) -> Header:
    """The header at the position of ``file``, which is left behind it.

    Args:
        kinds: of dtypes that are allowed: "f" (float32 or float64), "i", "u", "U".
        rank: number of dimensions that is required.

    Raises:
        InvalidInput: at ``field``.
    """
    header = read_any_header(file, field)
    dtype, shape = header.dtype, header.shape
    if dtype.kind not in kinds or (dtype.kind == "f" and dtype.itemsize not in (4, 8)):
        raise InvalidInput(field, f"is of type {dtype}; it must be {_described(kinds)}")
    if len(shape) != rank:
        what = "a matrix" if rank == 2 else "one-dimensional"
        raise InvalidInput(field, f"must be {what}, and has shape {shape}")
    return header


def read_any_header(file: BinaryIO, field: Path) -> Header:
    """The header at the position of ``file``, whatever plain array it announces.

    Raises:
        InvalidInput: at ``field``.
    """
    begin = file.tell()
    try:
        version = np.lib.format.read_magic(file)
        shape, fortran, dtype = VERSIONS[version](file)
    except Exception:  # numpy raises whatever evaluating a damaged header raises
        raise InvalidInput(field, "is not an .npy array, or its header is damaged") from None
    if dtype.hasobject:
        raise InvalidInput(field, "holds pickled objects, which are not read; save plain numbers or strings")
    if dtype.itemsize == 0:
        raise InvalidInput(field, f"is of type {dtype}, which has no content")
    if not all(type(length) is int and 0 <= length <= MAX_LENGTH for length in shape):
        raise InvalidInput(field, f"cannot have shape {shape}")
    return Header(shape, dtype, bool(fortran), file.tell() - begin)


def parse_matrix(data: bytes, header: Header, field: Path) -> npt.NDArray[np.floating]:
    """The matrix in ``data``, a whole .npy file, without a copy.

    Raises:
        InvalidInput: the file does not end where its header says.
    """
    available = len(data) - header.start
    if available != header.size:
        raise InvalidInput(
            field,
            f"is {'cut off' if available < header.size else 'too long'}: its header announces "
            f"{header.size} bytes of data and {available} are there",
        )
    flat = np.frombuffer(data, header.dtype, offset=header.start)
    return flat.reshape(header.shape, order=header.order)


def require_unicode(strings: npt.NDArray[np.str_], field: Path, first: int = 0) -> None:
    """Any four bytes can stand in a file; not all of them are characters.

    Args:
        first: index of the first of these strings.

    Raises:
        InvalidInput: naming the first bad string.
    """
    codes = np.ascontiguousarray(strings).view(strings.dtype.str[0] + "u4")
    bad = (codes > MAX_CODE_POINT) | ((codes >= SURROGATES[0]) & (codes <= SURROGATES[1]))
    if bad.any():
        width = strings.dtype.itemsize // 4
        raise InvalidInput((*field, first + int(np.flatnonzero(bad)[0]) // width), "is not valid Unicode")


def _described(kinds: str) -> str:
    return "float32 or float64" if kinds == "f" else "integers or strings"
