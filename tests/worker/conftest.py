"""A worker's supervisor for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from worker_helpers import Bench


@pytest.fixture
def bench(broker_url: str, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """Makes a worker of one device, without processes of its own but the runner."""
    made: list[Bench] = []

    def make(**settings: object) -> Bench:
        made.append(Bench(broker_url, f"file://{tmp_path}/objects", **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()
