"""Every computation the service offers, by name."""

from __future__ import annotations

from jobs.computations import (
    collapse_map,
    collapse_threshold,
    diagnose,
    diagnose_archive,
    optimal_geometry,
    realizability,
    weights,
)
from jobs.computations.computation import Computation
from jobs.datasets import check

COMPUTATIONS: dict[str, Computation] = {
    computation.name: computation
    for computation in (
        optimal_geometry.COMPUTATION,
        collapse_threshold.COMPUTATION,
        collapse_map.COMPUTATION,
        realizability.COMPUTATION,
        realizability.ARRAY_COMPUTATION,
        weights.COMPUTATION,
        diagnose.COMPUTATION,
        diagnose.FILE_COMPUTATION,
        diagnose_archive.COMPUTATION,
        check.COMPUTATION,
    )
}
