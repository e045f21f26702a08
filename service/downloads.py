"""Objects of the store as answers: streamed, or by a signed address of the store itself."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, BinaryIO

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from jobs.store import temporary_files
from service.job_desk import JobDesk

SIGNED_FOR = timedelta(minutes=15)
IMMUTABLE = "private, max-age=3600"
BLOCK = 256 * 1024


async def object_response(
    desk: JobDesk, request: Request, path: str, media_type: str, filename: str
) -> Response:
    """An object, which never changes, piece by piece; 307 where the store hands it out itself.

    Raises:
        Problem: not_found, storage_unavailable.
    """
    tag = entity_tag(path)
    if tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers={"ETag": tag, "Cache-Control": IMMUTABLE})
    if desk.settings.signed_downloads:
        url = await desk.run(desk.store.signed_url, path, SIGNED_FOR)
        if url is not None:
            return Response(status_code=307, headers={"Location": url, "Cache-Control": "no-store"})
    size, chunks = await desk.run(desk.store.chunks, path)
    headers = {"ETag": tag, "Cache-Control": IMMUTABLE, **_attachment(size, filename)}
    return StreamingResponse(_from_threads(desk, chunks), headers=headers, media_type=media_type)


async def built_response(
    desk: JobDesk, build: Callable[[BinaryIO], None], media_type: str, filename: str
) -> Response:
    """A file that ``build`` writes, in a thread.

    Raises:
        Problem: storage_unavailable, or what ``build`` raises.
    """
    file, size = await desk.run(_built, build)
    return StreamingResponse(file_chunks(file), headers=_attachment(size, filename), media_type=media_type)


def _built(build: Callable[[BinaryIO], None]) -> tuple[BinaryIO, int]:
    with temporary_files(), contextlib.ExitStack() as stack:
        file: Any = stack.enter_context(tempfile.TemporaryFile())
        build(file)
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        stack.pop_all()  # closed when it has been sent
        return file, size


async def file_chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    """An open file piece by piece; it is closed at the end."""
    with file:
        while chunk := await asyncio.to_thread(file.read, BLOCK):
            yield chunk


def entity_tag(path: str) -> str:
    """Objects of jobs never change, so that their path tells them apart."""
    return f'"{hashlib.sha256(path.encode()).hexdigest()[:32]}"'


def _attachment(size: int, filename: str) -> Mapping[str, str]:
    return {"Content-Length": str(size), "Content-Disposition": f'attachment; filename="{filename}"'}


async def _from_threads(desk: JobDesk, chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (chunk := await desk.run(next, chunks, b"")) != b"":
        yield chunk
