"""Who is drawn as a negative, and the grouping of classes with equal proportions.

An anchor of class i has probability λ_i. Its negatives are drawn independently: without supervision
from all classes, p(j|i) = λ_j (a collision j = i gives t = 0); with supervision from the other
classes, p(j|i) = λ_j/(1 - λ_i). Equal proportions have equal inner products with every other class
([P1], Theorem 3), so the program needs one unknown per pair of groups instead of one per pair of classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from anglewise.errors import InvalidInput

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Sampling = Literal["supervised", "unsupervised"]

EQUAL_PROPORTIONS = 1e-12
"""Proportions within this relative distance of the largest of their group count as equal."""


@dataclass(frozen=True)
class Groups:
    """Classes grouped by proportion, largest proportion first.

    Attributes:
        proportions: (G,) λ_g of one class of group g, strictly decreasing.
        sizes: (G,) number n_g of classes in the group; Σ n_g λ_g = 1.
        index: (C,) group of each class, in the caller's order.
    """

    proportions: FloatArray
    sizes: IntArray
    index: IntArray

    @property
    def classes(self) -> int:
        """C, the number of classes."""
        return len(self.index)

    def __len__(self) -> int:
        return len(self.sizes)


def proportions_from_counts(class_counts: Sequence[int] | npt.NDArray[np.integer]) -> FloatArray:
    """λ_i = n_i / n for positive sample counts n_i.

    Raises:
        InvalidInput: no class, or a count that is not a positive integer below 2^53.
    """
    if len(class_counts) == 0:
        raise InvalidInput(("class_counts",), "needs at least one class")
    for i, count in enumerate(class_counts):
        if isinstance(count, (bool, np.bool_)) or not isinstance(count, (int, np.integer)):
            raise InvalidInput(("class_counts", i), "must be an integer")
        if not 0 < count < 2**53:
            raise InvalidInput(("class_counts", i), "must be positive and below 2^53")
    counts = np.asarray(class_counts, dtype=np.float64)
    return np.asarray(counts / counts.sum(), dtype=np.float64)


def normalized_proportions(class_proportions: Sequence[float] | FloatArray) -> FloatArray:
    """Class proportions divided by their sum, which must be 1 to within 1e-6.

    Raises:
        InvalidInput: no class, a proportion that is not positive and finite, or a wrong sum.
    """
    lam = np.asarray(class_proportions, dtype=np.float64)
    if lam.ndim != 1 or lam.size == 0:
        raise InvalidInput(("class_proportions",), "needs a list of at least one proportion")
    bad = np.flatnonzero(~(np.isfinite(lam) & (lam > 0)))
    if bad.size:
        raise InvalidInput(("class_proportions", int(bad[0])), "must be positive and finite")
    if abs(lam.sum() - 1) > 1e-6:
        raise InvalidInput(("class_proportions",), f"must sum to 1, not {lam.sum():.9g}")
    return np.asarray(lam / lam.sum(), dtype=np.float64)


def group_classes(proportions: FloatArray) -> Groups:
    """Groups of equal proportions (relative distance `EQUAL_PROPORTIONS`).

    >>> group_classes(np.array([0.2, 0.6, 0.2])).index
    array([1, 0, 1])
    """
    order = np.argsort(-proportions, kind="stable")
    ranked = proportions[order]
    starts = [0]
    for position in range(1, len(ranked)):
        if ranked[starts[-1]] - ranked[position] > EQUAL_PROPORTIONS * ranked[starts[-1]]:
            starts.append(position)
    sizes = np.diff([*starts, len(ranked)]).astype(np.int64)
    index = np.empty(len(ranked), dtype=np.int64)
    index[order] = np.repeat(np.arange(len(sizes)), sizes)
    means = np.add.reduceat(ranked, starts) / sizes
    return Groups(proportions=means, sizes=sizes, index=index)


@dataclass(frozen=True)
class NegativeLaw:
    """One draw of a negative, for an anchor of one class of group g.

    Attributes:
        one: (G, G) probability of one particular other class of group h.
        group: (G, G) probability of any other class of group h, ``neighbors * one``.
        own: (G,) probability of a collision with the anchor's own class (0 when supervised).
        neighbors: (G, G) number of other classes of group h, n_h - [g = h].
    """

    one: FloatArray
    group: FloatArray
    own: FloatArray
    neighbors: FloatArray


def negative_law(groups: Groups, sampling: Sampling) -> NegativeLaw:
    """The sampling law of A2, [P1], on groups.

    Raises:
        InvalidInput: supervised sampling with a single class, which has no negative.
    """
    if sampling not in ("supervised", "unsupervised"):
        raise InvalidInput(("sampling",), "must be 'supervised' or 'unsupervised'")
    lam, n = groups.proportions, groups.sizes.astype(np.float64)
    neighbors = np.tile(n, (len(groups), 1)) - np.eye(len(groups))
    if sampling == "unsupervised":
        one = np.tile(lam, (len(groups), 1))
        own = lam.copy()
    else:
        if groups.classes == 1:
            raise InvalidInput(
                ("sampling",),
                "supervised sampling needs at least two classes to draw negatives from",
            )
        # 1 - λ_g summed over the other classes: no cancellation when one class dominates.
        others = neighbors @ lam
        one = lam[None, :] / others[:, None]
        own = np.zeros(len(groups))
    return NegativeLaw(one=one, group=neighbors * one, own=own, neighbors=neighbors)
