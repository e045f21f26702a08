"""Negatives of each anchor by the law of [P1]: independent samples of the data, or of its other classes.

Distinct samples of a batch are distinct random samples of the data. Independent draws may also coincide, with
each other and (unsupervised) with the anchor: which of them do is drawn as for all the data, then distinct
samples of the batch take their places. So the law is that of the whole data, in batches of any size that have
enough samples; where they do not, samples repeat.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from anglewise.sampling import Sampling

IntArray = npt.NDArray[np.int64]
NONE = -1
"""In place of the negatives of an anchor that has none."""
COLLISION = -2
"""In place of a negative that is the anchor itself."""
MASK_NUMBERS = 2**20
"""Entries of which classes may draw which samples, held at a time."""


def allowed_negatives(classes: IntArray, sampling: Sampling) -> npt.NDArray[np.bool_]:
    """(B, B) which samples of the batch an anchor may draw; it also draws itself, as a collision."""
    if sampling == "supervised":
        return np.asarray(classes[:, None] != classes)
    return ~np.eye(len(classes), dtype=bool)


def draw_negatives(
    classes: IntArray,
    populations: IntArray,
    count: int,
    sampling: Sampling,
    rng: np.random.Generator,
) -> IntArray:
    """(B, count) rows of the batch, or `COLLISION`; rows of `NONE` for anchors without any allowed sample.

    Each anchor takes consecutive samples of one random order of the batch, from a random place on: any
    such run is a uniformly random subset.

    Args:
        classes: (B,) class of each sample, any integers.
        populations: (B,) samples of the data that each anchor may draw: all of them, itself included, or
            (supervised) those of other classes.
        count: k ≥ 1.
    """
    size = len(classes)
    order = rng.permutation(size)
    starts = rng.integers(0, size, size)
    draws = (rng.random((size, count)) * populations[:, None]).astype(np.int32)
    draws.sort(axis=1)  # the order of an anchor's negatives does not matter
    places = np.empty((size, count), dtype=np.int64)
    places[:, 0] = 0
    np.cumsum(draws[:, 1:] != draws[:, :-1], axis=1, out=places[:, 1:])
    if sampling == "unsupervised":
        return _of_others(order, starts, places, draws == 0)
    return _of_other_classes(classes, order, starts, places)


def _of_others(
    order: IntArray, starts: IntArray, places: IntArray, collisions: npt.NDArray[np.bool_]
) -> IntArray:
    size = len(order)
    if size == 1:
        return np.full(places.shape, NONE, dtype=np.int64)
    place = np.empty(size, dtype=np.int64)
    place[order] = np.arange(size)
    # Steps 1..B-1 from the anchor's own place never meet it; the start varies with the order.
    places += starts[:, None]
    places %= size - 1
    places += 1 + place[:, None]
    places %= size
    drawn: IntArray = order[places]
    drawn[collisions] = COLLISION
    return drawn


def _of_other_classes(classes: IntArray, order: IntArray, starts: IntArray, places: IntArray) -> IntArray:
    """Classes go in blocks, so that a few thousand of them in a large batch need little memory."""
    size = len(classes)
    block = max(1, MASK_NUMBERS // size)
    if not 0 <= classes.min() <= classes.max() < block:  # those that are not there need no list
        classes = np.unique(classes, return_inverse=True)[1]
    counts = np.bincount(classes)
    if counts.max() == size:
        return np.full(places.shape, NONE, dtype=np.int64)
    if len(counts) <= block:
        return _of_block(classes, counts, classes, order, starts, places)
    drawn = np.empty_like(places)
    for first in range(0, len(counts), block):
        anchors = np.flatnonzero((classes >= first) & (classes < first + block))
        some, sizes = classes - first, counts[first : first + block]
        drawn[anchors] = _of_block(some[anchors], sizes, some, order, starts[anchors], places[anchors])
    return drawn


def _of_block(
    anchors: IntArray, sizes: IntArray, classes: IntArray, order: IntArray, starts: IntArray, places: IntArray
) -> IntArray:
    """(A, k) for anchors of classes 0, 1, … of these sizes.

    Each class has a list of the samples it may draw; the lists lie end to end.
    """
    allowed = np.arange(len(sizes))[:, None] != classes[order]
    lists, lengths = np.broadcast_to(order, allowed.shape)[allowed], len(order) - sizes
    places = places + starts[:, None]
    places %= lengths[anchors, None]
    places += (np.cumsum(lengths) - lengths)[anchors, None]
    drawn: IntArray = lists[places]
    return drawn
