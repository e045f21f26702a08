"""Every kind of bad request gets a problem that names the field, and never a 500."""

from __future__ import annotations

import json
from typing import Any

import pytest
from starlette.testclient import TestClient

PROBLEM_FIELDS = {"type", "title", "status", "detail", "code", "errors", "request_id"}
JSON = {"Content-Type": "application/json"}
HUGE = "9" * 5000


def counts(text: str) -> str:
    return f'{{"class_counts": [3, {text}]}}'


def loss(**fields: Any) -> str:
    return json.dumps({"class_counts": [5, 3, 2], "loss": fields})


def axis(**fields: Any) -> str:
    x = {"name": "temperature", "values": [1.0]} | fields
    return json.dumps(
        {"classes": 3, "quantity": "exact_threshold", "x": x, "y": {"name": "negatives", "values": [1]}}
    )


MALFORMED: dict[str, str | bytes] = {
    "empty": b"",
    "white space": b" \n",
    "truncated": b'{"class_counts": [1,',
    "not JSON": b"class_counts=1",
    "two documents": b'{"class_counts": [1, 2]} {}',
    "not UTF-8": b'{"class_counts": "\xff"}',
    "byte order mark": b'\xef\xbb\xbf{"class_counts": [1, 2]}',
    "nested lists": b"[" * 100_000,
    "nested objects": b'{"a":' * 100_000,
    "name given twice": b'{"class_counts": [1, 2], "class_counts": [3, 4]}',
    "name given twice inside": b'{"class_counts": [1, 2], "loss": {"alpha": 1, "alpha": 2}}',
}

INVALID: dict[str, tuple[str, str]] = {
    "list": ("[]", ""),
    "null": ("null", ""),
    "number": ("NaN", ""),
    "string": ('"class_counts"', ""),
    "nothing": ("{}", "/class_counts"),
    "both sources": ('{"class_counts": [1, 2], "class_proportions": [0.5, 0.5]}', "/class_proportions"),
    "unknown field": ('{"class_counts": [1, 2], "classcounts": [1]}', "/classcounts"),
    "pointer escapes": ('{"class_counts": [1, 2], "a/b~": [1]}', "/a~1b~0"),
    "no class": ('{"class_counts": []}', "/class_counts"),
    "no proportion": ('{"class_proportions": []}', "/class_proportions"),
    "counts not a list": ('{"class_counts": {"0": 1}}', "/class_counts"),
    "deep inside": ('{"class_counts": ' + "[" * 500 + "]" * 500 + "}", "/class_counts/0"),
    "negative count": (counts("-1"), "/class_counts/1"),
    "zero count": (counts("0"), "/class_counts/1"),
    "NaN count": (counts("NaN"), "/class_counts/1"),
    "infinite count": (counts("Infinity"), "/class_counts/1"),
    "overflowing count": (counts("1e999"), "/class_counts/1"),
    "count of 5,000 digits": (counts(HUGE), "/class_counts/1"),
    "count of 400 digits": (counts("9" * 400), "/class_counts/1"),
    "count beyond 2^53": (counts(str(2**53)), "/class_counts/1"),
    "string count": (counts('"2"'), "/class_counts/1"),
    "NaN as a string": (counts('"NaN"'), "/class_counts/1"),
    "boolean count": (counts("true"), "/class_counts/1"),
    "fractional count": (counts("2.5"), "/class_counts/1"),
    "null count": (counts("null"), "/class_counts/1"),
    "NaN proportion": ('{"class_proportions": [0.5, NaN]}', "/class_proportions/1"),
    "infinite proportion": ('{"class_proportions": [0.5, -Infinity]}', "/class_proportions/1"),
    "proportion of 5,000 digits": (f'{{"class_proportions": [0.5, {HUGE}]}}', "/class_proportions/1"),
    "zero proportion": ('{"class_proportions": [1, 0]}', "/class_proportions/1"),
    "wrong sum": ('{"class_proportions": [0.5, 0.4]}', "/class_proportions"),
    "one supervised class": ('{"class_counts": [3]}', "/sampling"),
    "unknown sampling": ('{"class_counts": [1, 2], "sampling": "semi"}', "/sampling"),
    "dimension zero": ('{"class_counts": [1, 2], "dimension": 0}', "/dimension"),
    "dimension as a float": ('{"class_counts": [1, 2], "dimension": 2.0}', "/dimension"),
    "nonnegative as a number": ('{"class_counts": [1, 2], "nonnegative": 1}', "/nonnegative"),
    "unknown solver": ('{"class_counts": [1, 2], "solver": "magic"}', "/solver"),
    "tolerance zero": ('{"class_counts": [1, 2], "tolerance": 0}', "/tolerance"),
    "tolerance that underflows": ('{"class_counts": [1, 2], "tolerance": 1e-400}', "/tolerance"),
    "loss not an object": ('{"class_counts": [1, 2], "loss": "infonce"}', "/loss"),
    "loss null": ('{"class_counts": [1, 2], "loss": null}', "/loss"),
    "unknown loss": (loss(name="crossentropy"), "/loss/name"),
    "loss named by a list": (loss(name=["infonce"]), "/loss/name"),
    "lone surrogate": ('{"class_counts": [1, 2], "loss": {"name": "\\ud800"}}', "/loss/name"),
    "margin of InfoNCE": (loss(name="infonce", margin=0.5), "/loss/margin"),
    "temperature of triplet": (loss(name="triplet", temperature=1.0), "/loss/temperature"),
    "temperature of squared hinge": (loss(name="squared_hinge", temperature=1.0), "/loss/temperature"),
    "alpha of logistic": (loss(name="logistic", alpha=1.0), "/loss/alpha"),
    "beta of exponential": (loss(name="exponential", beta=1.0), "/loss/beta"),
    "temperature zero": (loss(temperature=0), "/loss/temperature"),
    "temperature too low": (loss(temperature=1e-4), "/loss/temperature"),
    "temperature NaN": (loss(temperature=float("nan")), "/loss/temperature"),
    "temperature infinite": (loss(temperature=float("inf")), "/loss/temperature"),
    "temperature a string": (loss(temperature="0.1"), "/loss/temperature"),
    "alpha negative": (loss(alpha=-1), "/loss/alpha"),
    "beta zero": (loss(beta=0), "/loss/beta"),
    "hardness negative": (loss(hardness=-1), "/loss/hardness"),
    "margin too large": (loss(name="logistic", margin=1e3), "/loss/margin"),
    "no negatives": (loss(negatives=0), "/loss/negatives"),
    "half a negative": (loss(negatives=2.5), "/loss/negatives"),
    "too many negatives": (loss(negatives=10**400), "/loss/negatives"),
    "negatives in words": (loss(negatives="many"), "/loss/negatives"),
    "sum over infinitely many": (loss(negatives="infinite", reduction="sum"), "/loss/reduction"),
    "unknown reduction": (loss(reduction="max"), "/loss/reduction"),
}

