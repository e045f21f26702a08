"""Problems as answers of type application/problem+json, and in the OpenAPI document."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from jobs.problems import PROBLEMS, Problem, problem_from

MEDIA_TYPE = "application/problem+json"

HTTP_CODES = {401: "unauthorized", 404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}


def http_problem_from(error: Exception) -> Problem:
    """The problem that an exception of a request becomes, those of the framework included."""
    if isinstance(error, HTTPException):
        code = HTTP_CODES.get(error.status_code, "http_error")
        detail = "/docs shows all addresses" if code == "not_found" else error.detail
        return Problem(code, detail, status=error.status_code, headers=error.headers)
    return problem_from(error)


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
    at_field = HTTPStatus(status) is HTTPStatus.UNPROCESSABLE_ENTITY and code != "numerical_failure"
    return {
        "type": f"urn:anglewise:problem:{code}",
        "title": title,
        "status": status,
        "detail": "loss.temperature: must be positive" if code == "invalid_input" else title,
        "code": code,
        "errors": [{"pointer": "/loss/temperature", "message": "must be positive"}] if at_field else [],
        "request_id": "6f1c0a52f3f84a0db0f2f9c5f4b7d6aa",
    }
