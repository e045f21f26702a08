"""Whether and when a failed attempt is repeated: one decision for both clients."""

from __future__ import annotations

from typing import Any

import httpx2

from anglewise_client._call import Call, Config
from anglewise_client._response import backoff, pause_after_response

NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
NOT_DONE = frozenset({429, 503})
"""Statuses that say that nothing was done, so even what is not repeatable may be sent again."""
PERMANENT = (httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.SSEError)


def pause_before_retry(
    config: Config, call: Call[Any], attempt: int, outcome: httpx2.Response | httpx2.TransportError
) -> float | None:
    """Seconds until the next attempt, or None: this outcome is final.

    Args:
        attempt: number of the attempt that had this outcome, from 0.
    """
    if attempt >= config.retries:
        return None
    if isinstance(outcome, httpx2.Response):
        safe = call.repeatable or outcome.status_code in NOT_DONE
        return pause_after_response(outcome, attempt) if safe else None
    if isinstance(outcome, PERMANENT) or not (call.repeatable or isinstance(outcome, NOT_SENT)):
        return None
    return backoff(attempt)
