"""Class means from a Gram matrix on groups, without the C × C matrix (A3, A6).

The C × C Gram matrix splits into a G × G part on vectors constant on groups, with the eigenvalues of
B_gh = √(n_g n_h) A_gh, B_gg = 1 + (n_g - 1) A_gg, and the eigenvalue 1 - A_gg on vectors inside group g
that sum to zero. A class mean is therefore its group's mean direction plus √(1 - A_gg) times a vertex of
a simplex in n_g - 1 coordinates of the group's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from anglewise.blas import single_threaded_blas
from anglewise.errors import InvalidInput
from anglewise.sampling import FloatArray, Groups, IntArray

ROUNDING = 1e-13
"""Eigenvalues below this fraction of the largest are rounding of the factorization."""


@dataclass(frozen=True)
class ClassMeans:
    """Unit vectors μ_1 … μ_C whose inner products are the Gram matrix.

    Attributes:
        groups: the classes.
        group_means: (G, R) mean direction of each group; the first R coordinates of its classes.
        spread: (G,) length of a class mean's deviation from its group's mean, per unit simplex vertex:
            √(1 - A_gg), 0 where the group has one class or has merged.
        first: (G,) first of the n_g - 1 coordinates that belong to the group alone.
        position: (C,) number of each class within its group, in the caller's order.
        rank: number of coordinates that are not zero for all classes.
        dimension: length of the vectors, ``rank`` plus zero padding.
    """

    groups: Groups
    group_means: FloatArray
    spread: FloatArray
    first: IntArray
    position: IntArray
    rank: int
    dimension: int

    def mean_rows(self, start: int, stop: int) -> FloatArray:
        """(stop - start, dimension) class means of classes start … stop - 1."""
        rows = np.zeros((stop - start, self.dimension))
        rows[:, : self.group_means.shape[1]] = self.group_means[self.groups.index[start:stop]]
        for row, c in enumerate(range(start, stop)):
            g = self.groups.index[c]
            if self.spread[g] > 0:
                n, at = int(self.groups.sizes[g]), int(self.first[g])
                rows[row, at : at + n - 1] = self.spread[g] * simplex_vertex(n, int(self.position[c]))
        return rows

    def gram_rows(self, start: int, stop: int) -> FloatArray:
        """(stop - start, C) rows of the class Gram matrix."""
        return expand_rows(self.groups, self.group_gram, start, stop)

    @cached_property
    def group_gram(self) -> FloatArray:
        """(G, G) inner products between different classes of two groups; 1 for a single class with itself."""
        A = self.group_means @ self.group_means.T
        n = self.groups.sizes.astype(np.float64)
        A = (A + A.T) / 2
        A[np.diag_indices(len(A))] -= self.spread**2 / n
        single = self.groups.sizes == 1
        A[single, single] = 1.0
        return np.asarray(np.clip(A, -1.0, 1.0), dtype=np.float64)


@dataclass(frozen=True)
class OrthogonalMeans:
    """Class c is the coordinate axis e_c: the frame whose means have no negative coordinate.

    The interface is that of `ClassMeans`.
    """

    groups: Groups
    dimension: int

    @property
    def rank(self) -> int:
        """C."""
        return self.groups.classes

    @cached_property
    def group_gram(self) -> FloatArray:
        """(G, G) zeros, with a 1 for a single class with itself."""
        return np.diag((self.groups.sizes == 1).astype(np.float64))

    @cached_property
    def group_means(self) -> FloatArray:
        """(G, dimension) mean of the axes of each group."""
        means = np.zeros((len(self.groups), self.dimension))
        means[self.groups.index, np.arange(self.rank)] = 1 / self.groups.sizes[self.groups.index]
        return means

    def mean_rows(self, start: int, stop: int) -> FloatArray:
        """(stop - start, dimension) class means of classes start … stop - 1."""
        return np.eye(stop - start, self.dimension, start)

    def gram_rows(self, start: int, stop: int) -> FloatArray:
        """(stop - start, C) rows of the identity."""
        return np.eye(stop - start, self.rank, start)


def simplex_vertex(n: int, position: int) -> FloatArray:
    """(n - 1,) vertex i of n vectors with inner products δ_ij - 1/n (the columns of the Helmert matrix)."""
    j = np.arange(1, n, dtype=np.float64)
    scale = 1 / np.sqrt(j * (j + 1))
    vertex = np.where(j > position, scale, 0.0)
    if position > 0:
        vertex[position - 1] = -position * scale[position - 1]
    return vertex


def expand_rows(groups: Groups, group_gram: FloatArray, start: int, stop: int) -> FloatArray:
    """(stop - start, C) rows of the class Gram matrix, unit diagonal."""
    rows = group_gram[groups.index[start:stop]][:, groups.index]
    rows[np.arange(stop - start), np.arange(start, stop)] = 1.0
    return np.asarray(rows, dtype=np.float64)


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues of a C × C Gram matrix given on groups.

    Attributes:
        values: (G,) eigenvalues of B, descending.
        vectors: (G, G) its eigenvectors as columns, each with its largest component positive.
        inside: (G,) eigenvalue 1 - A_gg on vectors inside the group, 0 where it has one class.
    """

    groups: Groups
    values: FloatArray
    vectors: FloatArray
    inside: FloatArray

    @property
    def smallest(self) -> float:
        """λ_min on all classes."""
        inside = self.inside[self.groups.sizes > 1]
        return float(min(self.values[-1], inside.min(initial=np.inf)))

    def onto_boundary(self) -> Spectrum:
        """Of (A - λI)/(1 - λ), λ = λ_min < 1: unit diagonal and singular."""
        shift = self.smallest
        inside = np.where(self.groups.sizes > 1, (self.inside - shift) / (1 - shift), 0.0)
        return replace(self, values=(self.values - shift) / (1 - shift), inside=inside)

    def rank(self, tolerance: float) -> int:
        """Number of eigenvalues above ``tolerance``."""
        own = np.where(self.inside > tolerance, self.groups.sizes - 1, 0)
        return int((self.values > tolerance).sum() + own.sum())

    def means(self, *, rank_tolerance: float = 0.0, dimension: int | None = None) -> ClassMeans:
        """Unit class means, see `class_means`."""
        floor = max(rank_tolerance, ROUNDING * max(float(self.values[0]), float(self.inside.max())))
        kept = self.values > floor
        roots = np.sqrt(self.groups.sizes)
        coordinates = self.vectors[:, kept] * np.sqrt(self.values[kept]) / roots[:, None]
        spread = np.sqrt(np.where(self.inside > floor, self.inside, 0.0))
        coordinates, spread = _unit_length(self.groups, coordinates, spread)
        own = np.where(spread > 0, self.groups.sizes - 1, 0)
        rank = int(kept.sum() + own.sum())
        if dimension is not None and dimension < rank:
            raise InvalidInput(("dimension",), f"must be at least the rank {rank} of this geometry")
        return ClassMeans(
            groups=self.groups,
            group_means=coordinates,
            spread=spread,
            first=np.asarray(kept.sum() + np.cumsum(own) - own, dtype=np.int64),
            position=_positions(self.groups),
            rank=rank,
            dimension=rank if dimension is None else dimension,
        )


