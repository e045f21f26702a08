"""Any computation as a job: the same request, with the wish not to wait for its answer."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ParamSpec

import httpx2

from anglewise_client._call import JSON, Call, new_key
from anglewise_client.calls.reading import model
from anglewise_client.job_models import JobRecord

P = ParamSpec("P")

ACCEPTED = 202


def as_job(build: Callable[P, Call[Any]]) -> Callable[P, Call[JobRecord]]:
    """A function that takes what ``build`` takes and makes a request that is answered by a job."""

    @functools.wraps(build)
    def deferred(*args: P.args, **kwargs: P.kwargs) -> Call[JobRecord]:
        call: Call[Any] = build(*args, **kwargs)
        headers = {**call.headers, "Prefer": "respond-async", "Idempotency-Key": new_key()}
        return replace(call, read=_read, headers=headers, accept=JSON)

    del deferred.__wrapped__
    signature = inspect.signature(build).replace(return_annotation="Call[JobRecord]")
    deferred.__signature__ = signature  # type: ignore[attr-defined]
    deferred.__doc__ = f"As a job: {build.__doc__}"
    return deferred


def _read(response: httpx2.Response) -> JobRecord:
    if response.status_code != ACCEPTED:
        raise ValueError("this service runs no jobs; it computed the answer at once")
    return model(JobRecord)(response)
