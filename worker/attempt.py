"""One attempt at a job: a runner does it; this side listens, keeps the lease, and stops it when it must."""

from __future__ import annotations

import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from jobs.events import EventLog, EventType, state_events
from jobs.journal import Journal, Superseded, UnknownJob
from jobs.live import Live
from jobs.record import Artifact, JobRecord, Step
from jobs.settings import JobOptions
from jobs.states import Reason, ReasonCode
from jobs.store import StoreUnavailable
from worker.endings import CANCELLED, LOST, RELEASED, SUPERSEDED, Ending, write_ending
from worker.memory import mib, system_kills
from worker.messages import Order, Report
from worker.progress import ProgressMeter
from worker.pulse import Pulse
from worker.runner_process import RunnerProcess
from worker.training.context import Stopping
from worker.watch import Watch

logger = logging.getLogger("anglewise.worker")

T = TypeVar("T")

TRAINING = "training"
TICK_SECONDS = 0.2
"""Between looks at what may end the attempt."""
MEASURE_SECONDS = 0.5
"""Between looks at the memory of the runner."""
CANCEL_SECONDS = 2.0
"""A cancelled runner that stops by itself may take so long."""
SHUTDOWN_SECONDS = 6.0
"""A runner whose worker stops may take so long for its checkpoint."""
GIVE_UP_SECONDS = 8.0
"""A worker that stops tries so long to give its job back; others find out by themselves."""
RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
NEARLY = 0.9
"""Share of the memory bound beyond which an abrupt end is put down to it."""
EVENT_TYPES: Mapping[str, EventType] = {
    Report.METRICS: "metrics",
    Report.LOG: "log",
    Report.RESUMED: "resumed",
}


@dataclass(frozen=True)
class Services:
    """What all attempts of a worker have in common."""

    journal: Journal
    live: Live
    settings: JobOptions
    stopping: threading.Event
    """Set when the worker should stop."""


@dataclass(frozen=True)
class Interruption:
    """A cause to stop a runner. Higher ranks override lower ones that are being carried out.

    Attributes:
        ending: what becomes of the attempt.
        why: what the runner is told.
        patience: how long a runner that stops by itself may take, in seconds.
    """

    rank: int
    ending: Ending
    why: Stopping = "cancel"
    patience: float = 0.0


