"""Every job that was accepted ends exactly once, whatever is killed meanwhile.

ANGLEWISE_CHAOS_JOBS and ANGLEWISE_CHAOS_SEED make it larger and different.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
from cluster import Cluster
from monkey import Monkey
from test_worker_loss import assert_complete

from jobs.states import ReasonCode, State

JOBS = int(os.environ.get("ANGLEWISE_CHAOS_JOBS", "20"))
SEED = int(os.environ.get("ANGLEWISE_CHAOS_SEED", "1"))
STEPS = 100


class Submissions(threading.Thread):
    """Jobs that were accepted, by the kind of their work."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(daemon=True)
        self.short: list[str] = []
        self.long: list[str] = []
        self._cluster = cluster
        self._random = random.Random(SEED)

    def run(self) -> None:
        for _ in range(JOBS):
            if self._random.random() < 0.4:
                spec = {"steps": STEPS, "seconds": 0.02, "checkpoint_every": 10}
                self.long.append(self._cluster.submit("steps", **spec))
            else:
                classes = self._random.randrange(3, 20)
                self.short.append(self._cluster.submit("collapse_threshold", classes=classes))
            time.sleep(self._random.uniform(0.1, 0.5))

    @property
    def accepted(self) -> list[str]:
        return [*self.short, *self.long]

    def ended(self) -> int:
        return sum(self._cluster.read(job_id).state.terminal for job_id in self.accepted)


@pytest.mark.parametrize("store_environment", ["file", "s3"], indirect=True)
def test_every_accepted_job_ends_exactly_once(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    cluster.start_workers(2)
    monkey, submissions = Monkey(cluster, SEED), Submissions(cluster)
    start = time.monotonic()
    submissions.start()
    monkey.run(enough=lambda: not submissions.is_alive() and submissions.ended() > JOBS // 2)
    accepted = submissions.accepted
    assert len(accepted) == JOBS
    records = cluster.wait_end(*accepted)
    seconds = time.monotonic() - start
    endings = Counter(cluster.check_ended_once(record.id).state.value for record in records)
    attempts = dict(Counter(record.attempt for record in records))
    print(f"\n{JOBS} jobs in {seconds:.0f} s; {dict(monkey.kills)}; {dict(endings)}; attempts {attempts}")
    for record in records:
        if record.state is State.FAILED:  # killed as often as a job may be tried
            assert record.reason is not None
            assert record.reason.code is ReasonCode.WORKER_LOST
        elif record.id in submissions.long:
            assert_complete(cluster, record.id, STEPS)
        else:
            assert 0 < cluster.result(record.id)["exact_threshold"] < 1
    assert endings["succeeded"] > 0.8 * JOBS
