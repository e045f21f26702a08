"""One running application for the whole session, and clients of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from client_helpers import AppTransport

from anglewise_client import Client, NoService, ServiceFailed

if TYPE_CHECKING:
    from starlette.testclient import TestClient

START_SECONDS = 600
"""Compiling every kernel on a fresh checkout takes this long at worst."""


@pytest.fixture(scope="session")
def running() -> Iterator[TestClient]:
    """The application; skipped where only the client is installed."""
    pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    from service.app import create_app
    from service.settings import Settings

    with TestClient(create_app(Settings(workers=1)), raise_server_exceptions=False) as running:
        yield running


@pytest.fixture(scope="session")
def client(running: TestClient) -> Iterator[Client]:
    """A client of the real application, in this process."""
    with Client("http://testserver", transport=AppTransport(running)) as client:
        wait_ready(client)
        yield client


def wait_ready(client: Client) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            client.with_options(retries=0).health()
            return
        except (NoService, ServiceFailed):
            assert time.monotonic() < deadline, "not ready in time"
            time.sleep(0.05)
