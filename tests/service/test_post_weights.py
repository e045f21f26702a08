"""POST /weights: the target is what the weights lead to."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from jobs.computations.weights import WeightsAnswer

GRAM = [[1.0, 0.8, -0.3], [0.8, 1.0, -0.3], [-0.3, -0.3, 1.0]]
PATH = "/weights"
JSON = {"Content-Type": "application/json"}


def post(client: TestClient, **body: Any) -> Any:
    response = client.post(PATH, json=body)
    assert response.status_code == 200, response.text
    WeightsAnswer.model_validate_json(response.content)
    return response.json()


class TestTargets:
    @pytest.mark.parametrize("self_pairs", ["included", "excluded"])
    def test_gram(self, client: TestClient, self_pairs: str) -> None:
        answer = post(client, target={"gram": GRAM}, temperature=0.2, self_pairs=self_pairs)
        expected = (np.array(GRAM) - 1) / 0.2
        np.testing.assert_allclose(answer["log_weights"], expected, atol=1e-12)
        np.testing.assert_allclose(answer["weights"], np.exp(expected), rtol=1e-12)
        assert answer["proof"]["attained"]
        assert (answer["level"], answer["named"], answer["epsilon"]) == ("item", None, None)

    def test_weights_lead_back_to_the_target(self, client: TestClient) -> None:
        weights = post(client, target={"gram": GRAM}, temperature=0.2)["weights"]
        verdict = client.post("/realizability", json={"weights": weights, "temperature": 0.2}).json()
        assert verdict["verdict"] == "realizable"
        np.testing.assert_allclose(verdict["gram"], GRAM, atol=1e-9)
        best = client.post("/optimal-geometry", json={"weights": weights, "temperature": 0.2}).json()
        np.testing.assert_allclose(best["gram"], GRAM, atol=1e-4)
        assert best["entropy_gap"] < 1e-8

    def test_squared_distances(self, client: TestClient) -> None:
        y = np.array([0.0, 1.0, 3.0])
        D = (y[:, None] - y) ** 2
        answer = post(client, target={"squared_distances": D.tolist()}, metric="euclidean", temperature=0.5)
        np.testing.assert_allclose(answer["log_weights"], -D / 0.5, atol=1e-12)
        assert answer["proof"]["verdict"] == "realizable"
        assert answer["proof"]["required_dimension"] == 1

    def test_simplex(self, client: TestClient) -> None:
        """[P2]: ε = exp(-C / ((C - 1) T))."""
        counts = [60, 20, 20]
        answer = post(client, target={"simplex": {"class_counts": counts}}, temperature=0.5)
        epsilon = math.exp(-3 / (2 * 0.5))
        assert answer["epsilon"] == pytest.approx(epsilon, rel=1e-12)
        assert answer["largest_temperature"] == pytest.approx(0.5, rel=1e-9)
        proof = answer["proof"]
        assert (proof["verdict"], proof["level"]) == ("realizable", "class")
        np.testing.assert_allclose(np.array(proof["gram"])[0, 1], -0.5, atol=1e-9)
        named = client.post("/optimal-geometry", json={"weights": answer["named"], "temperature": 0.5})
        assert named.json()["collapse"]["geometry"] == "simplex_etf"
        assert proof["entropy_bound"] == pytest.approx(named.json()["entropy_bound"], rel=1e-12)

    def test_simplex_with_self_pairs_excluded_is_proven_on_items(self, client: TestClient) -> None:
        body = {"target": {"simplex": {"class_counts": [3, 2]}}, "temperature": 0.5}
        answer = post(client, **body, self_pairs="excluded")
        assert (answer["level"], answer["proof"]["level"]) == ("class", "item")
        assert answer["proof"]["attained"]

    def test_weights_that_underflow(self, client: TestClient) -> None:
        """Null would be a riddle without a reason."""
        answer = post(client, target={"simplex": {"class_counts": [2, 2]}}, temperature=1e-3)
        assert (answer["weights"], answer["epsilon"], answer["named"]) == (None, None, None)
        assert answer["log_epsilon"] == -2000
        assert "below the range" in answer["warnings"][0]

    def test_archive(self, client: TestClient) -> None:
        body = {"target": {"gram": GRAM}}
        response = client.post(PATH, json=body, headers={"Accept": "application/x-npz"})
        arrays = np.load(io.BytesIO(response.content), allow_pickle=False)
        np.testing.assert_array_equal(arrays["log_weights"], post(client, **body)["log_weights"])


def target(**fields: Any) -> str:
    return json.dumps({"target": fields})


BAD: dict[str, tuple[str, str]] = {
    "no target": ("{}", "/target"),
    "empty target": (target(), "/target"),
    "null": ('{"target": null}', "/target"),
    "two targets": (target(gram=[[1]], squared_distances=[[0]]), "/target/squared_distances"),
    "unknown target": (target(angles=[[0]]), "/target/angles"),
    "not unit": (target(gram=[[2, 0], [0, 1]]), "/target/gram/0/0"),
    "not semidefinite": (target(gram=[[1, 1.5], [1.5, 1]]), "/target/gram"),
    "not symmetric": (target(gram=[[1, 0.5], [0.4, 1]]), "/target/gram/0/1"),
    "ragged": (target(gram=[[1, 0], [0]]), "/target/gram/1"),
    "not square": (target(gram=[[1, 0]]), "/target/gram/0"),
    "empty": (target(gram=[]), "/target/gram"),
    "NaN": ('{"target": {"gram": [[NaN]]}}', "/target/gram/0/0"),
    "string": (target(gram=[["1"]]), "/target/gram/0/0"),
    "null inside": (target(gram=[[None]]), "/target/gram/0/0"),
    "negative distance": (target(squared_distances=[[0, -1], [-1, 0]]), "/target/squared_distances/0/1"),
    "distance from itself": (
        json.dumps({"target": {"squared_distances": [[1, 2], [2, 0]]}, "metric": "euclidean"}),
        "/target/squared_distances/0/0",
    ),
    "not distances": (
        json.dumps(
            {"target": {"squared_distances": [[0, 1, 9], [1, 0, 1], [9, 1, 0]]}, "metric": "euclidean"}
        ),
        "/target/squared_distances",
    ),
    "simplex of one": (target(simplex={"class_counts": [5]}), "/target/simplex/class_counts"),
    "simplex with a zero": (target(simplex={"class_counts": [5, 0]}), "/target/simplex/class_counts/1"),
    "simplex without counts": (target(simplex={}), "/target/simplex/class_counts"),
    "temperature": (json.dumps({"target": {"gram": [[1]]}, "temperature": -1}), "/temperature"),
}


class TestBadInput:
    @pytest.mark.parametrize(("body", "pointer"), BAD.values(), ids=BAD.keys())
    def test_invalid(self, client: TestClient, body: str, pointer: str) -> None:
        response = client.post(PATH, content=body, headers=JSON)
        document = response.json()
        assert (response.status_code, document["code"]) == (422, "invalid_input"), response.text
        assert pointer in [error["pointer"] for error in document["errors"]]

    @pytest.mark.parametrize(
        ("fields", "pointer"),
        [
            ({"target": {"gram": [[]] * 3001}}, "/target/gram"),
            ({"target": {"simplex": {"class_counts": [1] * 3001}}}, "/target/simplex/class_counts"),
            (
                {"target": {"simplex": {"class_counts": [3000, 1]}}, "self_pairs": "excluded"},
                "/target/simplex/class_counts",
            ),
        ],
    )
    def test_too_large(self, client: TestClient, fields: Any, pointer: str) -> None:
        response = client.post(PATH, json=fields)
        assert (response.status_code, response.json()["code"]) == (422, "too_large"), response.text
        assert response.json()["errors"][0]["pointer"] == pointer
