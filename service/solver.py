"""A solver process: ``python -m service.solver FD``.  Answers one message at a time until its parent is gone.

It has its own memory bound and one BLAS thread, may be killed at any moment, and ends by itself when
the parent dies: the parent holds the only writing end of its standard input.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from jobs.computations.computation import Outcome
from jobs.computations.encoding import encode
from jobs.computations.limits import Limits
from jobs.computations.registry import COMPUTATIONS
from jobs.frames import pack, receive_frame
from jobs.problems import Problem, problem_from
from service import job_request

PR_SET_PDEATHSIG = 1
WARM_UP_SECONDS = 3600.0
"""Compiling everything for the first time must not be cut short: the first request would pay for the rest."""


def main() -> None:
    _end_with_parent()
    channel = socket.socket(fileno=int(sys.argv[1]))
    header, _ = receive_frame(channel)
    limits = Limits.model_validate(header)
    if limits.warm_up:
        _warm_up(limits)
    gc.freeze()  # what is loaded by now stays: full collections would pause answers to look at it
    _bound_memory(limits.worker_memory_bytes)
    channel.sendall(pack({"ready": True}))
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            header, body = receive_frame(channel)
            channel.sendall(_reply(header, body, limits))


def _reply(header: dict[str, Any], body: bytes, limits: Limits) -> bytes:
    try:
        if "check" in header:
            return pack({}, canonical_request(header["computation"], body, Limits(**header["check"])))
        computation = COMPUTATIONS[header["computation"]]
        outcome = computation.run(computation.parse(body, limits), limits)
        archive = header.get("archive")
        if archive is not None:
            _write_archive(outcome, Path(archive))
            return pack({"archive": archive})
        answer = encode(outcome.document())
        return pack({"final": outcome.final, "length": len(answer)}, answer + outcome.picture)
    except Exception as error:
        return pack({"problem": problem_from(error).fields()})


def canonical_request(name: str, body: bytes, limits: Limits) -> bytes:
    """The checked request, for a computation or a job.

    Raises:
        Problem, InvalidInput
    """
    if name == job_request.NAME:
        return job_request.check_request(body, limits).pack()
    return COMPUTATIONS[name].canonical(body, limits)


def _write_archive(outcome: Outcome, path: Path) -> None:
    if outcome.archive is None:
        raise Problem("not_acceptable", "there is no archive of this answer")
    with path.open("xb") as file:
        outcome.archive(file)


def _warm_up(limits: Limits) -> None:
    """Load compiled code. A computation that fails here will say why when it is asked for."""
    patient = limits.model_copy(update={"deadline_seconds": WARM_UP_SECONDS})
    for computation in COMPUTATIONS.values():
        for body in computation.warm_up:
            try:
                computation.run(computation.request.model_validate(body), patient).document()
            except Exception:
                logging.getLogger("anglewise.service").exception("warming up %s failed", computation.name)


def _end_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(0)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _bound_memory(limit: int) -> None:
    """Bound private memory, so that a computation gets a MemoryError and the machine keeps running."""
    if limit:
        with contextlib.suppress(OSError, ValueError):  # macOS does not take it
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


if __name__ == "__main__":
    main()
