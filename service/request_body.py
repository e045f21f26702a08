"""The bytes of a request's body, never more than are allowed, and never for longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NoReturn

from starlette.requests import Request

from jobs.problems import Problem


async def read_json_body(request: Request, max_bytes: int, *, or_else: str | None = None) -> bytes:
    """The body, refused as soon as it is known to be too long, whatever its headers say.

    Args:
        or_else: another media type that this route takes, for the message.
    """
    _require_json(request, or_else)
    return await read_bounded(request, max_bytes, request.state.settings.body_seconds)


async def read_bounded(request: Request, max_bytes: int, seconds: float) -> bytes:
    """The whole body, whatever its type, refused as soon as it is known to be too long or too slow.

    Raises:
        Problem: body_too_large or upload_timeout.
    """
    try:
        async with asyncio.timeout(seconds):
            return b"".join([chunk async for chunk in bounded_chunks(request, max_bytes)])
    except TimeoutError:
        raise Problem(
            "upload_timeout", f"the body took longer than {seconds:g} s", headers={"Connection": "close"}
        ) from None


async def bounded_chunks(request: Request, max_bytes: int) -> AsyncIterator[bytes]:
    """The body piece by piece.

    Raises:
        Problem: body_too_large, before the piece that would exceed the limit; http_error.
    """
    if "upgrade" in request.headers:  # the parser takes what follows for another protocol
        raise Problem("http_error", "send the body without an Upgrade header: only HTTP/1.1 is spoken here")
    if declared_length(request) > max_bytes:
        _refuse_length(max_bytes)
    received = 0
    async for chunk in request.stream():
        received += len(chunk)
        if received > max_bytes:
            _refuse_length(max_bytes)
        yield chunk


def _require_json(request: Request, or_else: str | None) -> None:
    given = media_type(request)
    if given != "application/json":
        what = f"not {given}" if given else "and its content type was not given"
        wanted = " or ".join(filter(None, ["application/json", or_else]))
        raise Problem("unsupported_media_type", f"send {wanted}, {what}")
    require_no_encoding(request)


def media_type(request: Request) -> str:
    """The declared content type without its parameters; empty if there is none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def require_no_encoding(request: Request) -> None:
    """Bodies are not decompressed."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem("unsupported_media_type", "send the body without a content encoding")


def declared_length(request: Request) -> int:
    """Bytes that the body should have; 0 if that is not said."""
    declared = request.headers.get("content-length", "")
    return int(declared) if declared.isdecimal() and len(declared) < 20 else 0


def _refuse_length(max_bytes: int) -> NoReturn:
    raise Problem(
        "body_too_large", f"the body may have at most {max_bytes} bytes", headers={"Connection": "close"}
    )
