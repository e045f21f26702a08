"""One running application for the whole session, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from client_helpers import AppTransport, wait_ready

from anglewise_client import Client

if TYPE_CHECKING:
    from starlette.testclient import TestClient


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
