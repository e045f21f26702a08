"""What the tests of the service share."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from starlette.testclient import TestClient

KEY = "a key for tests"
START_SECONDS = 600
"""Compiling every kernel on a fresh checkout takes this long at worst."""


def slow_map(first_negatives: int, cells: int = 324) -> dict[str, Any]:
    """A body of /collapse-map that takes seconds; different for each ``first_negatives``."""
    side = round(cells**0.5)
    return {
        "classes": 1000,
        "quantity": "exact_threshold",
        "x": {"name": "temperature", "values": [0.05 + i / 50 for i in range(side)]},
        "y": {"name": "negatives", "values": list(range(first_negatives, first_negatives + side))},
    }


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still not: {what}"
        time.sleep(0.02)


def wait_ready(client: TestClient) -> None:
    def ready() -> bool:
        assert not client.app_state["engine"].pool.broken
        return client.get("/health/ready").status_code == 200

    wait_until(ready, "ready", START_SECONDS)


def pids(client: TestClient) -> list[int]:
    """Of the live solver processes."""
    return list(client.app_state["engine"].pool.pids)
