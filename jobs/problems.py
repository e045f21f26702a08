"""Every failure as a problem (RFC 9457), and the one table from error to status."""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel, Field

from anglewise.errors import InvalidInput, NumericalFailure, TooLarge

logger = logging.getLogger("anglewise.jobs")

MAX_ERRORS = 20
MAX_TEXT = 300

PROBLEMS: dict[str, tuple[int, str]] = {
    "malformed_json": (400, "The body is not valid JSON"),
    "malformed_http": (400, "The request is not valid HTTP"),
    "unauthorized": (401, "An API key is needed"),
    "not_found": (404, "There is nothing here"),
    "method_not_allowed": (405, "This address does not take this method"),
    "not_finished": (409, "The job has not ended yet"),
    "no_result": (409, "The job ended without a result"),
    "already_ended": (409, "The job has ended already"),
    "in_use": (409, "A job that has not ended needs it"),
    "built_in": (409, "It comes with the service"),
    "upload_timeout": (408, "The body took too long to arrive"),
    "head_timeout": (408, "The headers took too long to arrive"),
    "not_acceptable": (406, "No representation that the client accepts"),
    "body_too_large": (413, "The body is too large"),
    "unsupported_media_type": (415, "The body has a type that is not read here"),
    "invalid_input": (422, "The request has an invalid value"),
    "too_large": (422, "The problem is too large to answer at once"),
    "numerical_failure": (422, "The computation broke down"),
    "idempotency_mismatch": (422, "The idempotency key belongs to another request"),
    "too_many_requests": (429, "Too many requests with this key"),
    "head_too_large": (431, "The headers are too large"),
    "internal_error": (500, "The service failed"),
    "deadline": (503, "The computation met its deadline"),
    "busy": (503, "Too many computations are waiting"),
    "worker_lost": (503, "The computation ended abnormally"),
    "not_ready": (503, "The service is not ready"),
    "storage_unavailable": (503, "The object store does not answer"),
    "jobs_unavailable": (503, "This service takes no jobs"),
    "training_unavailable": (503, "This service does not train"),
    "storage_full": (507, "There is no space left"),
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

    def document(self, request_id: str | None) -> dict[str, Any]:
        """As `ProblemDocument` documents it."""
        return {
            "type": f"urn:anglewise:problem:{self.code}",
            "title": PROBLEMS[self.code][1],
            "status": self.status,
            "detail": self.detail,
            "code": self.code,
            "errors": [{"pointer": where, "message": what} for where, what in self.errors[:MAX_ERRORS]],
            "request_id": request_id,
        }


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
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Problem("storage_full", "there is no space left for temporary files")
    logger.error("unforeseen error", exc_info=error)
    return Problem("internal_error", "an unforeseen error; the log of the service has its details")


def _printable(text: str) -> str:
    """Short, and without the lone surrogates a client may have put into a name."""
    short = text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "…"
    return short.encode("utf-8", "backslashreplace").decode()
