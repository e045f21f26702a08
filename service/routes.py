"""The one way a computation becomes a POST route."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, BinaryIO

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from service.computation import Computation
from service.deps import EngineDep
from service.engine import ClientGone
from service.pool import Reply
from service.problems import Problem, problem_responses
from service.request_body import read_json_body

JSON = "application/json"
ARCHIVE = "application/x-npz"
CHUNK = 256 * 1024
CLIENT_CLOSED_REQUEST = 499

COMPUTATION_PROBLEMS = (
    "malformed_json",
    "unauthorized",
    "not_acceptable",
    "body_too_large",
    "unsupported_media_type",
    "invalid_input",
    "too_large",
    "numerical_failure",
    "internal_error",
    "deadline",
    "busy",
    "worker_lost",
    "not_ready",
)


def computation_router(
    computation: Computation,
    *,
    path: str,
    tag: str,
    summary: str,
    description: str,
    examples: Mapping[str, Mapping[str, Any]],
    answer_example: Mapping[str, Any],
) -> APIRouter:
    """A router with POST ``path``: read, validate, compute in a solver process, answer.

    Args:
        examples: request bodies for the documentation, by title.
        answer_example: the answer to the first of them.
    """
    router = APIRouter(tags=[tag])

    async def handler(request: Request, engine: EngineDep) -> Response:
        wants_archive = _negotiate(request, offers_archive=computation.offers_archive)
        body = await read_json_body(request, engine.limits.max_body_bytes)
        ask = engine.archive if wants_archive else engine.answer
        try:
            return _response(await ask(computation, body, request))
        except ClientGone:
            return Response(status_code=CLIENT_CLOSED_REQUEST)

    router.add_api_route(
        path,
        handler,
        methods=["POST"],
        name=computation.name,
        operation_id=computation.name,
        summary=summary,
        description=description,
        response_model=None,
        responses={
            200: _answer_document(computation, answer_example),
            **problem_responses(*COMPUTATION_PROBLEMS),
        },
        openapi_extra={"requestBody": _body_document(computation, examples)},
    )
    return router


def _negotiate(request: Request, *, offers_archive: bool) -> bool:
    """Whether the client wants the archive rather than JSON, which is the answer to ``*/*``."""
    accept = request.headers.get("accept", "*/*")
    accepted = [_media_range(part) for part in accept.split(",")]
    choices = [(_quality(JSON, accepted), False)]
    if offers_archive:
        choices.append((_quality(ARCHIVE, accepted), True))
    quality, wants_archive = max(choices, key=lambda choice: choice[0])
    if quality <= 0:
        offered = f"{JSON} or {ARCHIVE}" if offers_archive else JSON
        raise Problem("not_acceptable", f"the answer is {offered}")
    return wants_archive


def _media_range(part: str) -> tuple[str, float]:
    media_type, *parameters = (piece.strip().lower() for piece in part.split(";"))
    quality = 1.0
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                quality = min(1.0, max(0.0, float(value)))
            except ValueError:
                quality = 0.0
    return media_type, quality


def _quality(media_type: str, accepted: list[tuple[str, float]]) -> float:
    """The quality of the most specific range that covers the type."""
    ranges = dict(accepted)
    whole_type = media_type.partition("/")[0] + "/*"
    return next((ranges[name] for name in (media_type, whole_type, "*/*") if name in ranges), 0.0)


def _response(reply: Reply) -> Response:
    if reply.file is None:
        return Response(reply.body, media_type=JSON)
    size = reply.file.seek(0, 2)
    reply.file.seek(0)
    headers = {"Content-Length": str(size), "Content-Disposition": 'attachment; filename="geometry.npz"'}
    return StreamingResponse(_chunks(reply.file), media_type=ARCHIVE, headers=headers)


async def _chunks(file: BinaryIO) -> AsyncIterator[bytes]:
    with file:
        while chunk := await asyncio.to_thread(file.read, CHUNK):
            yield chunk


def _body_document(computation: Computation, examples: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{computation.request.__name__}"}
    named = {title: {"value": body} for title, body in examples.items()}
    return {"required": True, "content": {JSON: {"schema": schema, "examples": named}}}


def _answer_document(computation: Computation, example: Mapping[str, Any]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{computation.answer.__name__}"}
    content: dict[str, Any] = {JSON: {"schema": schema, "example": example}}
    if computation.offers_archive:
        content[ARCHIVE] = {"schema": {"type": "string", "format": "binary"}}
    return {"description": "The answer", "content": content}
