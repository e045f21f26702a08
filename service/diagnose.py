"""POST /diagnose: how far are trained embeddings from the predicted geometry?"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.requests import Request

from jobs.computations.diagnose import COMPUTATION, FILE_COMPUTATION, DiagnoseOptions, StoredFile
from jobs.computations.parsing import parse_json, validate
from jobs.problems import Problem
from service.async_computation import Asked
from service.job_artifacts import write_embeddings
from service.job_desk import JobDesk
from service.job_kinds import DiagnoseJobRequest
from service.job_orders import training_of
from service.job_service import JobService
from service.routes import OtherBody, Reference, computation_router
from service.upload import require_file

MEDIA_TYPE = "multipart/form-data"
MAX_REFERENCE = 128 * 1024
"""Bytes of a body that names a job; longer ones bring their embeddings."""
FILE, OPTIONS = "file", ("prediction", "normalize")


@asynccontextmanager
async def receive(request: Request) -> AsyncIterator[bytes]:
    """The uploaded file, kept until the answer is there."""
    async with request.state.uploads.receive(request, (FILE,), OPTIONS) as form:
        options = validate({name: parse_json(value) for name, value in form.fields.items()}, DiagnoseOptions)
        yield StoredFile(path=str(require_file(form, FILE)), options=options).model_dump_json().encode()


@asynccontextmanager
async def resolve(request: Request, body: bytes) -> AsyncIterator[Asked | None]:
    """The embeddings that a training job left, kept until the answer is there."""
    named = _named_job(body)
    if named is None:
        yield None
        return
    service: JobService | None = request.state.jobs
    if service is None:
        raise Problem("jobs_unavailable", "jobs are off: no broker is set (ANGLEWISE_BROKER_URL)")
    with tempfile.TemporaryDirectory(prefix="anglewise-") as folder:
        path = Path(folder) / "embeddings"
        await service.desk.run(_write, service.desk, named, path)
        options = DiagnoseOptions(prediction=named.prediction, normalize=named.normalize)
        stored = StoredFile(path=str(path), options=options)
        yield Asked(FILE_COMPUTATION, stored.model_dump_json().encode())


def _named_job(body: bytes) -> DiagnoseJobRequest | None:
    if len(body) > MAX_REFERENCE or b'"job"' not in body:
        return None
    document = parse_json(body)
    if not isinstance(document, dict) or document.get("job") is None:
        return None
    return validate(document, DiagnoseJobRequest)


def _write(desk: JobDesk, named: DiagnoseJobRequest, path: Path) -> None:
    with path.open("wb") as file:
        write_embeddings(desk.store, training_of(named, desk), file)


FORM_SCHEMA = {
    "type": "object",
    "required": [FILE],
    "additionalProperties": False,
    "properties": {
        FILE: {
            "type": "string",
            "format": "binary",
            "description": "an .npz archive of `embeddings` (n × d, float32 or float64) and `labels` (n "
            "integers or strings)",
        },
        "prediction": {
            "type": "string",
            "description": "as in a JSON body, written as JSON",
            "examples": ['{"loss": {"name": "infonce", "temperature": 0.1}}'],
        },
        "normalize": {"type": "string", "enum": ["true", "false"]},
    },
}

router = computation_router(
    COMPUTATION,
    path="/diagnose",
    tag="diagnosis",
    summary="Embeddings beside the predicted geometry",
    description="Neural-collapse metrics of labeled embeddings and their distance from the geometry that is "
    "optimal for the class counts found, class by class, with a verdict in plain words and a picture. Large "
    "embeddings are sent as a form with an .npz file; those of a training job are named by its id: "
    '`{"job": "job_…"}`.',
    examples={
        "three classes": {
            "embeddings": [[1.0, 0.1], [0.9, -0.1], [1.0, 0.0], [-0.6, 0.8], [-0.5, 0.9], [-0.4, -0.9]],
            "labels": ["cat", "cat", "cat", "dog", "dog", "eel"],
            "prediction": {"loss": {"name": "infonce", "negatives": 16, "temperature": 0.5}},
        },
        "measured only": {"embeddings": [[0.3, 0.4], [0.1, -2.0]], "labels": [0, 1], "normalize": False},
        "against SupCon": {
            "embeddings": [[1.0, 0.1], [0.9, -0.1], [-0.6, 0.8], [-0.4, -0.9]],
            "labels": [0, 0, 1, 2],
            "prediction": {"weights": {"name": "supcon"}, "temperature": 0.5},
        },
    },
    other=OtherBody(
        MEDIA_TYPE,
        FILE_COMPUTATION,
        receive,
        schema=FORM_SCHEMA,
        problems=("storage_full",),
    ),
    reference=Reference(DiagnoseJobRequest, resolve, problems=("not_found", "not_finished", "no_result")),
)
