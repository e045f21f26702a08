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
MASK_NUMBERS = 2**20
"""Entries of which classes may draw which samples, held at a time."""


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
        classes: (B,) class of each sample, any integers.
        count: k ≥ 1.

    Returns:
        Rows of `NONE` for anchors without any allowed sample.
    """
    size = len(classes)
    order = rng.permutation(size)
    starts = rng.integers(0, size, size)
    if sampling == "unsupervised":
        return _of_others(order, starts, count)
    return _of_other_classes(classes, order, starts, count)


def _of_others(order: IntArray, starts: IntArray, count: int) -> IntArray:
    size = len(order)
    if size == 1:
        return np.full((size, count), NONE, dtype=np.int64)
    place = np.empty(size, dtype=np.int64)
    place[order] = np.arange(size)
    places = starts[:, None] + np.arange(count)
    # Steps 1..B-1 from the anchor's own place never meet it; the start varies with the order.
    places %= size - 1
    places += 1 + place[:, None]
    places %= size
    drawn: IntArray = order[places]
    return drawn


def _of_other_classes(classes: IntArray, order: IntArray, starts: IntArray, count: int) -> IntArray:
    """Each class has a list of the samples it may draw; those of a block of classes lie end to end."""
    size, run = len(classes), np.arange(count)
    drawn = np.full((size, count), NONE, dtype=np.int64)
    kinds, number, counts = np.unique(classes, return_inverse=True, return_counts=True)
    if len(kinds) == 1:
        return drawn
    for block in range(0, len(kinds), rows := max(1, MASK_NUMBERS // size)):
        allowed = kinds[block : block + rows, None] != classes[order]
        lists, lengths = np.broadcast_to(order, allowed.shape)[allowed], size - counts[block : block + rows]
        first = np.cumsum(lengths) - lengths
        anchors = np.flatnonzero((number >= block) & (number < block + rows))
        places = starts[anchors, None] + run
        places %= lengths[number[anchors] - block, None]
        places += first[number[anchors] - block, None]
        drawn[anchors] = lists[places]
    return drawn
