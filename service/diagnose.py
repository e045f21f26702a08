"""POST /diagnose: how far are trained embeddings from the predicted geometry?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request

from jobs.computations.diagnose import COMPUTATION, FILE_COMPUTATION, DiagnoseOptions, StoredFile
from jobs.computations.parsing import parse_json, validate
from service.routes import OtherBody, computation_router

MEDIA_TYPE = "multipart/form-data"
FILE, OPTIONS = "file", ("prediction", "normalize")


@asynccontextmanager
async def receive(request: Request) -> AsyncIterator[bytes]:
    """The uploaded file, kept until the answer is there."""
    async with request.state.uploads.receive(request, FILE, OPTIONS) as form:
        options = validate({name: parse_json(value) for name, value in form.fields.items()}, DiagnoseOptions)
        yield StoredFile(path=str(form.file), options=options).model_dump_json().encode()


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
    "embeddings are sent as a form with an .npz file.",
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
)
