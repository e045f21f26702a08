"""A training whose worker is killed ends with the numbers of one that was left alone."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from cluster import Cluster

from jobs import paths
from jobs.states import ReasonCode, State

pytest.importorskip("torch")

SPEC: dict[str, Any] = {
    "data": {"class_counts": [40, 20, 10, 5]},
    "encoder": {"name": "free"},
    "dimension": 4,
    "objective": "sampled",
    "optimizer": {"name": "sgd", "lr": 0.05},
    "steps": 700,
    "batch_size": 64,
    "evaluate_every": 50,
    "checkpoint_every": 50,
    "seed": 3,
}


def test_the_numbers_are_those_of_an_undisturbed_run(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    cluster.start_workers(2)
    alone = cluster.submit("training", **SPEC)
    (calm,) = cluster.wait_end(alone)
    assert calm.state is State.SUCCEEDED, calm.reason
    disturbed = cluster.submit("training", **SPEC)
    cluster.wait_steps(disturbed, 200)
    os.kill(cluster.worker_of(disturbed).pid, signal.SIGKILL)
    (record,) = cluster.wait_end(disturbed)
    assert record.state is State.SUCCEEDED, record.reason
    assert (record.attempt, record.losses) == (2, 1)
    assert any(event.type == "resumed" for event in cluster.events(disturbed))
    assert cluster.series(disturbed) == cluster.series(alone)
    assert embeddings(cluster, disturbed) == embeddings(cluster, alone)
    first, second = cluster.result(alone), cluster.result(disturbed)
    assert second["metrics"] == first["metrics"]
    cluster.check_ended_once(disturbed)


def test_a_training_is_cancelled_in_the_middle(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    cluster.start_workers(1)
    job_id = cluster.submit("training", **(SPEC | {"steps": 1_000_000, "evaluate_every": 1000}))
    cluster.wait_steps(job_id, 50)
    cluster.journal.request_cancel(job_id)
    (record,) = cluster.wait_end(job_id, seconds=10)
    assert record.state is State.CANCELLED


def test_a_spec_that_cannot_be_used_fails_with_its_field(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    cluster.start_workers(1)
    (record,) = cluster.wait_end(cluster.submit("training", **(SPEC | {"steps": -1})))
    assert record.reason is not None
    assert record.reason.code is ReasonCode.INVALID_DATA
    assert "/steps" in record.reason.message


def embeddings(cluster: Cluster, job_id: str) -> bytes:
    record = cluster.read(job_id)
    return cluster.journal.store.get(paths.artifact(job_id, record.attempt, "embeddings.npy"))
