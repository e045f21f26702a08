"""P2: X-CLR with similarities of label texts realizes cos z = 1 - r (1 - cos y), r = T/T_w."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from examples.reproductions.running import off_diagonal, run
from examples.reproductions.tables import Result

FIXTURE = Path(__file__).parent.parent / "data" / "label_similarities.json"
TEMPERATURE = 0.1


def experiment(seed: int = 0) -> Result:
    """Free features of ten classes; similarities of their names by a sentence encoder."""
    rows = []
    similar = np.array(json.loads(FIXTURE.read_text(encoding="utf-8"))["digits"]["cosines"])
    for ratio in (0.5, 1.0):
        loss = {
            "name": "x_clr",
            "temperature": TEMPERATURE,
            "label_temperature": TEMPERATURE / ratio,
            "targets": vectors(similar).tolist(),
            "self_pairs": "included",
        }
        summary = run(
            {"data": {"class_counts": [20] * len(similar)}, "loss": loss, "dimension": 12, "seed": seed}
        )
        expected = off_diagonal(1 - ratio * (1 - similar))
        measured = off_diagonal(summary["measured_gram"])
        rows.append(
            (ratio, float(np.abs(measured - expected).max()), float(summary["metrics"]["entropic_gap"]))
        )
    worst = max(row[1] for row in rows)
    return Result(
        title="X-CLR with similarities of label texts [P2]",
        claim="for r = T/T_w at most 1 the weights are realized by cos z = 1 - r (1 - cos y), with gap 0.",
        head=("r", "largest difference to 1 - r (1 - cos y)", "entropic gap"),
        rows=rows,
        finding=f"names of the ten digits: every cosine within {worst:.1e} of the formula.",
        holds=worst < 1e-3,
    )


def vectors(gram: np.ndarray) -> np.ndarray:
    """Unit vectors with these inner products."""
    values, columns = np.linalg.eigh(gram)
    rows = columns * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))
