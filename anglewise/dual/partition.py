"""Units of the dual problem: groups, or blocks of groups whose classes all share one mean."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse.csgraph import connected_components

from anglewise.sampling import FloatArray, Groups, IntArray

BoolArray = npt.NDArray[np.bool_]
MERGE_EXCESS = 1e-10
"""A pair of units whose unclipped inner product exceeds 1 by more than this asks to be merged."""


class Partition:
    """A partition of the groups into B units.

    Attributes:
        unit: (G,) unit of each group.
        merged: (B,) whether all classes of the unit share one mean, so that it counts as one class.
        n: (B,) classes the unit counts for.
        N: (B, B) ordered pairs of different classes.
        active: (B, B) N > 0.
        alone: the units of one class.
        fixed: (G, G) pairs of groups whose inner product the partition fixes at 1.
    """

    def __init__(self, groups: Groups, unit: IntArray, merged: BoolArray) -> None:
        self.groups, self.unit, self.merged = groups, unit, merged
        B = len(merged)
        self.n = np.where(merged, 1.0, np.bincount(unit, weights=groups.sizes, minlength=B))
        self.N = self.n[:, None] * self.n
        np.fill_diagonal(self.N, self.n * (self.n - 1.0))
        self.active = self.N > 0
        self.alone = np.flatnonzero(~self.active.diagonal())
        self.any_merged = bool(merged.any())

    def __len__(self) -> int:
        return len(self.merged)

    @property
    def fixed(self) -> BoolArray:
        return np.asarray((self.unit[:, None] == self.unit) & self.merged[self.unit][:, None])

    def expand(self, A: FloatArray) -> FloatArray:
        """The group Gram matrix of a unit Gram matrix."""
        A = A.copy()
        A[self.alone, self.alone] = 1.0
        if not self.any_merged:
            return A
        return np.where(self.fixed, 1.0, A[np.ix_(self.unit, self.unit)])

    def unit_matrix(self, A: FloatArray) -> FloatArray:
        """(B, B) matrix with the eigenvalues of the Gram matrix that are constant on units."""
        root = np.sqrt(self.n)
        M = root[:, None] * A * root
        np.fill_diagonal(M, 1.0 + (self.n - 1.0) * np.where(self.n > 1, np.diag(A), 0.0))
        return np.asarray(M, dtype=np.float64)

    def least_inside(self, A: FloatArray) -> float:
        """The smallest eigenvalue on directions inside one unit that sum to zero; ∞ without any."""
        return float(np.where(self.n > 1, 1.0 - np.diag(A), np.inf).min())

    def first_groups(self) -> IntArray:
        """(B,) one group of each unit."""
        return np.unique(self.unit, return_index=True)[1].astype(np.int64)


def one_unit_per_group(groups: Groups) -> Partition:
    """Nothing merged."""
    G = len(groups)
    return Partition(groups, np.arange(G, dtype=np.int64), np.zeros(G, dtype=np.bool_))


def components(linked: BoolArray) -> IntArray:
    """Connected components of a symmetric relation, numbered from 0 in order of appearance."""
    return connected_components(linked, directed=False)[1].astype(np.int64)


def merge(partition: Partition, raw: FloatArray, tabu: BoolArray) -> Partition | None:
    """Merges the units whose unclipped inner product exceeds 1, unless they were split before."""
    unit = partition.unit
    linked = (raw > 1.0 + MERGE_EXCESS) & partition.active
    if not linked.any():
        return None
    forbidden = np.zeros_like(linked)
    np.logical_or.at(forbidden, (unit[:, None], unit[None, :]), tabu)
    linked &= ~forbidden
    if not linked.any():
        return None
    component = components(linked)
    B = int(component.max()) + 1
    if B == 1:
        return None
    members = np.bincount(component, minlength=B)
    merged = members > 1
    inside = partition.merged | np.diag(linked)
    np.logical_or.at(merged, component, inside)
    return Partition(partition.groups, component[unit], merged)


def merged_dual(old: Partition, new: Partition, Y: FloatArray) -> FloatArray:
    """Y averaged over the classes of the new units."""
    total = np.zeros((len(new), Y.shape[1]))
    np.add.at(total, new.unit[old.first_groups()], old.n[:, None] * Y)
    Y = total / new.n[:, None]
    return positive(Y) if Y.shape[1] == 1 else Y


def positive(Y: FloatArray) -> FloatArray:
    """|Y|, kept away from zero."""
    size = np.abs(Y)
    return np.asarray(np.maximum(size, 1e-12 * size.max()), dtype=np.float64)


def split(
    partition: Partition, direction: FloatArray, inside: FloatArray, least: float, tabu: BoolArray
) -> Partition | None:
    """Splits a merged unit along a negative direction of the dual matrix; marks the pair in ``tabu``.

    Args:
        direction: (G,) eigenvector of the scaled dual matrix for its smallest eigenvalue ``least``.
        inside: (G,) scaled eigenvalue on directions inside one group, ∞ for single classes.
    """
    groups = partition.groups
    unit, merged = partition.unit.copy(), list(partition.merged)
    blocks = np.flatnonzero(partition.merged)
    if not blocks.size:
        return None
    repelled = np.where(partition.merged[unit], inside, np.inf)
    leaving = np.flatnonzero(repelled < min(-1e-13, 0.5 * min(least, float(repelled.min()))))
    if leaving.size:  # classes of one group repel each other: the group leaves its block, unmerged
        for g in leaving:
            tabu[g, :] = tabu[:, g] = True
            if (unit == unit[g]).sum() > 1:
                unit[g] = len(merged)
                merged.append(False)
            else:
                merged[unit[g]] = False
    else:
        found = _most_divided(groups, unit, blocks, direction)
        if found is None:
            return None
        block, stay, leave = found
        tabu[np.ix_(stay, leave)] = tabu[np.ix_(leave, stay)] = True
        unit[leave] = len(merged)
        merged.append(len(leave) > 1 or bool(groups.sizes[leave[0]] > 1))
        merged[block] = len(stay) > 1 or bool(groups.sizes[stay[0]] > 1)
    used, renumbered = np.unique(unit, return_inverse=True)
    return Partition(groups, renumbered.astype(np.int64), np.array(merged, dtype=np.bool_)[used])


def _most_divided(
    groups: Groups, unit: IntArray, blocks: IntArray, direction: FloatArray
) -> tuple[int, IntArray, IntArray] | None:
    """The block in which the direction varies most, and its two sides."""
    mass = groups.sizes * groups.proportions
    best, energy = -1, -1.0
    for b in blocks:
        members = np.flatnonzero(unit == b)
        if len(members) > 1:
            mean = np.average(direction[members], weights=mass[members])
            spread = float((mass[members] * (direction[members] - mean) ** 2).sum())
            if spread > energy:
                best, energy = int(b), spread
    if best < 0:
        return None
    members = np.flatnonzero(unit == best)
    x = direction[members]
    side = x > 0
    if side.all() or not side.any():
        side = x > x.mean()
    if side.all() or not side.any():
        return None
    return best, members[side], members[~side]
