"""A worker's supervisor for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from worker_helpers import Bench

from worker.runner_process import RunnerProcess


@pytest.fixture(scope="session")
def common_store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of a store for all tests; their jobs have different ids."""
    return f"file://{tmp_path_factory.mktemp('common')}/objects"


@pytest.fixture(scope="session")
def spare_runners() -> Iterator[list[RunnerProcess]]:
    """Runners that a test left unharmed: starting one takes seconds."""
    spare: list[RunnerProcess] = []
    yield spare
    for runner in spare:
        runner.kill()


@pytest.fixture
def bench(
    broker_url: str, common_store: str, spare_runners: list[RunnerProcess]
) -> Iterator[Callable[..., Bench]]:
    """Makes a worker of one device, without processes of its own but the runner."""
    made: list[Bench] = []

    def make(store_url: str = common_store, **settings: object) -> Bench:
        alike = store_url == common_store and not settings
        made.append(Bench(broker_url, store_url, spare_runners if alike else None, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()