class Attempt:
    """Call `carry_out` once, after the log says that the attempt has begun."""

    def __init__(self, services: Services, runner: RunnerProcess, record: JobRecord) -> None:
        assert record.owner is not None
        settings = services.settings
        self._services = services
        self._runner = runner
        self._job_id, self._number, self._kind = record.id, record.attempt, record.kind
        self._events = EventLog(services.journal.store, record.id, record.attempt)
        beat = settings.heartbeat_seconds
        self._pulse = Pulse(services.live, record.id, record.attempt, record.owner, beat)
        self._watch = Watch(
            services.journal, self._events, record.id, record.attempt, beat, self._tell_of_cancellation
        )
        self._meter = ProgressMeter(record.attempt)
        self._tell_states(record)
        self._cooperative = False
        self._memory, self._measure_at = 0, 0.0
        self._kills_before = system_kills()
        limit = settings.job_seconds if record.kind == TRAINING else settings.computation_job_seconds
        self._limit_seconds, self._deadline = limit, time.monotonic() + limit

    def carry_out(self) -> JobRecord | None:
        """Do the job to its end; the job afterwards, or None if the attempt was given up by others.

        Whatever happens, the runner does not work on this job any more when this returns.
        """
        with self._pulse, self._watch:
            try:
                ending = self._work()
            except BaseException:
                self._runner.kill()
                raise
            record = self._write(ending)
            if record is not None:
                self._tell_states(record)
            return record

    def _work(self) -> Ending:
        try:
            spec = self._patiently(lambda: self._services.journal.spec(self._job_id))
        except UnknownJob:
            return SUPERSEDED
        if spec is None:
            return RELEASED
        order = {"job": self._job_id, "kind": self._kind, "attempt": self._number}
        self._runner.send(Order.RUN, order, spec)
        return self._follow()

    def _follow(self) -> Ending:
        """Listen to the runner until it has ended the job, or has to be killed."""
        interruption: Interruption | None = None
        kill_at = math.inf
        while True:
            try:
                frame = self._runner.receive(TICK_SECONDS)
            except EOFError:
                self._runner.kill()
                return self._unexpected_end() if interruption is None else interruption.ending
            ending = None if frame is None else self._handle(frame[0])
            if ending is not None:
                return interruption.ending if interruption and ending is RELEASED else ending
            found = self._interruption()
            if found is not None and (interruption is None or found.rank > interruption.rank):
                interruption = found
                kill_at = time.monotonic() + (found.patience if self._cooperative else 0.0)
                self._runner.send(Order.STOP, {"why": found.why})
            if interruption is not None and time.monotonic() >= kill_at:
                self._runner.kill()
                return interruption.ending

    def _handle(self, report: Mapping[str, Any]) -> Ending | None:
        match report["type"]:
            case Report.ACCEPTED:
                self._cooperative = report["cooperative"]
            case Report.PROGRESS:
                self._show_progress(report["step"], report["total"])
            case Report.METRICS | Report.LOG | Report.RESUMED:
                self._emit(EVENT_TYPES[report["type"]], report["data"])
            case Report.FLUSH:
                runner = self._runner
                self._watch.flush(lambda stored: runner.send(Order.FLUSHED, {"stored": stored}))
            case Report.DONE:
                return Ending(Step.SUCCEEDED, artifacts=_artifacts(report))
            case Report.FAILED:
                reason = Reason.model_validate(report["reason"])
                return Ending(Step.FAILED, reason, _artifacts(report))
            case Report.STOPPED:
                return RELEASED
        return None

    def _interruption(self) -> Interruption | None:
        """The most important cause to stop the runner now."""
        if self._watch.over:
            return Interruption(4, SUPERSEDED)
        if self._watch.cancelled:
            return Interruption(3, CANCELLED, "cancel", CANCEL_SECONDS)
        if time.monotonic() >= self._deadline:
            message = f"it ran longer than the {self._limit_seconds:g} s that such a job may run"
            return Interruption(2, _failed(ReasonCode.TIMEOUT, message))
        if self._uses_too_much():
            bound = self._services.settings.job_memory_bytes
            message = f"it used {mib(self._memory)} of memory, more than the {mib(bound)} a job may use"
            return Interruption(2, _failed(ReasonCode.OUT_OF_MEMORY, message))
        if self._services.stopping.is_set():
            return Interruption(1, RELEASED, "shutdown", SHUTDOWN_SECONDS)
        return None

    def _uses_too_much(self) -> bool:
        if time.monotonic() >= self._measure_at:
            self._measure_at = time.monotonic() + MEASURE_SECONDS
            self._memory = self._runner.memory() or self._memory
        return 0 < self._services.settings.job_memory_bytes < self._memory

    def _unexpected_end(self) -> Ending:
        """What is known about a runner that ended in the middle of the job."""
        status = self._runner.exit_status
        how = _words(status)
        bound = self._services.settings.job_memory_bytes
        used = f"it used {mib(self._memory)} of memory shortly before"
        if bound and self._memory > NEARLY * bound:
            message = f"its process {how}; {used}, of the {mib(bound)} a job may use"
            return _failed(ReasonCode.OUT_OF_MEMORY, message)
        if status == -signal.SIGKILL and system_kills() > self._kills_before:
            message = f"the machine ran out of memory and ended its process; {used}"
            return _failed(ReasonCode.OUT_OF_MEMORY, message)
        logger.error("%s: its process %s", self._job_id, how)
        self._emit("log", {"message": f"Its process {how} in attempt {self._number}; {used}."})
        return LOST

    def _write(self, ending: Ending) -> JobRecord | None:
        """Store the events and the end, however long that takes while the attempt holds the job."""
        if ending.step is None:
            return None

        def write() -> JobRecord | None:
            self._events.flush()
            return write_ending(self._services.journal, self._job_id, self._number, ending)

        try:
            return self._patiently(write)
        except (Superseded, UnknownJob) as error:
            logger.warning("%s: nothing is written about attempt %d: %s", self._job_id, self._number, error)
            return None

    def _patiently(self, action: Callable[[], T]) -> T | None:
        """Try until the store takes it; None if the attempt is over or the worker stops before."""
        failures, give_up = 0, math.inf
        while True:
            try:
                return action()
            except StoreUnavailable as error:
                if failures == 0:
                    logger.warning("%s: the store is away, trying again: %s", self._job_id, error)
            if self._services.stopping.is_set():
                give_up = min(give_up, time.monotonic() + GIVE_UP_SECONDS - SHUTDOWN_SECONDS)
            if self._watch.over or time.monotonic() >= give_up:
                return None
            time.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
            failures += 1

    def _emit(self, type: EventType, data: Mapping[str, Any]) -> None:
        self._pulse.tell(self._events.add(type, data))

    def _show_progress(self, step: int, total: int) -> None:
        progress = self._meter.at(step, total)
        self._pulse.show(progress)
        if self._meter.worth_an_event(step, total):
            self._emit("progress", progress.model_dump(include={"step", "total", "eta_s"}))

    def _tell_of_cancellation(self) -> None:
        self._emit("state", {"state": "cancelling", "attempt": self._number})

    def _tell_states(self, record: JobRecord) -> None:
        """The newest entry of the log, for those who watch live."""
        for event in state_events(record)[-1:]:
            self._pulse.tell(event)


def _artifacts(report: Mapping[str, Any]) -> list[Artifact]:
    return [Artifact.model_validate(artifact) for artifact in report["artifacts"]]


def _failed(code: ReasonCode, message: str) -> Ending:
    return Ending(Step.FAILED, Reason(code=code, message=message))


def _words(status: int | None) -> str:
    """
    >>> _words(-9), _words(1)
    ('was ended by signal 9 (SIGKILL)', 'ended with status 1')
    """
    if status is not None and status < 0:
        return f"was ended by signal {-status} ({signal.Signals(-status).name})"
    return f"ended with status {status}"