INVALID_THRESHOLD: dict[str, tuple[str, str]] = {
    "no classes": ("{}", "/classes"),
    "two classes": ('{"classes": 2}', "/classes"),
    "hard negatives": ('{"classes": 3, "loss": {"hardness": 1.0}}', "/loss/hardness"),
}

INVALID_MAP: dict[str, tuple[str, str]] = {
    "no axes": ('{"classes": 3, "quantity": "exact_threshold"}', "/x"),
    "no values": (axis(values=[]), "/x/values"),
    "unknown parameter": (axis(name="epochs"), "/x/name"),
    "the same parameter twice": (axis(name="negatives"), "/y/name"),
    "value out of range": (axis(values=[1.0, -1.0]), "/x/values/1"),
    "infinite temperature": (axis(values=[1.0, "infinite"]), "/x/values/1"),
    "NaN value": (axis(values=[float("nan")]), "/x/values/0"),
    "value as a string": (axis(values=["1.0"]), "/x/values/0"),
}


def check_problem(response: Any, status: int, code: str) -> Any:
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert set(document) == PROBLEM_FIELDS
    assert (response.status_code, document["status"], document["code"]) == (status, status, code)
    assert document["type"] == f"urn:anglewise:problem:{code}"
    assert document["request_id"] == response.headers["x-request-id"]
    assert document["title"]
    assert document["detail"]
    return document


class TestMalformed:
    @pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
    def test_body(self, client: TestClient, body: bytes) -> None:
        document = check_problem(
            client.post("/optimal-geometry", content=body, headers=JSON), 400, "malformed_json"
        )
        assert document["errors"][0]["pointer"] == ""


