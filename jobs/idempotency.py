"""Idempotency keys: a request that is sent again gets the job that it made the first time.

The record of a key is written create-only before the job. Of several requests with one key, sent at the same
moment or after a crash, all end up with the id in that record, and submitting an id twice changes nothing.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict

from jobs.store import Missing, ObjectStore


class KeyReused(Exception):
    """The key came before, with another request."""


class KeyRecord(BaseModel):
    """What a key stands for.

    Attributes:
        job: id of the job, which may not have been submitted yet.
        digest: of the request.
    """

    model_config = ConfigDict(frozen=True)

    job: str
    digest: str


def digest(parts: Iterable[bytes]) -> str:
    """Of a request in parts, none of which can be mistaken for its neighbors."""
    result = hashlib.sha256()
    for part in parts:
        result.update(len(part).to_bytes(8, "big"))
        result.update(part)
    return result.hexdigest()


def claim(store: ObjectStore, path: str, job_id: str, request_digest: str) -> str:
    """The id for this request: ``job_id`` if the key is new, else the one it got before.

    Args:
        path: of the key's record.

    Raises:
        KeyReused: the key belongs to another request.
        StoreUnavailable
    """
    record = KeyRecord(job=job_id, digest=request_digest)
    while not store.create(path, record.model_dump_json().encode()):
        try:
            known = KeyRecord.model_validate_json(store.get(path))
        except Missing:  # its job was deleted just now
            continue
        if not hmac.compare_digest(known.digest, request_digest):
            raise KeyReused
        return known.job
    return job_id
