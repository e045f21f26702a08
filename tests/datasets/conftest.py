"""A running application that keeps data sets in a folder, and one whose limits are tiny."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from service.app import create_app
from service.settings import Settings

START_SECONDS = 600


def running(settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        deadline = time.monotonic() + START_SECONDS
        while client.get("/health/ready").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield client


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the store behind ``client``."""
    return tmp_path_factory.mktemp("objects")


@pytest.fixture(scope="session")
def client(folder: Path) -> Iterator[TestClient]:
    yield from running(Settings(workers=1, warm_up=False, store_url=folder.as_uri(), disk_reserve_bytes=0))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Takes 100,000 bytes and 5 classes, one upload at a time."""
    url = tmp_path_factory.mktemp("tiny").as_uri()
    limits = {"max_upload_bytes": 100_000, "max_classes": 5, "max_uploads": 1}
    yield from running(Settings(workers=1, warm_up=False, store_url=url, disk_reserve_bytes=0, **limits))
