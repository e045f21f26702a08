"""A row of the performance table, and how times are taken.

Both sides of a ratio run in turns in the same process, so that a busy machine slows both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One line of the table: ``met`` says whether ``measured`` satisfies ``bar``."""

    what: str
    bar: str
    measured: str
    met: bool


def seconds(function: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def in_turns(functions: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Median seconds of each function, called one after the other ``rounds`` times."""
    times = [[seconds(function) for function in functions] for _ in range(rounds)]
    return [statistics.median(column) for column in zip(*times, strict=True)]


def print_row(row: Row) -> None:
    mark = "met   " if row.met else "MISSED"
    print(f"{mark}  {row.what:<66}  {row.measured:<44}  bar: {row.bar}", flush=True)
