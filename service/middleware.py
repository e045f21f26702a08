"""Around every request: an id, a guarantee that failures are problems, and the API key."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from jobs.problems import Problem
from service.problems import http_problem_from, problem_response

REQUEST_ID = "X-Request-ID"
STOPPING = Problem("not_ready", "the service is stopping", headers={"Connection": "close"})
"""The server cancels requests that have not ended some time after it was told to stop."""
WELL_FORMED_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


class RequestIdentity:
    """Gives each request an id, the client's if it is well formed, and turns exceptions into problems."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = given if WELL_FORMED_ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        started = False

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message)[REQUEST_ID] = request_id
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        except ClientDisconnect:  # while its body was read: nobody is left to answer
            return
        except (Exception, asyncio.CancelledError) as error:
            if started:  # half of an answer is out: only breaking the connection tells the client
                raise
            problem = STOPPING if isinstance(error, asyncio.CancelledError) else http_problem_from(error)
            await problem_response(problem, request_id)(scope, receive, send_with_id)


class ApiKeys:
    """Requires one of the keys, given by their SHA-256, on every route but health checks.

    The rest of the application finds the digest of the key in ``request.state.api_key``.
    """

    def __init__(self, app: ASGIApp, digests: tuple[str, ...]) -> None:
        self.app = app
        self.digests = digests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["path"].startswith("/health/"):
            scope.setdefault("state", {})["api_key"] = self._require_key(Headers(scope=scope))
        await self.app(scope, receive, send)

    def _require_key(self, headers: Headers) -> str:
        """The digest of the key that was sent."""
        scheme, _, key = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            key = headers.get("x-api-key", "")
        digest = hashlib.sha256(key.strip().encode()).hexdigest()
        # Compare with every key: the time taken tells nothing about which is close.
        matches = [hmac.compare_digest(digest, known) for known in self.digests]
        if not any(matches):
            raise Problem(
                "unauthorized",
                "this key is not known"
                if key
                else "send a key as 'Authorization: Bearer …' or 'X-API-Key: …'",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return digest
