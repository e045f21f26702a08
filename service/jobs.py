"""Jobs: submitted, listed, looked at, cancelled, deleted."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from jobs.journal import AlreadyEnded, NotEnded
from jobs.problems import Problem
from jobs.states import State
from service import job_request
from service.deps import DeskDep, EngineDep, JobsDep
from service.engine import CLIENT_CLOSED_REQUEST, ClientGone
from service.job_answers import JobAnswer, JobPageAnswer, job_response, json_response
from service.job_examples import JOB_EXAMPLES, SUBMITTED_JOB
from service.job_intake import IdempotencyKey, JobOrder
from service.job_kinds import public_kind
from service.job_list import Filter, page
from service.job_orders import order_from
from service.problems import problem_responses
from service.request_body import read_json_body

router = APIRouter(tags=["jobs"])

MAX_KEY = 255
JobId = Annotated[str, Path(description="`job_` and a ULID", examples=[SUBMITTED_JOB["id"]])]
STORE_PROBLEMS = ("unauthorized", "too_many_requests", "storage_unavailable", "jobs_unavailable")
SUBMISSION_PROBLEMS = (
    *STORE_PROBLEMS,
    "idempotency_mismatch",
    "training_unavailable",
    "not_finished",
    "no_result",
    "storage_full",
)
KEY_PARAMETER: dict[str, Any] = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "up to 255 printable ASCII characters; requests with the same key and body give the same "
    "job, however often they are sent",
    "schema": {"type": "string", "minLength": 1, "maxLength": MAX_KEY, "pattern": "^[!-~]([ -~]*[!-~])?$"},
}
LOCATION = {"Location": {"description": "address of the job", "schema": {"type": "string"}}}


def document_of(model: type[BaseModel], description: str, **more: Any) -> dict[str, Any]:
    """OpenAPI of an answer."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"description": description, "content": {"application/json": {"schema": schema}}, **more}


def job_document(description: str, **more: Any) -> dict[str, Any]:
    """OpenAPI of an answer that is a job."""
    return document_of(JobAnswer, description, **more)


def idempotency_key(request: Request) -> IdempotencyKey | None:
    """
    Raises:
        Problem: invalid_input.
    """
    given = request.headers.getlist("idempotency-key")
    if not given:
        return None
    key = given[0].strip()
    if len(given) > 1 or not 1 <= len(key) <= MAX_KEY or not all(" " <= sign <= "~" for sign in key):
        raise Problem(
            "invalid_input", f"Idempotency-Key: must be 1 to {MAX_KEY} printable ASCII characters, given once"
        )
    return IdempotencyKey(getattr(request.state, "api_key", ""), key)


async def accept(
    order: JobOrder, request: Request, service: JobsDep, headers: dict[str, str] | None = None
) -> Response:
    """Submit a job: 202 and where it is."""
    desk, key = service.desk, idempotency_key(request)
    record = await desk.run(service.intake.submit, order, key)
    request.state.metrics.submitted.labels(public_kind(order.kind)).inc()
    headers = {"Location": f"/jobs/{record.id}", **(headers or {})}
    return await desk.run(job_response, record, desk, 202, headers)


@router.post(
    "/jobs",
    operation_id="create_job",
    summary="Submit a job",
    status_code=202,
    response_model=None,
    responses={
        202: job_document("Accepted: it is stored, and ends exactly once", headers=LOCATION),
        **problem_responses(
            "malformed_json",
            "http_error",
            "not_acceptable",
            "upload_timeout",
            "body_too_large",
            "unsupported_media_type",
            "invalid_input",
            "too_large",
            "not_found",
            "internal_error",
            "busy",
            *SUBMISSION_PROBLEMS,
        ),
    },
    openapi_extra={
        "parameters": [KEY_PARAMETER],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {"$ref": "#/components/schemas/JobRequest"},
                    "examples": {title: {"value": body} for title, body in JOB_EXAMPLES.items()},
                }
            },
        },
    },
)
async def create_job(request: Request, service: JobsDep, engine: EngineDep) -> Response:
    """A training, or any computation with limits larger than those of its own route.

    The answer comes once the job is stored: from then on it cannot be lost, and it ends exactly once.
    """
    desk = service.desk
    idempotency_key(request)  # before the body is looked at
    body = await read_json_body(request, desk.settings.max_body_bytes)
    try:
        checked = await engine.check(job_request.NAME, body, desk.settings.job_limits, request)
    except ClientGone:
        return Response(status_code=CLIENT_CLOSED_REQUEST)
    order = await desk.run(order_from, job_request.unpack(checked), body, desk)
    return await accept(order, request, service)


class JobQuery(Filter):
    limit: int = Field(default=50, ge=1, le=200, description="jobs on a page")


@router.get(
    "/jobs",
    operation_id="list_jobs",
    summary="Jobs, newest first",
    response_model=None,
    responses={
        200: document_of(JobPageAnswer, "A page of jobs"),
        **problem_responses("invalid_input", *STORE_PROBLEMS),
    },
)
async def list_jobs(query: Annotated[JobQuery, Query()], desk: DeskDep) -> Response:
    """A page may have fewer jobs than asked for, even none: go on while there is a cursor."""
    return json_response(await desk.run(page, desk, query, query.limit))


@router.get(
    "/jobs/{job_id}",
    operation_id="get_job",
    summary="One job",
    response_model=None,
    responses={200: job_document("The job"), **problem_responses("not_found", *STORE_PROBLEMS)},
)
async def get_job(job_id: JobId, desk: DeskDep) -> Response:
    """Its state as it is now, how far it is, and where the rest about it is."""
    return await desk.run(lambda: job_response(desk.read(job_id), desk))


@router.post(
    "/jobs/{job_id}/cancel",
    operation_id="cancel_job",
    summary="Cancel a job",
    response_model=None,
    responses={
        200: job_document("It is cancelled"),
        202: job_document("Its worker is being stopped"),
        **problem_responses("not_found", "already_ended", *STORE_PROBLEMS),
    },
)
async def cancel_job(job_id: JobId, desk: DeskDep) -> Response:
    """A job that no worker holds is cancelled at once; a running one within seconds. Asking again does no
    harm. Results that were there before are kept: a job that has succeeded or failed stays as it is."""

    def cancel() -> Response:
        desk.read(job_id)
        try:
            record = desk.journal.request_cancel(job_id)
        except AlreadyEnded as error:
            raise Problem("already_ended", f"the job has {error.record.state.value} already") from None
        desk.tell(job_id)
        return job_response(record, desk, 200 if record.state is State.CANCELLED else 202)

    return await desk.run(cancel)


@router.delete(
    "/jobs/{job_id}",
    operation_id="delete_job",
    summary="Delete an ended job",
    status_code=204,
    response_model=None,
    responses={
        204: {"description": "Nothing of it is left"},
        **problem_responses("not_found", "not_finished", *STORE_PROBLEMS),
    },
)
async def delete_job(job_id: JobId, desk: DeskDep) -> Response:
    """Its results, events and checkpoints go with it. A running job has to be cancelled first."""

    def delete() -> Response:
        desk.read(job_id)
        try:
            desk.journal.delete(job_id)
        except NotEnded as error:
            raise Problem("not_finished", f"the job is {error.record.state.value}: cancel it first") from None
        desk.forget(job_id)
        return Response(status_code=204)

    return await desk.run(delete)
