"""Negatives of each anchor from the other samples of its batch, by the law of [P1].

A batch is a random part of the data, so a random part of the batch is one of the data: as many distinct
samples as the batch allows are drawn, and only beyond that do they repeat.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from anglewise.sampling import Sampling

IntArray = npt.NDArray[np.int64]
NONE = -1
"""In place of the negatives of an anchor that has none."""


def allowed_negatives(classes: IntArray, sampling: Sampling) -> npt.NDArray[np.bool_]:
    """(B, B) which samples of the batch an anchor may draw."""
    if sampling == "supervised":
        return np.asarray(classes[:, None] != classes)
    return ~np.eye(len(classes), dtype=bool)


def draw_negatives(classes: IntArray, count: int, sampling: Sampling, rng: np.random.Generator) -> IntArray:
    """(B, count) rows of the batch: other samples (unsupervised) or samples of other classes.

    Each anchor takes consecutive samples of one random order of the batch, from a random place on: any
    such run is a uniformly random subset.

    Args:
        classes: (B,) class of each sample.
        count: k ≥ 1.

    Returns:
        Rows of `NONE` for anchors without any allowed sample.
    """
    size = len(classes)
    order = rng.permutation(size)
    starts = rng.integers(0, size, size)
    run = np.arange(count)
    drawn = np.full((size, count), NONE, dtype=np.int64)
    if sampling == "unsupervised":
        if size > 1:
            place = np.empty(size, dtype=np.int64)
            place[order] = np.arange(size)
            # Steps 1..B-1 from the anchor's own place never meet it; the start varies with the order.
            steps = 1 + (starts[:, None] + run) % (size - 1)
            drawn[:] = order[(place[:, None] + steps) % size]
        return drawn
    for c in np.unique(classes):
        anchors, allowed = np.flatnonzero(classes == c), order[classes[order] != c]
        if len(allowed):
            drawn[anchors] = allowed[(starts[anchors, None] + run) % len(allowed)]
    return drawn
