from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from anglewise import InfoNCE
from anglewise.maps import Axis, collapse_map
from anglewise.thresholds import collapse_threshold
from jobs.computations.collapse_map import CollapseMapAnswer
from jobs.computations.collapse_threshold import CollapseThresholdAnswer


class TestThreshold:
    def post(self, client: TestClient, **body: Any) -> Any:
        response = client.post("/collapse-threshold", json=body)
        assert response.status_code == 200, response.text
        CollapseThresholdAnswer.model_validate_json(response.content)
        return response.json()

    @pytest.mark.parametrize(
        ("negatives", "reduction", "threshold"),
        [(1, "sum", 0.80749), (256, "sum", 0.92261), (2, "mean", 0.85747), ("infinite", "mean", 0.90020)],
    )
    def test_published_values(
        self, client: TestClient, negatives: Any, reduction: str, threshold: float
    ) -> None:
        loss = {"temperature": 1.0, "negatives": negatives, "reduction": reduction}
        answer = self.post(client, classes=10, sampling="unsupervised", loss=loss)
        assert answer["exact_threshold"] == pytest.approx(threshold, abs=6e-6)
        assert answer["sufficient_threshold"] == pytest.approx(0.92921, abs=1e-5)
        assert answer["imbalance_ratio"] == pytest.approx(9 * threshold / (1 - threshold), rel=1e-3)

    def test_echoes_the_loss_with_its_defaults(self, client: TestClient) -> None:
        answer = self.post(client, classes=10, loss={"negatives": "infinite"})
        assert answer["loss"] == {
            "name": "infonce",
            "negatives": "infinite",
            "reduction": "mean",
            "hardness": 0.0,
            "temperature": 0.1,
            "alpha": 1.0,
            "beta": 1.0,
        }
        assert (answer["classes"], answer["sampling"]) == (10, "supervised")
        assert self.post(client, classes=10, loss=answer["loss"]) == answer

    def test_full_precision_at_low_temperature(self, client: TestClient) -> None:
        answer = self.post(client, classes=5, loss={"temperature": 0.01})
        expected = collapse_threshold(5, "supervised", InfoNCE(temperature=0.01))
        assert answer["exact_threshold"] == 1.0
        assert answer["one_minus_threshold"] == pytest.approx(expected.one_minus_threshold, rel=1e-9)
        assert 0 < answer["one_minus_threshold"] < 1e-20

    def test_null_has_a_reason(self, client: TestClient) -> None:
        answer = self.post(client, classes=3, loss={"name": "triplet", "margin": -5.0})
        assert answer["exact_threshold"] is None
        assert answer["reason"]


class TestMap:
    def post(self, client: TestClient, **body: Any) -> Any:
        response = client.post("/collapse-map", json=body)
        assert response.status_code == 200, response.text
        CollapseMapAnswer.model_validate_json(response.content)
        return response.json()

    def test_is_that_of_the_core(self, client: TestClient) -> None:
        x = {"name": "temperature", "values": [0.5, 1.0, 2.0]}
        y = {"name": "negatives", "values": [1, "infinite"]}
        loss = {"reduction": "mean"}
        answer = self.post(client, classes=4, x=x, y=y, loss=loss, quantity="exact_threshold")
        core = collapse_map(
            Axis("temperature", (0.5, 1.0, 2.0)),
            Axis("negatives", (1, float("inf"))),
            "exact_threshold",
            classes=4,
            sampling="supervised",
            loss=InfoNCE(reduction="mean"),
        )
        assert (answer["x"], answer["y"]) == (x, y)
        assert len(answer["values"]) == 2
        for row, expected in zip(answer["values"], core.values, strict=True):
            assert row == pytest.approx(expected, rel=1e-9)

    def test_undefined_cells_are_null_with_a_reason(self, client: TestClient) -> None:
        x = {"name": "majority_proportion", "values": [0.1, 0.9]}
        y = {"name": "alpha", "values": [1.0]}
        answer = self.post(client, classes=3, x=x, y=y, quantity="smallest_angle_degrees")
        (below, above), (why, nothing) = answer["values"][0], answer["reasons"][0]
        assert below is None
        assert "not a majority" in why
        assert 0 <= above <= 180
        assert nothing is None
