"""Raw connections to the HTTP protocol: what it refuses before any application sees it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from service import protocol
from service.middleware import RequestIdentity
from service.protocol import MAX_HEAD_BYTES, BoundedHttp
from service.request_body import read_bounded

HEAD = b"POST / HTTP/1.1\r\nHost: x\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the length of the body, which has to arrive within a second."""
    assert scope["type"] == "http"
    body = await read_bounded(Request(scope, receive), max_bytes=2**20, seconds=1.0)
    await Response(str(len(body)))(scope, receive, send)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        server = uvicorn.Server(
            uvicorn.Config(RequestIdentity(echo), http=BoundedHttp, lifespan="off", log_level="error")
        )
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield listening.getsockname()[1]
        server.should_exit = True
        thread.join()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.3)


def exchange(port: int, *pieces: bytes) -> bytes:
    """Everything that comes back until the server hangs up; sending stops when it does."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        received = b""
        try:
            for piece in pieces:
                connection.sendall(piece)
            while data := connection.recv(65536):
                received += data
        except ConnectionError:
            pass
        return received


def problem(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    document: Any = json.loads(body)
    assert b"content-type: application/problem+json" in head.lower()
    assert b"connection: close" in head.lower()
    assert f"x-request-id: {document['request_id']}".encode() in head.lower()
    assert head.startswith(f"HTTP/1.1 {document['status']} ".encode())
    return document["status"], document["code"]


class TestHead:
    @pytest.mark.parametrize(
        "nonsense", [b"\x00\xff\r\n\r\n", b"GET / HTTP/3.7\r\n\r\n", HEAD + b"Content-Length: -1\r\n\r\n"]
    )
    def test_nonsense(self, port: int, nonsense: bytes) -> None:
        assert problem(exchange(port, nonsense)) == (400, "malformed_http")

    def test_one_header_without_end(self, port: int) -> None:
        """The head is refused while it is still being sent; what is sent after that is lost with it."""
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(HEAD + b"X: " + b"a" * (MAX_HEAD_BYTES + 1))
            assert problem(connection.recv(65536)) == (431, "head_too_large")

    def test_headers_without_end(self, port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(HEAD + b"X: a\r\n" * (MAX_HEAD_BYTES // 6 + 1))
            assert problem(connection.recv(65536)) == (431, "head_too_large")

    def test_trailers_without_end(self, port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n")
            time.sleep(0.2)  # a read of its own: the piece of body in it counts as progress
            connection.sendall(b"X: a\r\n" * (MAX_HEAD_BYTES // 6 + 1))
            assert problem(connection.recv(65536)) == (431, "head_too_large")

    def test_long_headers_and_long_bodies(self, port: int) -> None:
        head = HEAD + b"Connection: close\r\nX: " + b"a" * 50_000 + b"\r\nContent-Length: 1000000\r\n\r\n"
        assert exchange(port, head, b"b" * 500_000, b"b" * 500_000).endswith(b"\r\n\r\n1000000")

    @pytest.mark.parametrize("beginning", [b"", b"POST", HEAD + b"X: a\r\n"])
    @pytest.mark.usefixtures("hurried")
    def test_that_never_comes(self, port: int, beginning: bytes) -> None:
        assert problem(exchange(port, beginning)) == (408, "head_timeout")

    @pytest.mark.usefixtures("hurried")
    def test_of_a_second_request_that_never_comes(self, port: int) -> None:
        answer = exchange(port, HEAD + b"Content-Length: 1\r\n\r\na" + HEAD)
        first, _, second = answer.partition(b"\r\n\r\n1")
        assert first.startswith(b"HTTP/1.1 200 OK")
        assert problem(second) == (408, "head_timeout")


class TestBody:
    @pytest.mark.parametrize(
        "beginning", [b"Content-Length: 10\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"]
    )
    @pytest.mark.usefixtures("hurried")
    def test_that_never_ends(self, port: int, beginning: bytes) -> None:
        """The time for the head is over long before; it does not count for the body."""
        assert problem(exchange(port, HEAD + beginning)) == (408, "upload_timeout")

    def test_after_an_upgrade_is_not_taken_for_empty(self, port: int) -> None:
        """Clients that offer HTTP/2 with their first request send the body all the same."""
        upgrade = b"Connection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nContent-Length: 1\r\n\r\na"
        answer = exchange(port, HEAD + upgrade)
        assert b'"code":"http_error"' in answer
        assert b"Upgrade" in answer

    def test_cancelled_by_the_server_gets_a_problem(self) -> None:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def never(scope: Scope, receive: Receive, send: Send) -> None:
            await asyncio.Event().wait()

        async def scenario() -> None:
            async def receive() -> Message:
                raise AssertionError

            request = RequestIdentity(never)({"type": "http", "headers": []}, receive, send)
            task = asyncio.create_task(request)
            await asyncio.sleep(0)
            task.cancel()
            await task

        asyncio.run(scenario())
        assert sent[0]["status"] == 503
        assert json.loads(sent[1]["body"])["code"] == "not_ready"

    def test_pipelined(self, port: int) -> None:
        request = HEAD + b"Content-Length: 2\r\n\r\nab"
        last = HEAD + b"Connection: close\r\nContent-Length: 3\r\n\r\nabc"
        assert exchange(port, request * 3 + last).count(b"HTTP/1.1 200 OK") == 4

    def test_that_breaks_off_is_no_error(self, caplog: pytest.LogCaptureFixture) -> None:
        """A client may leave at any time; the log is for failures of the service."""

        async def receive() -> Message:
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            raise AssertionError

        async def read(scope: Scope, receive: Receive, send: Send) -> None:
            await Request(scope, receive).body()

        asyncio.run(RequestIdentity(read)({"type": "http", "headers": []}, receive, send))
        assert not caplog.records
