"""Pages of jobs, newest first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from jobs.ids import ULID_PATTERN, is_job_id
from jobs.journal import UnknownJob
from jobs.record import JobRecord
from jobs.states import State
from service.job_answers import LISTED_SPEC_BYTES, describe
from service.job_desk import JobDesk
from service.job_kinds import Kind, stored_kinds

MAX_LOOKED_AT = 2_000
"""Jobs read for one page, however few of them are wanted."""


class Filter(BaseModel):
    """Which jobs."""

    model_config = ConfigDict(extra="forbid")

    cursor: str | None = Field(
        default=None, pattern=f"^job_{ULID_PATTERN}$", description="`next_cursor` of the page before"
    )
    state: State | None = Field(default=None, description="only jobs in this state")
    kind: Kind | None = Field(default=None, description="only jobs of this kind")


def page(desk: JobDesk, wanted: Filter, limit: int) -> dict[str, Any]:
    """As `JobPageAnswer` documents it. Jobs submitted or deleted meanwhile do not disturb later pages.

    Raises:
        StoreUnavailable
    """
    records: list[JobRecord] = []
    ids = _ids(desk, wanted)
    last = None
    for job_id in islice(ids, MAX_LOOKED_AT):
        last = job_id
        record = _read(desk, job_id)
        if record is not None and _fits(record, wanted):
            records.append(record)
            if len(records) == limit:
                break
    more = next(ids, None) is not None
    progress = desk.progress([record.id for record in records if record.held])
    items = [_item(record, desk, progress) for record in records]
    return {"items": [item for item in items if item is not None], "next_cursor": last if more else None}


def _ids(desk: JobDesk, wanted: Filter) -> Iterator[str]:
    """Those that may fit, newest first."""
    active = wanted.state is not None and not wanted.state.terminal
    found = sorted(desk.journal.active_ids(), reverse=True) if active else desk.journal.ids()
    return (
        job_id for job_id in found if is_job_id(job_id) and (wanted.cursor is None or job_id < wanted.cursor)
    )


def _read(desk: JobDesk, job_id: str) -> JobRecord | None:
    try:
        return desk.journal.read(job_id)
    except UnknownJob:  # it was deleted just now, or never got to its log
        return None


def _fits(record: JobRecord, wanted: Filter) -> bool:
    if wanted.state is not None and record.state is not wanted.state:
        return False
    return wanted.kind is None or record.kind in stored_kinds(wanted.kind)


def _item(record: JobRecord, desk: JobDesk, progress: Any) -> dict[str, Any] | None:
    try:
        return describe(record, desk, progress.get(record.id), LISTED_SPEC_BYTES)
    except UnknownJob:
        return None
