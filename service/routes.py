"""The one way a computation becomes a POST route."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from jobs.computations.computation import Computation
from jobs.computations.picture import picture_id
from jobs.problems import Problem
from service.deps import EngineDep, PicturesDep
from service.engine import ClientGone
from service.pool import Reply
from service.problems import problem_responses
from service.request_body import media_type, read_json_body

JSON = "application/json"
ARCHIVE = "application/x-npz"
CHUNK = 256 * 1024
CLIENT_CLOSED_REQUEST = 499

COMPUTATION_PROBLEMS = (
    "malformed_json",
    "http_error",
    "unauthorized",
    "not_acceptable",
    "upload_timeout",
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


@dataclass(frozen=True)
class OtherBody:
    """A body of another media type than JSON.

    Attributes:
        media_type: what the client declares.
        computation: validates and answers it.
        receive: gives the bytes for ``computation``, and holds what belongs to them (a file) until the
            answer is there.
        schema: OpenAPI of the body.
        parameters: OpenAPI of the query string.
        problems: codes of problems that only such a body can have.
    """

    media_type: str
    computation: Computation
    receive: Callable[[Request], AbstractAsyncContextManager[bytes]]
    schema: Mapping[str, Any]
    parameters: tuple[Mapping[str, Any], ...] = ()
    problems: tuple[str, ...] = ()


def computation_router(
    computation: Computation,
    *,
    path: str,
    tag: str,
    summary: str,
    description: str,
    examples: Mapping[str, Mapping[str, Any]],
    other: OtherBody | None = None,
) -> APIRouter:
    """A router with POST ``path``: read, validate, compute in a solver process, answer.

    Args:
        examples: request bodies for the documentation, by title. The answer to the first of them is in
            example_answers/, under the computation's name.
        other: a body of another media type that is accepted beside JSON.
    """
    router = APIRouter(tags=[tag])

    async def handler(request: Request, engine: EngineDep, pictures: PicturesDep) -> Response:
        wants_archive = _negotiate(request, offers_archive=computation.offers_archive)
        ask = engine.archive if wants_archive else engine.answer
        try:
            if other is not None and media_type(request) == other.media_type:
                async with other.receive(request) as body:
                    reply = await ask(other.computation, body, request)
            else:
                also = other.media_type if other is not None else None
                body = await read_json_body(request, engine.limits.max_body_bytes, or_else=also)
                _refuse_query(request)
                reply = await ask(computation, body, request)
        except ClientGone:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        if reply.picture:
            pictures.put(picture_id(reply.picture).encode(), reply.picture)
        return _response(reply)

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
            200: _answer_document(computation),
            **problem_responses(*COMPUTATION_PROBLEMS, *(other.problems if other else ())),
        },
        openapi_extra=_request_document(computation, examples, other),
    )
    return router


def _refuse_query(request: Request) -> None:
    """A JSON body says everything; what would be ignored is refused."""
    if request.query_params:
        name = next(iter(request.query_params))
        raise Problem("invalid_input", f"{name}: belongs into the body, not into the address")


def _negotiate(request: Request, *, offers_archive: bool) -> bool:
    """Whether the client wants the archive rather than JSON, which is the answer to ``*/*``."""
    accept = request.headers.get("accept") or "*/*"
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


def _request_document(
    computation: Computation, examples: Mapping[str, Mapping[str, Any]], other: OtherBody | None
) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{computation.request.__name__}"}
    named = {title: {"value": body} for title, body in examples.items()}
    content: dict[str, Any] = {JSON: {"schema": schema, "examples": named}}
    document: dict[str, Any] = {"requestBody": {"required": True, "content": content}}
    if other is not None:
        content[other.media_type] = {"schema": other.schema}
        document["parameters"] = list(other.parameters)
    return document


def _answer_document(computation: Computation) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{computation.answer.__name__}"}
    content: dict[str, Any] = {JSON: {"schema": schema}}
    if computation.offers_archive:
        content[ARCHIVE] = {"schema": {"type": "string", "format": "binary"}}
    return {"description": "The answer", "content": content}
