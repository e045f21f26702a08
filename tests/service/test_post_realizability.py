"""POST /realizability: reference verdicts, every kind of bad input, .npy bodies."""

from __future__ import annotations

import io
import json
import math
import pickle
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from array_bytes import npy, npy_claiming
from starlette.testclient import TestClient

from jobs.computations.realizability import RealizabilityAnswer

CASES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "realizability.json").read_text("utf-8")
)
NAMED = [case for case in CASES if "named" in case]
JSON = {"Content-Type": "application/json"}
NPY = {"Content-Type": "application/x-npy"}
PATH = "/realizability"
SETTINGS = ("metric", "temperature", "self_pairs", "dimension")


def names(cases: list[dict[str, Any]]) -> list[str]:
    return [case["name"] for case in cases]


def post(client: TestClient, **body: Any) -> Any:
    response = client.post(PATH, json=body)
    assert response.status_code == 200, response.text
    RealizabilityAnswer.model_validate_json(response.content)
    return response.json()


def settings(case: dict[str, Any]) -> dict[str, Any]:
    return {name: case[name] for name in SETTINGS}


def check_reference(answer: Any, case: dict[str, Any]) -> None:
    assert (answer["verdict"], answer["attained"]) == (case["verdict"], case["attained"])
    assert answer["reason"]["code"] == case["reason"]
    assert answer["reason"]["message"]
    assert answer["required_dimension"] == case["required_dimension"]
    if case["offset"] is None:
        assert answer["offset"] is None
    else:
        ends = [answer["offset"]["lower"], answer["offset"]["upper"]]
        for end, expected in zip(ends, case["offset"], strict=True):
            assert end == (None if expected is None else pytest.approx(expected, abs=1e-8))
    if "entropy_bound" in case:
        assert answer["entropy_bound"] == pytest.approx(case["entropy_bound"], abs=1e-8)
    if "gap" in case:
        assert answer["gap_lower_bound"] <= case["gap"] + 1e-8
    assert answer["gap_lower_bound"] >= 0


