"""Problems as answers of type application/problem+json, and in the OpenAPI document."""

from __future__ import annotations

from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from jobs.computations.parsing import MESSAGES
from jobs.problems import PROBLEMS, Problem, pointer, problem_from

MEDIA_TYPE = "application/problem+json"

HTTP_CODES = {401: "unauthorized", 404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}


def http_problem_from(error: Exception) -> Problem:
    """The problem that an exception of a request becomes, those of the framework included."""
    if isinstance(error, HTTPException):
        code = HTTP_CODES.get(error.status_code, "http_error")
        detail = "/docs shows all addresses" if code == "not_found" else error.detail
        return Problem(code, detail, status=error.status_code, headers=error.headers)
    if isinstance(error, RequestValidationError):
        return _invalid_parameters(error)
    return problem_from(error)


def _invalid_parameters(error: RequestValidationError) -> Problem:
    """Of the query string; the first part of a location says so."""
    errors = []
    for item in error.errors():
        template = MESSAGES.get(item["type"])
        message = template.format(**item.get("ctx", {})) if template else item["msg"]
        errors.append((pointer(item["loc"][1:]), message))
    where, message = errors[0]
    return Problem("invalid_input", f"{where.removeprefix('/') or 'the query'}: {message}", errors)


def problem_response(problem: Problem, request_id: str | None) -> Response:
    body = orjson.dumps(problem.document(request_id))
    return Response(body, problem.status, headers=problem.headers, media_type=MEDIA_TYPE)


async def handle_exception(request: Request, error: Exception) -> Response:
    """Exception handler of the application."""
    return problem_response(http_problem_from(error), getattr(request.state, "request_id", None))


def problem_responses(*codes: str) -> dict[int | str, dict[str, Any]]:
    """``responses=`` of a route: the listed problems, by status, each with an example."""
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(PROBLEMS[code][0], []).append(code)
    return {
        status: {
            "description": "; ".join(f"{PROBLEMS[code][1]} (`{code}`)" for code in group),
            "content": {
                MEDIA_TYPE: {
                    "schema": {"$ref": "#/components/schemas/ProblemDocument"},
                    "examples": {code: {"value": _example(code)} for code in group},
                }
            },
        }
        for status, group in sorted(by_status.items())
    }


def _example(code: str) -> dict[str, Any]:
    status, title = PROBLEMS[code]
    at_field = code in ("invalid_input", "too_large")
    return {
        "type": f"urn:anglewise:problem:{code}",
        "title": title,
        "status": status,
        "detail": "loss.temperature: must be positive" if code == "invalid_input" else title,
        "code": code,
        "errors": [{"pointer": "/loss/temperature", "message": "must be positive"}] if at_field else [],
        "request_id": "6f1c0a52f3f84a0db0f2f9c5f4b7d6aa",
    }
