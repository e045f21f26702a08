"""One running application for the whole session, and clients of it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from client_helpers import AppTransport
from starlette.testclient import TestClient

from anglewise_client import Client, NoService, ServiceFailed
from service.app import create_app
from service.settings import Settings

START_SECONDS = 600
"""Compiling every kernel on a fresh checkout takes this long at worst."""


@pytest.fixture(scope="session")
def running() -> Iterator[TestClient]:
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
