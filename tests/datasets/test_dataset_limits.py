"""Sizes, room, clients that leave, many at once; none of them leaves anything behind."""

from __future__ import annotations

import asyncio
import errno
import json
import resource
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from dataset_files import npz, parquet_file, send, stored
from starlette.testclient import TestClient

from jobs.datasets.content import npy_header
from jobs.store import ObjectStore, StoreFull, StoreUnavailable

X, Y = np.arange(6.0).reshape(3, 2), np.array([0, 1, 1])
MIB = 2**20
MAX_GROWTH_MIB = 64
"""A few blocks of what is sent, and nowhere near all of it."""
END = b"\r\n--b--\r\n"
PATIENCE = 600
BOUNDARY = {"Content-Type": "multipart/form-data; boundary=b"}


def part(name: str) -> bytes:
    return f'--b\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\n\r\n'.encode()


class TestSizes:
    def test_bytes(self, tiny: TestClient) -> None:
        response = send(tiny, bytes(100_001))
        assert (response.status_code, response.json()["code"]) == (413, "body_too_large")

    def test_bytes_found_while_reading(self, tiny: TestClient) -> None:
        sent = []

        def chunks() -> Iterator[bytes]:
            yield part("file")
            for i in range(1000):
                sent.append(i)
                yield bytes(50_000)

        response = tiny.post("/datasets", content=chunks(), headers=BOUNDARY)
        assert (response.status_code, response.json()["code"]) == (413, "body_too_large")

    @pytest.mark.parametrize(
        ("file", "pointer"),
        [
            (npz(x=np.zeros((100, 1000)), y=np.zeros(100, int)), "/x"),
            (npz(x=X, y=np.array(["a", "b", "c" * 50_000])), "/y"),
            (b"a,b,y\n" + b"1,2,0\n" * 7_000, "/file"),
            (parquet_file(a=np.zeros(100_000), y=np.zeros(100_000, int)), "/file"),
        ],
        ids=["npz", "labels", "csv", "parquet"],
    )
    def test_unpacked(self, tiny: TestClient, file: bytes, pointer: str) -> None:
        response = send(tiny, file)
        assert (response.status_code, response.json()["code"]) == (422, "too_large"), response.text
        assert response.json()["errors"][0]["pointer"] == pointer

    def test_classes(self, tiny: TestClient) -> None:
        for labels in (np.arange(6), np.arange(6).astype(str)):
            response = send(tiny, npz(x=np.zeros((6, 2)), y=labels))
            assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "/y")
        assert stored(tiny, npz(x=np.zeros((6, 2)), y=np.arange(6) // 2))["classes"] == dict.fromkeys(
            "012", 2
        )

    def test_memory_stays_flat(self, client: TestClient) -> None:
        """100 MB arrive in pieces, are checked elsewhere and copied in parts."""
        samples = 100 * MIB // 1024

        def chunks() -> Iterator[bytes]:
            yield part("x") + npy_header((samples, 256), np.dtype("<f4"))
            for _ in range(100):
                yield bytes(MIB)
            yield b"\r\n" + part("y") + npy_header((samples,), np.dtype("<i4"))
            yield np.arange(samples, dtype="<i4").clip(max=6).tobytes()
            yield END

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        pieces = chunks()

        async def receive() -> Any:
            if (piece := next(pieces, None)) is None:
                await asyncio.sleep(PATIENCE)  # as a client does that waits for its answer
            return {"type": "http.request", "body": piece, "more_body": piece != END}

        status, answer = call(client, receive)
        assert status == 201, answer
        assert answer["samples"] == samples
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 < MAX_GROWTH_MIB
        assert client.delete(f"/datasets/{answer['id']}").status_code == 204


class TestRoom:
    """What the store does is imitated: each failure is told, and none leaves a trace."""

    @pytest.mark.parametrize(
        ("method", "error", "status", "code"),
        [
            ("put_file", StoreFull("no space"), 507, "storage_full"),
            ("create", StoreFull("no space"), 507, "storage_full"),
            ("put_file", StoreUnavailable("away"), 503, "storage_unavailable"),
            ("create", StoreUnavailable("away"), 503, "storage_unavailable"),
        ],
    )
    def test_store_fails(
        self,
        client: TestClient,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        method: str,
        error: Exception,
        status: int,
        code: str,
    ) -> None:
        def fail(*_: Any) -> None:
            raise error

        before = names(folder)
        monkeypatch.setattr(ObjectStore, method, fail)
        response = send(client, npz(x=X, y=Y))
        assert (response.status_code, response.json()["code"]) == (status, code)
        assert names(folder) == before

    def test_file_is_cut_off_by_a_full_disk(
        self, client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        put_file = ObjectStore.put_file

        def fail_at_labels(store: ObjectStore, path: str, file: BinaryIO) -> None:
            if path.endswith("y.npy"):
                raise StoreFull("no space")
            put_file(store, path, file)

        before = names(folder)
        monkeypatch.setattr(ObjectStore, "put_file", fail_at_labels)
        assert send(client, npz(x=X, y=Y)).status_code == 507
        assert names(folder) == before

    def test_reserve(self, client: TestClient, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = names(folder)
        monkeypatch.setattr(ObjectStore, "free_bytes", lambda _: 300)
        response = send(client, npz(x=X, y=Y))
        assert (response.status_code, response.json()["code"]) == (507, "storage_full")
        assert names(folder) == before

    def test_upload_does_not_fit_on_disk(self, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
        def write(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("service.upload._FormParser.write", write)
        response = send(client, npz(x=X, y=Y))
        assert (response.status_code, response.json()["code"]) == (507, "storage_full")

    @pytest.mark.parametrize("method", ["folders", "get"])
    def test_store_is_away(self, client: TestClient, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
        address = f"/datasets/{stored(client, npz(x=X, y=Y))['id']}"

        def fail(*_: Any) -> None:
            raise StoreUnavailable("away")

        monkeypatch.setattr(ObjectStore, method, fail)
        response = client.get("/datasets" if method == "folders" else address)
        assert (response.status_code, response.json()["code"]) == (503, "storage_unavailable")
        assert response.headers["retry-after"]


class TestManyAtOnce:
    def test_each_is_stored(self, client: TestClient) -> None:
        files = [npz(x=X + i, y=Y) for i in range(4)]
        with ThreadPoolExecutor(4) as threads:
            responses = list(threads.map(lambda file: send(client, file), files))
        assert [response.status_code for response in responses] == [201] * 4
        assert len({response.json()["id"] for response in responses}) == 4
        assert len({response.json()["sha256"] for response in responses}) == 4

    def test_one_more_than_allowed(self, tiny: TestClient) -> None:
        arrived, go_on = threading.Event(), threading.Event()
        body = part("file") + npz(x=X, y=Y) + END
        pieces = [body[:100], body[100:]]

        async def receive() -> Any:
            if len(pieces) == 1:
                arrived.set()
                await asyncio.to_thread(go_on.wait, PATIENCE)
            elif not pieces:
                await asyncio.sleep(PATIENCE)
            return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

        with ThreadPoolExecutor(1) as threads:
            slow = threads.submit(call, tiny, receive)
            assert arrived.wait(PATIENCE)
            response = send(tiny, npz(x=X, y=Y))
            go_on.set()
            assert slow.result()[0] == 201
        assert (response.status_code, response.json()["code"]) == (503, "busy")


@pytest.mark.parametrize("sent", [b"", part("file"), part("file") + npz(x=X, y=Y)[:200]])
def test_client_leaves(client: TestClient, folder: Path, sent: bytes, tmp_path: Path) -> None:
    """In the middle of its upload: nothing is stored, nothing is left in temporary folders."""
    before = names(folder)
    messages = [
        {"type": "http.request", "body": sent, "more_body": True},
        {"type": "http.disconnect"},
    ]

    async def receive() -> Any:
        return messages.pop(0)

    assert call(client, receive) == (None, None)
    assert names(folder) == before
    assert client.app_state["uploads"]._running == 0


def call(client: TestClient, receive: Callable[[], Awaitable[Any]]) -> tuple[int | None, Any]:
    """Status and document of POST /datasets; the client of the tests would keep all that it sends."""
    sent: list[Any] = []

    async def send_part(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/datasets",
        "raw_path": b"/datasets",
        "query_string": b"",
        "headers": [(b"content-type", BOUNDARY["Content-Type"].encode())],
        "state": dict(client.app_state),
    }
    assert client.portal is not None
    client.portal.call(client.app, scope, receive, send_part)
    if not sent:
        return None, None
    return sent[0]["status"], json.loads(b"".join(message.get("body", b"") for message in sent))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "datasets").glob("*"))
