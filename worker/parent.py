"""Processes that end with the one that started them, however that one ended."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
END_SECONDS = 10.0


def die_with_parent() -> None:
    """End at once when the parent does, even while native code holds the interpreter."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    when_parent_ends(lambda: os._exit(0))


def when_parent_ends(stop: Callable[[], None]) -> None:
    """Call ``stop`` when the parent has ended; the process ends soon afterwards in any case.

    The parent must be the only one with the writing end of this process's standard input.
    """

    def watch() -> None:
        while os.read(0, 4096):
            pass
        stop()
        time.sleep(END_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
