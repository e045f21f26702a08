"""A computation that is asked for by its own route, as a job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jobs.computations import diagnose_archive
from jobs.computations.computation import Computation
from jobs.computations.diagnose import FILE_COMPUTATION, StoredFile
from jobs.computations.embedding_archive import read_embeddings
from jobs.idempotency import digest
from jobs.problems import Problem
from service.job_desk import JobDesk
from service.job_intake import JobOrder
from service.job_kinds import WITH_FILE


@dataclass(frozen=True)
class Asked:
    """What a request asks for: a computation, and the bytes for it."""

    computation: Computation
    body: bytes


def order_for(asked: Asked, desk: JobDesk) -> JobOrder:
    """Check the request with the limits of jobs, before it is accepted. Takes a while: call it in a thread.

    Raises:
        Problem, InvalidInput: as the computation says.
    """
    computation, body = asked.computation, asked.body
    limits = desk.settings.job_limits
    kind = computation.name
    if kind == FILE_COMPUTATION.name:
        kind, body = diagnose_archive.COMPUTATION.name, _stored(body, desk)
    elif kind in WITH_FILE:
        computation.parse(body, limits)
    else:
        return JobOrder(kind, computation.canonical(body, limits), digest([kind.encode(), body]))
    return JobOrder(kind, body, digest([kind.encode(), body]))


def _stored(body: bytes, desk: JobDesk) -> bytes:
    """What was uploaded, to be kept with the job."""
    upload = StoredFile.model_validate_json(body)
    path, bound = Path(upload.path), desk.settings.max_job_spec_bytes
    if path.stat().st_size > bound:
        raise Problem("body_too_large", f"a job may bring a file of at most {bound} bytes")
    read_embeddings(path, desk.settings.max_upload_bytes)
    options = upload.options.model_dump_json().encode()
    return options + diagnose_archive.SEPARATOR + path.read_bytes()
