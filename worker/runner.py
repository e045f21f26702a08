"""A runner: ``python -m worker.runner FD``.  Does jobs, one at a time, until its supervisor is gone.

It is always a fresh process, never a fork: CUDA does not survive forks.  It may be killed at any moment, has
its own memory bound, and ends by itself when the supervisor dies.
"""

from __future__ import annotations

import logging
import os
import resource
import socket
import sys
from dataclasses import dataclass
from typing import Any

from jobs.computations.limits import Limits
from jobs.store import ObjectStore
from worker.channel import Channel
from worker.context import JobContext
from worker.failures import reason_for
from worker.kinds import find_kind
from worker.logs import log_to_stderr
from worker.messages import Order, Report
from worker.parent import die_with_parent
from worker.training.context import Stopped

logger = logging.getLogger("anglewise.worker")


@dataclass(frozen=True)
class Surroundings:
    """What is the same for all jobs of a runner."""

    channel: Channel
    store: ObjectStore
    limits: Limits


def main() -> None:
    die_with_parent()
    _keep_output_apart()
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    header, _ = channel.next_order()
    assert header["type"] == Order.CONFIGURE
    here = Surroundings(channel, ObjectStore(header["store_url"]), Limits.model_validate(header["limits"]))
    _bound_memory(header["memory_bytes"])
    channel.send(Report.READY)
    reusable = True
    while reusable:
        order, spec = channel.next_order()
        reusable = _do(order, spec, here)
    sys.stderr.flush()
    os._exit(0)  # a training leaves threads of libraries, which would abort an orderly end now and then


def _do(order: dict[str, Any], spec: bytes, here: Surroundings) -> bool:
    """Do one job and report how it ended; whether another one may follow."""
    context = JobContext(here.channel, here.store, order["job"], order["attempt"])
    try:
        kind = find_kind(order["kind"])
        here.channel.send(Report.ACCEPTED, cooperative=kind.cooperative)
        kind.run(spec, context, here.limits)
    except Stopped:
        here.channel.send(Report.STOPPED, reusable=False)
        return False
    except Exception as error:
        reason = reason_for(error)
        artifacts = [artifact.model_dump() for artifact in context.artifacts]
        here.channel.send(Report.FAILED, reason=reason.model_dump(), artifacts=artifacts, reusable=False)
        return False
    artifacts = [artifact.model_dump() for artifact in context.artifacts]
    here.channel.send(Report.DONE, artifacts=artifacts, reusable=kind.reusable)
    return kind.reusable


def _keep_output_apart() -> None:
    """Whatever libraries print goes to the log of the worker."""
    os.dup2(2, 1)
    log_to_stderr("runner")


def _bound_memory(limit: int) -> None:
    """Bound private memory, so that a job gets a MemoryError and the machine keeps running."""
    if limit:
        try:
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        except (OSError, ValueError):  # macOS does not take it; the supervisor watches too
            logger.warning("this system does not bound the memory of a process")


if __name__ == "__main__":
    main()
