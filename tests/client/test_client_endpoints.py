"""Every method of both clients against the real application, in this process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx2
import numpy as np
import pytest

from anglewise_client import (
    XCLR,
    AsyncClient,
    Client,
    EuclideanWeights,
    Geometry,
    InfoNCE,
    InvalidRequest,
    SoftSupCon,
    SupCon,
    TooLarge,
    WeightedGeometry,
    YAware,
)

if TYPE_CHECKING:
    from starlette.testclient import TestClient

SKIN = [6705, 1113, 1099, 514, 327, 142, 115]
"""HAM10000."""


class AppInThread(httpx2.AsyncBaseTransport):
    """Carries requests of an event loop to an application that runs in another."""

    def __init__(self, running: TestClient) -> None:
        self.running = running

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        content = await request.aread()
        plain = httpx2.Request(request.method, request.url, headers=request.headers, content=content)
        response = await asyncio.to_thread(self.running.send, plain)
        return httpx2.Response(response.status_code, headers=response.headers, content=response.content)


def test_optimal_geometry(client: Client) -> None:
    loss = InfoNCE(temperature=0.5)
    found = client.optimal_geometry(class_counts=SKIN, sampling="unsupervised", loss=loss)
    assert type(found) is Geometry
    assert found.gram is not None
    assert found.class_means is not None
    assert found.gram.dtype == np.float64
    assert found.gram[0, 1] == pytest.approx(-0.524, abs=1e-3)
    assert found.certificate.certified
    assert found.collapse.smallest_angle_degrees == pytest.approx(73.2, abs=0.1)
    np.testing.assert_allclose(found.class_means @ found.class_means.T, found.gram, atol=1e-9)


def test_counts_and_proportions_of_any_kind(client: Client) -> None:
    counts = np.array([6, 3, 1], dtype=np.int32)
    first = client.optimal_geometry(class_counts=counts)
    second = client.optimal_geometry(class_proportions=counts / 10)
    third = client.optimal_geometry(class_counts=(6, 3, 1), loss={"name": "infonce", "temperature": 0.1})
    assert first.gram is not None
    for other in (second, third):
        assert other.gram is not None
        np.testing.assert_allclose(other.gram, first.gram, atol=1e-6)


def test_full_arrays_and_groups_agree(client: Client) -> None:
    counts = [50] * 3 + [20] * 2 + [5]
    grouped = client.optimal_geometry(class_counts=counts, groups=True)
    whole = client.optimal_geometry(class_counts=counts, full=True)
    assert grouped.groups is not None
    assert grouped.gram is not None
    assert whole.gram is not None
    np.testing.assert_allclose(grouped.groups.full_gram(), grouped.gram, atol=1e-9)
    np.testing.assert_allclose(whole.gram, grouped.gram, atol=1e-12)
    assert whole.certificate == grouped.certificate


def test_more_classes_than_are_inline(client: Client) -> None:
    counts = [100] * 600 + [10] * 600
    by_groups = client.optimal_geometry(class_counts=counts)
    assert by_groups.gram is None
    assert by_groups.classes == 1200
    whole = client.optimal_geometry(class_counts=counts, full=True)
    assert whole.gram is not None
    np.testing.assert_allclose(by_groups.cosines, whole.gram, atol=1e-9)


def test_best_geometry(client: Client) -> None:
    named = client.best_geometry(weights=SupCon(class_counts=np.array([10, 5, 3])), temperature=0.5)
    assert type(named) is WeightedGeometry
    assert named.level == "class"
    assert named.collapse is not None
    same = client.optimal_geometry(weights={"name": "supcon", "class_counts": [10, 5, 3]}, temperature=0.5)
    assert isinstance(same, WeightedGeometry)
    np.testing.assert_allclose(same.cosines, named.cosines)
    flat = client.best_geometry(log_weights=np.zeros((3, 3)), metric="euclidean")
    assert flat.collapse is None
    assert flat.squared_distances is not None
    assert abs(flat.squared_distances).max() < 1e-6


@pytest.mark.parametrize(
    "weighting",
    [
        SoftSupCon(labels=["a", "a", "b"], epsilon=0.1),
        YAware(targets=[0.0, 1.0, 3.0], sigma=2.0),
        XCLR(targets=np.eye(3), label_temperature=0.5),
    ],
    ids=lambda weighting: weighting.name,
)
def test_named_weightings(client: Client, weighting: Any) -> None:
    found = client.realizability(weights=weighting, temperature=0.3)
    assert found.verdict in ("realizable", "inconsistent")
    assert client.best_geometry(weights=weighting, temperature=0.3).certificate.gap < 1e-3


def test_euclidean_weighting(client: Client) -> None:
    targets = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    weighting = EuclideanWeights(targets=targets, sigma=1.0)
    found = client.realizability(weights=weighting, metric="euclidean", temperature=0.5)
    assert found.realizable
    assert found.required_dimension == 2
    assert found.embedding is not None


def test_realizability_as_json_and_as_array(client: Client) -> None:
    targets = np.random.default_rng(0).normal(size=(150, 3))
    targets /= np.linalg.norm(targets, axis=1, keepdims=True)
    weights = np.exp(targets @ targets.T)
    as_array = client.realizability(weights=weights, temperature=0.5, full=True)
    as_lists = client.realizability(weights=weights.tolist(), temperature=0.5)
    assert as_array.verdict == as_lists.verdict == "realizable"
    assert as_array.gram is not None
    assert as_lists.gram is not None
    np.testing.assert_allclose(as_array.gram, as_lists.gram, atol=1e-9)
    logs = client.realizability(log_weights=np.log(weights), temperature=0.5)
    assert logs.required_dimension == as_array.required_dimension


def test_a_refusal_has_a_witness(client: Client) -> None:
    found = client.realizability(weights=[[1, 2, 1], [1, 1, 1], [1, 1, 1]])
    assert found.verdict == "inconsistent"
    assert not found.realizable
    assert found.witness is not None
    assert found.witness.statement


def test_threshold_and_map(client: Client) -> None:
    threshold = client.collapse_threshold(classes=10, loss=InfoNCE(temperature=0.1))
    assert threshold.exact_threshold == pytest.approx(0.99995, abs=1e-5)
    assert isinstance(threshold.loss, InfoNCE)
    grid = client.collapse_map(
        x=("temperature", [0.1, 1.0]), y=("majority_proportion", np.array([0.5, 0.9])), classes=10
    )
    assert grid.values.shape == (2, 2)
    infinite = client.collapse_map(
        x=("negatives", [1, float("inf")]),
        y={"name": "classes", "values": [3]},
        quantity="exact_threshold",
        loss=InfoNCE(reduction="mean"),
    )
    assert infinite.x.numbers == [1.0, float("inf")]
    assert infinite.to_dataframe().shape == (1, 2)


def test_weights(client: Client) -> None:
    simplex = client.weights(simplex_class_counts=SKIN, temperature=0.5)
    assert simplex.epsilon == pytest.approx(0.09697, abs=1e-5)
    assert simplex.named is not None
    assert simplex.proof.realizable
    gram = np.array([[1.0, 0.2], [0.2, 1.0]])
    free = client.weights(gram=gram, temperature=0.5, full=True)
    assert free.log_weights is not None
    assert free.log_weights[0, 0] - free.log_weights[0, 1] == pytest.approx(0.8 / 0.5)


@pytest.mark.parametrize("n", [60, 6000], ids=["as JSON", "as an archive"])
def test_diagnose(client: Client, n: int) -> None:
    rng = np.random.default_rng(0)
    labels = np.array(["ant", "bee", "cat"])[np.arange(n) % 3]
    embeddings = (np.eye(5)[np.arange(n) % 3] + 0.05 * rng.normal(size=(n, 5))).astype(np.float32)
    found = client.diagnose(
        embeddings=embeddings, labels=labels, prediction={"loss": InfoNCE(temperature=0.5)}, normalize=True
    )
    assert found.n == n
    assert found.labels == ["ant", "bee", "cat"]
    assert found.metrics.nc1 is not None
    assert isinstance(found.predicted, Geometry)
    assert found.metrics.known()["gram_distance_max"] == pytest.approx(0.5, abs=0.05)
    assert list(found.to_dataframe().index) == found.labels


def test_diagnose_against_a_weighting(client: Client) -> None:
    prediction = {"weights": {"name": "supcon"}, "temperature": 0.5}
    found = client.diagnose(
        embeddings=np.eye(3).repeat(2, axis=0), labels=[0, 0, 1, 1, 2, 2], prediction=prediction
    )
    assert isinstance(found.predicted, WeightedGeometry)
    assert found.metrics.entropic_gap is not None


def test_tensors_are_arrays(client: Client) -> None:
    torch = pytest.importorskip("torch")
    z = torch.eye(4, requires_grad=True).to(torch.bfloat16)
    found = client.diagnose(embeddings=z, labels=torch.tensor([0, 0, 1, 1]))
    assert (found.n, found.dimension) == (4, 4)


@pytest.mark.parametrize(
    ("arguments", "pointer"),
    [
        ({"class_counts": [5, -1]}, "/class_counts/1"),
        ({"class_counts": [5, 1.5]}, "/class_counts/1"),
        ({"class_counts": []}, "/class_counts"),
        ({"class_counts": [5, 1], "loss": {"temperature": 0}}, "/loss/temperature"),
        ({"class_proportions": [0.5, float("nan")]}, "/class_proportions/1"),
    ],
    ids=str,
)
def test_wrong_requests_name_the_field(client: Client, arguments: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        client.optimal_geometry(**arguments)
    assert [field.pointer for field in caught.value.errors] == [pointer]
    assert caught.value.request_id


def test_too_much_is_an_error_of_its_own(client: Client) -> None:
    with pytest.raises(TooLarge):
        client.optimal_geometry(class_counts=[5] * 20_001)


@pytest.mark.parametrize(
    ("embeddings", "labels"),
    [
        ([[1.0, 2.0]], [0, 1]),
        ([1.0, 2.0], [0, 1]),
        ([["a"]], [0]),
        ([[1.0]], [0.5]),
        ([[1.0], [2.0]], [0, "a"]),
        (None, None),
    ],
    ids=str,
)
def test_impossible_arrays_are_not_sent(client: Client, embeddings: Any, labels: Any) -> None:
    with pytest.raises(ValueError, match=r"must be|there are|give"):
        client.diagnose(embeddings=embeddings, labels=labels)


def test_health(client: Client) -> None:
    assert client.health().workers == 1
    assert client.live().status == "ok"


def test_the_async_client_answers_alike(running: TestClient, client: Client) -> None:
    async def run() -> list[Any]:
        async with AsyncClient("http://testserver", transport=AppInThread(running)) as asking:
            z, labels = np.random.default_rng(1).normal(size=(5000, 5)), np.arange(5000) % 2
            return await asyncio.gather(
                asking.optimal_geometry(class_counts=SKIN, full=True),
                asking.collapse_threshold(classes=5),
                asking.diagnose(embeddings=z, labels=labels, prediction={"loss": {"temperature": 0.5}}),
                asking.realizability(weights=np.ones((150, 150))),
                asking.health(),
            )

    geometry, threshold, diagnosis, verdict, health = asyncio.run(run())
    assert geometry.gram.shape == (7, 7)
    assert threshold == client.collapse_threshold(classes=5)
    assert diagnosis.n == 5000
    assert verdict.realizable
    assert health.workers == 1
