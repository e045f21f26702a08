"""The committed document is what the code says, and the service keeps to it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.config import (
    CoveragePhaseConfig,
    GenerationConfig,
    PhasesConfig,
    ProjectConfig,
    ProjectsConfig,
    SchemathesisConfig,
)
from starlette.testclient import TestClient

from service.app import create_app
from service.openapi import PATH, render
from service.settings import Settings

EXAMPLES = 25
"""Generated requests per operation, valid and invalid ones."""
START_SECONDS = 600

load_all_checks()
KEPT = CHECKS.get_by_names(
    [
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
        "negative_data_rejection",
    ]
)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """Small limits: generated requests may be expensive. Jobs are accepted, and wait: there is no broker."""
    limits: dict[str, Any] = {"deadline_seconds": 5.0, "max_classes": 100, "max_map_cells": 20}
    jobs = {"store_url": "memory:///", "broker_url": "unix:///nonexistent/valkey.sock"}
    settings = Settings(workers=2, **limits, **jobs)
    with TestClient(create_app(settings), raise_server_exceptions=False) as running:
        deadline = time.monotonic() + START_SECONDS
        while not running.app_state["engine"].pool.pids:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield running


def generated(*, at_boundaries: bool) -> Any:
    """Requests made from the document; ``at_boundaries`` adds one for every bound and type in it."""
    project = ProjectConfig(
        generation=GenerationConfig(deterministic=True, database="none"),
        phases=PhasesConfig(coverage=CoveragePhaseConfig(enabled=at_boundaries)),
    )
    return schemathesis.openapi.from_dict(
        create_app(Settings.model_construct()).openapi(),
        config=SchemathesisConfig(projects=ProjectsConfig(default=project)),
    )


PICTURES = "/diagnose"
"""Draws a picture for each answer, which takes half a second."""

quick = generated(at_boundaries=True).exclude(path=PICTURES)
slow = generated(at_boundaries=False).include(path=PICTURES)
few = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def document(client: TestClient) -> Any:
    return client.get("/openapi.json").json()


def operations(client: TestClient) -> dict[str, Any]:
    """By address, those that compute."""
    posts = {path: item["post"] for path, item in document(client)["paths"].items() if "post" in item}
    return {
        path: post for path, post in posts.items() if "requestBody" in post and "200" in post["responses"]
    }


def json_content(described: Any) -> Any:
    return described["content"]["application/json"]


class TestDocument:
    def test_is_committed_as_generated(self) -> None:
        assert PATH.read_text(encoding="utf-8") == render(), "run: python run.py openapi"

    def test_is_served_as_committed(self, client: TestClient) -> None:
        assert client.get("/openapi.json").text.replace(" ", "") in PATH.read_text("utf-8").replace(
            "\n", ""
        ).replace(" ", "")

    def test_version(self, client: TestClient) -> None:
        assert document(client)["openapi"] == "3.1.0"

    def test_operation_ids_are_words(self, client: TestClient) -> None:
        ids = [
            operation["operationId"]
            for item in document(client)["paths"].values()
            for operation in item.values()
        ]
        assert len(set(ids)) == len(ids)
        assert all(name.replace("_", "").isalpha() and name.islower() for name in ids)

    def test_problems_are_listed(self, client: TestClient) -> None:
        for operation in operations(client).values():
            responses = operation["responses"]
            assert {"400", "413", "415", "422", "500", "503"} <= set(responses)
            for status, response in responses.items():
                if status not in ("200", "202"):
                    assert set(response["content"]) == {"application/problem+json"}

    def test_answers_have_no_defaults(self, client: TestClient) -> None:
        """Otherwise generated clients take fields for optional that are always there."""
        schemas = document(client)["components"]["schemas"]
        for name, described in schemas.items():
            if name.endswith("Answer") and "properties" in described:
                assert set(described["required"]) == set(described["properties"]), name


class TestExamples:
    def test_requests_are_valid_and_answered_as_documented(self, client: TestClient) -> None:
        for path, operation in operations(client).items():
            examples = [item["value"] for item in json_content(operation["requestBody"])["examples"].values()]
            assert examples, path
            responses = [client.post(path, json=example) for example in examples]
            assert {response.status_code for response in responses} == {200}, path
            documented = json_content(operation["responses"]["200"])["example"]
            compare(responses[0].json(), documented, path)

    def test_answers_fit_their_schemas(self, client: TestClient) -> None:
        schemas = document(client)["components"]
        for path, operation in operations(client).items():
            described = json_content(operation["responses"]["200"])
            validator = jsonschema_rs.validator_for({**described["schema"], "components": schemas})
            for example in json_content(operation["requestBody"])["examples"].values():
                validator.validate(client.post(path, json=example["value"]).json())


class TestJobs:
    """The answers are documented, too."""

    def fits(self, client: TestClient, path: str, method: str, response: Any) -> Any:
        described = document(client)["paths"][path][method]["responses"][str(response.status_code)]
        schema = {**json_content(described)["schema"], "components": document(client)["components"]}
        jsonschema_rs.validator_for(schema).validate(response.json())
        jsonschema_rs.validator_for(schema).validate(json_content(described)["example"])
        return response.json()

    def test_from_submission_to_deletion(self, client: TestClient) -> None:
        examples = document(client)["paths"]["/jobs"]["post"]["requestBody"]["content"]["application/json"]
        ids = []
        for example in examples["examples"].values():
            response = client.post("/jobs", json=example["value"])
            if "job" in example["value"]["spec"]:  # the one it names is not here
                assert response.json()["errors"][0]["pointer"] == "/spec/job"
            else:
                ids.append(self.fits(client, "/jobs", "post", response)["id"])
        assert len(ids) == 3
        for job_id in ids:
            job = self.fits(client, "/jobs/{job_id}", "get", client.get(f"/jobs/{job_id}"))
            assert client.get(job["links"]["spec"]).json() == job["spec"]
            self.fits(client, "/jobs/{job_id}/metrics", "get", client.get(job["links"]["metrics"]))
            self.fits(client, "/jobs/{job_id}/artifacts", "get", client.get(job["links"]["artifacts"]))
            self.fits(client, "/jobs/{job_id}/cancel", "post", client.post(job["links"]["cancel"]))
        self.fits(client, "/jobs", "get", client.get("/jobs"))
        assert {client.delete(f"/jobs/{job_id}").status_code for job_id in ids} == {204}

    def test_instead_of_an_answer(self, client: TestClient) -> None:
        for path, operation in operations(client).items():
            example = next(iter(json_content(operation["requestBody"])["examples"].values()))["value"]
            response = client.post(path, json=example, headers={"Prefer": "respond-async"})
            assert response.status_code == 202, path
            self.fits(client, path, "post", response)


def compare(answer: Any, documented: Any, where: str) -> None:
    """Equal up to the six digits of the documentation; times and numbers that are only rounding are free."""
    if isinstance(documented, dict):
        assert set(answer) == set(documented), where
        for name, value in documented.items():
            if name not in ("seconds", "iterations", "picture"):
                compare(answer[name], value, f"{where}/{name}")
    elif isinstance(documented, list):
        assert len(answer) == len(documented), where
        for position, value in enumerate(documented):
            compare(answer[position], value, f"{where}/{position}")
    elif isinstance(documented, float):
        assert answer == pytest.approx(documented, rel=1e-4, abs=1e-6), where
    else:
        assert answer == documented, where


class TestGenerated:
    @quick.parametrize()
    @few
    def test_every_response_is_documented(self, case: schemathesis.Case, client: TestClient) -> None:
        check_response(case, client)

    @slow.parametrize()
    @few
    def test_with_pictures(self, case: schemathesis.Case, client: TestClient) -> None:
        check_response(case, client)


def body_of(call: dict[str, Any]) -> dict[str, Any]:
    return {"json": call["json"]} if "json" in call else {"content": call.get("data")}


def check_response(case: schemathesis.Case, client: TestClient) -> None:
    call = case.as_transport_kwargs()
    response = client.request(
        call["method"],
        case.formatted_path,
        headers={name: value.encode("latin-1") for name, value in call["headers"].items()},
        params=call.get("params"),
        **body_of(call),
    )
    assert response.status_code != 500, response.text
    case.validate_response(response, checks=KEPT)