class TestVerdicts:
    @pytest.mark.parametrize("case", CASES, ids=names(CASES))
    def test_reference(self, client: TestClient, case: dict[str, Any]) -> None:
        answer = post(client, weights=case["weights"], **settings(case))
        check_reference(answer, case)
        assert answer["level"] == "item"
        if answer["verdict"] == "realizable":
            self.check_embedding(answer, case)
        if answer["verdict"] == "inconsistent":
            assert answer["witness"]["statement"]

    def check_embedding(self, answer: Any, case: dict[str, Any]) -> None:
        """Similarities equal log-weights up to one constant for each row."""
        Z = np.array(answer["embedding"])
        with np.errstate(divide="ignore"):
            L = np.log(np.array(case["weights"]))
        if case["metric"] == "cosine":
            S = Z @ Z.T / case["temperature"]
        else:
            S = -((Z[:, None] - Z) ** 2).sum(axis=2) / case["temperature"]
        rest = S - L
        if case["self_pairs"] == "excluded":
            np.fill_diagonal(rest, rest[~np.eye(len(rest), dtype=bool)].mean())
        assert np.ptp(rest, axis=1).max() < 1e-5

    @pytest.mark.parametrize("case", NAMED, ids=names(NAMED))
    def test_named(self, client: TestClient, case: dict[str, Any]) -> None:
        """A weighting by name is decided like its matrix, whatever the level of the answer."""
        answer = post(client, weights=case["named"], **settings(case))
        check_reference(answer, case)
        over_classes = "class_counts" in case["named"] and case["self_pairs"] == "included"
        assert answer["level"] == ("class" if over_classes else "item")

    def test_logarithms(self, client: TestClient) -> None:
        case = next(case for case in CASES if case["name"] == "SupCon blocks, euclidean")
        logs = [[math.log(w) if w else None for w in row] for row in case["weights"]]
        check_reference(post(client, log_weights=logs, **settings(case)), case)

    def test_weights_that_underflow(self, client: TestClient) -> None:
        answer = post(client, log_weights=[[0.0, -1999.0], [-1999.0, 0.0]], temperature=1e-3)
        assert answer["verdict"] == "realizable"
        np.testing.assert_allclose(answer["gram"], [[1, -0.999], [-0.999, 1]], atol=1e-9)

    def test_many_items_in_few_classes(self, client: TestClient) -> None:
        """Twins need no rows of their own with self pairs included; with them excluded they do."""
        named = {"name": "soft_supcon", "class_counts": [5000, 2997, 50], "epsilon": 0.1}
        answer = post(client, weights=named, temperature=0.5)
        assert (answer["verdict"], answer["level"], len(answer["gram"])) == ("realizable", "class", 3)
        response = client.post(PATH, json={"weights": named, "self_pairs": "excluded"})
        assert (response.status_code, response.json()["code"]) == (422, "too_large")

    def test_labels(self, client: TestClient) -> None:
        rule = {"name": "soft_supcon", "epsilon": 0.2}
        by_labels = post(client, weights={**rule, "labels": ["b", "a", "b"]})
        by_counts = post(client, weights={**rule, "class_counts": [1, 2]})
        assert by_labels == by_counts

    def test_archive(self, client: TestClient) -> None:
        body = {"weights": [[1.0, 0.3], [0.3, 1.0]]}
        response = client.post(PATH, json=body, headers={"Accept": "application/x-npz"})
        arrays = np.load(io.BytesIO(response.content), allow_pickle=False)
        answer = post(client, **body)
        np.testing.assert_array_equal(arrays["gram"], answer["gram"])
        np.testing.assert_array_equal(arrays["embedding"], answer["embedding"])
        assert json.loads(arrays["metadata"].tobytes())["verdict"] == answer["verdict"]

    def test_large_matrices_are_left_out(self, client: TestClient) -> None:
        response = client.post(PATH, content=npy(np.ones((1001, 1001), np.float32)), headers=NPY)
        answer = response.json()
        assert answer["verdict"] == "realizable"
        assert answer["gram"] is None
        assert "x-npz" in answer["warnings"][0]


def matrix(entry: str) -> str:
    return f'{{"weights": [[1, {entry}], [0.5, 1]]}}'


def logs(entry: str) -> str:
    return f'{{"log_weights": [[0, {entry}], [-1, 0]]}}'


def named(**fields: Any) -> str:
    return json.dumps({"weights": fields})


