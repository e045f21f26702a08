"""P1: minority classes collapse into one point where the majority exceeds the exact threshold."""

from __future__ import annotations

from typing import Any

import numpy as np

from anglewise import InfoNCE, collapse_threshold
from examples.reproductions.running import off_diagonal, run
from examples.reproductions.tables import Result

SAMPLES = 400
STEP = 0.02
NEGATIVES, TEMPERATURE = 16, 1.0
MERGED = 1 - 1e-4
"""Cosine from which on two measured class means count as one."""


def experiment(around: int = 3, seed: int = 0) -> Result:
    """Sweep the majority's share over a grid around the exact threshold, and 0.9; two equal minorities."""
    rows: list[tuple[Any, ...]] = []
    within = []
    for sampling in ("supervised", "unsupervised"):
        loss = InfoNCE(negatives=NEGATIVES, temperature=TEMPERATURE)
        exact = collapse_threshold(3, sampling=sampling, loss=loss).exact_threshold
        assert exact is not None
        middle = round(exact / STEP)
        shares = [STEP * k for k in range(middle - around, middle + around + 1) if STEP * k < 1]
        cosines = [_minority_cosine(share, sampling, seed) for share in shares]
        crossed = next(
            (share for share, cosine in zip(shares, cosines, strict=True) if cosine > MERGED), None
        )
        within.append(crossed is not None and abs(crossed - exact) <= STEP)
        shown = ", ".join(f"{share:.2f}: {cosine:.5f}" for share, cosine in zip(shares, cosines, strict=True))
        rows.append((sampling, exact, "none" if crossed is None else f"{crossed:.2f}", shown))
        beyond = max(0.9, exact + STEP)
        rows.append((sampling, exact, "", f"{beyond:.2f}: {_minority_cosine(beyond, sampling, seed):.7f}"))
    return Result(
        title="Minority collapse and its exact threshold [P1]",
        claim="with one majority, minorities merge into one point from a threshold of its proportion on.",
        head=("sampling", "exact threshold", "measured crossing", "majority's proportion: minority cosine"),
        rows=rows,
        finding=f"two minorities beside one majority ({NEGATIVES} negatives, temperature {TEMPERATURE:g}): "
        f"the measured crossing is within one grid step ({STEP}) of the exact threshold"
        + (" for both samplings." if all(within) else " NOT for every sampling."),
        holds=all(within),
    )


def _minority_cosine(share: float, sampling: str, seed: int) -> float:
    """The cosine of the two minorities after training free features under the exact risk."""
    minority = max(1, round((1 - share) * SAMPLES / 2))
    counts = [round(2 * minority * share / (1 - share)), minority, minority]
    loss = {"name": "infonce", "negatives": NEGATIVES, "temperature": TEMPERATURE, "sampling": sampling}
    summary = run({"data": {"class_counts": counts}, "loss": loss, "seed": seed, "evaluate_every": 500})
    return float(np.max(off_diagonal(summary["measured_gram"])))
