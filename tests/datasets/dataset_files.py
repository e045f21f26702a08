"""Files of data sets, sound and unsound ones, and how to send them."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import httpx2
import numpy as np
import pyarrow as pa
from pyarrow import parquet
from starlette.testclient import TestClient


def npy(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def npy_claiming(shape: str, descr: str = "'<f8'", data: bytes = b"") -> bytes:
    """A header written by hand."""
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little") + header + b"\n" + data


def npz(**arrays: Any) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def archive(**members: bytes) -> bytes:
    """An .npz of members written by hand."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as result:
        for name, data in members.items():
            result.writestr(f"{name}.npy", data)
    return file.getvalue()


def parquet_file(**columns: Any) -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table(columns), file)
    return file.getvalue()


def send(client: TestClient, file: bytes | None = None, **fields: Any) -> httpx2.Response:
    """POST /datasets with a file, or the arrays ``x`` and ``y`` as files; other fields are text."""
    files = {name: (f"{name}.npy", fields.pop(name)) for name in ("x", "y") if name in fields}
    if file is not None:
        files["file"] = ("upload", file)
    return client.post("/datasets", files=files, data=fields)


def stored(client: TestClient, file: bytes | None = None, **fields: Any) -> dict[str, Any]:
    response = send(client, file, **fields)
    assert response.status_code == 201, response.text
    answer: dict[str, Any] = response.json()
    return answer
