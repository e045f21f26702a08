"""P2: the thickness of lines: Euclidean weights and distances can realize it, y-Aware cosines cannot."""

from __future__ import annotations

from typing import Any

import numpy as np

from examples.reproductions.running import DATASET, run
from examples.reproductions.tables import Result
from examples.reproductions.thickness import line_thickness
from jobs.datasets.builtin import load_builtin

BINS = 20
PAPER = 0.96


def experiment(steps: int = 600, images: int = 2000, seed: int = 0) -> Result:
    """A small convolutional network on MNIST digits, their thickness in 20 bins of equal size."""
    x, y, targets = binned_digits(images)
    sigma = float(np.std(targets))
    rows = []
    for loss in (
        {"name": "euclidean", "sigma": sigma, "temperature": 1.0},
        {"name": "y_aware", "sigma": sigma, "temperature": 0.1, "self_pairs": "included"},
    ):
        spec: dict[str, Any] = {
            "data": {"dataset": DATASET},
            "encoder": {"name": "cnn", "channels": [16, 32]},
        }
        spec |= {"loss": {**loss, "targets": [[float(t)] for t in targets]}, "dimension": 2, "steps": steps}
        summary = run({**spec, "batch_size": 128, "seed": seed}, (x, y))
        metrics = summary["metrics"]
        values = [float(metrics[name]) for name in ("r2_procrustes", "r2_similarity", "entropic_gap")]
        rows.append((str(loss["name"]), values[0], values[1], values[2]))
    euclidean, aware = rows
    gaps = f"entropic gap {aware[3]:.3f}, that of the Euclidean loss {euclidean[3]:.3f}"
    limit = (
        f"It stays further from its bound ({gaps})."
        if aware[3] > euclidean[3]
        else f"At this σ, the spread of the labels, its bound is nearly attainable ({gaps}): this run does "
        "not show its limit."
    )
    return Result(
        title="Line thickness of MNIST digits [P2]",
        claim=f"weights and latent distances that fit each other recover the labels up to isometry (r² of "
        f"Procrustes about {PAPER} for Euclidean–Euclidean); y-Aware on the sphere cannot attain its bound.",
        head=("loss", "r² Procrustes", "r² similarity", "entropic gap"),
        rows=rows,
        finding=f"{images} images, thickness from {targets[0]:.2f} to {targets[-1]:.2f} pixels in {BINS} "
        f"bins, {steps} steps: r² of class means against the predicted geometry {euclidean[1]:.3f} with the "
        f"Euclidean loss. y-Aware is measured against its own best geometry on the circle. {limit}",
        holds=abs(euclidean[1] - PAPER) < 0.05,
    )


def binned_digits(images: int) -> tuple[Any, Any, Any]:
    """Images, their bin, and the mean thickness of each bin."""
    x, _ = load_builtin("mnist5k")
    x = x[np.random.default_rng(0).permutation(len(x))[:images]]
    thickness = np.array([line_thickness(image) for image in x])
    edges = np.quantile(thickness, np.linspace(0, 1, BINS + 1)[1:-1])
    bins = np.searchsorted(edges, thickness, side="right")
    return x, bins, np.array([thickness[bins == b].mean() for b in range(BINS)])
