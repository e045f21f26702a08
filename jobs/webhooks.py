"""Telling a webhook how a job ended: signed, at least once, for more than a day.

Every try is claimed by an object of its own, written create-only: several keepers together call no oftener
than one, and a keeper that dies leaves the next try to the others.
"""

from __future__ import annotations

import http.client
import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict

from jobs import paths
from jobs.addresses import BadAddress
from jobs.record import SEQUENCES, JobRecord
from jobs.settings import JobOptions
from jobs.store import Missing, ObjectStore
from jobs.webhook_call import call, signature

logger = logging.getLogger("anglewise.jobs")

MINUTE, HOUR = 60, 3600
PAUSES = (5, 30, 2 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 4 * HOUR, 6 * HOUR, 8 * HOUR, 8 * HOUR)
"""Seconds between one try and the next; after the last one nobody is called any more."""
GONE = 410
"""A status that asks for no further calls."""
DONE = "done.json"

Call = Callable[..., int]


class Try(BaseModel):
    """The claim of a try."""

    model_config = ConfigDict(frozen=True)

    at: AwareDatetime


def pause_after(tries: int) -> timedelta | None:
    """How long to wait after so many tries; None: give up.

    >>> pause_after(0), pause_after(1), pause_after(12)
    (datetime.timedelta(0), datetime.timedelta(seconds=5), None)
    """
    if tries == 0:
        return timedelta(0)
    return timedelta(seconds=PAUSES[tries - 1]) if tries <= len(PAUSES) else None


def message_id(record: JobRecord) -> str:
    """The same for every try, so that receivers can tell repetitions."""
    return f"msg_{record.id}"


def message(record: JobRecord) -> bytes:
    """The body of a call; the same for every try."""
    assert record.finished_at is not None
    times = {
        "created_at": record.created_at,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
    }
    data: dict[str, Any] = {
        "id": record.id,
        "kind": record.kind,
        "name": record.submission.name,
        "state": record.state.value,
        "attempt": record.attempt,
        "sequence": record.attempt * SEQUENCES + SEQUENCES - 1,
        "reason": record.reason and record.reason.model_dump(mode="json"),
        **{name: at and at.isoformat() for name, at in times.items()},
        "links": {"self": f"/jobs/{record.id}"},
    }
    document = {
        "type": f"job.{record.state.value}",
        "timestamp": record.finished_at.isoformat(),
        "data": data,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def deliver_due(
    store: ObjectStore,
    record: JobRecord,
    options: JobOptions,
    *,
    now: datetime | None = None,
    send: Call = call,
) -> bool:
    """Call the webhook of an ended job if a try is due; whether nothing is left to do.

    Takes up to about ten seconds when the other side is slow: not for a loop that has other things to do.

    Raises:
        StoreUnavailable
    """
    url, secret = record.submission.webhook, options.webhook_secret
    if url is None:
        return True
    folder = paths.webhook(record.id)
    tries = store.names(folder)
    if f"{folder}/{DONE}" in tries:
        return True
    if secret is None:
        return _finish(store, record, "there is no secret to sign with any more")
    now = now or datetime.now(UTC)
    pause = pause_after(len(tries))
    if tries and pause is not None and now < _last(store, tries[-1], now) + pause:
        return False
    if pause is None:
        return _finish(store, record, "nobody took the message in time")
    claim = Try(at=now).model_dump_json().encode()
    if not store.create(f"{folder}/{len(tries):03}.json", claim):  # somebody else is calling just now
        return False
    answer = _try(url, record, secret.get_secret_value(), now, options.webhook_allow_private, send)
    if store.size(paths.entry(record.id, 0)) is None:  # deleted during the call, but for the claim
        store.delete_folder(paths.job(record.id))
        return True
    if answer is None or not (200 <= answer < 300 or answer == GONE):
        return False
    return _finish(store, record, None if answer != GONE else "the receiver wants no messages")


def _last(store: ObjectStore, path: str, now: datetime) -> datetime:
    try:
        return Try.model_validate_json(store.get(path)).at
    except Missing:  # the job was deleted just now
        return now


def _try(
    url: str, record: JobRecord, secret: str, now: datetime, allow_private: bool, send: Call
) -> int | None:
    """The status of the answer; None if there was none."""
    body, timestamp = message(record), int(now.timestamp())
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "anglewise",
        "webhook-id": message_id(record),
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(secret, message_id(record), timestamp, body),
    }
    try:
        return send(url, body, headers, allow_private=allow_private)
    except (BadAddress, OSError, http.client.HTTPException) as error:
        logger.warning("the webhook of %s was not reached: %.200r", record.id, error)  # may quote the answer
        return None


def _finish(store: ObjectStore, record: JobRecord, why_not: str | None) -> bool:
    if why_not is not None:
        logger.warning("the webhook of %s is given up: %s", record.id, why_not)
    document = {"delivered": why_not is None, "reason": why_not}
    store.create(f"{paths.webhook(record.id)}/{DONE}", json.dumps(document).encode())
    return True
