"""Clusters to be broken."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster import Cluster


@pytest.fixture
def make_cluster() -> Iterator[Callable[..., Cluster]]:
    made: list[Cluster] = []
    folders: list[Path] = []

    def make(**options: Any) -> Cluster:
        folders.append(Path(tempfile.mkdtemp(prefix="aw-", dir="/tmp")))  # sockets must have short names
        made.append(Cluster(folders[-1], **options))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
