"""Class means and within-class variances of real embeddings, accumulated in blocks of rows.

Two passes over the rows, in float64: means first, then squares about them, so that nearly collapsed classes
lose no digits and the variance is never negative. Memory grows with C·d and d², never with n².
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from anglewise.errors import InvalidInput
from anglewise.sampling import FloatArray, IntArray

BLOCK_NUMBERS = 2_000_000
"""Numbers of the embedding matrix held in float64 at a time."""
LARGEST = 1e60
"""Embeddings beyond this overflow in fourth powers; all below its inverse, they underflow."""


@dataclass(frozen=True, eq=False)
class LabeledEmbeddings:
    """Embeddings and their classes, checked.

    Attributes:
        embeddings: (n, d) float32 or float64.
        labels: (C,) the distinct labels, sorted.
        index: (n,) class of each row, 0..C-1.
        unit: whether rows are divided by their norms when read.
    """

    embeddings: npt.NDArray[np.floating]
    labels: tuple[int | str, ...]
    index: IntArray
    unit: bool

    @property
    def items(self) -> int:
        return len(self.index)

    @property
    def dimension(self) -> int:
        return int(self.embeddings.shape[1])

    @property
    def classes(self) -> int:
        return len(self.labels)

    def blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Consecutive rows in float64, on the unit sphere when ``unit`` (zero rows stay zero)."""
        step = max(1, BLOCK_NUMBERS // max(1, self.dimension))
        for start in range(0, self.items, step):
            rows = slice(start, min(start + step, self.items))
            yield rows, self.rows(rows)

    def rows(self, rows: slice) -> FloatArray:
        X = self.embeddings[rows].astype(np.float64)
        return unit_rows(X) if self.unit else X


def unit_rows(X: FloatArray) -> FloatArray:
    """Rows divided by their Euclidean norms; zero rows stay zero."""
    scale = np.abs(X).max(axis=1, initial=0.0)
    X = X / np.where(scale > 0, scale, 1.0)[:, None]
    norms = np.linalg.norm(X, axis=1)
    return np.asarray(X / np.where(norms > 0, norms, 1.0)[:, None], dtype=np.float64)


def labeled_embeddings(
    embeddings: npt.NDArray[np.floating] | Sequence[Sequence[float]],
    labels: npt.NDArray[np.generic] | Sequence[int] | Sequence[str],
    *,
    unit: bool = True,
) -> LabeledEmbeddings:
    """Check embeddings (n, d) and labels (n,), integers or strings.

    Raises:
        InvalidInput: ``("embeddings", i, j)`` for an entry that is not finite or above 1e60 in absolute
            value; ``("embeddings",)`` or ``("labels",)`` for shapes; ``("labels", i)`` for a bad label.
    """
    try:
        X = np.asarray(embeddings)
    except ValueError:
        raise InvalidInput(("embeddings",), "must be a matrix: rows of equal length") from None
    if X.dtype.kind in "iub":
        X = X.astype(np.float64)
    if X.dtype.kind != "f" or X.ndim != 2 or X.size == 0:
        raise InvalidInput(("embeddings",), "must be a matrix of numbers, one row for each item")
    names, index = _classes(labels, len(X))
    data = LabeledEmbeddings(X, names, index, unit)
    largest = 0.0
    for rows, block in LabeledEmbeddings(X, names, index, unit=False).blocks():
        largest = max(largest, float(np.abs(block).max()))
        bad = np.argwhere(~(np.abs(block) <= LARGEST))
        if len(bad):
            i, j = int(bad[0, 0]) + rows.start, int(bad[0, 1])
            raise InvalidInput(("embeddings", i, j), "must be finite and at most 1e60 in absolute value")
    if not unit and 0 < largest < 1 / LARGEST:
        raise InvalidInput(("embeddings",), "are all below 1e-60 in absolute value: scale them up")
    return data


def _classes(
    labels: npt.NDArray[np.generic] | Sequence[int] | Sequence[str], n: int
) -> tuple[tuple[int | str, ...], IntArray]:
    values = labels if isinstance(labels, np.ndarray) else label_array(labels)
    if values.ndim != 1 or len(values) != n:
        raise InvalidInput(("labels",), f"must have one label for each of the {n} embeddings")
    if values.dtype.kind == "f":
        numbers = values.astype(np.float64)
        bad = np.flatnonzero(~((numbers == np.round(numbers)) & (np.abs(numbers) < 2**53)))
        if bad.size:
            raise InvalidInput(("labels", int(bad[0])), "must be an integer or a string")
        values = numbers.astype(np.int64)
    if values.dtype.kind == "O":
        values = label_array(values.tolist())
    if values.dtype.kind not in "iuU":
        raise InvalidInput(("labels",), "must be integers or strings")
    distinct, index = np.unique(values, return_inverse=True)
    return tuple(distinct.tolist()), index.astype(np.int64)


def label_array(labels: Sequence[object]) -> npt.NDArray[np.generic]:
    """Labels that are all integers or all strings, as an array.

    Raises:
        InvalidInput: ``("labels", i)`` or ``("labels",)``.
    """
    for i, label in enumerate(labels):
        if isinstance(label, (bool, np.bool_)) or not isinstance(label, (int, str, np.integer)):
            raise InvalidInput(("labels", i), "must be an integer or a string")
        if isinstance(label, str) and label.endswith("\0"):  # arrays of strings drop it
            raise InvalidInput(("labels", i), "must not end in a null character")
    if len({isinstance(label, str) for label in labels}) > 1:
        raise InvalidInput(("labels",), "must be all integers or all strings")
    values: npt.NDArray[np.generic] = np.array(list(labels))
    if values.dtype.kind not in "iuU":
        raise InvalidInput(("labels",), "integers must fit in 64 bits")
    return values


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """First and second moments by class, n rows, C classes, d dimensions.

    Attributes:
        counts: (C,) items.
        means: (C, d).
        within_variance: (C,) mean of ‖x - μ_c‖² over the class.
        within_scatter: (d, d) Σ_i (x_i - μ_y)(x_i - μ_y)ᵀ.
        fourth_power: Σ_i ‖x_i‖⁴.
        zero_rows: embeddings that are exactly zero.
    """

    counts: IntArray
    means: FloatArray
    within_variance: FloatArray
    within_scatter: FloatArray
    fourth_power: float
    zero_rows: int

    @property
    def items(self) -> int:
        return int(self.counts.sum())

    @property
    def second_moment(self) -> FloatArray:
        """(d, d) Σ_i x_i x_iᵀ."""
        between = (self.means * self.counts[:, None]).T @ self.means
        return np.asarray(self.within_scatter + between, dtype=np.float64)

    @property
    def squared_norms(self) -> FloatArray:
        """(C,) Σ ‖x_i‖² over each class."""
        return np.asarray(self.counts * (self.within_variance + (self.means**2).sum(axis=1)))


def _membership(index: IntArray, classes: int) -> csr_array:
    """(C, b) one-hot rows of classes."""
    b = len(index)
    return csr_array((np.ones(b), (index, np.arange(b))), shape=(classes, b))


def class_moments(data: LabeledEmbeddings) -> ClassMoments:
    """Moments of all rows, block by block."""
    C, d = data.classes, data.dimension
    counts = np.bincount(data.index, minlength=C).astype(np.int64)
    sums, fourth, zero_rows = np.zeros((C, d)), 0.0, 0
    for rows, X in data.blocks():
        sums += _membership(data.index[rows], C) @ X
        squares = np.einsum("ij,ij->i", X, X)
        fourth += float(squares @ squares)
        zero_rows += int((squares == 0).sum())
    means = sums / counts[:, None]
    spread, scatter, correction = np.zeros(C), np.zeros((d, d)), np.zeros((C, d))
    for rows, X in data.blocks():
        X -= means[data.index[rows]]
        correction += _membership(data.index[rows], C) @ X
        spread += np.bincount(data.index[rows], np.einsum("ij,ij->i", X, X), minlength=C)
        scatter += X.T @ X
    # Rounding of the first pass, removed from the means; it changes the squares to second order only.
    means += correction / counts[:, None]
    return ClassMoments(counts, means, spread / counts, scatter, fourth, zero_rows)
