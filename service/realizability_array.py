"""Weights as an .npy body, with the settings in the query string."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request

from anglewise.errors import InvalidInput
from anglewise.weights import LogWeights
from service.array_files import parse_matrix, read_header
from service.computation import Computation
from service.problems import Problem, pointer
from service.realizability_request import RealizabilitySettings
from service.request_body import invalid, read_bounded, require_no_encoding
from service.settings import Limits
from service.weighted_schemas import require_few_items

MEDIA_TYPE = "application/x-npy"
SEPARATOR = b"\n"
"""Between the settings, one line of JSON, and the file."""


class ArraySettings(RealizabilitySettings):
    holds: Literal["weights", "log_weights"] = Field(
        default="weights", description="what the array holds; -inf is the logarithm of a zero weight"
    )


class ArrayRequest(BaseModel):
    """Settings and weights after all checks."""

    model_config = ConfigDict(arbitrary_types_allowed=True, frozen=True)

    settings: ArraySettings
    weights: LogWeights


@dataclass(frozen=True)
class ArrayComputation(Computation):
    """A computation on the bytes that `read` makes: settings, separator, file."""

    def parse(self, body: bytes, limits: Limits) -> ArrayRequest:
        settings, _, file = body.partition(SEPARATOR)
        checked = ArraySettings.model_validate_json(settings)
        return ArrayRequest(settings=checked, weights=_weights(file, checked.holds, limits))

    def canonical(self, body: bytes, limits: Limits) -> bytes:
        """As it came: the file is checked where it is used."""
        return body


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


def _weights(file: bytes, holds: str, limits: Limits) -> LogWeights:
    stream = io.BytesIO(file[:MAX_HEADER])
    header = read_header(stream, (holds,), "f", rank=2)
    rows, columns = header.shape
    if rows != columns or rows == 0:
        raise InvalidInput((holds,), f"must be a square matrix, not {rows} x {columns}")
    require_few_items(rows, (holds,), limits)
    matrix = parse_matrix(file, header, (holds,))
    build = LogWeights.from_weights if holds == "weights" else LogWeights.from_log_weights
    return build(matrix)


MAX_HEADER = 20_000
"""Headers are padded to 64 bytes; numpy itself evaluates none longer than 10,000."""
