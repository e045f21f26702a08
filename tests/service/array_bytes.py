"""Array files, sound and unsound ones."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import numpy as np


def npy(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def npy_claiming(shape: str, descr: str = "'<f8'", data: bytes = b"", fortran: str = "False") -> bytes:
    """A header written by hand."""
    header = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little") + header + b"\n" + data


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def archive(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An .npz of members written by hand."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as result:
        for name, data in members.items():
            result.writestr(name, data)
    return file.getvalue()


def form_part(name: str, data: bytes, headers: str = "") -> bytes:
    """One part of multipart/form-data with the boundary "b"."""
    disposition = f'Content-Disposition: form-data; name="{name}"\r\n{headers}\r\n'
    return b"--b\r\n" + disposition.encode() + data + b"\r\n"
