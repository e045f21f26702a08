"""How much one API key may ask for: requests a minute, and computations at a time."""

from __future__ import annotations

import math
import time
from collections import Counter

from limits import RateLimitItemPerMinute
from limits.aio.storage import MemoryStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from starlette.types import ASGIApp, Receive, Scope, Send

from jobs.problems import Problem


class KeyLimits:
    """Inside of `ApiKeys`, whose digests tell the keys apart; counts in this process."""

    def __init__(self, app: ASGIApp, per_minute: int, at_a_time: int) -> None:
        self.app = app
        self.at_a_time = at_a_time
        self._item = RateLimitItemPerMinute(per_minute) if per_minute else None
        self._limiter = SlidingWindowCounterRateLimiter(MemoryStorage())
        self._running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = scope.get("state", {}).get("api_key") if scope["type"] == "http" else None
        if key is None:
            await self.app(scope, receive, send)
            return
        await self._count(key)
        if scope["method"] != "POST" or not self.at_a_time:
            await self.app(scope, receive, send)
            return
        if self._running[key] >= self.at_a_time:
            raise Problem(
                "too_many_requests",
                f"{self.at_a_time} requests with this key are being answered already",
                headers={"Retry-After": "1"},
            )
        self._running[key] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self._running[key] -= 1
            if self._running[key] == 0:
                del self._running[key]

    async def _count(self, key: str) -> None:
        if self._item is None or await self._limiter.hit(self._item, key):
            return
        reset = (await self._limiter.get_window_stats(self._item, key)).reset_time
        seconds = max(1, math.ceil(reset - time.time()))
        raise Problem(
            "too_many_requests",
            f"this key may make {self._item.amount} requests a minute",
            headers={"Retry-After": str(seconds)},
        )
