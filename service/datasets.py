"""Data sets for trainings: uploaded, listed, looked at, deleted."""

from __future__ import annotations

import unicodedata
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from jobs.datasets.builtin import BUILTINS
from jobs.datasets.check import COMPUTATION, StoredUpload
from jobs.datasets.record import DatasetAnswer, DatasetContent, DatasetPageAnswer, DatasetRecord
from jobs.ids import ULID_PATTERN
from jobs.problems import Problem, pointer
from service.dataset_examples import DATASET, FORM_SCHEMA
from service.dataset_shelf import Shelf
from service.deps import EngineDep, ShelfDep
from service.engine import CLIENT_CLOSED_REQUEST, ClientGone
from service.problems import problem_responses
from service.request_body import declared_length, media_type
from service.upload import Form, Uploads

router = APIRouter(tags=["datasets"])

FORM = "multipart/form-data"
FILE_FIELDS = ("file", "x", "y")
TEXT_FIELDS = ("name", "label")
MAX_NAME = 200
MAX_LABEL = 1000
STORE_PROBLEMS = ("unauthorized", "too_many_requests", "storage_unavailable", "jobs_unavailable")
BUILTIN_NAMES = "|".join(BUILTINS)
DatasetId = Annotated[
    str, Path(description="`ds_` and a ULID, or the name of a built-in one", examples=[DATASET["id"]])
]


def _described(description: str, **more: Any) -> dict[str, Any]:
    """OpenAPI of an answer that is a data set."""
    schema = {"$ref": f"#/components/schemas/{DatasetAnswer.__name__}"}
    content = {"application/json": {"schema": schema, "example": DATASET}}
    return {"description": description, "content": content, **more}


@router.post(
    "/datasets",
    operation_id="create_dataset",
    summary="Store a data set",
    status_code=201,
    response_model=DatasetAnswer,
    responses={
        201: _described(
            "It is stored",
            headers={"Location": {"description": "address of the data set", "schema": {"type": "string"}}},
        ),
        **problem_responses(
            "http_error",
            "upload_timeout",
            "body_too_large",
            "unsupported_media_type",
            "invalid_input",
            "too_large",
            "internal_error",
            "deadline",
            "busy",
            "worker_lost",
            "not_ready",
            "storage_full",
            *STORE_PROBLEMS,
        ),
    },
    openapi_extra={"requestBody": {"required": True, "content": {FORM: {"schema": FORM_SCHEMA}}}},
)
async def create_dataset(request: Request, shelf: ShelfDep, engine: EngineDep, response: Response) -> Any:
    """Labeled samples for trainings, in one file or two, streamed and checked: shapes, types, a label for
    each sample, no number that is not finite. The data set is there once the answer is, and never changes."""
    if media_type(request) != FORM:
        raise Problem("unsupported_media_type", f"send {FORM}")
    await shelf.run(shelf.require_room, declared_length(request))
    uploads: Uploads = request.state.uploads
    async with uploads.receive(request, FILE_FIELDS, TEXT_FIELDS) as form:
        name, upload = _name(form), _upload(form)
        try:
            reply = await engine.answer(COMPUTATION, upload.model_dump_json().encode(), request)
        except ClientGone:
            return Response(status_code=CLIENT_CLOSED_REQUEST)
        content = DatasetContent.model_validate_json(reply.body)
        record = await shelf.run(_store, shelf, form.folder, content, name)
    response.headers["Location"] = f"/datasets/{record.id}"
    return record.answer()


def _store(shelf: Shelf, folder: FilePath, content: DatasetContent, name: str | None) -> DatasetRecord:
    shelf.require_room(content.bytes)
    return shelf.catalog.add(folder, content, name)


def _upload(form: Form) -> StoredUpload:
    """
    Raises:
        Problem: invalid_input: the form has neither a file nor two arrays, or both.
    """
    pair = {"x", "y"} & form.files.keys()
    if "file" in form.files and pair:
        raise _invalid("file", "give a file, or x and y, not both")
    if not pair and "file" not in form.files:
        raise _invalid("file", "is required, as a file; or x and y")
    if len(pair) == 1:
        raise _invalid(next(iter({"x", "y"} - pair)), "is required, as a file: x and y belong together")
    label = _text(form, "label", MAX_LABEL)
    return StoredUpload(folder=str(form.folder), form="pair" if pair else "file", label=label)


def _name(form: Form) -> str | None:
    """The one that was given, or else the name of the file; only ever shown, never a path."""
    given = _text(form, "name", MAX_NAME)
    if given is not None:
        return given
    last = form.files.get("file", "").replace("\\", "/").rpartition("/")[2]
    return "".join(sign for sign in last if sign.isprintable())[:MAX_NAME].strip() or None


def _text(form: Form, field: str, longest: int) -> str | None:
    """
    Raises:
        Problem: invalid_input.
    """
    if field not in form.fields:
        return None
    try:
        text = form.fields[field].decode("utf-8").strip()
    except UnicodeDecodeError:
        raise _invalid(field, "must be UTF-8") from None
    if not 1 <= len(text) <= longest:
        raise _invalid(field, f"must have 1 to {longest} characters")
    if any(unicodedata.category(sign) == "Cc" for sign in text):
        raise _invalid(field, "must have no control characters")
    return text


def _invalid(field: str, message: str) -> Problem:
    return Problem("invalid_input", f"{field}: {message}", [(pointer((field,)), message)])


class DatasetQuery(BaseModel):
    """Which page."""

    model_config = ConfigDict(extra="forbid")

    limit: int = Field(default=50, ge=1, le=200, description="data sets on a page")
    cursor: str | None = Field(
        default=None,
        pattern=f"^(ds_{ULID_PATTERN}|{BUILTIN_NAMES})$",
        description="`next_cursor` of the page before",
    )


@router.get(
    "/datasets",
    operation_id="list_datasets",
    summary="Data sets, newest first",
    responses=problem_responses("invalid_input", *STORE_PROBLEMS),
)
async def list_datasets(query: Annotated[DatasetQuery, Query()], shelf: ShelfDep) -> DatasetPageAnswer:
    """The built-in ones are last."""
    records, cursor = await shelf.run(shelf.page, query.cursor, query.limit)
    return DatasetPageAnswer(items=[record.answer() for record in records], next_cursor=cursor)


@router.get(
    "/datasets/{dataset_id}",
    operation_id="get_dataset",
    summary="One data set",
    response_model=DatasetAnswer,
    responses={200: _described("The data set"), **problem_responses("not_found", *STORE_PROBLEMS)},
)
async def get_dataset(dataset_id: DatasetId, shelf: ShelfDep) -> DatasetAnswer:
    """What it has; the samples themselves stay in the store."""
    return (await shelf.run(shelf.get, dataset_id)).answer()


@router.delete(
    "/datasets/{dataset_id}",
    operation_id="delete_dataset",
    summary="Delete a data set",
    status_code=204,
    response_model=None,
    responses={
        204: {"description": "Nothing of it is left"},
        **problem_responses("not_found", "in_use", "built_in", *STORE_PROBLEMS),
    },
)
async def delete_dataset(dataset_id: DatasetId, shelf: ShelfDep) -> Response:
    """Jobs that have ended keep their results. While a job that has not ended needs it, it stays."""
    await shelf.run(shelf.delete, dataset_id)
    return Response(status_code=204)
