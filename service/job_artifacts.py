"""The files that a job left."""

from __future__ import annotations

import zipfile
from typing import BinaryIO

from jobs import paths
from jobs.problems import Problem
from jobs.record import Artifact, JobRecord
from jobs.states import State
from jobs.store import Missing, ObjectStore

RESULT, RESULT_ARCHIVE, PICTURE = "result.json", "result.npz", "picture.png"
EMBEDDINGS, LABELS = "embeddings.npy", "labels.npy"
CHECKPOINT = "checkpoint.safetensors"
REPORTS = {"text/html": "report.html", "application/json": "report.json", "image/png": "report.png"}
"""By media type.  The first is for browsers, and for those who do not say what they want."""


def find(record: JobRecord, name: str) -> Artifact | None:
    """The artifact of this name, if the job left one."""
    return next((artifact for artifact in record.artifacts if artifact.name == name), None)


def path_of(record: JobRecord, artifact: Artifact) -> str:
    """In the object store."""
    return paths.artifact(record.id, record.attempt, artifact.name)


def require(record: JobRecord, name: str, what: str) -> Artifact:
    """The artifact of this name.

    Raises:
        Problem: not_finished, no_result, or not_found.
    """
    found = find(record, name)
    if found is not None:
        return found
    require_success(record)
    raise Problem("not_found", f"this job left no {what}")


def require_success(record: JobRecord) -> None:
    """
    Raises:
        Problem: not_finished or no_result.
    """
    if not record.state.terminal:
        raise Problem("not_finished", f"the job is {record.state.value}")
    if record.state is not State.SUCCEEDED:
        why = f": {record.reason.message} ({record.reason.code.value})" if record.reason else ""
        raise Problem("no_result", f"the job {_ending(record.state)}{why}")


def _ending(state: State) -> str:
    return "was cancelled" if state is State.CANCELLED else state.value


def newest_checkpoint(store: ObjectStore, record: JobRecord) -> str:
    """Path of the last checkpoint of any attempt.

    Raises:
        Missing, StoreUnavailable
    """
    found = [
        (name.rpartition("/")[2], name)
        for attempt in range(1, record.attempt + 1)
        for name in store.names(paths.checkpoints(record.id, attempt))
    ]
    if not found:
        raise Missing(record.id)
    return max(found)[1]


def write_embeddings(store: ObjectStore, record: JobRecord, file: BinaryIO) -> None:
    """An .npz archive of ``embeddings`` and, where there are some, ``labels``; the same bytes every time.

    Raises:
        Problem: the job left no embeddings.
        Missing, StoreUnavailable
    """
    require(record, EMBEDDINGS, "embeddings")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in (EMBEDDINGS, LABELS):
            artifact = find(record, name)
            if artifact is not None:
                with archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as member:
                    for chunk in store.chunks(path_of(record, artifact))[1]:
                        member.write(chunk)
