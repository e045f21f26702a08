"""What a refusal of a media type says."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/optimal-geometry", "send application/json, not text/plain"),
        ("/realizability?temperature=1", "send application/json or application/x-npy, not text/plain"),
        ("/diagnose", "send application/json or multipart/form-data, not text/plain"),
    ],
)
def test_every_type_the_route_takes_is_named(client: TestClient, path: str, wanted: str) -> None:
    response = client.post(path, content="W", headers={"Content-Type": "text/plain"})
    assert response.status_code == 415
    assert response.json()["detail"] == wanted


def test_a_wrong_key_is_told_from_a_missing_one(tiny: TestClient) -> None:
    wrong = tiny.get("/docs", headers={"Authorization": "Bearer wrong"})
    assert (wrong.status_code, wrong.json()["detail"]) == (401, "this key is not known")
    missing = tiny.get("/docs", headers={"Authorization": ""})
    assert missing.status_code == 401
    assert missing.json()["detail"].startswith("send a key")
