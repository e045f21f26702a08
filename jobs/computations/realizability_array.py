"""Weights as an .npy file, with the settings before it."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from anglewise.errors import InvalidInput
from anglewise.weights import LogWeights
from jobs.computations.array_files import parse_matrix, read_header
from jobs.computations.computation import Computation
from jobs.computations.limits import Limits
from jobs.computations.realizability_request import RealizabilitySettings
from jobs.computations.weighted_schemas import require_few_items

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
    """A computation on these bytes: settings, separator, file."""

    def parse(self, body: bytes, limits: Limits) -> ArrayRequest:
        settings, _, file = body.partition(SEPARATOR)
        checked = ArraySettings.model_validate_json(settings)
        return ArrayRequest(settings=checked, weights=_weights(file, checked.holds, limits))

    def canonical(self, body: bytes, limits: Limits) -> bytes:
        """As it came: the file is checked where it is used."""
        return body


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
