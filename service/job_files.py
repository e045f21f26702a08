"""What a job was asked for and what it left: spec, result, embeddings, checkpoint, report, any artifact."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from jobs import paths
from jobs.computations.picture import picture_id
from jobs.problems import Problem
from jobs.record import JobRecord
from jobs.store import Missing
from service import job_artifacts
from service.deps import DeskDep, PicturesDep
from service.downloads import built_response, object_response
from service.job_answers import ArtifactListAnswer, json_response
from service.job_desk import JobDesk
from service.job_kinds import TRAINING, WITH_FILE, split_spec
from service.jobs import STORE_PROBLEMS, JobId, document_of
from service.negotiation import negotiate
from service.problems import problem_responses

router = APIRouter(tags=["jobs"])

JSON, NPY, NPZ = "application/json", "application/x-npy", "application/x-npz"
SAFETENSORS = "application/octet-stream"
RESULT_PROBLEMS = ("not_found", "not_acceptable", "not_finished", "no_result", *STORE_PROBLEMS)
REPORT_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""Whatever a label or a name contains, a report runs nothing and loads nothing."""
BINARY = {"type": "string", "format": "binary"}


def file_document(description: str, *media_types: str) -> dict[int | str, dict[str, Any]]:
    """OpenAPI of a download."""
    content = {name: {"schema": {"type": "object"} if name == JSON else BINARY} for name in media_types}
    return {
        200: {"description": description, "content": content},
        304: {"description": "It is the one with the ETag in `If-None-Match`"},
        307: {"description": "It is to be had from the object store, at a signed address"},
    }


@router.get(
    "/jobs/{job_id}/spec",
    operation_id="get_job_spec",
    summary="What a job was asked for",
    response_model=None,
    responses={
        **file_document("The spec with all defaults", JSON, NPY, NPZ),
        **problem_responses("not_found", "not_acceptable", *STORE_PROBLEMS),
    },
)
async def get_spec(job_id: JobId, request: Request, desk: DeskDep) -> Response:
    """A job that was sent as a file has its settings in the `spec` of the job; here is the file."""
    record = await desk.run(desk.read, job_id)
    if record.kind not in WITH_FILE:
        negotiate(request, JSON)
        return await object_response(desk, request, paths.spec(job_id), JSON, "spec.json")
    _, media_type = WITH_FILE[record.kind]
    negotiate(request, media_type)
    _, file = split_spec(record.kind, await desk.run(desk.spec, record))
    return Response(file, media_type=media_type)


@router.get(
    "/jobs/{job_id}/result",
    operation_id="get_job_result",
    summary="The result of a job",
    response_model=None,
    responses={
        **file_document("What the computation's own route answers, or the summary of a training", JSON, NPZ),
        **problem_responses(*RESULT_PROBLEMS),
    },
)
async def get_result(job_id: JobId, request: Request, desk: DeskDep, pictures: PicturesDep) -> Response:
    """409 until the job has succeeded; the problem of a failed job says why it failed."""
    record = await desk.run(desk.read, job_id)
    job_artifacts.require_success(record)
    archive = job_artifacts.find(record, job_artifacts.RESULT_ARCHIVE)
    offered = (JSON, NPZ) if archive is not None else (JSON,)
    if negotiate(request, *offered) == NPZ:
        return await _artifact(desk, request, record, job_artifacts.RESULT_ARCHIVE, "archive")
    if job_artifacts.find(record, job_artifacts.PICTURE) is not None:
        png = await desk.run(_picture, desk, record)
        pictures.put(picture_id(png).encode(), png)
    return await _artifact(desk, request, record, job_artifacts.RESULT, "result")


@router.get(
    "/jobs/{job_id}/embeddings",
    operation_id="get_job_embeddings",
    summary="The embeddings of a training",
    response_model=None,
    responses={
        **file_document("`embeddings` (n × d); the archive also has `labels` (n)", NPY, NPZ),
        **problem_responses(*RESULT_PROBLEMS),
    },
)
async def get_embeddings(job_id: JobId, request: Request, desk: DeskDep) -> Response:
    """As an `.npy` array, or with labels as an `.npz` archive (`Accept: application/x-npz`)."""
    record = await desk.run(desk.read, job_id)
    wanted = negotiate(request, NPY, NPZ)
    if wanted == NPY:
        return await _artifact(desk, request, record, job_artifacts.EMBEDDINGS, "embeddings")
    build = partial(job_artifacts.write_embeddings, desk.store, record)
    return await built_response(desk, build, NPZ, "embeddings.npz")


