"""A pool of solver processes: a bounded queue, a deadline that kills, and recovery from any death.

Every process has its own channel, so killing one cannot touch another's request. A computation whose
process dies is tried once more, then refused.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

from jobs.computations.limits import Limits
from jobs.frames import Frame
from jobs.problems import Problem
from service.process import SolverProcess

logger = logging.getLogger("anglewise.service")

ATTEMPTS = 2
START_SECONDS = 600.0
"""Compiling every kernel for the first time takes a minute or two on a small machine."""
MAX_PAUSE_SECONDS = 30.0
RETRY_AFTER = {"Retry-After": "5"}


@dataclass(frozen=True)
class Reply:
    """An encoded answer: ``body``, or a file for archives (already unlinked; closing it frees the space)."""

    body: bytes = b""
    file: BinaryIO | None = None
    final: bool = False
    picture: bytes = b""


class Job:
    """A computation on its way: it waits, is started, and then its future is done."""

    def __init__(self, header: dict[str, Any], body: bytes, patience: float) -> None:
        loop = asyncio.get_running_loop()
        self.header = header
        self.body = body
        self.future: asyncio.Future[Reply] = loop.create_future()
        self.started: float | None = None
        self.attempts = 0
        self._impatience = loop.call_later(
            patience, self.fail, Problem("busy", "no solver process became free in time", headers=RETRY_AFTER)
        )

    def start(self) -> None:
        self._impatience.cancel()
        self.started = self.started or time.monotonic()
        self.attempts += 1

    def wait_again(self, seconds: float, problem: Problem) -> None:
        """For another process, if one becomes free in so many seconds."""
        loop = asyncio.get_running_loop()
        self._impatience = loop.call_later(max(seconds, 0.0), self.fail, problem)

    def fail(self, problem: Problem) -> None:
        self._impatience.cancel()
        archive = self.header.get("archive")
        if archive is not None:
            Path(archive).unlink(missing_ok=True)
        if not self.future.done():
            self.future.set_exception(problem)
            self.future.exception()  # nobody may be waiting any more

    def settle(self, frame: Frame) -> None:
        header, body = frame
        if "problem" in header:
            self.fail(Problem(**header["problem"]))
            return
        file = None
        if "archive" in header:
            path = Path(header["archive"])
            file = path.open("rb")
            path.unlink()
        if not self.future.done():
            length = header.get("length", len(body))
            picture = body[length:]
            answer = body[:length] if picture else body
            self.future.set_result(Reply(answer, file, header.get("final", False), picture))
        elif file is not None:
            file.close()


class SolverPool:
    """Use as an async context manager; the processes start in the background."""

    def __init__(self, limits: Limits, workers: int, max_waiting: int) -> None:
        self._limits = limits
        self._max_waiting = max_waiting
        self._waiting: deque[Job] = deque()
        self._idle: deque[asyncio.Future[Job]] = deque()
        self._solvers: list[SolverProcess | None] = [None] * workers
        self._failures = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._archives = Path()
        self._archive_number = 0

    async def __aenter__(self) -> Self:
        self._archives = Path(tempfile.mkdtemp(prefix="anglewise-"))
        self._tasks = [asyncio.create_task(self._keep_running(slot)) for slot in range(len(self._solvers))]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for job in self._waiting:
            job.fail(_stopping())
        shutil.rmtree(self._archives, ignore_errors=True)

    @property
    def pids(self) -> list[int]:
        """Of the processes that have loaded their code and are alive."""
        return [solver.pid for solver in self._solvers if solver is not None]

    @property
    def broken(self) -> bool:
        """Whether processes keep ending before they are ready."""
        return self._failures > len(self._solvers)

    @property
    def waiting(self) -> int:
        """How many computations wait for a process."""
        return sum(not job.future.done() for job in self._waiting)

    def submit(
        self, computation: str, body: bytes, *, archive: bool = False, check: Limits | None = None
    ) -> Job:
        """Queue a computation. Cancelling its future before it is started takes it out of the queue.

        Args:
            check: only check the request, with these limits; the reply is the request in its canonical form.

        Raises:
            Problem: busy.
        """
        self._waiting = deque(job for job in self._waiting if not job.future.done())
        if len(self._waiting) >= self._max_waiting:
            raise Problem(
                "busy", f"{self._max_waiting} computations are waiting already", headers=RETRY_AFTER
            )
        header: dict[str, Any] = {"computation": computation}
        if check is not None:
            header["check"] = check.model_dump()
        if archive:
            self._archive_number += 1
            header["archive"] = str(self._archives / f"{self._archive_number}.npz")
        job = Job(header, body, patience=self._limits.deadline_seconds)
        self._waiting.append(job)
        self._hand_out()
        return job

    def _hand_out(self) -> None:
        """Give waiting jobs to idle processes, first come first served."""
        while self._waiting and self._idle:
            job = self._waiting.popleft()
            if not job.future.done():
                self._idle.popleft().set_result(job)

    async def _keep_running(self, slot: int) -> None:
        while True:
            try:
                async with asyncio.timeout(START_SECONDS):
                    solver = await SolverProcess.start(self._limits)
            except (OSError, EOFError) as error:  # TimeoutError and ConnectionError are OSErrors
                self._failures += 1
                pause = min(2.0**self._failures, MAX_PAUSE_SECONDS)
                logger.error("a solver process did not start (%r); next try in %g s", error, pause)
                await asyncio.sleep(pause)
                continue
            self._failures = 0
            self._solvers[slot] = solver
            try:
                await self._serve(solver)
            finally:
                self._solvers[slot] = None
                await solver.kill()

    async def _serve(self, solver: SolverProcess) -> None:
        """Give the process jobs until it dies or has to be killed."""
        while (job := await self._next_job(solver)) is not None:
            if solver.ended:  # while it was idle: the job is not to blame
                self._put_back(job)
                return
            job.start()
            try:
                async with asyncio.timeout(self._time_left(job)):
                    frame = await solver.ask(job.header, job.body)
            except TimeoutError:
                job.fail(_deadline(self._limits))
                return
            except (EOFError, ConnectionError):
                logger.error("a solver process ended during %s", job.header["computation"])
                self._try_again(job)
                return
            except asyncio.CancelledError:
                job.fail(_stopping())
                raise
            job.settle(frame)

    async def _next_job(self, solver: SolverProcess) -> Job | None:
        """The job that waited longest, or None when the process died while it was idle."""
        inbox: asyncio.Future[Job] = asyncio.get_running_loop().create_future()
        self._idle.append(inbox)
        self._hand_out()
        either: set[asyncio.Future[Any]] = {inbox, solver.gone}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not inbox.done():
                self._idle.remove(inbox)
        return inbox.result() if inbox.done() else None

    def _time_left(self, job: Job) -> float:
        assert job.started is not None
        return job.started + self._limits.deadline_seconds - time.monotonic()

    def _try_again(self, job: Job) -> None:
        if job.attempts >= ATTEMPTS:
            job.fail(Problem("worker_lost", "the process that computed it ended, and so did a second one"))
            return
        archive = job.header.get("archive")
        if archive is not None:
            Path(archive).unlink(missing_ok=True)
        job.wait_again(self._time_left(job), _deadline(self._limits))
        self._put_back(job)

    def _put_back(self, job: Job) -> None:
        self._waiting.appendleft(job)
        self._hand_out()


def _stopping() -> Problem:
    return Problem("not_ready", "the service is stopping")


def _deadline(limits: Limits) -> Problem:
    return Problem(
        "deadline",
        f"the computation took longer than {limits.deadline_seconds:g} s (ANGLEWISE_DEADLINE_SECONDS) "
        "and was stopped",
    )
