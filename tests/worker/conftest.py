"""A store, a broker and a worker's supervisor for tests."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from worker_helpers import Bench

from jobs.valkey import Valkey


@pytest.fixture(scope="session")
def valkey() -> Iterator[Valkey]:
    """A server for all tests; their jobs have different ids."""
    with tempfile.TemporaryDirectory(prefix="vk") as folder:
        server = Valkey(Path(folder))
        server.start()
        yield server
        server.stop()


@pytest.fixture
def bench(valkey: Valkey, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """Makes a worker of one device, without processes of its own but the runner."""
    made: list[Bench] = []

    def make(**settings: object) -> Bench:
        made.append(Bench(valkey.url, f"file://{tmp_path}/objects", **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()
