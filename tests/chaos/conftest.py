"""Clusters to be broken, with objects in files or in S3.

ANGLEWISE_CHAOS_STORES=file,s3 runs every test with both; some always do.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster

STORES = os.environ.get("ANGLEWISE_CHAOS_STORES", "file").split(",")
BUCKET = "anglewise"  # of the fixture s3_environment


@pytest.fixture(params=STORES)
def store_environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Variables of processes that use the store the test asks for; none for files."""
    if request.param == "file":
        return {}
    environment: dict[str, str] = request.getfixturevalue("s3_environment")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return {**environment, "ANGLEWISE_STORE_URL": f"s3://{BUCKET}/{uuid.uuid4().hex}"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name, as sockets need it."""
    path = Path(tempfile.mkdtemp(prefix="aw-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def make_cluster(store_environment: dict[str, str], folder: Path) -> Iterator[Callable[..., Cluster]]:
    made: list[Cluster] = []

    def make(**settings: Any) -> Cluster:
        url = store_environment.get("ANGLEWISE_STORE_URL")
        place = folder / str(len(made))
        place.mkdir()
        made.append(Cluster(place, url, store_environment, **settings))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()
