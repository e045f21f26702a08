"""Trainings that would need more memory than there is are refused when they are submitted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from job_application import application, code, submit
from starlette.testclient import TestClient

DIGITS = {"builtin": "digits"}
MNIST = {"builtin": "mnist5k"}
STORED = {"dataset": "ds_01KBCJ6ZT0000000000000000Z"}
MLP = {"name": "mlp"}
Y_AWARE = {"name": "y_aware", "sigma": 1.0}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with application(tmp_path_factory.mktemp("data")) as client:
        yield client


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (
            {"data": STORED, "encoder": MLP, "batch_size": 65_536, "loss": {"negatives": 2000}},
            "loss/negatives",
        ),
        (
            {
                "data": STORED,
                "encoder": MLP,
                "batch_size": 65_536,
                "loss": {"negatives": "infinite", "reduction": "mean"},
            },
            "loss/negatives",
        ),
        ({"data": {"class_counts": [30_000, 1]}, "loss": Y_AWARE}, "data/class_counts"),
        ({"data": {"class_counts": [1] * 6000}}, "data/class_counts"),
        ({"data": {"class_counts": [1_000_000, 1_000_000]}, "dimension": 8192}, "dimension"),
        ({"data": {"generator": {"samples_per_class": 1_000_000}}, "encoder": MLP}, "data/generator"),
        ({"data": DIGITS, "encoder": {"name": "mlp", "hidden": [65_536] * 8}}, "encoder"),
        ({"data": STORED, "encoder": {"name": "mlp", "hidden": [65_536] * 2}}, "encoder"),
        ({"data": DIGITS, "encoder": {"name": "cnn", "channels": [65_536, 65_536]}}, "encoder"),
        ({"data": DIGITS, "encoder": {"name": "resnet50", "width": 512}}, "encoder"),
        ({"data": MNIST, "encoder": {"name": "resnet50", "width": 128}, "batch_size": 4096}, "batch_size"),
    ],
)
def test_too_large(jobs: TestClient, spec: dict[str, Any], field: str) -> None:
    response = jobs.post("/jobs", json={"kind": "training", "spec": spec})
    assert code(response) == (422, "too_large")
    assert response.json()["errors"][0]["pointer"] == f"/spec/{field}"
    assert jobs.get("/jobs").json()["items"] == []


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"batch_size": 65_537}, "batch_size"),
        ({"dimension": 8193}, "dimension"),
        ({"encoder": {"name": "mlp", "hidden": [65_537]}}, "encoder/hidden/0"),
        ({"loss": {"name": "supcon", "temperature": 9e-4}}, "loss/temperature"),
        ({"loss": {"name": "infonce", "temperature": 9e-4}}, "loss/temperature"),
        ({"loss": {"name": "exponential", "temperature": 2e-3}}, "loss/temperature"),
        ({"encoder": MLP, "epochs": 100_000, "evaluate_every": 1}, "evaluate_every"),
        ({"encoder": MLP, "data": {**DIGITS, "class_counts": [1] * 10}, "processes": 11}, "processes"),
        ({"encoder": MLP, "chunk_size": 1}, "chunk_size"),
        ({"encoder": MLP, "loss": {"name": "exponential", "temperature": 0.02}}, "loss/temperature"),
    ],
)
def test_beyond_a_bound(jobs: TestClient, spec: dict[str, Any], field: str) -> None:
    response = jobs.post("/jobs", json={"kind": "training", "spec": {"data": DIGITS, **spec}})
    assert response.status_code == 422
    assert [error["pointer"] for error in response.json()["errors"]] == [f"/spec/{field}"]


@pytest.mark.parametrize(
    "fields",
    [
        {"encoder": {"name": "resnet50"}},
        {"encoder": {"name": "resnet50", "width": 128}, "batch_size": 4096, "chunk_size": 256},
        {"encoder": MLP, "loss": {"name": "exponential", "temperature": 0.03}},
        {"encoder": MLP, "batch_size": 65_536, "loss": {"negatives": "infinite", "reduction": "mean"}},
        {"encoder": MLP, "loss": {"name": "exponential", "temperature": 3e-3}, "precision": "float64"},
    ],
)
def test_within_the_bounds(jobs: TestClient, fields: dict[str, Any]) -> None:
    job = submit(jobs, {"kind": "training", "spec": {"data": MNIST, **fields}})
    assert jobs.post(f"/jobs/{job}/cancel").status_code in (200, 202)


def test_large_batches_of_weighted_losses_are_taken(jobs: TestClient) -> None:
    """Their memory does not grow with the square of the batch."""
    spec = {"data": DIGITS, "encoder": MLP, "batch_size": 65_536, "loss": Y_AWARE}
    job = submit(jobs, {"kind": "training", "spec": spec})
    assert jobs.post(f"/jobs/{job}/cancel").status_code in (200, 202)
