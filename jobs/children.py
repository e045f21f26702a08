"""Processes that end when the one that started them does, even when that was killed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

PR_SET_PDEATHSIG = 1
"""Linux: the signal that the kernel sends a process when its parent has ended."""


def spawn(
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    keep: Iterable[int] = (),
    output: int | IO[bytes] | None = None,
    signal_at_death: signal.Signals = signal.SIGTERM,
) -> subprocess.Popen[bytes]:
    """Start a process in a group of its own, which a Ctrl-C in the terminal does not reach.

    To be called in the main thread: on Linux it is the end of the calling thread that ends the process.

    Args:
        environment: variables to add to those of this process.
        keep: file descriptors that the process inherits.
        output: where its standard output and errors go; those of this process if not given.
    """
    return subprocess.Popen(
        [str(part) for part in command],
        env={**os.environ, **(environment or {})},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        pass_fds=tuple(keep),
        process_group=0,
        preexec_fn=_tied(os.getpid(), signal_at_death),
    )


def _tied(parent: int, signal_at_death: signal.Signals) -> Callable[[], None] | None:
    """What the new process does first, between fork and exec: nothing that could need a lock."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def tie() -> None:
        prctl(PR_SET_PDEATHSIG, int(signal_at_death), 0, 0, 0)
        if os.getppid() != parent:  # it ended before the call
            os._exit(1)

    return tie


def stop(process: subprocess.Popen[bytes], seconds: float) -> int:
    """End a process: politely, and after ``seconds`` by force; its exit status."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(seconds)
        process.kill()
    return process.wait()
