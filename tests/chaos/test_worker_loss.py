"""Workers are killed, stopped and restarted; their jobs go on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from cluster import Cluster

from jobs.record import Step
from jobs.states import ReasonCode, State

MakeCluster = Callable[..., Cluster]
MODULUS = 2**61 - 1
STEPS = {"steps": 150, "seconds": 0.02, "checkpoint_every": 10}


def last_value(steps: int) -> int:
    """What the kind "steps" computes, one step after the other."""
    value = 1
    for step in range(1, steps + 1):
        value = (value * 6364136223846793005 + step) % MODULUS
    return value


def assert_complete(cluster: Cluster, job_id: str, steps: int) -> None:
    assert cluster.check_ended_once(job_id).state is State.SUCCEEDED
    assert cluster.result(job_id) == {"value": last_value(steps)}
    points = cluster.series(job_id)["value"]
    assert [point["step"] for point in points] == list(range(1, steps + 1))
    assert points[-1]["value"] == last_value(steps) % 1000


@pytest.mark.parametrize("store_environment", ["file", "s3"], indirect=True)
def test_a_job_goes_on_elsewhere_from_its_checkpoint(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.start_workers(2)
    job_id = cluster.submit("steps", **STEPS)
    cluster.wait_steps(job_id, 60)
    first = cluster.worker_of(job_id)
    os.kill(first.pid, signal.SIGKILL)
    cluster.wait_end(job_id)
    assert_complete(cluster, job_id, 150)
    record = cluster.read(job_id)
    assert (record.attempt, record.losses) == (2, 1)
    resumed = [event for event in cluster.events(job_id) if event.type == "resumed"]
    assert len(resumed) == 1
    assert resumed[0].data["step"] >= 50


def test_a_killed_node_takes_its_processes_with_it_and_loses_nothing(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.start_workers(1)
    job_id = cluster.submit("steps", **STEPS)
    cluster.wait_steps(job_id, 20)
    worker = cluster.worker_of(job_id)
    cluster.nodes[0].kill()
    cluster.wait_for(lambda: not alive(worker.pid))  # it gave its job back first
    cluster.start_node()
    cluster.wait_end(job_id)
    assert_complete(cluster, job_id, 150)
    assert cluster.read(job_id).losses == 0


def test_a_stopped_node_hands_its_job_over(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.start_workers(1)
    job_id = cluster.submit("steps", steps=150, seconds=0.02, checkpoint_every=10**6)
    cluster.wait_steps(job_id, 50)
    worker = cluster.worker_of(job_id)
    assert cluster.nodes[0].stop() < 10
    assert not alive(worker.pid)
    assert cluster.read(job_id).entries[-1].step is Step.RELEASED
    cluster.start_node()
    cluster.wait_end(job_id)
    assert_complete(cluster, job_id, 150)


def test_a_poisonous_job_does_not_stop_the_queue(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.start_workers(1)
    before = cluster.submit("collapse_threshold", classes=5)
    poison = cluster.submit("die")
    after = cluster.submit("collapse_threshold", classes=6)
    good, bad, better = cluster.wait_end(before, poison, after)
    assert good.state is better.state is State.SUCCEEDED
    assert bad.state is State.FAILED
    assert bad.reason is not None
    assert bad.reason.code is ReasonCode.WORKER_LOST
    assert bad.attempt == bad.losses + 1 == 3


def test_a_long_job_runs_once_however_often_it_is_delivered(make_cluster: MakeCluster) -> None:
    """Another worker is idle, and longer than any lease there is a message for it now and then."""
    cluster = make_cluster()
    cluster.start_workers(2)
    job_id = cluster.submit("steps", steps=400, seconds=0.02, checkpoint_every=100)
    for steps in range(1, 400, 50):
        cluster.wait_steps(job_id, steps)
        cluster.queue.ring(job_id)
    cluster.wait_end(job_id)
    cluster.wait_for(lambda: cluster.queue.length() == 0)
    assert_complete(cluster, job_id, 400)
    assert [entry.step for entry in cluster.read(job_id).entries] == [
        Step.SUBMITTED,
        Step.STARTED,
        Step.SUCCEEDED,
    ]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
