"""The Prefer header (RFC 7240), of which one preference is understood: respond-async."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

RESPOND_ASYNC = "respond-async"
PREFER_PARAMETER: dict[str, Any] = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "description": "`respond-async`: become a job, with the limits of jobs, instead of waiting for the "
    "answer. It is not followed where jobs are off.",
    "schema": {"type": "string", "examples": [RESPOND_ASYNC]},
}
APPLIED = {"Preference-Applied": RESPOND_ASYNC}


def prefers_async(request: Request) -> bool:
    """Whether the client wants a job instead of an answer."""
    preferences = ",".join(request.headers.getlist("prefer")).split(",")
    return any(part.partition(";")[0].strip().lower() == RESPOND_ASYNC for part in preferences)