def class_means(groups: Groups, group_gram: FloatArray, *, dimension: int | None = None) -> ClassMeans:
    """Factors a Gram matrix on groups into unit class means.

    Eigenvalues of the size of rounding are dropped and every mean is scaled back to length one, so the
    means reproduce ``group_gram`` up to the eigenvalues dropped. Coordinates are ordered by eigenvalue, each
    with its largest component positive: the answer is the same on every run.

    Args:
        group_gram: (G, G), positive semidefinite on classes; the diagonal is the inner product of two
            different classes of the group.
        dimension: length of the vectors, at least the rank; ``None`` means the rank.

    Raises:
        InvalidInput: ``dimension`` is below the rank.
    """
    return spectrum(groups, group_gram).means(dimension=dimension)


def spectrum(groups: Groups, A: FloatArray) -> Spectrum:
    """The eigenvalues of a Gram matrix on groups, from its G × G part."""
    n = groups.sizes.astype(np.float64)
    B = np.sqrt(n)[:, None] * A * np.sqrt(n)[None, :]
    diagonal = np.where(n > 1, np.diag(A), 0.0)
    B[np.diag_indices(len(B))] = 1 + (n - 1) * diagonal
    with single_threaded_blas():
        values, vectors = np.linalg.eigh((B + B.T) / 2)
    vectors = vectors[:, ::-1]
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.where(vectors[largest, np.arange(len(B))] < 0, -1.0, 1.0)
    return Spectrum(groups, values[::-1], vectors * signs, np.where(n > 1, 1 - diagonal, 0.0))


def _unit_length(
    groups: Groups, coordinates: FloatArray, spread: FloatArray
) -> tuple[FloatArray, FloatArray]:
    n = groups.sizes.astype(np.float64)
    length = np.sqrt((coordinates**2).sum(axis=1) + spread**2 * (1 - 1 / n))
    return coordinates / length[:, None], spread / length


def _positions(groups: Groups) -> IntArray:
    """(C,) how many classes of the same group come before each class."""
    order = np.argsort(groups.index, kind="stable")
    starts = np.cumsum(groups.sizes) - groups.sizes
    position = np.empty(groups.classes, dtype=np.int64)
    position[order] = np.arange(groups.classes) - np.repeat(starts, groups.sizes)
    return position
