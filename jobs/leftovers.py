"""Removing what processes left in the object store that ended in the middle of something."""

from __future__ import annotations

import contextlib
import time
from datetime import timedelta

from jobs import paths
from jobs.store import STAGING, Missing, ObjectStore


def clear_interrupted(store: ObjectStore, job_id: str) -> None:
    """Remove a job without a log: its submission never succeeded, or its deletion was cut off.

    A client may submit under the same id at the same moment, by an idempotency key: then the job stays.
    """
    try:
        spec = store.get(paths.spec(job_id))
    except Missing:
        spec = None
    store.delete_folder(paths.job(job_id))
    store.delete(paths.active(job_id))
    if store.size(paths.entry(job_id, 0)) is not None:
        store.put(paths.active(job_id), b"")
        if spec is not None:
            store.put(paths.spec(job_id), spec)


def clear_staging(store: ObjectStore, age: timedelta) -> None:
    """Remove unfinished files that nobody has written to for ``age``."""
    if store.folder is None:
        return
    oldest = time.time() - age.total_seconds()
    for path in (store.folder / STAGING).glob("*"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and path.stat().st_mtime < oldest:
                path.unlink()
