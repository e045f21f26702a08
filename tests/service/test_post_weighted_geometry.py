"""POST /optimal-geometry with weights: reference losses and matrices, and what does not go together."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from jobs.computations.weighted_geometry import WeightedGeometryAnswer

DATA = Path(__file__).parents[1] / "data"
SUPCON: list[dict[str, Any]] = json.loads((DATA / "supcon_geometry.json").read_text("utf-8"))
CASES: list[dict[str, Any]] = [
    case for case in json.loads((DATA / "realizability.json").read_text("utf-8")) if "best_loss" in case
]
NAMED = [case for case in CASES if "named" in case]
SETTINGS = ("metric", "temperature", "self_pairs", "dimension")
LOSS_TOLERANCE = 1e-6
"""The reference losses were printed to so many digits."""
JSON = {"Content-Type": "application/json"}
PATH = "/optimal-geometry"


def names(cases: list[dict[str, Any]]) -> list[str]:
    return [case["name"] for case in cases]


def post(client: TestClient, **body: Any) -> Any:
    response = client.post(PATH, json=body)
    assert response.status_code == 200, response.text
    WeightedGeometryAnswer.model_validate_json(response.content)
    return response.json()


def loss_of(Z: np.ndarray[Any, Any], W: np.ndarray[Any, Any], body: dict[str, Any]) -> float:
    """Weighted InfoNCE of an embedding, written out."""
    S = Z @ Z.T if body["metric"] == "cosine" else -((Z[:, None] - Z) ** 2).sum(axis=2)
    S = S / body["temperature"]
    if body["self_pairs"] == "excluded":
        W, S = W.copy(), S.copy()
        np.fill_diagonal(W, 0.0)
        np.fill_diagonal(S, -np.inf)
    P = W / W.sum(axis=1, keepdims=True)
    logQ = S - np.logaddexp.reduce(S, axis=1)[:, None]
    return float(-(P * np.where(P > 0, logQ, 0.0)).sum(axis=1).mean())


class TestBestGeometry:
    @pytest.mark.parametrize("case", CASES, ids=names(CASES))
    def test_reference_loss(self, client: TestClient, case: dict[str, Any]) -> None:
        settings = {name: case[name] for name in SETTINGS}
        answer = post(client, weights=case["weights"], **settings)
        assert answer["loss"] == answer["risk"] == pytest.approx(case["best_loss"], abs=LOSS_TOLERANCE)
        assert answer["entropy_bound"] == pytest.approx(case["entropy_bound"], abs=1e-8)
        assert answer["entropy_gap"] == pytest.approx(answer["loss"] - answer["entropy_bound"], abs=1e-9)
        assert answer["level"] == "item"
        certificate = answer["certificate"]
        assert certificate["lower_bound"] <= case["best_loss"] + LOSS_TOLERANCE
        if case["dimension"] is None:
            assert certificate["certified"]
        Z = np.array(answer["class_means"])
        assert loss_of(Z, np.array(case["weights"]), settings) == pytest.approx(answer["loss"], abs=1e-8)

    @pytest.mark.parametrize("case", NAMED, ids=names(NAMED))
    def test_named(self, client: TestClient, case: dict[str, Any]) -> None:
        """Over classes one row stands for a class, and the loss is still that of the items."""
        settings = {name: case[name] for name in SETTINGS}
        answer = post(client, weights=case["named"], **settings)
        assert answer["loss"] == pytest.approx(case["best_loss"], abs=LOSS_TOLERANCE)
        assert answer["anchors"] == len(case["weights"])
        if "class_counts" in case["named"]:
            assert answer["level"] == "class"
            assert len(answer["gram"]) == len(case["named"]["class_counts"])
        else:
            assert answer["level"] == "item"

    @pytest.mark.parametrize("case", SUPCON)
    def test_supcon(self, client: TestClient, case: dict[str, Any]) -> None:
        """A gap of ε in the loss leaves about √ε in the Gram matrix: ask for a small one."""
        settings = {name: case[name] for name in ("temperature", "self_pairs")}
        weights = {"name": "supcon", "class_counts": case["class_counts"]}
        answer = post(client, weights=weights, tolerance=1e-11, **settings)
        np.testing.assert_allclose(answer["gram"], case["gram"], atol=1e-5)
        assert answer["loss"] == pytest.approx(case["loss"], rel=1e-8)
        assert answer["certificate"]["relative_gap"] <= 1e-11
        balanced = len(set(case["class_counts"])) == 1
        assert answer["collapse"]["geometry"] == ("simplex_etf" if balanced else "imbalanced")

    def test_euclidean_answer_has_distances(self, client: TestClient) -> None:
        weights = [[1.0, 0.5, 0.1], [0.5, 1.0, 0.5], [0.1, 0.5, 1.0]]
        answer = post(client, weights=weights, metric="euclidean", temperature=1.0)
        Z = np.array(answer["class_means"])
        D = ((Z[:, None] - Z) ** 2).sum(axis=2)
        np.testing.assert_allclose(answer["squared_distances"], D, atol=1e-12)
        assert answer["collapse"] is None

    def test_logarithms_are_the_same_weights(self, client: TestClient) -> None:
        weights = [[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]]
        logs = [[math.log(w) if w else None for w in row] for row in weights]
        by_weights, by_logs = post(client, weights=weights), post(client, log_weights=logs)
        assert by_logs["loss"] == pytest.approx(by_weights["loss"], rel=1e-12)

    def test_dimension_is_padded(self, client: TestClient) -> None:
        answer = post(client, weights={"name": "supcon", "class_counts": [3, 2]}, dimension=4)
        assert answer["dimension"] == 4
        assert np.array(answer["class_means"]).shape == (2, 4)
        assert answer["rank"] == 1

    def test_sources_that_are_null_are_not_given(self, client: TestClient) -> None:
        weights = {"name": "supcon", "class_counts": [3, 2]}
        given = post(client, weights=weights, log_weights=None, class_counts=None, class_proportions=None)
        assert given["gram"] == post(client, weights=weights)["gram"]
        body = {"class_counts": [3, 2], "weights": None, "log_weights": None}
        assert (
            client.post(PATH, json=body).json()["gram"]
            == client.post(PATH, json={"class_counts": [3, 2]}).json()["gram"]
        )

    def test_skipped_anchors_are_said(self, client: TestClient) -> None:
        weights = {"name": "supcon", "class_counts": [3, 2, 1]}
        answer = post(client, weights=weights, self_pairs="excluded")
        assert (answer["anchors"], answer["anchors_used"]) == (6, 5)
        assert any("left out" in warning for warning in answer["warnings"])

    def test_archive(self, client: TestClient) -> None:
        body = {"weights": {"name": "supcon", "class_counts": [60, 20, 20]}, "temperature": 0.5}
        response = client.post(PATH, json=body, headers={"Accept": "application/x-npz"})
        arrays = np.load(io.BytesIO(response.content), allow_pickle=False)
        np.testing.assert_allclose(arrays["gram"], post(client, **body)["gram"], atol=1e-9)
        assert json.loads(arrays["metadata"].tobytes())["level"] == "class"


SOUND = {"weights": [[1, 0.5], [0.5, 1]]}
BAD: dict[str, tuple[str, str]] = {
    "sampling": (json.dumps(SOUND | {"sampling": "supervised"}), "/sampling"),
    "loss": (json.dumps(SOUND | {"loss": {"name": "infonce"}}), "/loss"),
    "nonnegative": (json.dumps(SOUND | {"nonnegative": False}), "/nonnegative"),
    "solver": (json.dumps(SOUND | {"solver": "auto"}), "/solver"),
    "class counts": (json.dumps(SOUND | {"class_counts": [1, 2]}), "/class_counts"),
    "class proportions": (json.dumps(SOUND | {"class_proportions": [0.5, 0.5]}), "/class_proportions"),
    "both weights": (json.dumps(SOUND | {"log_weights": [[0]]}), "/log_weights"),
    "metric of class counts": ('{"class_counts": [2, 1], "metric": "cosine"}', "/metric"),
    "ragged": ('{"weights": [[1, 1], [1]]}', "/weights/1"),
    "negative": ('{"weights": [[1, -1], [1, 1]]}', "/weights/0/1"),
    "NaN": ('{"weights": [[1, NaN], [1, 1]]}', "/weights/0/1"),
    "strings": ('{"weights": [["1", 1], [1, 1]]}', "/weights/0/0"),
    "all zero": ('{"weights": [[0, 0], [0, 0]]}', "/weights"),
    "no logarithm": ('{"log_weights": [[null, null], [null, null]]}', "/log_weights"),
    "one item": ('{"weights": [[1]], "self_pairs": "excluded"}', "/weights"),
    "tolerance zero": (json.dumps(SOUND | {"tolerance": 0}), "/tolerance"),
    "dimension zero": (json.dumps(SOUND | {"dimension": 0}), "/dimension"),
    "unknown": (json.dumps(SOUND | {"epsilon": 0.1}), "/epsilon"),
}


class TestBadInput:
    @pytest.mark.parametrize(("body", "pointer"), BAD.values(), ids=BAD.keys())
    def test_invalid(self, client: TestClient, body: str, pointer: str) -> None:
        response = client.post(PATH, content=body, headers=JSON)
        document = response.json()
        assert (response.status_code, document["code"]) == (422, "invalid_input"), response.text
        assert pointer in [error["pointer"] for error in document["errors"]]

    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            ({"weights": [[]] * 3001}, "/weights"),
            (SOUND | {"dimension": 3001}, "/dimension"),
            (
                {
                    "weights": {"name": "soft_supcon", "class_counts": [3000, 1], "epsilon": 0.1},
                    "metric": "euclidean",
                    "self_pairs": "excluded",
                },
                "/weights",
            ),
        ],
    )
    def test_too_large(self, client: TestClient, body: Any, pointer: str) -> None:
        response = client.post(PATH, json=body)
        assert (response.status_code, response.json()["code"]) == (422, "too_large"), response.text
        assert response.json()["errors"][0]["pointer"] == pointer
