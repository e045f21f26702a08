"""P2: SupCon bends under imbalance; Soft SupCon with the right epsilon is the simplex for any class sizes."""

from __future__ import annotations

import math
from typing import Any

from examples.reproductions.running import off_diagonal, run
from examples.reproductions.tables import Result

COUNTS = [300, 120, 50, 20]
TEMPERATURE = 0.5


def experiment(seed: int = 0) -> Result:
    """Free features, all samples in one batch."""
    classes = len(COUNTS)
    epsilon = math.exp(-classes / ((classes - 1) * TEMPERATURE))
    rows = []
    for loss in ({"name": "supcon"}, {"name": "soft_supcon", "epsilon": epsilon}):
        full = {**loss, "temperature": TEMPERATURE, "self_pairs": "included"}
        summary = run({"data": {"class_counts": COUNTS}, "loss": full, "seed": seed})
        rows.append(_row(str(loss["name"]), summary))
    spread = [row[2] - row[1] for row in rows]
    return Result(
        title="SupCon and Soft SupCon under imbalance [P2]",
        claim="SupCon's optimum depends on the class sizes; Soft SupCon with ε = exp(-C/((C-1)T)) is "
        "realized by the simplex for any sizes, with entropic gap 0.",
        head=("loss", "smallest cosine", "largest cosine", "predicted", "largest difference", "entropic gap"),
        rows=rows,
        finding=f"counts {COUNTS}, temperature {TEMPERATURE}: cosines of SupCon spread over {spread[0]:.3f}, "
        f"those of Soft SupCon over {spread[1]:.1e} around -1/{classes - 1}.",
        holds=spread[0] > 0.05 and spread[1] < 1e-3,
    )


def _row(name: str, summary: dict[str, Any]) -> tuple[Any, ...]:
    measured, predicted = (
        off_diagonal(gram) for gram in (summary["measured_gram"], summary["predicted"]["gram"])
    )
    return (
        name,
        float(measured.min()),
        float(measured.max()),
        f"{predicted.min():.4f} … {predicted.max():.4f}",
        float(abs(measured - predicted).max()),
        float(summary["metrics"]["entropic_gap"]),
    )
