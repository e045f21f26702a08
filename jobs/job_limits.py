"""What a computation may cost when it is a job, and nobody waits for the answer of the request."""

from __future__ import annotations

from jobs.computations.limits import Limits

MAX_ITEMS = 10_000
MAX_MAP_CELLS = 250_000


def job_limits(limits: Limits, seconds: float) -> Limits:
    """Those of immediate answers, widened where only time was short; ``seconds`` is the time of a job."""
    return limits.model_copy(
        update={
            "deadline_seconds": seconds,
            "max_items": max(limits.max_items, MAX_ITEMS),
            "max_map_cells": max(limits.max_map_cells, MAX_MAP_CELLS),
            "max_distinct_proportions": max(limits.max_distinct_proportions, limits.max_classes),
        }
    )
