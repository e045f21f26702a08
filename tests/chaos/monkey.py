"""Kills processes of a cluster at random, and starts them anew."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from cluster import Cluster

MAX_MISSES = 50
"""So often a process may be missing, or end by itself, when it is to be killed."""


class Monkey:
    """Every process runs again when it is done.

    Attributes:
        kills: how often it did what; only what hit a process counts.
    """

    def __init__(self, cluster: Cluster, seed: int, pause_seconds: tuple[float, float] = (1.0, 3.0)) -> None:
        self.kills: Counter[str] = Counter()
        self._cluster = cluster
        self._random = random.Random(seed)
        self._pause = pause_seconds
        self._misses = 0
        self._tricks: dict[str, Callable[[], bool]] = {
            "node": self._kill_node,
            "node, politely": self._stop_node,
            "device": self._kill_device,
            "runner": self._kill_runner,
            "broker": lambda: self._restart_broker(wiped=False),
            "broker and its memory": lambda: self._restart_broker(wiped=True),
        }

    def run(self, enough: Callable[[], bool]) -> None:
        """Until there was enough of it, but each trick once in any case.

        In the main thread: processes end with the thread that started them.
        """
        once = self._random.sample(sorted(self._tricks), len(self._tricks))
        while once or not enough():
            time.sleep(self._random.uniform(*self._pause))
            trick = once[-1] if once else self._random.choice(sorted(self._tricks))
            if self._tricks[trick]():
                self.kills[trick] += 1
                del once[-1:]
            else:
                self._misses += 1
                assert self._misses < MAX_MISSES, f"there is nothing to kill: {trick}"

    def _kill_node(self) -> bool:
        position = self._random.randrange(len(self._cluster.nodes))
        self._cluster.nodes.pop(position).kill()
        self._cluster.start_node()
        return True

    def _stop_node(self) -> bool:
        position = self._random.randrange(len(self._cluster.nodes))
        self._cluster.nodes.pop(position).stop()
        self._cluster.start_node()
        return True

    def _kill_device(self) -> bool:
        return self._kill_one(self._busy())

    def _kill_runner(self) -> bool:
        return self._kill_one([pid for device in self._busy() for pid in children(device)])

    def _busy(self) -> list[int]:
        """Workers with a job; all, if none has one."""
        busy = {worker.pid for worker in self._cluster.workers() if worker.job is not None}
        everyone = devices(self._cluster)
        return [pid for pid in everyone if pid in busy] or everyone

    def _kill_one(self, pids: list[int]) -> bool:
        return bool(pids) and killed(self._random.choice(pids))

    def _restart_broker(self, wiped: bool) -> bool:
        self._cluster.kill_valkey()
        time.sleep(self._random.uniform(0, 2))
        self._cluster.restart_valkey(wiped)
        return True


def killed(pid: int) -> bool:
    """Kill a process, if it is still there; whether it was."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def devices(cluster: Cluster) -> list[int]:
    """Process ids of the workers of all devices."""
    return [pid for node in cluster.nodes for pid in children(node.process.pid)]


def children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, path.read_text().split())
        except OSError:
            continue
    return found
