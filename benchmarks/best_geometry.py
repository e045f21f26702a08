"""Best geometries for weights that no embedding satisfies: time to a certificate.

    python -m benchmarks.best_geometry [all]

The rows of the performance table; with ``all``, also the families that converge most slowly.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator

import numpy as np

from anglewise.sampling import FloatArray
from anglewise.weighted import best_geometry
from anglewise.weighted_geometry import WeightedGeometry
from anglewise.weighted_loss import Metric, SelfPairs
from anglewise.weighted_reference import solve_weighted_reference
from benchmarks.table import Row, in_turns, print_row


def random_weights(n: int, seed: int = 0) -> FloatArray:
    """Symmetric log-weights with standard normal entries (over √2)."""
    A = np.random.default_rng(seed).standard_normal((n, n))
    return np.asarray((A + A.T) / 2)


def y_aware(n: int, sigma: float, seed: int = 0) -> FloatArray:
    """Scalar labels, uniform on [0, 1]."""
    y = np.random.default_rng(seed).uniform(0, 1, n)
    return np.asarray(-((y[:, None] - y) ** 2) / (2 * sigma**2))


def x_clr(n: int, label_temperature: float, dimension: int = 10, seed: int = 0) -> FloatArray:
    """Labels uniform on a sphere."""
    y = np.random.default_rng(seed).standard_normal((n, dimension))
    y /= np.linalg.norm(y, axis=1)[:, None]
    return np.asarray(y @ y.T / label_temperature)


def supcon(n: int, classes: int, seed: int = 0) -> FloatArray:
    """Items with random labels: 1 in the same class, 0 elsewhere."""
    labels = np.random.default_rng(seed).integers(0, classes, n)
    return np.where(labels[:, None] == labels, 0.0, -np.inf)


def against_clarabel(n: int = 60) -> Row:
    """Both to the accuracy that Clarabel reaches at its default settings."""
    L = random_weights(n)

    def reference() -> float:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return solve_weighted_reference(L, temperature=1.0).loss

    best = best_geometry(log_weights=L, temperature=1.0, tolerance=1e-12)
    gap = max((reference() - best.loss) / best.loss, 1e-12)
    slow, fast = in_turns(
        [reference, lambda: best_geometry(log_weights=L, temperature=1.0, tolerance=gap)], 3
    )
    return Row(
        what=f"best geometry, random W, n = {n}, against cvxpy with Clarabel",
        bar="20 times faster at the same gap",
        measured=f"{slow / fast:.0f} times ({fast:.3f} s, {slow:.1f} s) at gap {gap:.0e}",
        met=slow >= 20 * fast,
    )


def timed(
    what: str,
    L: FloatArray,
    bar: float,
    *,
    temperature: float,
    tolerance: float,
    metric: Metric = "cosine",
    self_pairs: SelfPairs = "included",
) -> Row:
    """One solve against a bar in seconds."""
    g, seconds = _solve(L, bar, temperature, tolerance, metric, self_pairs)
    return Row(
        what=what,
        bar=f"{tolerance:.0e} in {bar:g} s",
        measured=f"{g.certificate.relative_gap:.0e} in {seconds:.2f} s",
        met=seconds <= bar and g.certificate.certified,
    )


def _solve(
    L: FloatArray,
    bar: float,
    temperature: float,
    tolerance: float,
    metric: Metric,
    self_pairs: SelfPairs,
) -> tuple[WeightedGeometry, float]:
    start = time.perf_counter()
    g = best_geometry(
        log_weights=L,
        metric=metric,
        temperature=temperature,
        tolerance=tolerance,
        self_pairs=self_pairs,
        time_limit=10 * bar,
    )
    return g, time.perf_counter() - start


def rows() -> Iterator[Row]:
    """The rows of the performance table."""
    best_geometry(log_weights=random_weights(5), temperature=1.0)  # compile
    yield against_clarabel()
    yield timed("best geometry, random W, n = 500", random_weights(500), 30, temperature=1.0, tolerance=1e-6)
    yield timed("best geometry, SupCon, 1,000 items", supcon(1000, 10), 0.1, temperature=0.1, tolerance=1e-8)
    yield timed("best geometry, X-CLR r = 2, n = 500", x_clr(500, 0.5), 1, temperature=1.0, tolerance=1e-6)


def slow_families() -> Iterator[Row]:
    """Near realizability and at low temperatures; the bars are goals."""
    yield timed("random W, T = 0.1, n = 500", random_weights(500), 30, temperature=0.1, tolerance=1e-6)
    yield timed(
        "random W, Euclidean, n = 500",
        random_weights(500),
        30,
        temperature=1.0,
        tolerance=1e-6,
        metric="euclidean",
    )
    yield timed("X-CLR r = 2, T = 0.2, n = 500", x_clr(500, 0.1), 30, temperature=0.2, tolerance=1e-6)
    for n, tolerance in ((100, 1e-9), (200, 1e-8), (500, 1e-6)):
        for sigma, T in ((0.3, 0.5), (0.1, 0.1)):
            for self_pairs in ("included", "excluded"):
                yield timed(
                    f"y-Aware sigma = {sigma}, T = {T}, n = {n}, self pairs {self_pairs}",
                    y_aware(n, sigma),
                    10,
                    temperature=T,
                    tolerance=tolerance,
                    self_pairs=self_pairs,
                )


if __name__ == "__main__":
    for row in rows():
        print_row(row)
    if "all" in sys.argv[1:]:
        for row in slow_families():
            print_row(row)
