"""Weights as an .npy body, with the settings in the query string."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request

from jobs.computations.parsing import invalid
from jobs.computations.realizability_array import SEPARATOR, ArraySettings
from jobs.problems import Problem, pointer
from service.request_body import read_bounded, require_no_encoding

MEDIA_TYPE = "application/x-npy"


@asynccontextmanager
async def receive(request: Request) -> AsyncIterator[bytes]:
    """The settings of the query string, checked, and the file."""
    require_no_encoding(request)
    settings = _settings(request.query_params.multi_items())
    limits = request.state.settings
    file = await read_bounded(request, limits.max_array_bytes, limits.body_seconds)
    yield settings.model_dump_json().encode() + SEPARATOR + file


def query_parameters() -> tuple[Mapping[str, Any], ...]:
    """OpenAPI of the query string; defaults are in words, or /docs would send them with JSON bodies too."""
    fields = ArraySettings.model_json_schema(ref_template="#/components/schemas/{model}")["properties"]
    return tuple(
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": f"with a body of {MEDIA_TYPE} only; default: {schema.pop('default') or 'none'}",
            "schema": schema,
        }
        for name, schema in fields.items()
    )


def _settings(query: list[tuple[str, str]]) -> ArraySettings:
    twice = [name for name, count in Counter(name for name, _ in query).items() if count > 1]
    if twice:
        message = "given twice in the query string"
        raise Problem("invalid_input", f"{twice[0]}: {message}", [(pointer(twice[:1]), message)])
    values = dict(query)
    try:
        return ArraySettings.model_validate_strings(values)
    except ValidationError as error:
        raise invalid(error, values) from None
