"""One running application for the whole session, and one whose limits are tiny."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import httpx2
import pytest
from service_helpers import KEY, wait_ready
from starlette.testclient import TestClient

from service.app import create_app
from service.settings import Settings


@pytest.fixture(scope="session")
def client() -> Iterator[TestClient]:
    with TestClient(create_app(Settings(workers=2)), raise_server_exceptions=False) as running:
        wait_ready(running)
        yield running


@pytest.fixture(scope="session")
def tiny() -> Iterator[TestClient]:
    """Small limits of every kind, one solver process, and an API key (which the client sends)."""
    settings = Settings(
        workers=1,
        max_waiting=1,
        deadline_seconds=1.0,
        max_body_bytes=4096,
        max_classes=50,
        max_distinct_proportions=5,
        max_map_cells=2500,
        max_inline_classes=10,
        max_archive_bytes=8 * 30 * 30,
        api_keys=(hashlib.sha256(KEY.encode()).hexdigest(),),
    )
    with TestClient(create_app(settings), headers={"Authorization": f"Bearer {KEY}"}) as running:
        wait_ready(running)
        yield running


@pytest.fixture
def background() -> Iterator[Callable[..., Future[httpx2.Response]]]:
    """Call something in a thread of its own and get its future."""
    with ThreadPoolExecutor(100) as threads:
        yield threads.submit
