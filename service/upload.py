"""Receiving multipart/form-data: one file straight to disk and a few small fields, all bounded."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from jobs.problems import Problem, pointer
from service.request_body import bounded_chunks, require_no_encoding
from service.settings import Settings

BLOCK = 2**20
MAX_FIELD_BYTES = 64 * 1024


@dataclass(frozen=True)
class Form:
    """A received form: the path of its file, and its other fields."""

    file: Path
    fields: dict[str, bytes]


class Uploads:
    """Counts uploads, so that they cannot fill the disk together."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._running = 0

    @asynccontextmanager
    async def receive(self, request: Request, file: str, fields: Collection[str]) -> AsyncIterator[Form]:
        """The form, with its file on disk until the block ends.

        Args:
            file: name of the field that is a file; it is required.
            fields: names of other fields that are allowed.

        Raises:
            Problem: busy, body_too_large, upload_timeout, storage_full, or invalid_input.
        """
        if self._running >= self._settings.max_uploads:
            raise Problem("busy", "too many uploads at a time", headers={"Retry-After": "5"})
        self._running += 1
        try:
            with tempfile.TemporaryDirectory(prefix="anglewise-") as folder:
                yield await self._receive(request, Path(folder) / "upload", file, fields)
        finally:
            self._running -= 1

    async def _receive(self, request: Request, path: Path, file: str, fields: Collection[str]) -> Form:
        require_no_encoding(request)
        seconds = self._settings.upload_seconds
        try:
            with path.open("wb") as sink:
                form = _FormParser(request.headers.get("content-type", ""), sink, file, fields)
                async with asyncio.timeout(seconds):
                    async for block in _blocks(bounded_chunks(request, self._settings.max_upload_bytes)):
                        await asyncio.to_thread(form.write, block)
        except TimeoutError:
            raise Problem("upload_timeout", f"the upload took longer than {seconds:g} s") from None
        except OSError:
            raise Problem("storage_full", "the upload could not be stored") from None
        return Form(path, form.finished())


async def _blocks(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Fewer and larger pieces: each costs a change of thread."""
    block = bytearray()
    async for chunk in chunks:
        block += chunk
        if len(block) >= BLOCK:
            yield bytes(block)
            block.clear()
    yield bytes(block)


class _FormParser:
    """Callbacks of the parser: which part is being read, and where its data go."""

    def __init__(self, content_type: str, sink: BinaryIO, file: str, fields: Collection[str]) -> None:
        boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
        if not boundary:
            raise _refused("", "the content type has no boundary")
        self._sink = sink
        self._file = file
        self._allowed = {file, *fields}
        self._seen: set[str] = set()
        self._fields: dict[str, bytearray] = {}
        self._name = ""
        self._header_name = bytearray()
        self._header_value = bytearray()
        self._disposition = b""
        self._complete = False
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._part_begin,
                    "on_header_field": self._header_field,
                    "on_header_value": self._header_content,
                    "on_header_end": self._header_end,
                    "on_headers_finished": self._headers_finished,
                    "on_part_data": self._part_data,
                    "on_end": self._end,
                },
            )
        except FormParserError as error:
            raise _refused("", str(error)) from None

    def write(self, block: bytes) -> None:
        """
        Raises:
            Problem: the form is damaged, or has a field that it should not have.
        """
        try:
            self._parser.write(block)
        except FormParserError as error:
            raise _refused("", f"the form is damaged: {error}") from None

    def finished(self) -> dict[str, bytes]:
        """The fields, once everything has been written."""
        if not self._complete:
            raise _refused("", "the form is cut off")
        if self._file not in self._seen:
            raise _refused(self._file, "is required, as a file")
        return {name: bytes(data) for name, data in self._fields.items()}

    def _part_begin(self) -> None:
        self._disposition = b""

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _header_content(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _header_end(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            self._disposition = bytes(self._header_value)
        self._header_name.clear()
        self._header_value.clear()

    def _headers_finished(self) -> None:
        _, options = parse_options_header(self._disposition)
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if name not in self._allowed:
            raise _refused(name, f"unknown field; there are {', '.join(sorted(self._allowed))}")
        if name in self._seen:
            raise _refused(name, "given twice")
        self._seen.add(name)
        self._name = name
        if name != self._file:
            self._fields[name] = bytearray()

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._name == self._file:
            self._sink.write(data[start:end])
            return
        field = self._fields[self._name]
        if len(field) + end - start > MAX_FIELD_BYTES:
            raise _refused(self._name, f"may have at most {MAX_FIELD_BYTES} bytes")
        field += data[start:end]

    def _end(self) -> None:
        self._complete = True


def _refused(field: str, message: str) -> Problem:
    where = pointer((field,)) if field else ""
    return Problem("invalid_input", f"{field}: {message}" if field else message, [(where, message)])
