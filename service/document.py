"""The OpenAPI document of the application."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from service.computations import COMPUTATIONS
from service.problems import ProblemDocument


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
    models: list[type[BaseModel]] = [ProblemDocument]
    for computation in COMPUTATIONS.values():
        models += [computation.request, computation.answer]
    _, schemas = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    components = result.setdefault("components", {})
    components["schemas"] = dict(sorted((components.get("schemas", {}) | schemas["$defs"]).items()))
    components["securitySchemes"] = {"api_key": {"type": "http", "scheme": "bearer"}}
    result["security"] = [{}, {"api_key": []}]
    return result
