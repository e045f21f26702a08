from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from anglewise import InfoNCE, Logistic, Triplet, optimal_geometry
from anglewise.losses import Loss
from jobs.computations.geometry_answer import GeometryAnswer

COUNTS = [900, 300, 100, 100, 30]
ARCHIVE = {"Accept": "application/x-npz"}
INEXACT = 1e-9
"""Other BLAS builds and thread counts round differently."""

LOSSES: list[tuple[dict[str, Any], Loss]] = [
    ({"name": "infonce", "negatives": 16, "temperature": 0.5}, InfoNCE(negatives=16, temperature=0.5)),
    (
        {"name": "infonce", "negatives": "infinite", "temperature": 1.0, "alpha": 0.5},
        InfoNCE(negatives=float("inf"), temperature=1.0, alpha=0.5),
    ),
    ({"name": "logistic", "margin": 0.1, "reduction": "mean"}, Logistic(margin=0.1, reduction="mean")),
]


def post(client: TestClient, **body: Any) -> Any:
    response = client.post("/optimal-geometry", json=body)
    assert response.status_code == 200, response.text
    GeometryAnswer.model_validate_json(response.content)
    return response.json()


class TestAnswer:
    @pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
    @pytest.mark.parametrize(("body", "loss"), LOSSES)
    def test_is_that_of_the_core(self, client: TestClient, sampling: Any, body: Any, loss: Loss) -> None:
        answer = post(client, class_counts=COUNTS, sampling=sampling, loss=body)
        expected = optimal_geometry(COUNTS, sampling=sampling, loss=loss)
        np.testing.assert_allclose(answer["gram"], expected.gram, atol=INEXACT)
        assert answer["risk"] == pytest.approx(expected.risk, rel=1e-12)
        assert answer["certificate"]["certified"]
        assert answer["certificate"]["relative_gap"] <= 1e-8
        assert (answer["rank"], answer["dimension"]) == (expected.rank, expected.dimension)
        assert answer["collapse"]["geometry"] == expected.collapse.geometry
        assert set(answer["comparators"]) == set(expected.comparators)
        assert answer["groups"] is None

    def test_means_reproduce_the_gram_matrix(self, client: TestClient) -> None:
        answer = post(client, class_counts=COUNTS)
        means = np.array(answer["class_means"])
        assert means.shape == (5, answer["dimension"])
        np.testing.assert_allclose(means @ means.T, answer["gram"], atol=INEXACT)

    def test_defaults(self, client: TestClient) -> None:
        """Supervised InfoNCE with 256 negatives at temperature 0.1; a loss without a name is InfoNCE."""
        loss = {"name": "infonce", "negatives": 256, "temperature": 0.1, "alpha": 1.0, "beta": 1.0}
        explicit = {"loss": loss, "sampling": "supervised", "tolerance": 1e-8, "solver": "auto"}
        risks = {
            post(client, class_counts=COUNTS, **body)["risk"]
            for body in ({}, explicit, {"loss": {"alpha": 1}})
        }
        assert len(risks) == 1

    def test_equal_counts_give_the_simplex(self, client: TestClient) -> None:
        answer = post(client, class_counts=[7] * 6)
        np.testing.assert_allclose(answer["gram"], 1.2 * np.eye(6) - 0.2, atol=1e-6)
        assert answer["collapse"]["geometry"] == "simplex_etf"

    def test_proportions_are_counts_divided_by_their_sum(self, client: TestClient) -> None:
        counts = post(client, class_counts=[50, 30, 20])
        proportions = post(client, class_proportions=[0.5, 0.3, 0.2])
        np.testing.assert_allclose(counts["gram"], proportions["gram"], atol=1e-6)

    def test_minority_collapse(self, client: TestClient) -> None:
        """Theorem of [P1] at temperature 1: 0.98 is above the sufficient threshold 0.92921."""
        body = {"sampling": "unsupervised", "loss": {"negatives": 4, "temperature": 1.0}}
        answer = post(client, class_proportions=[0.98, 0.01, 0.01], **body)
        collapse = answer["collapse"]
        assert collapse["geometry"] == "minority_collapse"
        assert collapse["merged_classes"] == [[1, 2]]
        assert collapse["minority_collapse"]["collapsed"]
        assert collapse["minority_collapse"]["sufficient_threshold"] == pytest.approx(0.92921, abs=1e-5)

    def test_dimension_pads_with_zeros(self, client: TestClient) -> None:
        answer = post(client, class_counts=[5, 5, 5], dimension=4)
        means = np.array(answer["class_means"])
        assert means.shape == (3, 4)
        assert not means[:, 2:].any()

    def test_dimension_below_the_rank_is_not_certified(self, client: TestClient) -> None:
        answer = post(client, class_counts=[5, 5, 5, 5], dimension=2, loss={"temperature": 1.0})
        assert answer["dimension"] == 2
        assert not answer["certificate"]["certified"]
        assert answer["warnings"]

    def test_nonnegative_is_the_orthogonal_frame(self, client: TestClient) -> None:
        answer = post(client, class_counts=COUNTS, nonnegative=True)
        np.testing.assert_allclose(answer["gram"], np.eye(5), atol=1e-12)
        assert answer["collapse"]["geometry"] == "orthogonal_frame"

    def test_one_class_unsupervised_is_a_point(self, client: TestClient) -> None:
        answer = post(client, class_counts=[3], sampling="unsupervised")
        assert answer["gram"] == [[1.0]]
        assert answer["collapse"]["geometry"] == "point"
        assert answer["collapse"]["largest_cosine"] is None

    def test_loss_that_is_not_strictly_convex_says_so(self, client: TestClient) -> None:
        answer = post(client, class_counts=[5, 3, 2], loss={"name": "triplet"})
        assert answer["risk"] == pytest.approx(optimal_geometry([5, 3, 2], loss=Triplet()).risk, abs=1e-8)
        assert not answer["unique"]
        assert answer["warnings"]

    def test_cvxpy_agrees(self, client: TestClient) -> None:
        body = {"class_counts": [5, 3, 2], "loss": {"negatives": 4, "temperature": 0.5}}
        fast, reference = post(client, **body), post(client, **body, solver="cvxpy", tolerance=1e-5)
        assert reference["risk"] == pytest.approx(fast["risk"], rel=1e-5)
        assert reference["solver"]["method"] != fast["solver"]["method"]

    def test_cvxpy_with_too_many_terms_is_refused(self, client: TestClient) -> None:
        response = client.post("/optimal-geometry", json={"class_counts": COUNTS, "solver": "cvxpy"})
        assert (response.status_code, response.json()["code"]) == (422, "too_large")


