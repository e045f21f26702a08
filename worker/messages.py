"""Words of the messages between a supervisor and its runner; each message is a frame with a ``type``."""

from __future__ import annotations

from enum import StrEnum


class Order(StrEnum):
    """From the supervisor."""

    CONFIGURE = "configure"
    """The first message: where the store is, and what a job may cost."""
    RUN = "run"
    """Do a job; the body is its spec."""
    STOP = "stop"
    """End the running job soon."""
    FLUSHED = "flushed"
    """The events before a ``FLUSH`` are stored, or cannot be stored now."""


class Report(StrEnum):
    """From the runner."""

    READY = "ready"
    """The code is loaded."""
    ACCEPTED = "accepted"
    """The job has begun; says whether it can stop by itself when it is told to."""
    PROGRESS = "progress"
    METRICS = "metrics"
    LOG = "log"
    RESUMED = "resumed"
    """The work goes on from a checkpoint."""
    FLUSH = "flush"
    """Store the events so far, and say when that is done."""
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


ENDINGS = (Report.DONE, Report.FAILED, Report.STOPPED)
