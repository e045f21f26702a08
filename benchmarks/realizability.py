"""Verdict time at n = 2,000 in units of one scipy.linalg.eigvalsh(n), measured side by side.

Run as ``python -m benchmarks.realizability [n] [rounds]``. Each round times eigvalsh and every case in turn
and takes their ratio, so that other load on the machine falls on both; the median of the ratios is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median

import numpy as np
from scipy.linalg import eigvalsh

from anglewise.realizability import realizability
from anglewise.sampling import FloatArray
from anglewise.verdict import Verdict
from benchmarks.table import Row, print_row, seconds

VERDICT_BAR, EMBEDDING_BAR = 1.6, 3.0


def cases(n: int, rng: np.random.Generator) -> dict[str, Callable[[bool], Verdict]]:
    """Realizable, degenerate and refuted weights for both metrics."""
    full = rng.normal(size=(n, n))
    low = rng.normal(size=(n, 16))
    full /= np.linalg.norm(full, axis=1, keepdims=True)
    low /= np.linalg.norm(low, axis=1, keepdims=True)
    y = np.sort(rng.normal(size=n))
    scalar = np.exp(-((y[:, None] - y[None, :]) ** 2) / 8)
    noise = rng.normal(size=(n, n)) / n
    noise += noise.T

    def case(W: FloatArray, T: float, **options: object) -> Callable[[bool], Verdict]:
        return lambda embed: realizability(W, temperature=T, embed=embed, **options)  # type: ignore[arg-type]

    def cosine(Z: FloatArray) -> FloatArray:
        return np.exp((Z @ Z.T - 1) / 0.1)

    spread = np.exp(-((low[:, None, :3] - low[None, :, :3]) ** 2).sum(axis=2) / 0.1)
    return {
        "cosine included, full rank": case(cosine(full), 0.1),
        "cosine included, rank 16": case(cosine(low), 0.1),
        "cosine included, refuted by a vector": case(scalar, 0.1),
        "cosine included, refuted by a pair": case(cosine(low), 0.3),
        "cosine included, dimension too low": case(cosine(low), 0.1, dimension=8),
        "cosine excluded, interval": case(cosine(full), 0.05, self_pairs="excluded"),
        "cosine excluded, rank 16": case(cosine(low), 0.1, self_pairs="excluded", dimension=16),
        "cosine excluded, refuted": case(cosine(low) * np.exp(noise), 1.0, self_pairs="excluded"),
        "euclidean included, rank 3": case(spread, 0.1, metric="euclidean"),
        "euclidean excluded, half-line": case(spread, 0.1, metric="euclidean", self_pairs="excluded"),
    }


def rows(n: int = 2000, rounds: int = 3) -> Iterator[Row]:
    """One row per case: the median ratios to eigvalsh, without and with embeddings."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(n, n))
    A += A.T
    for name, run in cases(n, rng).items():
        answer = run(True)  # compiles
        ratios = {embed: _ratio(partial(run, embed), A, rounds) for embed in (False, True)}
        yield Row(
            f"realizability n={n}, {name} ({answer.verdict})",
            f"{VERDICT_BAR} and {EMBEDDING_BAR} x eigvalsh",
            f"verdict {ratios[False]:.2f} x, with embedding {ratios[True]:.2f} x",
            ratios[False] <= VERDICT_BAR and ratios[True] <= EMBEDDING_BAR,
        )


def _ratio(work: Callable[[], object], A: FloatArray, rounds: int) -> float:
    """Median over rounds of the time of ``work`` in units of one eigvalsh timed right before it."""
    pairs = [(seconds(lambda: eigvalsh(A)), seconds(work)) for _ in range(rounds)]
    return median(mine / unit for unit, mine in pairs)


if __name__ == "__main__":
    for row in rows(*map(int, sys.argv[1:])):
        print_row(row)
