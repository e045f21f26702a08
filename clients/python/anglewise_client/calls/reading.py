"""How answers become models."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any, TypeVar

import httpx2
import pydantic_core
from pydantic import BaseModel

from anglewise_client._answer import METADATA
from anglewise_client._arrays import stored_arrays
from anglewise_client._call import ARCHIVE

M = TypeVar("M", bound=BaseModel)


def model(kind: type[M]) -> Callable[[httpx2.Response], M]:
    """Reads JSON, or an archive with the arrays and, as ``metadata``, the rest of the answer."""
    return chosen(lambda _: kind)


def chosen(choose: Callable[[dict[str, Any]], type[M]]) -> Callable[[httpx2.Response], M]:
    """`model`, of a class that depends on the answer."""

    def read(response: httpx2.Response) -> M:
        document = tree(response)
        if not isinstance(document, dict):
            raise ValueError("the answer is not an object")
        return choose(document).model_validate(document)

    return read


def tree(response: httpx2.Response) -> Any:
    """JSON as it is; arrays of an archive in their places."""
    if media_type(response) == ARCHIVE:
        arrays = archive(response.content)
        metadata = json.loads(arrays.pop(METADATA).tobytes())
        return metadata | arrays
    return pydantic_core.from_json(response.content)


def archive(content: bytes) -> dict[str, Any]:
    """All arrays of an .npz file; nothing is unpickled."""
    return stored_arrays(io.BytesIO(content))


def media_type(response: httpx2.Response) -> str:
    """Without parameters, in small letters."""
    kind: str = response.headers.get("content-type", "")
    return kind.partition(";")[0].strip().lower()


def nothing(response: httpx2.Response) -> None:
    """The answer has no content."""


def content(response: httpx2.Response) -> bytes:
    """As it came."""
    return bytes(response.content)