@router.get(
    "/jobs/{job_id}/checkpoint",
    operation_id="get_job_checkpoint",
    summary="The parameters of a training",
    response_model=None,
    responses={
        **file_document("A safetensors file", SAFETENSORS),
        **problem_responses(*RESULT_PROBLEMS),
    },
)
async def get_checkpoint(job_id: JobId, request: Request, desk: DeskDep) -> Response:
    """Of the finished encoder; before the end, or after a failure, the last checkpoint."""
    record = await desk.run(desk.read, job_id)
    negotiate(request, SAFETENSORS)
    name = job_artifacts.CHECKPOINT
    if record.kind != TRAINING or job_artifacts.find(record, name) is not None:
        return await _artifact(desk, request, record, name, "checkpoint")
    path = await desk.run(_newest_checkpoint, desk, record)
    return await object_response(desk, request, path, SAFETENSORS, name)


@router.get(
    "/jobs/{job_id}/report",
    operation_id="get_job_report",
    summary="The report of a training",
    response_model=None,
    responses={
        **file_document("A page for people, its data, or its picture", *job_artifacts.REPORTS),
        **problem_responses(*RESULT_PROBLEMS),
    },
)
async def get_report(job_id: JobId, request: Request, desk: DeskDep) -> Response:
    """The page is one file that loads nothing. 404 if the job left no report."""
    record = await desk.run(desk.read, job_id)
    reports = job_artifacts.REPORTS
    there = [kind for kind, name in reports.items() if job_artifacts.find(record, name) is not None]
    name = reports[negotiate(request, *(there or reports))]
    response = await _artifact(desk, request, record, name, "report")
    response.headers["Content-Security-Policy"] = REPORT_POLICY
    if "Content-Disposition" in response.headers:  # to be looked at, not to be kept
        response.headers["Content-Disposition"] = f'inline; filename="{name}"'
    return response


@router.get(
    "/jobs/{job_id}/artifacts",
    operation_id="list_job_artifacts",
    summary="The files that a job left",
    response_model=None,
    responses={
        200: document_of(ArtifactListAnswer, "Name, size and type of each"),
        **problem_responses("not_found", *STORE_PROBLEMS),
    },
)
async def list_artifacts(job_id: JobId, desk: DeskDep) -> Response:
    """Empty before the job has ended."""
    record = await desk.run(desk.read, job_id)
    return json_response({"items": [artifact.model_dump() for artifact in record.artifacts]})


@router.get(
    "/jobs/{job_id}/artifacts/{name}",
    operation_id="get_job_artifact",
    summary="A file that a job left",
    response_model=None,
    responses={
        **file_document("The file, of its own type", "*/*"),
        **problem_responses("not_found", *STORE_PROBLEMS),
    },
)
async def get_artifact(
    job_id: JobId,
    name: Annotated[str, Path(description="as listed", examples=["result.json"])],
    request: Request,
    desk: DeskDep,
) -> Response:
    """One of the names that `artifacts` lists."""
    record = await desk.run(desk.read, job_id)
    if job_artifacts.find(record, name) is None:
        raise Problem("not_found", "the job left no such file")
    return await _artifact(desk, request, record, name, "file")


async def _artifact(desk: JobDesk, request: Request, record: JobRecord, name: str, what: str) -> Response:
    artifact = job_artifacts.require(record, name, what)
    path = job_artifacts.path_of(record, artifact)
    return await object_response(desk, request, path, artifact.media_type, artifact.name)


def _picture(desk: JobDesk, record: JobRecord) -> bytes:
    artifact = job_artifacts.require(record, job_artifacts.PICTURE, "picture")
    return desk.store.get(job_artifacts.path_of(record, artifact))


def _newest_checkpoint(desk: JobDesk, record: JobRecord) -> str:
    """
    Raises:
        Problem: not_found.
    """
    try:
        return job_artifacts.newest_checkpoint(desk.store, record)
    except Missing:
        raise Problem("not_found", "there is no checkpoint yet") from None
