"""A computation that is asked for by its own route, as a job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request

from jobs.computations import diagnose_archive
from jobs.computations.computation import Computation
from jobs.computations.diagnose import FILE_COMPUTATION, StoredFile
from jobs.computations.embedding_archive import read_embeddings
from jobs.computations.limits import Limits
from jobs.idempotency import digest
from jobs.problems import Problem
from service.engine import Engine
from service.job_desk import JobDesk
from service.job_intake import JobOrder
from service.job_kinds import WITH_FILE


@dataclass(frozen=True)
class Asked:
    """What a request asks for: a computation, and the bytes for it."""

    computation: Computation
    body: bytes


async def order_for(asked: Asked, desk: JobDesk, engine: Engine, client: Request) -> JobOrder:
    """Check the request with the limits of jobs, before it is accepted.

    Raises:
        Problem, InvalidInput: as the computation says.
        ClientGone
    """
    name, limits = asked.computation.name, desk.settings.job_limits
    if name == FILE_COMPUTATION.name or name in WITH_FILE:
        return await desk.run(_with_file, asked, desk, limits)
    spec = await engine.check(name, asked.body, limits, client)
    return JobOrder(name, spec, await desk.run(digest, [name.encode(), asked.body]))


def _with_file(asked: Asked, desk: JobDesk, limits: Limits) -> JobOrder:
    name, body = asked.computation.name, asked.body
    if name == FILE_COMPUTATION.name:
        name, body = diagnose_archive.COMPUTATION.name, _stored(body, desk)
    else:
        asked.computation.parse(body, limits)
    return JobOrder(name, body, digest([name.encode(), body]))


def _stored(body: bytes, desk: JobDesk) -> bytes:
    """What was uploaded, to be kept with the job."""
    upload = StoredFile.model_validate_json(body)
    path, bound = Path(upload.path), desk.settings.max_job_spec_bytes
    if path.stat().st_size > bound:
        raise Problem("body_too_large", f"a job may bring a file of at most {bound} bytes")
    read_embeddings(path, desk.settings.max_upload_bytes)
    options = upload.options.model_dump_json().encode()
    return options + diagnose_archive.SEPARATOR + path.read_bytes()
