"""P1: with sampled negatives, free features approach the optimum of the exact risk as steps go by."""

from __future__ import annotations

from collections.abc import Sequence

from examples.reproductions.running import run
from examples.reproductions.tables import Result

COUNTS = [200, 100, 50]
LOSS = {"name": "infonce", "negatives": 16, "temperature": 0.5}


def experiment(steps: Sequence[int] = (100, 400, 1600, 6400), seed: int = 0) -> Result:
    """All samples in one batch, new negatives in each step, a rate that falls to zero."""
    rows = []
    for sampling in ("supervised", "unsupervised"):
        for number in steps:
            spec = {"data": {"class_counts": COUNTS}, "loss": {**LOSS, "sampling": sampling}, "seed": seed}
            spec |= {"objective": "sampled", "batch_size": sum(COUNTS), "steps": number}
            metrics = run({**spec, "evaluate_every": number})["metrics"]
            distance, gap = (float(metrics[name]) for name in ("gram_distance_max", "risk_gap"))
            rows.append((sampling, number, distance, gap))
    gaps = [row[3] for row in rows]
    half = len(steps)
    return Result(
        title="Sampled negatives approach the exact optimum [P1]",
        claim="the optimum of the expected risk is what training with sampled negatives converges to.",
        head=("sampling", "steps", "largest difference of a cosine", "risk gap"),
        rows=rows,
        finding=f"counts {COUNTS}: the risk gap falls from {gaps[0]:.1e} to {gaps[half - 1]:.1e} "
        f"(supervised) and from {gaps[half]:.1e} to {gaps[-1]:.1e} (unsupervised); what is left is the noise "
        "of the draws.",
        holds=gaps[half - 1] < gaps[0] / 100 and gaps[-1] < gaps[half] / 100,
    )
