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
    """Classes go in blocks, so that a few thousand of them in a large batch need little memory."""
    size = len(classes)
    block = max(1, MASK_NUMBERS // size)
    if not 0 <= classes.min() <= classes.max() < block:  # those that are not there need no list
        classes = np.unique(classes, return_inverse=True)[1]
    counts = np.bincount(classes)
    if counts.max() == size:
        return np.full((size, count), NONE, dtype=np.int64)
    if len(counts) <= block:
        return _of_block(classes, counts, classes, order, starts, count)
    drawn = np.empty((size, count), dtype=np.int64)
    for first in range(0, len(counts), block):
        anchors = np.flatnonzero((classes >= first) & (classes < first + block))
        some, sizes = classes - first, counts[first : first + block]
        drawn[anchors] = _of_block(some[anchors], sizes, some, order, starts[anchors], count)
    return drawn


def _of_block(
    anchors: IntArray, sizes: IntArray, classes: IntArray, order: IntArray, starts: IntArray, count: int
) -> IntArray:
    """(A, count) for anchors of classes 0, 1, … of these sizes.

    Each class has a list of the samples it may draw; the lists lie end to end.
    """
    allowed = np.arange(len(sizes))[:, None] != classes[order]
    lists, lengths = np.broadcast_to(order, allowed.shape)[allowed], len(order) - sizes
    length = lengths[anchors, None]
    places = starts[:, None] + np.arange(count)
    places %= length
    places += (np.cumsum(lengths) - lengths)[anchors, None]
    drawn: IntArray = lists[places]
    return drawn
