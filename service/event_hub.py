"""Who watches which job: one subscription to Redis for the process, and one reader for each watched job."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator
from functools import partial
from typing import Self

import redis.exceptions

from jobs.broker import connect_async
from jobs.events import Event
from jobs.live import CHANNEL
from jobs.problems import Problem
from service.job_desk import RETRY_AFTER, JobDesk
from service.job_events import news

logger = logging.getLogger("anglewise.service")

WINDOW = 256
"""Events of a watched job kept in memory; who is further behind reads the store."""
PAUSE_SECONDS = 0.1
"""Between two looks at a job, however much happens."""
POLL_SECONDS = 2.0
"""Between looks at a job while Redis is away."""
SLOW_POLL_SECONDS = 10.0
"""The same while it is there: its messages may get lost."""
GAP_SECONDS = 35.0
"""How long to wait for an event that is missing: workers store theirs within 30 s."""
RECONNECT_SECONDS = 1.0


class Topic:
    """The latest events of one job.

    Attributes:
        floor: number of the last event that is no longer in ``window``; -1 if all are there.
        position: number of the last event.
        ended: there will be no more events; the job has ended, or was deleted.
        watchers: streams that read this.
    """

    def __init__(self) -> None:
        self.window: deque[Event] = deque()
        self.floor = -1
        self.position = -1
        self.ended = False
        self.watchers = 0
        self.task: asyncio.Task[None] | None = None
        self._poked = asyncio.Event()
        self._changed = asyncio.Event()

    def poke(self) -> None:
        """There may be something new."""
        self._poked.set()

    def after(self, sequence: int) -> list[Event]:
        """Events in the window with larger numbers."""
        return [event for event in self.window if event.sequence > sequence]

    def add(self, events: list[Event], *, ended: bool) -> None:
        self.window.extend(events)
        if events:
            self.position = events[-1].sequence
        while len(self.window) > WINDOW:
            self.floor = self.window.popleft().sequence
        self.ended = ended
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def change(self, seconds: float) -> bool:
        """Wait for new events; False if there were none in this time."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return False
        return True

    async def poked(self, seconds: float) -> None:
        """Wait for something that may be new, or this long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._poked.wait()
        self._poked.clear()


class EventHub:
    """Use as an async context manager."""

    def __init__(self, desk: JobDesk) -> None:
        self._desk = desk
        self._topics: dict[str, Topic] = {}
        self._listener: asyncio.Task[None] | None = None
        self._listening = False
        self.streams = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [task for task in (self._listener, *(t.task for t in self._topics.values())) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def watch(self, job_id: str) -> AsyncIterator[Topic]:
        """The topic of a job that is known to exist, kept up to date inside the block.

        Raises:
            Problem: busy.
        """
        if self.streams >= self._desk.settings.max_streams:
            raise Problem("busy", "too many event streams at a time", headers=RETRY_AFTER)
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen())
        topic = self._topics.get(job_id)
        if topic is None:
            topic = self._topics[job_id] = Topic()
            topic.task = asyncio.create_task(self._follow(job_id, topic))
        self.streams += 1
        topic.watchers += 1
        try:
            yield topic
        finally:
            self.streams -= 1
            topic.watchers -= 1
            if topic.watchers == 0:
                if self._topics.get(job_id) is topic:
                    del self._topics[job_id]
                if topic.task is not None:
                    topic.task.cancel()

    async def _follow(self, job_id: str, topic: Topic) -> None:
        """Read what is new whenever there may be something."""
        gap_since: float | None = None
        while not topic.ended:
            try:
                patient = gap_since is None or time.monotonic() < gap_since + GAP_SECONDS
                read = partial(news, self._desk, job_id, topic.position, patient=patient)
                run = self._desk.run if topic.position >= 0 else self._desk.look_back
                found = await run(read)
            except Problem as problem:
                if problem.code == "not_found":
                    topic.add([], ended=True)
                    return
                await asyncio.sleep(POLL_SECONDS)
                continue
            except Exception:
                logger.exception("the events of %s cannot be read", job_id)
                await asyncio.sleep(SLOW_POLL_SECONDS)
                continue
            gap_since = None if found.complete or not patient else gap_since or time.monotonic()
            if found.events or found.ended:
                topic.add(found.events, ended=found.ended)
            await asyncio.sleep(PAUSE_SECONDS)
            quickly = gap_since is not None or not self._listening
            await topic.poked(POLL_SECONDS if quickly else SLOW_POLL_SECONDS)

    async def _listen(self) -> None:
        """Hear from Redis which jobs have news, for as long as the application runs."""
        url = self._desk.settings.broker_url
        assert url is not None
        while True:
            try:
                async with connect_async(url) as client, client.pubsub() as subscription:
                    await subscription.subscribe(CHANNEL)
                    self._listening = True
                    self._poke_all()
                    async for message in subscription.listen():
                        if message["type"] == "message":
                            topic = self._topics.get(message["data"].decode())
                            if topic is not None:
                                topic.poke()
            except (redis.exceptions.RedisError, OSError) as error:
                if self._listening:
                    logger.warning("event streams poll the store, as Redis is away: %s", error)
            self._listening = False
            self._poke_all()
            await asyncio.sleep(RECONNECT_SECONDS)

    def _poke_all(self) -> None:
        for topic in self._topics.values():
            topic.poke()
