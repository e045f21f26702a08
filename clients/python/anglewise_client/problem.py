"""Problem details (RFC 9457), as the service sends them with every failure."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class FieldError(BaseModel):
    """What is wrong with one field of the request."""

    model_config = ConfigDict(extra="allow")

    pointer: str
    """JSON pointer (RFC 6901) into the body; empty for the body itself."""
    message: str


class ProblemDocument(BaseModel):
    """One failure."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldError]
    request_id: str | None
