"""Row chunks of a compiled kernel on threads. The kernels release the interpreter lock."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache


@lru_cache(maxsize=1)
def _pool(process: int, workers: int) -> ThreadPoolExecutor:
    # Keyed by process: threads do not survive a fork.
    return ThreadPoolExecutor(max_workers=workers, thread_name_prefix="anglewise-rows")


def _workers() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this platform
        return os.cpu_count() or 1


def over_rows(kernel: Callable[[int, int], None], rows: int, *, threaded: bool) -> None:
    """Calls kernel(start, stop) on chunks that cover 0..rows, on threads when asked and available."""
    workers = _workers() if threaded else 1
    if workers == 1:
        kernel(0, rows)
        return
    size = max(1, -(-rows // (4 * workers)))
    starts = range(0, rows, size)
    stops = [min(start + size, rows) for start in starts]
    list(_pool(os.getpid(), workers).map(kernel, starts, stops))
