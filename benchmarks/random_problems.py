"""Random class geometries, certified: how many, how well, how fast.

    python benchmarks/random_problems.py [count] [seed]

Classes 2 to 8,000, imbalance 1 to 1e6, k 1 to 1e5 and infinite, T 0.03 to 10, α 0, 1 and k (the mean
form), both samplings. Prints a table by family and every problem whose certified relative gap exceeds 1e-9.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

import numpy as np

from anglewise.geometry import GroupSolution
from anglewise.losses import InfoNCE
from anglewise.sampling import FloatArray, Groups, Sampling, group_classes, proportions_from_counts
from anglewise.solve import minimize_risk

TOLERANCE = 1e-9


@dataclass(frozen=True)
class RandomProblem:
    """One drawn problem; ``family`` names how the proportions were drawn."""

    family: str
    groups: Groups
    sampling: Sampling
    loss: InfoNCE


def _counts(rng: np.random.Generator, largest: int) -> tuple[str, FloatArray]:
    """Relative class sizes, at most ``largest`` classes."""
    imbalance = 10 ** rng.uniform(0, 6)
    family = rng.choice(["few", "distinct", "steps", "levels"], p=[0.45, 0.25, 0.2, 0.1])
    if family == "few":
        C = int(rng.integers(2, 13))
        return str(family), imbalance ** -rng.uniform(0, 1, C)
    if family == "distinct":
        C = int(rng.integers(13, min(101, largest)))
        return str(family), imbalance ** -np.sort(rng.uniform(0, 1, C))
    levels = int(rng.integers(1, 7)) if family == "steps" else int(rng.integers(60, 251))
    C = int(10 ** rng.uniform(np.log10(max(levels, 13)), np.log10(largest)))
    sizes = imbalance ** -rng.uniform(0, 1, min(levels, C))
    return str(family), sizes[rng.integers(0, len(sizes), C)]


def random_problems(count: int, seed: int, largest: int = 8000) -> Iterator[RandomProblem]:
    """``count`` problems with at most ``largest`` classes, the same for the same seed."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        family, sizes = _counts(rng, largest)
        counts = np.maximum(np.round(sizes / sizes.min()), 1).astype(np.int64)
        k = float(rng.choice([1, 2, 3, 4, 16, 64, 256, 4096, 100_000, math.inf]))
        alpha = float(rng.choice([0.0, 1.0, 1.0, 1.0]))
        averaged = math.isinf(k) or bool(rng.random() < 0.3)
        loss = InfoNCE(
            negatives=k,
            temperature=float(10 ** rng.uniform(np.log10(0.03), 1)),
            alpha=alpha,
            reduction="mean" if averaged else "sum",
        )
        sampling: Sampling = get_args(Sampling)[int(rng.integers(2))]
        yield RandomProblem(family, group_classes(proportions_from_counts(counts)), sampling, loss)


def describe(problem: RandomProblem, solution: GroupSolution) -> str:
    """One line on a problem and its answer."""
    loss, groups = problem.loss, problem.groups
    gap, seconds = solution.certificate.relative_gap, solution.report.seconds
    return (
        f"{problem.family:9} C={groups.classes:<5} G={len(groups):<4} {problem.sampling:12} "
        f"k={loss.negatives:<8g} {loss.reduction:4} T={loss.temperature:<8.4g} alpha={loss.alpha:g} "
        f"imbalance={groups.proportions[0] / groups.proportions[-1]:.2g} "
        f"gap={gap:.2e} {seconds:.2f} s {solution.report.method}"
    )


def main(count: int = 1000, seed: int = 0) -> None:
    rows: dict[str, list[tuple[float, float]]] = {}
    for number, problem in enumerate(random_problems(count, seed)):
        start = time.perf_counter()
        solution = minimize_risk(
            problem.groups, problem.sampling, problem.loss, tolerance=TOLERANCE, time_limit=60
        )
        seconds = time.perf_counter() - start
        gap = solution.certificate.relative_gap
        kind = "alpha > 0" if problem.loss.alpha > 0 else f"alpha = 0, {problem.sampling}"
        if problem.loss.alpha == 0 and problem.loss.negatives == 1:
            kind += ", k = 1"
        for key in (kind, f"family {problem.family}", "all"):
            rows.setdefault(key, []).append((gap, seconds))
        if gap > TOLERANCE:
            print(f"not certified: #{number} {describe(problem, solution)}", flush=True)
    print(f"{'':32} {'runs':>5} {'fail':>5} {'worst gap':>10} {'median s':>9} {'p99 s':>7} {'max s':>7}")
    for key in sorted(rows):
        gaps, times = np.array(rows[key]).T
        print(
            f"{key:32} {len(gaps):5} {int((gaps > TOLERANCE).sum()):5} {gaps.max():10.1e} "
            f"{np.median(times):9.4f} {np.quantile(times, 0.99):7.2f} {times.max():7.2f}"
        )


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:3]))