class TestGroups:
    def test_on_request(self, client: TestClient) -> None:
        answer = post(client, class_counts=COUNTS, groups=True)
        groups, gram = answer["groups"], np.array(answer["gram"])
        assert groups["index"] == [0, 1, 2, 2, 3]
        assert groups["sizes"] == [1, 1, 2, 1]
        assert gram[2, 3] == pytest.approx(groups["gram"][2][2], abs=INEXACT)
        assert gram[0, 4] == pytest.approx(groups["gram"][0][3], abs=INEXACT)
        means, group_means = np.array(answer["class_means"]), np.array(groups["means"])
        width = group_means.shape[1]
        np.testing.assert_allclose(group_means[2], means[2:4, :width].mean(axis=0), atol=INEXACT)

    def test_instead_of_matrices_above_1000_classes(self, client: TestClient) -> None:
        answer = post(client, class_counts=[100] * 600 + [10] * 500)
        assert answer["gram"] is None
        assert answer["class_means"] is None
        assert answer["groups"]["sizes"] == [600, 500]
        assert len(answer["groups"]["index"]) == 1100
        assert np.shape(answer["groups"]["gram"]) == (2, 2)

    def test_matrices_at_1000_classes(self, client: TestClient) -> None:
        answer = post(client, class_counts=[5] * 1000)
        assert np.shape(answer["gram"]) == (1000, 1000)
        assert answer["groups"] is None


class TestArchive:
    def load(self, client: TestClient, **body: Any) -> dict[str, Any]:
        response = client.post("/optimal-geometry", json=body, headers=ARCHIVE)
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/x-npz"
        assert int(response.headers["content-length"]) == len(response.content)
        with np.load(io.BytesIO(response.content), allow_pickle=False) as archive:
            return dict(archive)

    def test_holds_the_full_arrays(self, client: TestClient) -> None:
        arrays, answer = (
            self.load(client, class_counts=COUNTS),
            post(client, class_counts=COUNTS, groups=True),
        )
        np.testing.assert_allclose(arrays["gram"], answer["gram"], atol=INEXACT)
        np.testing.assert_allclose(arrays["class_means"], answer["class_means"], atol=INEXACT)
        np.testing.assert_allclose(arrays["proportions"], np.divide(COUNTS, sum(COUNTS)))
        metadata = json.loads(arrays["metadata"].tobytes())
        assert metadata["gram"] is None
        assert metadata["certificate"] == answer["certificate"]
        assert metadata["groups"]["index"] == answer["groups"]["index"]

    def test_of_many_classes(self, client: TestClient) -> None:
        """More than one block of rows."""
        arrays = self.load(client, class_counts=[100] * 1500 + [10] * 100)
        means = arrays["class_means"]
        assert arrays["gram"].shape == (1600, 1600)
        np.testing.assert_array_equal(np.diag(arrays["gram"]), 1.0)
        np.testing.assert_allclose(means @ means.T, arrays["gram"], atol=1e-7)

    def test_bad_requests_are_problems_all_the_same(self, client: TestClient) -> None:
        response = client.post("/optimal-geometry", json={"class_counts": [1, -1]}, headers=ARCHIVE)
        assert (response.status_code, response.json()["code"]) == (422, "invalid_input")
        response = client.post("/optimal-geometry", json={"class_proportions": [0.5, 0.4]}, headers=ARCHIVE)
        assert response.json()["errors"][0]["pointer"] == "/class_proportions"


class TestCache:
    def test_identical_bytes(self, client: TestClient) -> None:
        """The seconds a solve took would differ if it were solved again."""
        first, second = (
            client.post("/optimal-geometry", json={"class_counts": [11, 7, 5, 3]}) for _ in range(2)
        )
        assert first.content == second.content

    def test_by_meaning(self, client: TestClient) -> None:
        """White space, the order of fields and defaults written out make no difference."""
        first = client.post("/optimal-geometry", json={"class_counts": [13, 7, 5, 3], "tolerance": 1e-6})
        body = b'{"tolerance" : 0.000001, "sampling": "supervised",\n "class_counts": [13, 7, 5, 3]}'
        second = client.post("/optimal-geometry", content=body, headers={"Content-Type": "application/json"})
        assert first.content == second.content
        third = client.post("/optimal-geometry", json={"class_counts": [13, 7, 5, 3], "tolerance": 1e-7})
        assert third.content != first.content
