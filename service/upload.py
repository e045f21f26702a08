"""Receiving multipart/form-data: files straight to disk and a few small fields, all bounded."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Collection
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
    """A received form.

    Attributes:
        folder: has each file, under the name of its field.
        files: what the client calls each file, by field; empty where it did not say.
        fields: the others.
    """

    folder: Path
    files: dict[str, str]
    fields: dict[str, bytes]


class Uploads:
    """Counts uploads, so that they cannot fill the disk together."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._running = 0

    @contextlib.asynccontextmanager
    async def receive(
        self, request: Request, files: Collection[str], fields: Collection[str]
    ) -> AsyncIterator[Form]:
        """The form, with its files on disk until the block ends.

        Args:
            files: names of fields that may be files.
            fields: names of other fields that are allowed.

        Raises:
            Problem: busy, body_too_large, upload_timeout, storage_full, or invalid_input.
        """
        if self._running >= self._settings.max_uploads:
            raise Problem("busy", "too many uploads at a time", headers={"Retry-After": "5"})
        self._running += 1
        try:
            with tempfile.TemporaryDirectory(prefix="anglewise-") as folder:
                yield await self._receive(request, Path(folder), files, fields)
        finally:
            self._running -= 1

    async def _receive(
        self, request: Request, folder: Path, files: Collection[str], fields: Collection[str]
    ) -> Form:
        require_no_encoding(request)
        seconds = self._settings.upload_seconds
        try:
            with contextlib.closing(
                _FormParser(request.headers.get("content-type", ""), folder, files, fields)
            ) as form:
                async with asyncio.timeout(seconds):
                    async for block in _blocks(bounded_chunks(request, self._settings.max_upload_bytes)):
                        await asyncio.to_thread(form.write, block)
        except TimeoutError:
            raise Problem("upload_timeout", f"the upload took longer than {seconds:g} s") from None
        except OSError:
            raise Problem("storage_full", "the upload could not be stored") from None
        return form.finished()


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

    def __init__(
        self, content_type: str, folder: Path, files: Collection[str], fields: Collection[str]
    ) -> None:
        boundary = parse_options_header(content_type)[1].get(b"boundary", b"")
        if not boundary:
            raise _refused("", "the content type has no boundary")
        self._folder = folder
        self._may_be_files = files
        self._allowed = {*files, *fields}
        self._files: dict[str, str] = {}
        self._sinks: dict[str, BinaryIO] = {}
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

    def finished(self) -> Form:
        """The form, once everything has been written and this is closed."""
        if not self._complete:
            raise _refused("", "the form is cut off")
        fields = {name: bytes(data) for name, data in self._fields.items()}
        return Form(self._folder, self._files, fields)

    def close(self) -> None:
        """Close the files."""
        for sink in self._sinks.values():
            sink.close()

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
        if name in self._files or name in self._fields:
            raise _refused(name, "given twice")
        self._name = name
        if name in self._may_be_files:
            self._files[name] = options.get(b"filename", b"").decode("utf-8", "replace")
            self._sinks[name] = (self._folder / name).open("wb")
        else:
            self._fields[name] = bytearray()

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._name in self._sinks:
            self._sinks[self._name].write(data[start:end])
            return
        field = self._fields[self._name]
        if len(field) + end - start > MAX_FIELD_BYTES:
            raise _refused(self._name, f"may have at most {MAX_FIELD_BYTES} bytes")
        field += data[start:end]

    def _end(self) -> None:
        self._complete = True


def require_file(form: Form, field: str) -> Path:
    """Where the file is.

    Raises:
        Problem: invalid_input: the form has no such file.
    """
    if field not in form.files:
        raise _refused(field, "is required, as a file")
    return form.folder / field


def _refused(field: str, message: str) -> Problem:
    where = pointer((field,)) if field else ""
    return Problem("invalid_input", f"{field}: {message}" if field else message, [(where, message)])
