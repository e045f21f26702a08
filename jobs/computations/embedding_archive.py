"""Embeddings and labels in an .npz archive: unpacked to disk in blocks and mapped, whatever their size.

An archive may claim and contain anything. Nothing is unpickled, no name in it becomes a path, and no more
is unpacked than the checked header of a member announces.
"""

from __future__ import annotations

import errno
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from anglewise.errors import InvalidInput, TooLarge
from jobs.computations.array_files import Header, read_header, require_unicode

Field = tuple[str | int, ...]

BLOCK = 2**20
MAX_MEMBERS = 64
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED = 0x1
DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, UnicodeDecodeError, RuntimeError)
DAMAGED_MESSAGE = "is not an .npz archive, or it is damaged"


def read_embeddings(path: Path, max_bytes: int) -> tuple[npt.NDArray[np.floating], npt.NDArray[np.generic]]:
    """``embeddings`` (n, d), float32 or float64, and ``labels`` (n,), integers or strings.

    The arrays are unpacked beside ``path`` and mapped from there.

    Raises:
        InvalidInput: at ``("embeddings",)``, ``("labels",)`` or ``("file",)``.
        TooLarge: an array takes more than ``max_bytes``.
    """
    with open_archive(path) as archive:
        embeddings = unpack(archive, "embeddings", partial(read_header, kinds="f", rank=2), path, max_bytes)
        labels = unpack(archive, "labels", partial(read_header, kinds="iuU", rank=1), path, max_bytes)
    if labels.dtype.kind == "U":
        require_unicode(labels, ("labels",))
    return embeddings, labels


@contextmanager
def open_archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """
    Raises:
        InvalidInput: at ``("file",)``, also for damage found while the archive is open.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if len(archive.infolist()) > MAX_MEMBERS:
                raise InvalidInput(("file",), f"has more than {MAX_MEMBERS} members")
            yield archive
    except DAMAGED:
        raise InvalidInput(("file",), DAMAGED_MESSAGE) from None
    except OSError as error:
        if error.errno != errno.EINVAL:  # a directory that points before the start of the file
            raise
        raise InvalidInput(("file",), DAMAGED_MESSAGE) from None


def unpack(
    archive: zipfile.ZipFile, name: str, read: Callable[[BinaryIO, Field], Header], path: Path, max_bytes: int
) -> npt.NDArray[Any]:
    """An array of the archive, unpacked beside ``path`` and mapped.

    Args:
        read: gives the header of the array, or refuses it.

    Raises:
        InvalidInput: at ``(name,)``.
        TooLarge: it takes more than ``max_bytes``.
    """
    field = (name,)
    info = _member(archive, name)
    with archive.open(info) as member:
        source: Any = member
        header = read(source, field)
        if header.size > max_bytes:
            raise TooLarge(field, f"takes {header.size} bytes, more than {max_bytes}")
        if info.file_size != header.start + header.size:
            raise InvalidInput(field, "does not have the size that its header announces")
        if header.size == 0:
            return np.zeros(header.shape, header.dtype)
        unpacked = path.with_name(f"{name}.data")
        with unpacked.open("wb") as sink:
            _copy(source, sink, header, field)
    return np.memmap(unpacked, header.dtype, mode="r", shape=header.shape, order=header.order)


def _copy(source: BinaryIO, sink: BinaryIO, header: Header, field: Field) -> None:
    left = header.size
    while left:
        block = source.read(min(BLOCK, left))
        if not block:
            raise InvalidInput(field, "is cut off")
        sink.write(block)
        left -= len(block)
    if source.read(1):  # at the end of a member its checksum is compared, too
        raise InvalidInput(field, "is longer than its header announces")


def _member(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    found = [info for info in archive.infolist() if info.filename == f"{name}.npy"]
    if len(found) != 1:
        how = "no array" if not found else "more than one array"
        raise InvalidInput((name,), f"the archive has {how} of this name")
    if found[0].flag_bits & ENCRYPTED or found[0].compress_type not in METHODS:
        raise InvalidInput((name,), "is encrypted, or compressed in another way than numpy does")
    return found[0]
