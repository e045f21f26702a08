"""Receiving forms: bounded while streaming, whatever their parts are."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from array_bytes import form_part
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from jobs.problems import Problem
from service import upload as upload_module
from service.problems import handle_exception
from service.settings import Settings
from service.upload import MAX_FIELD_BYTES, Uploads, require_file

FORM = {"Content-Type": "multipart/form-data; boundary=b"}
BAD_FORMS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", ""),
    "not a form": (b"file=x", ""),
    "cut off": (form_part("file", b"x" * 100), ""),
    "twice": (form_part("file", b"x") * 2 + b"--b--\r\n", "/file"),
    "no name": (b"--b\r\nContent-Type: text/plain\r\n\r\nx\r\n--b--\r\n", ""),
    "many fields": (b"".join(form_part(f"f{i}", b"") for i in range(10_000)) + b"--b--\r\n", "/f0"),
    "huge name": (form_part("f" * 1_000_000, b"") + b"--b--\r\n", ""),
    "huge header": (form_part("file", b"", "X: " + "x" * 1_000_000 + "\r\n") + b"--b--\r\n", ""),
    "many headers": (form_part("file", b"", "X: y\r\n" * 10_000) + b"--b--\r\n", ""),
    "long field": (form_part("note", b"x" * (MAX_FIELD_BYTES + 1)) + b"--b--\r\n", "/note"),
}


@pytest.fixture(scope="module")
def receiver() -> Iterator[TestClient]:
    """Only receives: answers with the size of the file, or with the problem."""
    uploads = Uploads(Settings(max_upload_bytes=2_000_000, max_uploads=1, upload_seconds=1.0))

    async def receive(request: Request) -> Response:
        async with uploads.receive(request, ("file",), ("note",)) as form:
            if "nested" in request.query_params:
                async with uploads.receive(request, ("file",), ()):
                    pass
            path = require_file(form, "file")
            size = path.stat().st_size
            where = str(path)
        return JSONResponse({"size": size, "path": where, "kept": Path(where).exists()})

    app = Starlette(routes=[Route("/", receive, methods=["POST"])])
    app.add_exception_handler(Problem, handle_exception)  # type: ignore[arg-type]
    with TestClient(app) as client:
        yield client


class TestReceiving:
    def test_file_is_kept_only_while_it_is_needed(self, receiver: TestClient) -> None:
        answer = receiver.post("/", files={"file": ("../../x", b"x" * 1_500_000)}).json()
        assert (answer["size"], answer["kept"]) == (1_500_000, False)
        assert Path(answer["path"]).name == "file"

    @pytest.mark.parametrize(("content", "pointer"), BAD_FORMS.values(), ids=BAD_FORMS.keys())
    def test_refused(self, receiver: TestClient, content: bytes, pointer: str) -> None:
        response = receiver.post("/", content=content, headers=FORM)
        assert (response.status_code, response.json()["code"]) == (422, "invalid_input")
        assert response.json()["errors"][0]["pointer"] == pointer

    @pytest.mark.parametrize("boundary", ["", "; boundary=", "; boundary=" + "b" * 300])
    def test_boundary(self, receiver: TestClient, boundary: str) -> None:
        headers = {"Content-Type": "multipart/form-data" + boundary}
        response = receiver.post("/", content=form_part("file", b"x"), headers=headers)
        assert (response.status_code, response.json()["code"]) == (422, "invalid_input")

    def test_declared_too_long(self, receiver: TestClient) -> None:
        response = receiver.post("/", files={"file": ("x", b"x" * 2_000_001)})
        assert (response.status_code, response.json()["code"]) == (413, "body_too_large")

    def test_found_too_long_while_reading(self, receiver: TestClient) -> None:
        sent = []

        def chunks() -> Iterator[bytes]:
            yield form_part("file", b"")[:-2]
            for i in range(1000):
                sent.append(i)
                yield b"x" * 100_000

        response = receiver.post("/", content=chunks(), headers=FORM)
        assert (response.status_code, response.json()["code"]) == (413, "body_too_large")

    def test_full_disk(self, receiver: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
        def write(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(upload_module._FormParser, "write", write)
        response = receiver.post("/", files={"file": ("x", b"x")})
        assert (response.status_code, response.json()["code"]) == (507, "storage_full")

    def test_slow_client(self, receiver: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
        def write(*_: object) -> None:
            time.sleep(1.5)  # longer than the fixture allows

        monkeypatch.setattr(upload_module._FormParser, "write", write)
        response = receiver.post("/", files={"file": ("x", b"x")})
        assert (response.status_code, response.json()["code"]) == (408, "upload_timeout")

    def test_number_at_a_time(self, receiver: TestClient) -> None:
        response = receiver.post("/?nested", files={"file": ("x", b"x")})
        assert (response.status_code, response.json()["code"]) == (503, "busy")
        assert receiver.post("/", files={"file": ("x", b"x")}).status_code == 200
