"""The OpenAPI document of the application."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from jobs.computations.registry import COMPUTATIONS
from jobs.problems import ProblemDocument
from service import job_answers
from service.job_examples import ANSWERS, SUBMITTED_JOB
from service.job_kinds import DiagnoseJobRequest, JobRequest

EXAMPLE_ANSWERS = Path(__file__).parent / "example_answers"
"""Answers to the first example of each computation."""


def install(app: FastAPI) -> None:
    """Make ``app.openapi()`` the whole document."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def document(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document and the schemas of bodies, answers and problems, which it does not validate."""
    result = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
    models: list[type[BaseModel]] = [ProblemDocument, JobRequest, DiagnoseJobRequest, *job_answers.MODELS]
    for computation in COMPUTATIONS.values():
        models += [computation.request, computation.answer]
    _, schemas = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    components = result.setdefault("components", {})
    components["schemas"] = dict(sorted((components.get("schemas", {}) | schemas["$defs"]).items()))
    components["securitySchemes"] = {"api_key": {"type": "http", "scheme": "bearer"}}
    _drop_validation_errors(result)
    _add_example_answers(result["paths"])
    _add_jobs(result["paths"])
    result["security"] = [{}, {"api_key": []}]
    return result


def _drop_validation_errors(result: dict[str, Any]) -> None:
    """FastAPI's own error answer, which no route gives."""
    for name in ("HTTPValidationError", "ValidationError"):
        result["components"]["schemas"].pop(name)
    for operation in (operation for item in result["paths"].values() for operation in item.values()):
        if "application/json" in operation["responses"].get("422", {}).get("content", {}):
            del operation["responses"]["422"]


def _add_example_answers(paths: dict[str, Any]) -> None:
    """Only now: FastAPI leaves out what is null."""
    for operation in (item["post"] for item in paths.values() if "post" in item):
        file = EXAMPLE_ANSWERS / f"{operation['operationId']}.json"
        if file.exists() and "200" in operation["responses"]:
            content = operation["responses"]["200"]["content"]["application/json"]
            content["example"] = json.loads(file.read_text(encoding="utf-8"))


def _add_jobs(paths: dict[str, Any]) -> None:
    """Examples of answers about jobs."""
    for operation in (operation for item in paths.values() for operation in item.values()):
        for status, response in operation["responses"].items():
            content = response.get("content", {}).get("application/json", {})
            name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
            if name in ANSWERS:
                content["example"] = SUBMITTED_JOB if status == "202" else ANSWERS[name]
