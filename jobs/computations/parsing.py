"""From the bytes of a request to a validated model, or to a problem that names the field."""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from jobs.problems import MAX_ERRORS, Problem, pointer

Model = TypeVar("Model", bound=BaseModel)

MAX_INTEGER_DIGITS = 400
"""Longer integers exceed every float and every limit here, and cost quadratic time to convert."""
TAG_ERRORS = ("unknown_loss", "union_tag_invalid", "union_tag_not_found")
"""Errors about the field that says what an object is, which pydantic places at the object around it."""

MESSAGES = {
    "bool_type": "must be true or false",
    "extra_forbidden": "unknown field",
    "finite_number": "must be finite",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_parsing": "must be an integer",
    "int_type": "must be an integer",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "list_type": "must be a list",
    "literal_error": "must be {expected}",
    "missing": "is required",
    "model_type": "must be an object",
    "string_type": "must be a string",
    "union_tag_invalid": "must be one of {expected_tags}",
    "union_tag_not_found": "is required",
    "too_short": "needs at least {min_length} item",
}
"""Pydantic's errors in the words of the core."""


def parse(body: bytes, model: type[Model]) -> Model:
    """Validate a JSON document.

    Raises:
        Problem: malformed_json, or invalid_input with a pointer to each bad value.
    """
    return validate(parse_json(body), model)


def validate(document: Any, model: type[Model]) -> Model:
    """The model of a document that is parsed already.

    Raises:
        Problem: invalid_input with a pointer to each bad value.
    """
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise invalid(error, document) from None


def invalid(error: ValidationError, document: Any) -> Problem:
    """The problem that a failed validation of ``document`` becomes."""
    return Problem("invalid_input", *_describe(error, document))


def parse_json(body: bytes) -> Any:
    """A JSON document. NaN, infinities and huge integers come out as non-finite floats, for the model
    to refuse where they stand; a name given twice in an object is refused here."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        _malformed(f"not UTF-8 at byte {error.start}")
    if not text.strip():
        _malformed("the body is empty")
    try:
        return _load(text)
    except json.JSONDecodeError as error:
        _malformed(f"{error.msg} at line {error.lineno}, column {error.colno}")
    except RecursionError:
        _malformed("nested too deeply")


def _load(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_unique_names)
    except json.JSONDecodeError:
        raise
    except ValueError:  # an integer beyond Python's limit on digits
        return json.loads(text, object_pairs_hook=_unique_names, parse_int=_bounded_integer)


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = Counter(name for name, _ in pairs)
        twice = names.most_common(1)[0][0]
        raise Problem(
            "malformed_json", f"the name {twice!r} is given twice in one object", [("", "name given twice")]
        )
    return result


def _bounded_integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= MAX_INTEGER_DIGITS else math.inf


def _malformed(message: str) -> NoReturn:
    raise Problem("malformed_json", message, [("", message)])


def _describe(error: ValidationError, document: Any) -> tuple[str, list[tuple[str, str]]]:
    messages: dict[str, list[str]] = {}
    for item in error.errors(include_url=False, include_input=False):
        where = pointer(_path(item, document))
        template = MESSAGES.get(item["type"])
        message = template.format(**item.get("ctx", {})) if template else item["msg"]
        if message not in messages.setdefault(where, []):
            messages[where].append(message)
        if len(messages) == MAX_ERRORS:
            break
    errors = [(where, " or ".join(texts)) for where, texts in messages.items()]
    where, message = errors[0]
    return f"{where or 'the body'}: {message}", errors


def _path(error: ErrorDetails, document: Any) -> list[str | int]:
    """The part of pydantic's location that is in the document; the names of union members are not."""
    location, kind = error["loc"], error["type"]
    path: list[str | int] = []
    for position, part in enumerate(location):
        is_last = position == len(location) - 1
        inside, value = _child(document, part)
        if inside:
            document = value
        elif not (is_last and kind == "missing"):
            continue
        path.append(part)
    if kind in TAG_ERRORS and isinstance(document, dict):
        tag = str(error.get("ctx", {}).get("discriminator", "")).strip("'")
        path.append(tag if tag.isidentifier() else "name")
    return path


def _child(document: Any, part: str | int) -> tuple[bool, Any]:
    if isinstance(document, (dict, list)):
        with contextlib.suppress(LookupError, TypeError):
            return True, document[part]  # type: ignore[index]
    return False, None
