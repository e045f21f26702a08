"""Ids that sort by the time they were made: a prefix and a ULID."""

from __future__ import annotations

import re

from ulid import ULID

ULID_PATTERN = "[0-7][0-9A-HJKMNP-TV-Z]{25}"
JOB_ID = re.compile(f"job_{ULID_PATTERN}")
DATASET_ID = re.compile(f"ds_{ULID_PATTERN}")


def new_job_id() -> str:
    return f"job_{ULID()}"


def new_dataset_id() -> str:
    return f"ds_{ULID()}"


def is_job_id(text: str) -> bool:
    """Whether ``text`` may name a job; anything else must never become part of a path.

    >>> is_job_id("job_01KBCJ6ZT0000000000000000Z"), is_job_id("job_../../etc/passwd")
    (True, False)
    """
    return JOB_ID.fullmatch(text) is not None


def is_dataset_id(text: str) -> bool:
    """Whether ``text`` may name a stored data set."""
    return DATASET_ID.fullmatch(text) is not None
