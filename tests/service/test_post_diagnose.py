"""POST /diagnose: numbers for sound embeddings, reasons for degenerate ones, and nothing for attackers."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import httpx2
import numpy as np
import pytest
from array_bytes import archive, form_part, npy, npy_claiming, npz
from starlette.testclient import TestClient

from anglewise import InfoNCE, optimal_geometry
from jobs.computations.diagnose import DiagnoseAnswer
from service.upload import MAX_FIELD_BYTES

JSON = {"Content-Type": "application/json"}
PATH = "/diagnose"
LOSS = {"name": "infonce", "negatives": 16, "temperature": 0.5}
COUNTS = [40, 25, 10, 5]


def samples(spread: float = 0.0) -> tuple[Any, Any]:
    """Embeddings about the means that are optimal for `COUNTS`, and their labels."""
    means = optimal_geometry(COUNTS, loss=InfoNCE(negatives=16, temperature=0.5)).class_means
    labels = np.repeat(np.arange(len(COUNTS)), COUNTS)
    noise = np.random.default_rng(0).normal(size=(len(labels), means.shape[1]))
    return means[labels] + spread * noise, labels


def answered(response: Any) -> Any:
    assert response.status_code == 200, response.text
    DiagnoseAnswer.model_validate_json(response.content)
    document = response.json()
    metrics = document["metrics"]
    for name, value in metrics.items():
        assert value is not None or metrics["reasons"][name], name
    return document


def post(client: TestClient, **body: Any) -> Any:
    return answered(client.post(PATH, json=body))


def upload(client: TestClient, content: bytes, **fields: str) -> Any:
    return client.post(PATH, files={"file": ("anything/../x.npz", content)}, data=fields)


class TestAnswer:
    def test_optimal_embeddings(self, client: TestClient) -> None:
        X, y = samples()
        answer = post(client, embeddings=X.tolist(), labels=y.tolist(), prediction={"loss": LOSS})
        assert (answer["n"], answer["dimension"]) == X.shape
        assert [(c["label"], c["count"]) for c in answer["classes"]] == list(enumerate(COUNTS))
        assert all(c["cosine_to_predicted"] == pytest.approx(1, abs=1e-6) for c in answer["classes"])
        assert answer["metrics"]["nc1"] == pytest.approx(0, abs=1e-12)
        assert answer["metrics"]["gram_distance_max"] < 1e-5
        assert answer["metrics"]["r2_procrustes"] == pytest.approx(1, abs=1e-6)
        assert "match the prediction" in answer["verdict"]
        expected = client.post("/optimal-geometry", json={"class_counts": COUNTS, "loss": LOSS}).json()
        np.testing.assert_allclose(answer["predicted"]["gram"], expected["gram"], atol=1e-9)
        assert answer["predicted"]["certificate"]["certified"]

    def test_without_prediction(self, client: TestClient) -> None:
        X, y = samples(0.1)
        body = {"embeddings": X.tolist(), "labels": y.tolist()}
        answer = post(client, **body)
        assert answer == post(client, **body, prediction=None)
        assert answer["predicted"] is None
        assert answer["metrics"]["gram_distance_max"] is None
        assert answer["metrics"]["nc1"] > 0
        np.testing.assert_allclose(np.diag(answer["measured_gram"]), 1, atol=1e-12)

    def test_supcon_prediction_has_an_entropic_gap(self, client: TestClient) -> None:
        X, y = samples(0.1)
        rule = {"weights": {"name": "supcon"}, "temperature": 0.5}
        answer = post(client, embeddings=X.tolist(), labels=y.tolist(), prediction=rule)
        weights = {"name": "supcon", "class_counts": COUNTS}
        best = client.post("/optimal-geometry", json={"weights": weights, "temperature": 0.5}).json()
        assert answer["predicted"]["loss"] == pytest.approx(best["loss"], rel=1e-9)
        assert answer["metrics"]["entropic_gap"] >= best["entropy_gap"]

    def test_labels_are_sorted(self, client: TestClient) -> None:
        X, y = samples()
        names = np.array(["zebra", "ant", "Ω", "$x_"])[y]
        answer = post(client, embeddings=X.tolist(), labels=names.tolist(), prediction={"loss": LOSS})
        assert [c["label"] for c in answer["classes"]] == ["$x_", "ant", "zebra", "Ω"]
        assert [c["count"] for c in answer["classes"]] == [5, 25, 40, 10]
        assert answer["metrics"]["gram_distance_max"] < 1e-5

    def test_lengths(self, client: TestClient) -> None:
        body = {"embeddings": [[3.0, 4.0], [0.0, 1.0]], "labels": [0, 1]}
        norms = [c["norm"] for c in post(client, **body, normalize=False)["classes"]]
        assert norms == pytest.approx([5, 1])
        assert [c["norm"] for c in post(client, **body)["classes"]] == pytest.approx([1, 1])

    @pytest.mark.parametrize(("dtype", "order"), [("f4", "C"), ("f8", "C"), ("f4", "F"), (">f8", "F")])
    def test_file_gives_the_same(self, client: TestClient, dtype: str, order: Any) -> None:
        X, y = samples(0.1)
        X = X.astype("f4")
        content = npz(embeddings=np.asarray(X, dtype=dtype, order=order), labels=y)
        prediction = {"loss": LOSS}
        answer = answered(upload(client, content, prediction=json.dumps(prediction), normalize="true"))
        expected = post(client, embeddings=X.astype(float).tolist(), labels=y.tolist(), prediction=prediction)
        np.testing.assert_allclose(answer["measured_gram"], expected["measured_gram"], atol=1e-12)
        assert answer["verdict"] == expected["verdict"]

    def test_labels_of_a_file(self, client: TestClient) -> None:
        X, y = samples()
        for labels in (y.astype("u1"), y.astype("<U3"), y.astype(">U3"), y.astype(">i8")):
            answer = answered(upload(client, npz(embeddings=X, labels=labels)))
            assert [str(c["label"]) for c in answer["classes"]] == ["0", "1", "2", "3"]


TINY = [[1e-300, 0.0], [0.0, 1e-300], [1e-300, 1e-300]]
DEGENERATE: dict[str, tuple[Any, Any]] = {
    "one item": ([[1.0, 2.0]], [0]),
    "one class": ([[1.0, 2.0], [2.0, 1.0]], ["a", "a"]),
    "one item in each class": ([[1.0, 0.0], [0.0, 1.0]], [0, 1]),
    "collapsed": ([[1.0, 0.0]] * 4, [0, 0, 1, 1]),
    "antipodal": ([[1.0, 0.0], [-1.0, 0.0]] * 2, [0, 0, 1, 1]),
    "zero": ([[0.0, 0.0]] * 3, [0, 1, 1]),
    "one dimension": ([[1.0], [-2.0], [3.0]], [0, 1, 2]),
    "tiny": (TINY, [0, 1, 1]),
    "large": ([[1e59, 0.0], [0.0, 1e59], [1.0, 1.0]], [0, 1, 1]),
}


class TestDegenerate:
    @pytest.mark.parametrize(("embeddings", "labels"), DEGENERATE.values(), ids=DEGENERATE.keys())
    def test_numbers_or_reasons(self, client: TestClient, embeddings: Any, labels: Any) -> None:
        data = {"embeddings": embeddings, "labels": labels}
        answer = post(client, **data, prediction={})
        assert answer["verdict"]
        assert answer["picture"]
        if embeddings is not TINY:  # without normalization refused, see test_bad_json
            assert post(client, **data, normalize=False)["verdict"]

    def test_one_class_has_no_supervised_prediction(self, client: TestClient) -> None:
        answer = post(client, embeddings=[[1.0, 2.0]], labels=[0], prediction={})
        assert answer["predicted"] is None
        assert "No prediction" in answer["warnings"][0]
        unsupervised = post(
            client, embeddings=[[1.0, 2.0]], labels=[0], prediction={"sampling": "unsupervised"}
        )
        assert unsupervised["predicted"]["collapse"]["geometry"] == "point"


class TestPicture:
    def test_is_there_and_shows_these_numbers(self, client: TestClient) -> None:
        X, y = samples(0.1)
        body = {"embeddings": X.tolist(), "labels": y.tolist()}
        address = post(client, **body)["picture"]
        picture = client.get(address)
        assert picture.headers["content-type"] == "image/png"
        assert picture.content.startswith(b"\x89PNG\r\n\x1a\n")
        assert picture.content.endswith(b"IEND\xaeB`\x82")
        assert post(client, **body)["picture"] == address
        other = post(client, **body, prediction={"loss": LOSS})["picture"]
        assert other != address
        assert client.get(other).content != picture.content

    @pytest.mark.parametrize(
        "name", ["0" * 32 + ".png", "x.png", "..", "%2e%2e%2fetc%2fpasswd", ".png", "a/b.png"]
    )
    def test_unknown(self, client: TestClient, name: str) -> None:
        response = client.get(f"/pictures/{name}")
        assert (response.status_code, response.json()["code"]) == (404, "not_found")


def body(**fields: Any) -> str:
    return json.dumps({"embeddings": [[1.0, 0.0], [0.0, 1.0]], "labels": [0, 1]} | fields)


BAD: dict[str, tuple[str, str]] = {
    "nothing": ("{}", "/embeddings"),
    "job": ('{"job": "job_01J"}', "/job"),
    "no labels": ('{"embeddings": [[1]]}', "/labels"),
    "no embeddings": (body(embeddings=[]), "/embeddings"),
    "no coordinates": (body(embeddings=[[], []]), "/embeddings"),
    "ragged": (body(embeddings=[[1, 2], [3]]), "/embeddings/1"),
    "one list": (body(embeddings=[1, 2]), "/embeddings/0"),
    "NaN": (body(embeddings=[[1, 2], [3, math.nan]]), "/embeddings/1/1"),
    "infinite": (body(embeddings=[[1, math.inf], [3, 4]]), "/embeddings/0/1"),
    "NaN in quotes": (body(embeddings=[["nan", 2], [3, 4]]), "/embeddings/0/0"),
    "null": (body(embeddings=[[None, 2], [3, 4]]), "/embeddings/0/0"),
    "too large a number": (body(embeddings=[[1e61, 2], [3, 4]]), "/embeddings/0/0"),
    "all too small": (body(embeddings=[[1e-300, 0.0], [0.0, 0.0]], normalize=False), "/embeddings"),
    "too few labels": (body(labels=[0]), "/labels"),
    "empty labels": (body(labels=[]), "/labels"),
    "mixed labels": (body(labels=[0, "a"]), "/labels/1"),
    "fractional label": (body(labels=[0, 0.5]), "/labels/1"),
    "boolean label": (body(labels=[0, True]), "/labels/1"),
    "null label": (body(labels=[0, None]), "/labels/1"),
    "half a character": (body(labels=["a", "\udfff"]), "/labels/1"),
    "label that an array would shorten": (body(labels=["a", "a\0"]), "/labels/1"),
    "normalize": (body(normalize="yes"), "/normalize"),
    "prediction": (body(prediction=1), "/prediction"),
    "counts": (body(prediction={"class_counts": [1, 1]}), "/prediction/class_counts"),
    "loss": (body(prediction={"loss": {"name": "ce"}}), "/prediction/loss/name"),
    "temperature": (body(prediction={"loss": {"temperature": 0}}), "/prediction/loss/temperature"),
    "loss that contradicts itself": (
        body(prediction={"loss": {"negatives": "infinite", "reduction": "sum"}}),
        "/prediction/loss/reduction",
    ),
    "weighting over items": (body(prediction={"weights": {"name": "y_aware"}}), "/prediction/weights/name"),
    "labels of a weighting": (
        body(prediction={"weights": {"name": "supcon", "labels": [0]}}),
        "/prediction/weights/labels",
    ),
    "Euclidean": (
        body(prediction={"weights": {"name": "supcon"}, "metric": "euclidean"}),
        "/prediction/metric",
    ),
    "path of a file": (body(path="/etc/passwd"), "/path"),
}


class TestBadJson:
    @pytest.mark.parametrize(("content", "pointer"), BAD.values(), ids=BAD.keys())
    def test_bad_json(self, client: TestClient, content: str, pointer: str) -> None:
        response = client.post(PATH, content=content, headers=JSON)
        document = response.json()
        assert (response.status_code, document["code"]) == (422, "invalid_input"), response.text
        assert pointer in [error["pointer"] for error in document["errors"]]

    @pytest.mark.parametrize("shape", [(1, 8193), (250, 8001)])
    def test_too_large(self, client: TestClient, shape: tuple[int, int]) -> None:
        n, d = shape
        row = "[" + ",".join(["1"] * d) + "]"
        content = f'{{"embeddings": [{",".join([row] * n)}], "labels": {[0] * n}}}'
        response = client.post(PATH, content=content, headers=JSON)
        assert (response.status_code, response.json()["code"]) == (422, "too_large")
        assert response.json()["errors"][0]["pointer"] == "/embeddings"


ONES = npy(np.ones((4, 2)))
LABELS = npy(np.array([0, 0, 1, 1]))
LARGE_ZIP = archive({"embeddings.npy": npy(np.zeros((1000, 1000))), "labels.npy": LABELS})
BOMB = npy_claiming("(4, 2)", data=b"\0" * 10**7)
BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "/file"),
    "not an archive": (b"embeddings,labels\n" * 100, "/file"),
    "an .npy": (ONES, "/file"),
    "cut off": (npz(embeddings=np.ones((4, 2)), labels=np.arange(4))[:-40], "/file"),
    "damaged": (LARGE_ZIP[:300] + b"\xff" * 20 + LARGE_ZIP[320:], "/file"),
    "front cut off": (npz(embeddings=np.ones((4, 2)), labels=np.arange(4))[30:], "/file"),
    **{
        f"of shape {shape}": (
            archive({"embeddings.npy": npy_claiming(shape, data=data), "labels.npy": LABELS}),
            "/embeddings",
        )
        for shape, data in {
            "(-4, -2)": b"\0" * 64,
            "(True, 2)": b"\0" * 16,
            f"(0, {10**30})": b"",
        }.items()
    },
    "no embeddings": (archive({"labels.npy": LABELS}), "/embeddings"),
    "no labels": (archive({"embeddings.npy": ONES}), "/labels"),
    "other names": (archive({"x/embeddings.npy": ONES, "../labels.npy": LABELS}), "/embeddings"),
    "many members": (archive({f"{i}.npy": b"" for i in range(65)}), "/file"),
    "another compression": (
        archive({"embeddings.npy": ONES, "labels.npy": LABELS}, zipfile.ZIP_LZMA),
        "/embeddings",
    ),
    "objects": (npz(embeddings=np.ones((2, 2)), labels=np.array([1, None], dtype=object)), "/labels"),
    "object embeddings": (npz(embeddings=np.array([[1, None]], dtype=object), labels=[0]), "/embeddings"),
    "not arrays": (archive({"embeddings.npy": b"1", "labels.npy": b"2"}), "/embeddings"),
    "claims 8 TB": (
        archive({"embeddings.npy": npy_claiming("(1000000, 1000000)"), "labels.npy": LABELS}),
        "/embeddings",
    ),
    "holds more than it claims": (archive({"embeddings.npy": BOMB, "labels.npy": LABELS}), "/embeddings"),
    "holds less than it claims": (
        archive({"embeddings.npy": ONES[:-8], "labels.npy": LABELS}),
        "/embeddings",
    ),
    "one dimension": (npz(embeddings=np.ones(4), labels=np.arange(4)), "/embeddings"),
    "three dimensions": (npz(embeddings=np.ones((4, 2, 2)), labels=np.arange(4)), "/embeddings"),
    "integers": (npz(embeddings=np.ones((4, 2), dtype=int), labels=np.arange(4)), "/embeddings"),
    "no items": (npz(embeddings=np.ones((0, 2)), labels=np.arange(0)), "/embeddings"),
    "no coordinates": (npz(embeddings=np.ones((4, 0)), labels=np.arange(4)), "/embeddings"),
    "wide": (npz(embeddings=np.ones((1, 8193)), labels=np.arange(1)), "/embeddings"),
    "NaN": (npz(embeddings=np.array([[1, 2], [3, np.nan]]), labels=np.arange(2)), "/embeddings/1/1"),
    "infinite": (npz(embeddings=np.array([[1, 2], [-np.inf, 4]]), labels=np.arange(2)), "/embeddings/1/0"),
    "too few labels": (npz(embeddings=np.ones((4, 2)), labels=np.arange(3)), "/labels"),
    "fractional labels": (npz(embeddings=np.ones((2, 2)), labels=np.array([0.0, 1.0])), "/labels"),
    "bytes for labels": (npz(embeddings=np.ones((2, 2)), labels=np.array([b"a", b"b"])), "/labels"),
    "labels of no length": (
        archive({"embeddings.npy": ONES, "labels.npy": npy_claiming("(4,)", "'<U0'")}),
        "/labels",
    ),
    "labels that are no characters": (
        archive({"embeddings.npy": ONES, "labels.npy": npy_claiming("(4,)", "'<U1'", b"\xff" * 16)}),
        "/labels/0",
    ),
    "half a character": (
        archive(
            {
                "embeddings.npy": ONES,
                "labels.npy": npy_claiming("(4,)", "'<U1'", b"a\0\0\0" * 3 + b"\0\xd8\0\0"),
            }
        ),
        "/labels/3",
    ),
}


class TestBadFiles:
    @pytest.mark.parametrize(("content", "pointer"), BAD_FILES.values(), ids=BAD_FILES.keys())
    def test_refused(self, client: TestClient, content: bytes, pointer: str) -> None:
        response = upload(client, content)
        document = response.json()
        assert response.status_code == 422, response.text
        assert document["code"] in ("invalid_input", "too_large")
        assert document["errors"][0]["pointer"] == pointer

    @pytest.mark.parametrize(
        ("fields", "pointer"),
        [
            ({"prediction": '{"loss": 1}'}, "/prediction/loss"),
            ({"prediction": "x" * (MAX_FIELD_BYTES + 1)}, "/prediction"),
            ({"normalize": "1"}, "/normalize"),
            ({"path": "/etc/passwd"}, "/path"),
            ({"embeddings": "[[1]]"}, "/embeddings"),
        ],
    )
    def test_fields(self, client: TestClient, fields: dict[str, str], pointer: str) -> None:
        response = upload(client, npz(embeddings=np.ones((2, 2)), labels=np.arange(2)), **fields)
        assert response.status_code == 422, response.text
        assert response.json()["errors"][0]["pointer"] == pointer

    def test_prediction_must_be_json(self, client: TestClient) -> None:
        response = upload(client, npz(embeddings=np.ones((2, 2)), labels=np.arange(2)), prediction="{")
        assert (response.status_code, response.json()["code"]) == (400, "malformed_json")

    def test_without_file(self, client: TestClient) -> None:
        form = {"Content-Type": "multipart/form-data; boundary=b"}
        for content in (b"--b--\r\n", form_part("prediction", b"null") + b"--b--\r\n"):
            response = client.post(PATH, content=content, headers=form)
            assert (response.status_code, response.json()["code"]) == (422, "invalid_input")


def test_uploads_do_not_hold_up_the_service(
    client: TestClient, background: Callable[..., Future[httpx2.Response]]
) -> None:
    rng = np.random.default_rng(0)
    content = npz(embeddings=rng.normal(size=(20_000, 64)).astype("f4"), labels=np.arange(20_000) % 9)
    running = [background(upload, client, content) for _ in range(3)]
    answers = 0
    while not all(future.done() for future in running):
        assert client.get("/health/live").status_code == 200
        answers += 1
    assert answers > len(running)
    assert {future.result().status_code for future in running} == {200}
