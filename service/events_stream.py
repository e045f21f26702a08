"""GET /jobs/{id}/events: what happens to a job, as it happens (server-sent events)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated

import orjson
from fastapi import APIRouter, Query
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from jobs.events import ENDED, Event, series
from jobs.problems import Problem
from jobs.record import SEQUENCES
from service.deps import DeskDep, JobsDep
from service.event_hub import EventHub, Topic
from service.job_answers import JobMetricsAnswer, json_response
from service.job_desk import JobDesk
from service.job_events import news
from service.jobs import STORE_PROBLEMS, JobId, document_of
from service.problems import problem_responses

router = APIRouter(tags=["jobs"])

EVENT_STREAM = "text/event-stream"
HEARTBEAT_SECONDS = 15.0
EVENTS_AT_A_TIME = 200
"""Written before others get their turn: a job may have hundreds of thousands."""
OPENING = b"retry: 2000\n\n"
"""Milliseconds until a browser tries again; sending it also says that the stream is open."""
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
MAX_ID = 10**15
EXAMPLE = (
    'event: state\nid: 1000000000\ndata: {"state":"running","attempt":1,"at":"2026-12-01T09:30:00.25Z"}\n\n'
    'event: metrics\nid: 1000000001\ndata: {"step":10,"values":{"loss":0.69},"at":"2026-12-01T09:30:01Z"}\n\n'
)


@router.get(
    "/jobs/{job_id}/events",
    operation_id="job_events",
    summary="The events of a job, live",
    response_model=None,
    responses={
        200: {
            "description": "A stream that ends with the job",
            "content": {EVENT_STREAM: {"schema": {"type": "string"}, "example": EXAMPLE}},
        },
        204: {"description": "The job has ended, and there is nothing after the event that was named"},
        **problem_responses("invalid_input", "not_found", "busy", *STORE_PROBLEMS),
    },
    openapi_extra={
        "parameters": [
            {
                "name": "Last-Event-ID",
                "in": "header",
                "required": False,
                "description": "go on after this event; browsers send it when they connect again",
                "schema": {"type": "integer", "minimum": 0, "maximum": MAX_ID},
            }
        ]
    },
)
async def job_events(
    job_id: JobId,
    request: Request,
    service: JobsDep,
    after: Annotated[
        int | None, Query(ge=-1, le=MAX_ID, description="the same, for those who cannot set headers")
    ] = None,
) -> Response:
    """All events from the beginning, or after the one that is named, and then those that come. Their types:

    * `state`: `{"state", "attempt", "reason"?}`
    * `progress`: `{"step", "total", "eta_s"}`
    * `metrics`: `{"step", "values": {name: number or null}}`
    * `resumed`: `{"step"}`; the job goes on from a checkpoint, and metrics of later steps are repeated
    * `log`: `{"message"}`

    Each also has `at`, its time.
    """
    position = _last_event_id(request)
    if position is None:
        position = -1 if after is None else after
    record = await service.desk.run(service.desk.read, job_id)
    if record.state.terminal and position >= record.attempt * SEQUENCES + ENDED:
        return Response(status_code=204)  # this is how a browser learns to stop asking
    return EventStream(service.hub, service.desk, job_id, position)


@router.get(
    "/jobs/{job_id}/metrics",
    operation_id="get_job_metrics",
    summary="The metrics of a training",
    response_model=None,
    responses={
        200: document_of(JobMetricsAnswer, "A series for each metric"),
        **problem_responses("not_found", *STORE_PROBLEMS),
    },
)
async def get_metrics(job_id: JobId, desk: DeskDep) -> Response:
    """Up to now. Steps that were repeated after the loss of a worker are there once."""

    def read() -> Response:
        events = news(desk, job_id, -1, patient=False).events
        return json_response({"series": series(events)})

    return await desk.look_back(read)


def _last_event_id(request: Request) -> int | None:
    given = request.headers.get("last-event-id", "").strip()
    if not given:
        return None
    # So many digits and no more: Python refuses to read thousands of them.
    readable = given.isdecimal() and given.isascii() and len(given) <= len(str(MAX_ID))
    if not readable or int(given) > MAX_ID:
        raise Problem("invalid_input", "Last-Event-ID: must be the id of an event")
    return int(given)


class EventStream(Response):
    """Ends with the job, when the client leaves, or when the server stops it."""

    media_type = EVENT_STREAM

    def __init__(self, hub: EventHub, desk: JobDesk, job_id: str, after: int) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._hub = hub
        self._desk = desk
        self._job_id = job_id
        self._after = after
        self._started = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._hub.watch(self._job_id) as topic:  # refuses before anything is sent
            writing = asyncio.create_task(self._write(topic, send))
            leaving = asyncio.create_task(_disconnection(receive))
            try:
                await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if writing.done():
                    with contextlib.suppress(OSError):  # the client left while something was sent
                        writing.result()
            except asyncio.CancelledError:  # the server stops: an end at which clients connect again
                writing.cancel()
                await asyncio.wait({writing})
                if not self._started:
                    raise
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            finally:
                for task in (writing, leaving):
                    task.cancel()
                await asyncio.gather(writing, leaving, return_exceptions=True)

    async def _write(self, topic: Topic, send: Send) -> None:
        self._started = True
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for chunk in self._chunks(topic):
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _chunks(self, topic: Topic) -> AsyncIterator[bytes]:
        yield OPENING
        while True:
            ended = topic.ended
            events = topic.after(self._after) if self._after >= topic.floor else await self._missed(topic)
            for first in range(0, len(events), EVENTS_AT_A_TIME):
                piece = events[first : first + EVENTS_AT_A_TIME]
                self._after = piece[-1].sequence
                yield b"".join(map(_encoded, piece))
                await asyncio.sleep(0)  # sending does not wait if the client reads fast
            if events:
                continue
            if ended:
                return
            if not await topic.change(HEARTBEAT_SECONDS):
                yield KEEPALIVE_COMMENT

    async def _missed(self, topic: Topic) -> list[Event]:
        """Those before the window of the topic. If they are nowhere any more, it goes on after them."""
        floor, after = topic.floor, self._after
        found = await self._desk.look_back(lambda: news(self._desk, self._job_id, after, patient=False))
        events = [event for event in found.events if event.sequence <= floor]
        if not events:
            self._after = floor
        return events


def _encoded(event: Event) -> bytes:
    data = {**event.data, "at": event.at}
    return format_sse_event(
        event=event.type,
        id=str(event.sequence),
        data_str=orjson.dumps(data, option=orjson.OPT_UTC_Z).decode(),
    )


async def _disconnection(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
