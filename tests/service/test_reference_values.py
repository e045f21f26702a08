"""The reference values of the class-level problems, through the HTTP API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

DATA = Path(__file__).parent.parent / "data"
RISK, GRAM, THRESHOLD = 1e-9, 1e-5, 1e-7
"""Relative error of a risk, absolute errors of a Gram entry and of a threshold."""
PUBLISHED_DIGITS = 1e-10
"""The risks on real counts are given to this absolute precision."""


def load(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def loss_of(case: dict[str, Any]) -> dict[str, Any]:
    fields = ("negatives", "temperature", "alpha", "reduction")
    return {"name": "infonce"} | {field: case[field] for field in fields if field in case}


def post(client: TestClient, path: str, body: dict[str, Any]) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("case", load("cl_geometry.json"), ids=lambda case: case["name"])
def test_class_geometry(client: TestClient, case: dict[str, Any]) -> None:
    body = {
        "class_proportions": case["class_proportions"],
        "sampling": case["sampling"],
        "loss": loss_of(case),
    }
    answer = post(client, "/optimal-geometry", body)
    assert answer["certificate"]["certified"]
    # The reference is itself within its certified gap of the optimum, above it.
    assert answer["risk"] == pytest.approx(case["risk"], rel=RISK, abs=case["certified_gap"])
    np.testing.assert_allclose(answer["gram"], case["gram"], rtol=0, atol=GRAM)
    means = np.array(answer["class_means"])
    np.testing.assert_allclose(means @ means.T, answer["gram"], rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "case", load("real_counts_risk.json"), ids=lambda case: f"{case['counts']}-{case['sampling']}"
)
def test_risk_on_real_counts(client: TestClient, case: dict[str, Any]) -> None:
    counts = load("real_class_counts.json")[case["counts"]]
    body = {"class_counts": counts, "sampling": case["sampling"], "loss": loss_of(case)}
    answer = post(client, "/optimal-geometry", body)
    assert answer["certificate"]["certified"]
    assert answer["risk"] == pytest.approx(case["risk"], rel=RISK, abs=PUBLISHED_DIGITS)


@pytest.mark.parametrize("case", load("minority_collapse.json"))
def test_collapse_threshold(client: TestClient, case: dict[str, Any]) -> None:
    body = {"classes": case["classes"], "sampling": case["sampling"], "loss": loss_of(case)}
    answer = post(client, "/collapse-threshold", body)
    assert answer["exact_threshold"] == pytest.approx(case["exact_threshold"], rel=0, abs=THRESHOLD)
    assert answer["one_minus_threshold"] == pytest.approx(1 - case["exact_threshold"], rel=0, abs=THRESHOLD)
