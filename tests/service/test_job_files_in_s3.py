"""Results in S3: by signed address, or through the service where clients cannot reach the store."""

from __future__ import annotations

import uuid
from pathlib import Path

import httpx2
import pytest
from job_application import application, submit, succeed

ANSWER = b'{"exact_threshold": 0.75}'


@pytest.fixture
def store_url(s3_environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in s3_environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://anglewise/{uuid.uuid4().hex}"


def test_a_result_is_fetched_from_a_signed_address(store_url: str, tmp_path: Path) -> None:
    with application(tmp_path, store_url=store_url) as client:
        job_id = submit(client)
        succeed(client, job_id, {"result.json": ANSWER})
        response = client.get(f"/jobs/{job_id}/result", follow_redirects=False)
    assert response.status_code == 307
    address = response.headers["location"]
    assert httpx2.get(address).content == ANSWER
    forged = address.replace("X-Amz-Signature=", "X-Amz-Signature=0")
    assert httpx2.get(forged).status_code == 403


def test_a_result_goes_through_the_service_if_a_setting_says_so(store_url: str, tmp_path: Path) -> None:
    with application(tmp_path, store_url=store_url, signed_downloads=False) as client:
        job_id = submit(client)
        succeed(client, job_id, {"result.json": ANSWER})
        response = client.get(f"/jobs/{job_id}/result", follow_redirects=False)
        assert (response.status_code, response.content) == (200, ANSWER)
        assert client.delete(f"/jobs/{job_id}").status_code == 204
        assert client.get(f"/jobs/{job_id}/result").status_code == 404


def test_a_store_that_is_away_is_a_503_that_says_when_to_come_back(
    store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with application(tmp_path, store_url=store_url) as client:
        response = client.post("/jobs", json={"kind": "collapse_threshold", "spec": {"classes": 5}})
        assert (response.status_code, response.json()["code"]) == (503, "storage_unavailable")
        assert int(response.headers["retry-after"]) > 0
        assert client.get("/health/live").status_code == 200
        assert client.get("/health/ready").status_code == 503
