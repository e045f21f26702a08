"""Reads a Gram matrix: which classes have merged, and what the shape is called (A7).

Everything works on groups of equal proportions: ``gram`` is (G, G), its diagonal the inner product of two
different classes of a group. Exact merging of unequal proportions happens generically only in the two-point
optimum; unequal tails otherwise come near without meeting, so both are reported.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components

from anglewise.geometry import Collapse, GeometryName, MinorityCollapse, NearMerge
from anglewise.losses import Loss
from anglewise.sampling import FloatArray, Groups, IntArray, Sampling
from anglewise.thresholds import collapse_threshold
from anglewise.two_levels import has_two_levels

MERGE_TOLERANCE = 1e-7
NEAR_TOLERANCE = 1e-3
SHAPE_TOLERANCE = 1e-6
"""Largest deviation of a cosine from the simplex or the orthogonal frame that still bears its name."""

THRESHOLD_ACCURACY = 1e-12
"""Relative accuracy of 1 - threshold."""


def describe_collapse(
    groups: Groups,
    gram: FloatArray,
    *,
    merge_tolerance: float = MERGE_TOLERANCE,
    minority: MinorityCollapse | None = None,
) -> Collapse:
    """What merged and what the shape is called.

    Args:
        gram: (G, G) Gram matrix on groups; the diagonal of a group of one class is not read.
        minority: the comparison with the exact threshold, see `minority_collapse`.
    """
    apart = distances(groups, gram)
    merged = _linked_classes(groups, apart, merge_tolerance)
    return Collapse(
        within_class=True,
        geometry=_name(groups, gram, merged),
        merged_classes=merged,
        near=_near(groups, apart, merge_tolerance),
        merge_tolerance=merge_tolerance,
        largest_cosine=None if groups.classes == 1 else 1.0 - float(apart.min()),
        smallest_angle_degrees=None if groups.classes == 1 else angle_degrees(float(apart.min())),
        minority_collapse=minority,
        near_tolerance=NEAR_TOLERANCE,
    )


def distances(groups: Groups, gram: FloatArray) -> FloatArray:
    """(G, G) 1 - cosine between different classes, ∞ where a group has no second class."""
    apart = np.clip(1.0 - gram, 0.0, 2.0)
    lone = groups.sizes == 1
    apart[lone, lone] = np.inf
    return np.asarray(apart, dtype=np.float64)


def angle_degrees(one_minus_cosine: float) -> float:
    """The angle with this 1 - cosine; arccos would lose half the digits of small angles.

    >>> round(angle_degrees(1.0), 12)
    90.0
    """
    return math.degrees(2 * math.asin(math.sqrt(min(one_minus_cosine, 2.0) / 2)))


def minority_collapse(groups: Groups, sampling: Sampling, loss: Loss) -> MinorityCollapse | None:
    """One majority and C - 1 ≥ 2 equal minorities against the exact threshold.

    ``None`` for other proportions, and where the loss has no threshold or hard negatives.
    """
    if not has_two_levels(groups) or loss.hardness > 0:
        return None
    threshold = collapse_threshold(groups.classes, sampling, loss)
    if threshold.exact_threshold is None or threshold.one_minus_threshold is None:
        return None
    one_minus_majority = float(groups.sizes[1] * groups.proportions[1])
    margin = threshold.one_minus_threshold - one_minus_majority
    return MinorityCollapse(
        majority_proportion=float(groups.proportions[0]),
        exact_threshold=threshold.exact_threshold,
        one_minus_threshold=threshold.one_minus_threshold,
        sufficient_threshold=threshold.sufficient_threshold,
        collapsed=margin >= -THRESHOLD_ACCURACY * threshold.one_minus_threshold,
        margin=margin,
    )


def _components(linked: npt.NDArray[np.bool_]) -> list[IntArray]:
    """Connected groups, each ascending."""
    count, label = connected_components(linked, directed=False)
    order = np.argsort(label, kind="stable")
    sizes = np.bincount(label, minlength=count)
    return [np.sort(part) for part in np.split(order, np.cumsum(sizes)[:-1])]


def _classes_of(groups: Groups, members: IntArray) -> tuple[int, ...]:
    return tuple(np.flatnonzero(np.isin(groups.index, members)).tolist())


def _is_linked(groups: Groups, members: IntArray, linked: npt.NDArray[np.bool_]) -> bool:
    """Several groups, or one group of several classes that are linked to each other."""
    return len(members) > 1 or bool(linked[members[0], members[0]])


def _linked_classes(groups: Groups, apart: FloatArray, tolerance: float) -> tuple[tuple[int, ...], ...]:
    linked = apart <= tolerance
    if not linked.any():
        return ()
    found = [m for m in _components(linked) if _is_linked(groups, m, linked)]
    return tuple(sorted(_classes_of(groups, members) for members in found))


def _near(groups: Groups, apart: FloatArray, merge_tolerance: float) -> tuple[NearMerge, ...]:
    linked = apart <= NEAR_TOLERANCE
    if not (linked & (apart > merge_tolerance)).any():
        return ()
    found = []
    for members in _components(linked):
        if not _is_linked(groups, members, linked):
            continue
        between = apart[np.ix_(members, members)]
        widest = float(between[np.isfinite(between)].max())
        if widest > merge_tolerance:
            found.append(NearMerge(_classes_of(groups, members), widest))
    return tuple(sorted(found, key=lambda near: near.classes))


def _name(groups: Groups, gram: FloatArray, merged: tuple[tuple[int, ...], ...]) -> GeometryName:
    C = groups.classes
    if C == 1:
        return "point"
    exists = groups.sizes[:, None] * groups.sizes[None, :] > 1
    exists |= ~np.eye(len(groups), dtype=bool)
    cosines = gram[exists]
    if np.abs(cosines + 1 / (C - 1)).max() <= SHAPE_TOLERANCE:
        return "simplex_etf"
    if np.abs(cosines).max() <= SHAPE_TOLERANCE:
        return "orthogonal_frame"
    if len(merged) == 1 and len(merged[0]) == C - 1:
        alone = groups.index[sorted(set(range(C)) - set(merged[0]))[0]]
        others = gram[alone, np.arange(len(groups)) != alone]
        if alone == groups.proportions.argmax() and others.max() <= -1 + SHAPE_TOLERANCE:
            return "minority_collapse"
    return "partial_collapse" if merged else "imbalanced"
