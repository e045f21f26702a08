"""Where things are in the object store."""

from __future__ import annotations

import hashlib

JOBS = "jobs"
ACTIVE = "active"
IDEMPOTENCY = "idempotency"
DATASETS = "datasets"


def job(job_id: str) -> str:
    """Everything of one job."""
    return f"{JOBS}/{job_id}"


def entry(job_id: str, position: int) -> str:
    """An entry of its log."""
    return f"{job(job_id)}/log/{position:06}.json"


def spec(job_id: str) -> str:
    return f"{job(job_id)}/spec.json"


def webhook(job_id: str) -> str:
    """Folder of the tries to tell a webhook how the job ended."""
    return f"{job(job_id)}/webhook"


def active(job_id: str) -> str:
    """There while the job may still need attention."""
    return f"{ACTIVE}/{job_id}"


def attempt(job_id: str, number: int) -> str:
    """Everything that one attempt wrote, and no other writes to."""
    return f"{job(job_id)}/attempts/{number:03}"


def artifact(job_id: str, number: int, name: str) -> str:
    return f"{attempt(job_id, number)}/artifacts/{name}"


def events(job_id: str, number: int) -> str:
    """Folder of an attempt's events, in files named by the number of their first event."""
    return f"{attempt(job_id, number)}/events"


def event_file(job_id: str, number: int, first: int) -> str:
    return f"{events(job_id, number)}/{first:012}.jsonl"


def checkpoints(job_id: str, number: int) -> str:
    """Folder of an attempt's checkpoints, named by their step."""
    return f"{attempt(job_id, number)}/checkpoints"


def checkpoint(job_id: str, number: int, step: int) -> str:
    return f"{checkpoints(job_id, number)}/{step:012}.safetensors"


def idempotency(key: str) -> str:
    """The record of an idempotency key; keys are strings of clients, so only their hash is used."""
    return f"{IDEMPOTENCY}/{hashlib.sha256(key.encode()).hexdigest()}.json"


def dataset(dataset_id: str) -> str:
    return f"{DATASETS}/{dataset_id}"