SOUND = {"weights": [[1, 0.5], [0.5, 1]]}
BAD: dict[str, tuple[str, str]] = {
    "nothing": ("{}", "/weights"),
    "both": ('{"weights": [[1]], "log_weights": [[0]]}', "/log_weights"),
    "empty": ('{"weights": []}', "/weights"),
    "empty row": ('{"weights": [[]]}', "/weights/0"),
    "a string": ('{"weights": "supcon"}', "/weights"),
    "a number": ('{"weights": 1}', "/weights"),
    "one list": ('{"weights": [1, 1]}', "/weights/0"),
    "three dimensions": ('{"weights": [[[1]]]}', "/weights/0/0"),
    "ragged": ('{"weights": [[1, 1], [1]]}', "/weights/1"),
    "not square": ('{"weights": [[1, 1, 1], [1, 1, 1]]}', "/weights/0"),
    "negative": (matrix("-0.1"), "/weights/0/1"),
    "NaN": (matrix("NaN"), "/weights/0/1"),
    "NaN in quotes": (matrix('"NaN"'), "/weights/0/1"),
    "nan in quotes": (matrix('"nan"'), "/weights/0/1"),
    "infinite": (matrix("Infinity"), "/weights/0/1"),
    "minus infinite": (matrix("-Infinity"), "/weights/0/1"),
    "overflowing": (matrix("1e999"), "/weights/0/1"),
    "of 5,000 digits": (matrix("9" * 5000), "/weights/0/1"),
    "a string inside": (matrix('"0.5"'), "/weights/0/1"),
    "boolean": (matrix("true"), "/weights/0/1"),
    "null weight": (matrix("null"), "/weights/0/1"),
    "all zero": ('{"weights": [[0, 0], [0, 0]]}', "/weights"),
    "single item": ('{"weights": [[1]], "self_pairs": "excluded"}', "/weights"),
    "NaN logarithm": (logs("NaN"), "/log_weights/0/1"),
    "infinite logarithm": (logs("Infinity"), "/log_weights/0/1"),
    "minus infinite logarithm": (logs("-Infinity"), "/log_weights/0/1"),
    "huge logarithm": (logs("1e10"), "/log_weights/0/1"),
    "no weight but zero": ('{"log_weights": [[null]]}', "/log_weights"),
    "unknown name": (named(name="simclr"), "/weights/name"),
    "no name": (named(class_counts=[1, 2]), "/weights/name"),
    "no labels": (named(name="supcon"), "/weights/labels"),
    "labels and counts": (named(name="supcon", labels=[1], class_counts=[1]), "/weights/labels"),
    "empty labels": (named(name="supcon", labels=[]), "/weights/labels"),
    "mixed labels": (named(name="supcon", labels=[1, "a"]), "/weights/labels/1"),
    "boolean label": (named(name="supcon", labels=[1, True]), "/weights/labels/1"),
    "huge label": (named(name="supcon", labels=[1, 2**63]), "/weights/labels/1"),
    "half a character": (named(name="supcon", labels=["\ud800", "a"]), "/weights/labels/0"),
    "zero count": (named(name="supcon", class_counts=[1, 0]), "/weights/class_counts/1"),
    "epsilon of SupCon": (named(name="supcon", class_counts=[1], epsilon=0.1), "/weights/epsilon"),
    "no epsilon": (named(name="soft_supcon", class_counts=[1]), "/weights/epsilon"),
    "epsilon zero": (named(name="soft_supcon", class_counts=[1], epsilon=0), "/weights/epsilon"),
    "epsilon above 1": (named(name="soft_supcon", class_counts=[1], epsilon=2), "/weights/epsilon"),
    "no targets": (named(name="y_aware", sigma=1.0), "/weights/targets"),
    "ragged targets": (named(name="y_aware", sigma=1.0, targets=[[1], [1, 2]]), "/weights/targets"),
    "NaN target": (named(name="y_aware", sigma=1.0, targets=[[math.nan]]), "/weights/targets/0/0"),
    "sigma zero": (named(name="euclidean", sigma=0.0, targets=[[1.0]]), "/weights/sigma"),
    "sigma that overflows": (named(name="euclidean", sigma=1e-60, targets=[[0], [1.0]]), "/weights/sigma"),
    "zero target": (named(name="x_clr", label_temperature=1.0, targets=[[0.0]]), "/weights/targets/0"),
    "unknown metric": (json.dumps(SOUND | {"metric": "dot"}), "/metric"),
    "temperature zero": (json.dumps(SOUND | {"temperature": 0}), "/temperature"),
    "unknown self pairs": (json.dumps(SOUND | {"self_pairs": True}), "/self_pairs"),
    "dimension zero": (json.dumps(SOUND | {"dimension": 0}), "/dimension"),
    "tolerance too large": (json.dumps(SOUND | {"tolerance": 0.5}), "/tolerance"),
    "loss": (json.dumps(SOUND | {"loss": {}}), "/loss"),
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
            ({"log_weights": [[]] * 3001}, "/log_weights"),
            ({"weights": {"name": "supcon", "class_counts": [1] * 3001}}, "/weights/class_counts"),
            ({"weights": {"name": "supcon", "labels": list(range(3001))}}, "/weights/labels"),
            ({"weights": {"name": "y_aware", "sigma": 1.0, "targets": [[1.0]] * 3001}}, "/weights/targets"),
        ],
    )
    def test_too_large(self, client: TestClient, body: Any, pointer: str) -> None:
        response = client.post(PATH, json=body)
        assert (response.status_code, response.json()["code"]) == (422, "too_large")
        assert response.json()["errors"][0]["pointer"] == pointer

    def test_bodies_over_the_limit(self, tiny: TestClient) -> None:
        response = tiny.post(PATH, json={"weights": [[1.0] * 100] * 100})
        assert (response.status_code, response.json()["code"]) == (413, "body_too_large")

    def test_large_bodies_are_checked_alike(self, client: TestClient) -> None:
        """They are validated in a solver process."""
        W = np.ones((300, 300))
        W[200, 7] = -1
        response = client.post(PATH, json={"weights": W.tolist()})
        assert len(response.request.content) > 128 * 1024
        assert response.json()["errors"][0]["pointer"] == "/weights/200/7"


