"""HTTP/1.1 as uvicorn reads it, with the bounds that its fast parser lacks.

Without them one connection could hold memory without end, in headers that never finish, and a thousand that
say nothing could use up the process's file descriptors. Bodies are bounded where they are read.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from jobs.problems import Problem
from service.problems import problem_response

MAX_HEAD_BYTES = 64 * 1024
"""Of a head, or between two pieces of a body; a head that comes in one read may be longer."""
HEAD_SECONDS = 30.0
"""From the connection, or the first byte of a later request, to the end of the headers."""


class BoundedHttp(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._unfinished = 0
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_is_there()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._unfinished += len(data)
        super().data_received(data)  # whatever completes sets the count to zero
        if self._unfinished > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse(Problem("head_too_large", f"headers may have at most {MAX_HEAD_BYTES} bytes"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        self._head_is_there()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(Problem("malformed_http", msg))

    def _expect_head(self) -> None:
        if self._patience is None:
            self._patience = self.loop.call_later(HEAD_SECONDS, self._lose_patience)

    def _head_is_there(self) -> None:
        self._unfinished = 0
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _lose_patience(self) -> None:
        self._patience = None
        if not self.transport.is_closing():
            self._refuse(Problem("head_timeout", f"the headers took longer than {HEAD_SECONDS:g} s"))

    def _refuse(self, problem: Problem) -> None:
        """Answer without the application, and hang up."""
        request_id = uuid.uuid4().hex
        response = problem_response(problem, request_id)
        own = [(b"x-request-id", request_id.encode()), (b"connection", b"close")]
        headers = [*response.raw_headers, *own]
        lines = [f"HTTP/1.1 {problem.status} {problem.code}".encode()]
        lines += [name + b": " + value for name, value in headers]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(response.body)]))
        self.transport.close()
