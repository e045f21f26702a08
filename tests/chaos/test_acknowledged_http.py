"""The same promise as users meet it: every 202 ends exactly once, whatever is killed meanwhile.

The service, the workers, a device, the job's own process, the broker: all of them are killed at random.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import TERMINAL
from local_system import LocalSystem, Submitter, ask
from monkey import MAX_MISSES, children, killed

JOBS = int(os.environ.get("ANGLEWISE_CHAOS_JOBS", "20"))
SEED = int(os.environ.get("ANGLEWISE_CHAOS_SEED", "1"))
KILL_SECONDS = float(os.environ.get("ANGLEWISE_CHAOS_KILL_SECONDS", "2"))
"""Between two kills, on average; a process takes some seconds to start."""
LONG = {
    "classes": 10,
    "sampling": "supervised",
    "loss": {"name": "infonce", "negatives": 16},
    "x": {"name": "temperature", "values": [0.1 + 0.01 * step for step in range(40)]},
    "y": {"name": "majority_proportion", "values": [0.2 + 0.01 * step for step in range(40)]},
    "quantity": "largest_cosine",
}
"""Takes seconds: it will be interrupted."""
SPECS = (
    {"kind": "collapse_threshold", "spec": {"classes": 10}},
    {"kind": "optimal_geometry", "spec": {"class_counts": [40, 20, 10, 5]}},
    {"kind": "weights", "spec": {"target": {"simplex": {"class_counts": [3, 3, 3]}}}},
    {"kind": "realizability", "spec": {"weights": [[1, 0.5, 0.3], [0.5, 1, 0.2], [0.3, 0.2, 1]]}},
    {"kind": "collapse_map", "spec": LONG},
)


@pytest.fixture
def system(store_environment: dict[str, str], folder: Path) -> Iterator[LocalSystem]:
    local = LocalSystem(folder, store_environment)
    yield local
    local.close()


def test_every_202_ends_exactly_once(system: LocalSystem) -> None:
    choose = random.Random(SEED)
    jobs = [{**choose.choice(SPECS), "name": f"job {number}"} for number in range(JOBS)]
    submitter = Submitter(system, jobs, pause_seconds=0.5)
    start = time.monotonic()
    submitter.start()
    kills = kill_at_random(system, choose, submitter)
    submitter.join()
    assert len(set(submitter.accepted)) == JOBS
    states = Counter(final_state(system, job_id) for job_id in submitter.accepted)
    seconds = time.monotonic() - start
    records = [system.journal.read(job_id) for job_id in submitter.accepted]
    attempts = dict(Counter(record.attempt for record in records))
    print(f"\n{JOBS} jobs in {seconds:.0f} s; killed {dict(kills)}; {dict(states)}; attempts {attempts}")
    for record in records:
        steps = [entry.step for entry in record.entries]
        assert [step in TERMINAL for step in steps].count(True) == 1
        assert steps[-1] in TERMINAL
    assert states["succeeded"] >= 0.8 * JOBS
    assert set(system.journal.ids()) == set(submitter.accepted)  # no request made two


def kill_at_random(system: LocalSystem, choose: random.Random, submitter: Submitter) -> Counter[str]:
    """Each kind of process once, then whichever, until all jobs are accepted."""
    kinds = ["service", "worker", "device", "runner", "valkey", "valkey and its memory"]
    once, kills, misses = choose.sample(kinds, len(kinds)), Counter[str](), 0
    while once or submitter.is_alive():
        time.sleep(KILL_SECONDS * choose.uniform(0.5, 1.5))
        kind = once[-1] if once else choose.choice(kinds)
        pids = system.pids()
        if kind == "valkey and its memory":
            system.forget_queue()
        found = candidates(kind.partition(" ")[0], pids)
        if found and killed(choose.choice(found)):
            kills[kind] += 1
            del once[-1:]
        else:
            misses += 1
            assert misses < MAX_MISSES, f"there is nothing to kill: {kind}"
    return kills


def candidates(kind: str, pids: dict[str, int]) -> list[int]:
    if kind in pids:
        return [pids[kind]]
    devices = children(pids["worker"]) if "worker" in pids else []
    return devices if kind == "device" else [pid for device in devices for pid in children(device)]


def final_state(system: LocalSystem, job_id: str) -> str:
    ended = ("succeeded", "failed", "cancelled")
    answer = ask(system, f"/jobs/{job_id}", lambda a: a.status_code == 200 and a.json()["state"] in ended)
    return str(answer.json()["state"])