SYMMETRIC = np.array([[1.0, 0.5, 0.25], [0.5, 1.0, 0.5], [0.25, 0.5, 1.0]])
BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "/weights"),
    "not an array": (b"1,0.5\n0.5,1\n", "/weights"),
    "magic only": (b"\x93NUMPY", "/weights"),
    "unknown version": (b"\x93NUMPY\x09\x00" + b"\0" * 100, "/weights"),
    "a pickle": (pickle.dumps([[1.0]]), "/weights"),
    "objects": (npy(np.array([[1.0, None]], dtype=object), allow_pickle=True), "/weights"),
    "records": (npy(np.zeros((2, 2), dtype=[("a", "f8")])), "/weights"),
    "header that is code": (npy_claiming("__import__('os').getpid()"), "/weights"),
    "header nested deeply": (npy_claiming("(" * 5000 + ")" * 5000), "/weights"),
    "header cut off": (npy(SYMMETRIC)[:40], "/weights"),
    "data cut off": (npy(SYMMETRIC)[:-1], "/weights"),
    "data too long": (npy(SYMMETRIC) + b"\0", "/weights"),
    "claims 8 TB": (npy_claiming("(1000000, 1000000)"), "/weights"),
    "claims more than memory can count": (npy_claiming("(2**62, 2**62)"), "/weights"),
    "negative shape": (npy_claiming("(-2, -2)"), "/weights"),
    "zero items": (npy(np.zeros((0, 0))), "/weights"),
    "integers": (npy(np.ones((2, 2), dtype=int)), "/weights"),
    "complex": (npy(np.ones((2, 2), dtype=complex)), "/weights"),
    "half precision": (npy(np.ones((2, 2), dtype="f2")), "/weights"),
    "one dimension": (npy(np.ones(4)), "/weights"),
    "three dimensions": (npy(np.ones((2, 2, 2))), "/weights"),
    "not square": (npy(np.ones((2, 3))), "/weights"),
    "NaN": (npy(np.array([[1, np.nan], [1, 1]])), "/weights/0/1"),
    "infinite": (npy(np.array([[1, 1], [np.inf, 1]])), "/weights/1/0"),
    "negative": (npy(np.array([[1.0, 1], [1, -1]])), "/weights/1/1"),
}

BAD_QUERIES: dict[str, tuple[str, str]] = {
    "unknown": ("?weights=1", "/weights"),
    "twice": ("?metric=cosine&metric=euclidean", "/metric"),
    "NaN": ("?temperature=nan", "/temperature"),
    "not a number": ("?temperature=warm", "/temperature"),
    "empty": ("?dimension=", "/dimension"),
    "fractional dimension": ("?dimension=1.5", "/dimension"),
    "unknown content": ("?holds=gram", "/holds"),
}


