"""Answers as JSON: numpy aware, and never a NaN or an infinity passed off as null."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from anglewise.errors import NumericalFailure


def encode(answer: Any) -> bytes:
    """UTF-8 JSON of dicts, sequences, numbers and real arrays.

    Raises:
        NumericalFailure: a number is not finite; orjson alone would write null.
    """
    return orjson.dumps(_checked(answer, "answer"), option=orjson.OPT_SERIALIZE_NUMPY)


def require_finite(array: npt.NDArray[np.float64], name: str) -> npt.NDArray[np.float64]:
    """The array itself.

    Raises:
        NumericalFailure: an entry is NaN or infinite.
    """
    if not np.isfinite(array).all():
        raise NumericalFailure(f"{name} has entries that are not finite")
    return array


def _checked(value: Any, name: str) -> Any:
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(require_finite(value, name))
    if isinstance(value, dict):
        return {key: _checked(item, key) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_checked(item, name) for item in value]
    if isinstance(value, (float, np.floating)) and not math.isfinite(value):
        raise NumericalFailure(f"{name} is not finite")
    return value
