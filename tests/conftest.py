"""A broker and stores for every test that needs them."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


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