class TestInvalid:
    @pytest.mark.parametrize(("body", "pointer"), INVALID.values(), ids=INVALID.keys())
    def test_optimal_geometry(self, client: TestClient, body: str, pointer: str) -> None:
        self.check(client, "/optimal-geometry", body, pointer)

    @pytest.mark.parametrize(("body", "pointer"), INVALID_THRESHOLD.values(), ids=INVALID_THRESHOLD.keys())
    def test_collapse_threshold(self, client: TestClient, body: str, pointer: str) -> None:
        self.check(client, "/collapse-threshold", body, pointer)

    @pytest.mark.parametrize(("body", "pointer"), INVALID_MAP.values(), ids=INVALID_MAP.keys())
    def test_collapse_map(self, client: TestClient, body: str, pointer: str) -> None:
        self.check(client, "/collapse-map", body, pointer)

    def check(self, client: TestClient, path: str, body: str, pointer: str) -> None:
        document = check_problem(client.post(path, content=body, headers=JSON), 422, "invalid_input")
        assert pointer in [error["pointer"] for error in document["errors"]]
        assert all(error["message"] for error in document["errors"])

    def test_large_bodies_are_refused_alike(self, client: TestClient) -> None:
        """They are validated in a solver process."""
        body = json.dumps({"class_counts": [5] * 200_000, "sampling": "semi"})
        assert len(body) > 128 * 1024
        self.check(client, "/optimal-geometry", body, "/sampling")

    def test_number_of_errors_is_bounded(self, client: TestClient) -> None:
        body = json.dumps({f"field{i}": i for i in range(1000)})
        document = check_problem(
            client.post("/optimal-geometry", content=body, headers=JSON), 422, "invalid_input"
        )
        assert len(document["errors"]) == 20

    def test_long_names_are_cut(self, client: TestClient) -> None:
        body = json.dumps({"x" * 100_000: 1})
        response = client.post("/optimal-geometry", content=body, headers=JSON)
        check_problem(response, 422, "invalid_input")
        assert len(response.content) < 2000


class TestHttp:
    @pytest.mark.parametrize(
        "media_type", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
    )
    def test_content_type(self, client: TestClient, media_type: str) -> None:
        headers = {"Content-Type": media_type} if media_type else {}
        response = client.post("/optimal-geometry", content=b'{"class_counts": [1, 2]}', headers=headers)
        check_problem(response, 415, "unsupported_media_type")

    def test_content_encoding(self, client: TestClient) -> None:
        headers = {**JSON, "Content-Encoding": "gzip"}
        response = client.post("/optimal-geometry", content=b"\x1f\x8b", headers=headers)
        check_problem(response, 415, "unsupported_media_type")

    def test_charset_is_no_obstacle(self, client: TestClient) -> None:
        headers = {"Content-Type": "application/json; charset=utf-8"}
        assert (
            client.post("/collapse-threshold", content=b'{"classes": 3}', headers=headers).status_code == 200
        )

    @pytest.mark.parametrize("accept", ["text/html", "application/xml, image/*", "application/json;q=0"])
    def test_not_acceptable(self, client: TestClient, accept: str) -> None:
        response = client.post("/optimal-geometry", json={"class_counts": [1, 2]}, headers={"Accept": accept})
        check_problem(response, 406, "not_acceptable")

    def test_archives_are_for_geometries(self, client: TestClient) -> None:
        headers = {"Accept": "application/x-npz"}
        check_problem(
            client.post("/collapse-threshold", json={"classes": 3}, headers=headers), 406, "not_acceptable"
        )

    @pytest.mark.parametrize(
        "accept", ["*/*", "application/*", "application/json", "text/html, application/json;q=0.9"]
    )
    def test_acceptable(self, client: TestClient, accept: str) -> None:
        response = client.post("/collapse-threshold", json={"classes": 3}, headers={"Accept": accept})
        assert response.headers["content-type"] == "application/json"

    def test_query(self, client: TestClient) -> None:
        """Nothing is ignored."""
        response = client.post("/collapse-threshold?classes=3", json={"classes": 4})
        check_problem(response, 422, "invalid_input")

    def test_unknown_address(self, client: TestClient) -> None:
        check_problem(client.get("/optimal"), 404, "not_found")

    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "PATCH"])
    def test_method(self, client: TestClient, method: str) -> None:
        response = client.request(method, "/optimal-geometry")
        check_problem(response, 405, "method_not_allowed")
        assert response.headers["allow"] == "POST"

    def test_head_has_no_body(self, client: TestClient) -> None:
        assert client.head("/health/live").status_code == 200
        assert client.head("/optimal-geometry").status_code == 405

    def test_request_id_is_kept(self, client: TestClient) -> None:
        response = client.post("/collapse-threshold", json={}, headers={"X-Request-ID": "train-7.step_3"})
        assert response.headers["x-request-id"] == response.json()["request_id"] == "train-7.step_3"

    @pytest.mark.parametrize("given", ["", "a b", "x" * 129, "<script>"])
    def test_ill_formed_request_id_is_replaced(self, client: TestClient, given: str) -> None:
        response = client.get("/health/live", headers={"X-Request-ID": given})
        assert len(response.headers["x-request-id"]) == 32
