"""The one way a computation becomes a POST route."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from anglewise.errors import TooLarge
from jobs.computations.computation import Computation
from jobs.computations.picture import picture_id
from jobs.problems import Problem, problem_from
from service.async_computation import Asked, order_for
from service.deps import EngineDep, PicturesDep
from service.downloads import file_chunks
from service.engine import CLIENT_CLOSED_REQUEST, ClientGone
from service.job_service import JobService
from service.jobs import (
    KEY_PARAMETER,
    LOCATION,
    SUBMISSION_PROBLEMS,
    accept,
    idempotency_key,
    job_document,
)
from service.negotiation import negotiate
from service.pool import Reply
from service.preferences import APPLIED, PREFER_PARAMETER, prefers_async
from service.problems import problem_responses
from service.request_body import media_type, read_json_body

JSON = "application/json"
ARCHIVE = "application/x-npz"

ACCEPTED = {
    **LOCATION,
    "Preference-Applied": {"description": "`respond-async`", "schema": {"type": "string"}},
}

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


@dataclass(frozen=True)
class Reference:
    """A JSON body that names what is to be computed from.

    Attributes:
        request: model of the body.
        resolve: recognizes such a body (None: it is another one), and holds what it names until the answer
            is there.
    """

    request: type[BaseModel]
    resolve: Callable[[Request, bytes], AbstractAsyncContextManager[Asked | None]]
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
    reference: Reference | None = None,
) -> APIRouter:
    """A router with POST ``path``: read, validate, compute in a solver process, answer.

    Args:
        examples: request bodies for the documentation, by title. The answer to the first of them is in
            example_answers/, under the computation's name.
        other: a body of another media type that is accepted beside JSON.
        reference: a JSON body that names what is to be computed from, instead of bringing it.
    """
    router = APIRouter(tags=[tag])

    async def handler(request: Request, engine: EngineDep, pictures: PicturesDep) -> Response:
        service: JobService | None = request.state.jobs
        idempotency_key(request)  # one that cannot be right is refused even where it would not be needed
        async with _asked(request, engine.limits.max_body_bytes, computation, other, reference) as asked:
            try:
                if service is not None and prefers_async(request):
                    order = await order_for(asked, service.desk, engine, request)
                    return await accept(order, request, service, APPLIED)
                offered = (JSON, ARCHIVE) if computation.offers_archive else (JSON,)
                ask = engine.archive if negotiate(request, *offered) == ARCHIVE else engine.answer
                reply = await ask(asked.computation, asked.body, request)
            except ClientGone:
                return Response(status_code=CLIENT_CLOSED_REQUEST)
            except (Problem, TooLarge) as error:
                if service is None or prefers_async(request):
                    raise
                raise _naming_jobs(problem_from(error)) from None
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
            202: job_document("With `Prefer: respond-async`: it has become a job", headers=ACCEPTED),
            **problem_responses(
                *COMPUTATION_PROBLEMS,
                *SUBMISSION_PROBLEMS,
                *(other.problems if other else ()),
                *(reference.problems if reference else ()),
            ),
        },
        openapi_extra=_request_document(computation, examples, other, reference),
    )
    return router


@asynccontextmanager
async def _asked(
    request: Request,
    max_bytes: int,
    computation: Computation,
    other: OtherBody | None,
    reference: Reference | None,
) -> AsyncIterator[Asked]:
    """What the request asks for; files that belong to it are there inside the block."""
    if other is not None and media_type(request) == other.media_type:
        async with other.receive(request) as body:
            yield Asked(other.computation, body)
        return
    body = await read_json_body(request, max_bytes, or_else=other.media_type if other else None)
    _refuse_query(request)
    if reference is None:
        yield Asked(computation, body)
        return
    async with reference.resolve(request, body) as named:
        yield named or Asked(computation, body)


def _naming_jobs(problem: Problem) -> Problem:
    """Where a job could do it, the problem says so."""
    if problem.code not in ("too_large", "deadline"):
        return problem
    detail = f"{problem.detail}; jobs may take more: POST /jobs, or send the header Prefer: respond-async"
    return Problem(problem.code, detail, problem.errors, status=problem.status, headers=problem.headers)


def _refuse_query(request: Request) -> None:
    """A JSON body says everything; what would be ignored is refused."""
    if request.query_params:
        name = next(iter(request.query_params))
        raise Problem("invalid_input", f"{name}: belongs into the body, not into the address")


def _response(reply: Reply) -> Response:
    if reply.file is None:
        return Response(reply.body, media_type=JSON)
    size = reply.file.seek(0, 2)
    reply.file.seek(0)
    headers = {"Content-Length": str(size), "Content-Disposition": 'attachment; filename="geometry.npz"'}
    return StreamingResponse(file_chunks(reply.file), media_type=ARCHIVE, headers=headers)


def _request_document(
    computation: Computation,
    examples: Mapping[str, Mapping[str, Any]],
    other: OtherBody | None,
    reference: Reference | None,
) -> dict[str, Any]:
    schema: dict[str, Any] = _schema(computation.request)
    if reference is not None:
        schema = {"oneOf": [schema, _schema(reference.request)]}
    named = {title: {"value": body} for title, body in examples.items()}
    content: dict[str, Any] = {JSON: {"schema": schema, "examples": named}}
    parameters: list[Mapping[str, Any]] = [PREFER_PARAMETER, KEY_PARAMETER]
    if other is not None:
        content[other.media_type] = {"schema": other.schema}
        parameters += other.parameters
    return {"requestBody": {"required": True, "content": content}, "parameters": parameters}


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _answer_document(computation: Computation) -> dict[str, Any]:
    content: dict[str, Any] = {JSON: {"schema": _schema(computation.answer)}}
    if computation.offers_archive:
        content[ARCHIVE] = {"schema": {"type": "string", "format": "binary"}}
    return {"description": "The answer", "content": content}
