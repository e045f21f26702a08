"""Every failure as application/problem+json (RFC 9457), and the one table from error to status."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import orjson
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from anglewise.errors import InvalidInput, NumericalFailure, TooLarge

logger = logging.getLogger("anglewise.service")

MEDIA_TYPE = "application/problem+json"
MAX_ERRORS = 20
MAX_TEXT = 300

PROBLEMS: dict[str, tuple[int, str]] = {
    "malformed_json": (400, "The body is not valid JSON"),
    "malformed_http": (400, "The request is not valid HTTP"),
    "unauthorized": (401, "An API key is needed"),
    "not_found": (404, "There is nothing here"),
    "method_not_allowed": (405, "This address does not take this method"),
    "upload_timeout": (408, "The body took too long to arrive"),
    "head_timeout": (408, "The headers took too long to arrive"),
    "not_acceptable": (406, "No representation that the client accepts"),
    "body_too_large": (413, "The body is too large"),
    "unsupported_media_type": (415, "The body has a type that is not read here"),
    "invalid_input": (422, "The request has an invalid value"),
    "too_large": (422, "The problem is too large to answer at once"),
    "numerical_failure": (422, "The computation broke down"),
    "head_too_large": (431, "The headers are too large"),
    "storage_full": (507, "There is no space for the upload"),
    "internal_error": (500, "The service failed"),
    "deadline": (503, "The computation met its deadline"),
    "busy": (503, "Too many computations are waiting"),
    "worker_lost": (503, "The computation ended abnormally"),
    "not_ready": (503, "The service is not ready"),
    "http_error": (400, "The request was refused"),
}
"""Code of a problem: its HTTP status and its title."""

ERROR_CODES: tuple[tuple[type[Exception], str], ...] = (
    (TooLarge, "too_large"),
    (InvalidInput, "invalid_input"),
    (NumericalFailure, "numerical_failure"),
    (MemoryError, "too_large"),
)
"""Error of the core, or of Python: the code of its problem; the first that fits."""

HTTP_CODES = {401: "unauthorized", 404: "not_found", 405: "method_not_allowed", 413: "body_too_large"}


class FieldError(BaseModel):
    pointer: str = Field(description="JSON pointer (RFC 6901) into the body; empty for the body itself")
    message: str


class ProblemDocument(BaseModel):
    """Error answers, as RFC 9457 problem details."""

    type: str = Field(description="`urn:anglewise:problem:` and the code")
    title: str
    status: int
    detail: str
    code: str = Field(description="stable word for programs: " + ", ".join(PROBLEMS))
    errors: list[FieldError]
    request_id: str | None


class Problem(Exception):
    """A failure with everything its document says, except the id of the request."""

    def __init__(
        self,
        code: str,
        detail: str,
        errors: Iterable[tuple[str, str]] = (),
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.status = status or PROBLEMS[code][0]
        self.detail = _printable(detail)
        self.errors = [(_printable(pointer), _printable(message)) for pointer, message in errors]
        self.headers = dict(headers or {})

    def fields(self) -> dict[str, Any]:
        """Arguments that make this problem again, in another process."""
        return {"code": self.code, "detail": self.detail, "errors": self.errors, "status": self.status}


def pointer(path: Iterable[str | int]) -> str:
    """JSON pointer (RFC 6901) of a field path.

    >>> pointer(("loss", "a/b", 3))
    '/loss/a~1b/3'
    """
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def problem_from(error: Exception) -> Problem:
    """The problem that an exception becomes; anything unforeseen is logged and says nothing."""
    if isinstance(error, Problem):
        return error
    for kind, code in ERROR_CODES:
        if isinstance(error, kind):
            if isinstance(error, InvalidInput):
                return Problem(code, str(error), [(pointer(error.field), error.message)])
            detail = (
                "the computation needs more memory than it may use" if kind is MemoryError else str(error)
            )
            return Problem(code, detail)
    if isinstance(error, HTTPException):
        code = HTTP_CODES.get(error.status_code, "http_error")
        detail = "/docs shows all addresses" if code == "not_found" else error.detail
        return Problem(code, detail, status=error.status_code, headers=error.headers)
    logger.error("unforeseen error", exc_info=error)
    return Problem("internal_error", "an unforeseen error; the log of the service has its details")


def problem_response(problem: Problem, request_id: str | None) -> Response:
    document = {
        "type": f"urn:anglewise:problem:{problem.code}",
        "title": PROBLEMS[problem.code][1],
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
        "errors": [{"pointer": where, "message": what} for where, what in problem.errors[:MAX_ERRORS]],
        "request_id": request_id,
    }
    return Response(orjson.dumps(document), problem.status, headers=problem.headers, media_type=MEDIA_TYPE)


async def handle_exception(request: Request, error: Exception) -> Response:
    """Exception handler of the application."""
    return problem_response(problem_from(error), getattr(request.state, "request_id", None))


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


def _printable(text: str) -> str:
    """Short, and without the lone surrogates a client may have put into a name."""
    short = text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"
    return short.encode("utf-8", "backslashreplace").decode()
