"""Trainings that would need more memory than there is are refused when they are submitted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from job_application import application, code, submit
from starlette.testclient import TestClient

DIGITS = {"builtin": "digits"}
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
            {"data": DIGITS, "encoder": MLP, "batch_size": 65_536, "loss": {"negatives": 2000}},
            "loss/negatives",
        ),
        (
            {
                "data": DIGITS,
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
    ],
)
def test_beyond_a_bound(jobs: TestClient, spec: dict[str, Any], field: str) -> None:
    response = jobs.post("/jobs", json={"kind": "training", "spec": {"data": DIGITS, **spec}})
    assert response.status_code == 422
    assert [error["pointer"] for error in response.json()["errors"]] == [f"/spec/{field}"]


def test_large_batches_of_weighted_losses_are_taken(jobs: TestClient) -> None:
    """Their memory does not grow with the square of the batch."""
    spec = {"data": DIGITS, "encoder": MLP, "batch_size": 65_536, "loss": Y_AWARE}
    job = submit(jobs, {"kind": "training", "spec": spec})
    assert jobs.post(f"/jobs/{job}/cancel").status_code in (200, 202)
