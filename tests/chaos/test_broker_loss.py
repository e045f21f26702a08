"""Redis goes away and comes back, with or without its memory."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from cluster import Cluster

from jobs.broker import BrokerUnavailable
from jobs.states import State

MakeCluster = Callable[..., Cluster]
AWAY_SECONDS = 4.0
"""Longer than a lease, a heartbeat and a round of the keeper."""


@pytest.mark.parametrize("wiped", [False, True])
def test_nothing_is_lost_while_redis_is_away(wiped: bool, make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.start_workers(1)
    running = cluster.submit("steps", steps=400, seconds=0.02)
    cluster.wait_steps(running, 10)
    waiting = cluster.submit("collapse_threshold", classes=4)
    cluster.kill_valkey()
    unrung = cluster.submit("collapse_threshold", classes=5)
    with pytest.raises(BrokerUnavailable):
        cluster.queue.ring(unrung)
    time.sleep(AWAY_SECONDS)
    cluster.restart_valkey(wiped)
    for record in cluster.wait_end(running, waiting, unrung):
        assert record.state is State.SUCCEEDED
        assert record.attempt == 1  # nobody mistook the silence for a death
        cluster.check_ended_once(record.id)


def test_workers_hear_of_jobs_after_the_broker_flapped(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.start_workers(1)
    for _ in range(3):
        cluster.kill_valkey()
        cluster.restart_valkey()
        time.sleep(0.5)
    job_id = cluster.submit("collapse_threshold", classes=4)
    (record,) = cluster.wait_end(job_id, seconds=30)
    assert record.state is State.SUCCEEDED


def test_a_running_job_is_cancelled_without_redis(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.start_workers(1)
    job_id = cluster.submit("steps", steps=10**6, seconds=0.02)
    cluster.wait_steps(job_id, 10)
    cluster.kill_valkey()
    cluster.journal.request_cancel(job_id)
    (record,) = cluster.wait_end(job_id, seconds=30)
    assert record.state is State.CANCELLED
    cluster.restart_valkey()


def test_workers_stop_while_redis_is_away(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    cluster.start_workers(1)
    job_id = cluster.submit("steps", steps=10**6, seconds=0.02)
    cluster.wait_steps(job_id, 10)
    cluster.kill_valkey()
    assert cluster.nodes[0].stop() < 11
    assert cluster.read(job_id).state is State.QUEUED
    idle = cluster.start_node()
    time.sleep(3)
    assert idle.stop() < 11
    cluster.restart_valkey()