class TestNpy:
    @pytest.mark.parametrize(
        "array",
        [
            SYMMETRIC,
            np.asfortranarray(SYMMETRIC),
            SYMMETRIC.astype(">f8"),
            SYMMETRIC.astype("f4"),
            SYMMETRIC.astype(">f4"),
        ],
        ids=["float64", "Fortran order", "big-endian", "float32", "big-endian float32"],
    )
    def test_is_the_same_question(self, client: TestClient, array: Any) -> None:
        response = client.post(f"{PATH}?temperature=0.5", content=npy(array), headers=NPY)
        answer, expected = response.json(), post(client, weights=SYMMETRIC.tolist(), temperature=0.5)
        assert answer["verdict"] == expected["verdict"] == "realizable"
        np.testing.assert_allclose(answer["gram"], expected["gram"], atol=1e-7)

    def test_single_precision_decides_as_finely_as_it_can(self, client: TestClient) -> None:
        answer = client.post(PATH, content=npy(SYMMETRIC.astype("f4")), headers=NPY).json()
        assert answer["tolerance"] >= 4 * 3 * 1.19e-7
        assert client.post(PATH, content=npy(SYMMETRIC), headers=NPY).json()["tolerance"] < 1e-8

    def test_order_of_unsymmetric_weights(self, client: TestClient) -> None:
        """Self weights of rows, not of columns, are what an anchor compares."""
        L = np.log(SYMMETRIC) + np.array([[0.0], [1.0], [2.0]])
        for order in ("C", "F"):
            content = npy(np.exp(np.asarray(L, order=order)))
            assert client.post(PATH, content=content, headers=NPY).json()["verdict"] == "realizable"
        content = npy(np.exp(L.T))
        assert client.post(PATH, content=content, headers=NPY).json()["reason"]["code"] == "self_weights"

    def test_logarithms(self, client: TestClient) -> None:
        L = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
        query = {"holds": "log_weights", "metric": "euclidean"}
        answer = client.post(PATH, params=query, content=npy(L), headers=NPY).json()
        assert answer["reason"]["code"] == "approached_at_infinity"

    @pytest.mark.parametrize(("content", "pointer"), BAD_FILES.values(), ids=BAD_FILES.keys())
    def test_bad_files(self, client: TestClient, content: bytes, pointer: str) -> None:
        response = client.post(PATH, content=content, headers=NPY)
        document = response.json()
        assert response.status_code == 422, response.text
        assert document["code"] in ("invalid_input", "too_large")
        assert document["errors"][0]["pointer"] == pointer

    def test_too_many_items(self, client: TestClient) -> None:
        response = client.post(PATH, content=npy_claiming("(3001, 3001)"), headers=NPY)
        assert response.json()["code"] == "too_large"

    @pytest.mark.parametrize(("query", "pointer"), BAD_QUERIES.values(), ids=BAD_QUERIES.keys())
    def test_bad_queries(self, client: TestClient, query: str, pointer: str) -> None:
        response = client.post(PATH + query, content=npy(SYMMETRIC), headers=NPY)
        assert (response.status_code, response.json()["code"]) == (422, "invalid_input")
        assert response.json()["errors"][0]["pointer"] == pointer

    def test_a_query_beside_json_is_not_overlooked(self, client: TestClient) -> None:
        response = client.post(f"{PATH}?temperature=0.5", json={"weights": SYMMETRIC.tolist()})
        assert response.status_code == 422


def test_large_matrices_do_not_hold_up_the_service(
    client: TestClient, background: Callable[..., Future[httpx2.Response]]
) -> None:
    X = np.random.default_rng(0).normal(size=(400, 20))
    bodies = [json.dumps({"weights": np.exp(X @ X.T / t).tolist()}) for t in (40.0, 50.0, 60.0, 70.0)]
    running = [background(client.post, PATH, content=body, headers=JSON) for body in bodies]
    answered = 0
    while not all(future.done() for future in running):
        assert client.get("/health/live").status_code == 200
        answered += 1
    assert answered > len(running)
    assert {future.result().status_code for future in running} == {200}
