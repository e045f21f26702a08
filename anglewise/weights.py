"""Similarity weights W of weighted InfoNCE [P2], held as logarithms.

The loss is L = (1/n) Σ_i Σ_{j∈N(i)} p_ij (-log q_ij) with p_ij = w_ij / Σ_{l∈N(i)} w_il and q_i the
softmax of the similarities s_ij. N(i) is every item with self pairs included, every other item with
self pairs excluded. L is bounded below by the mean entropy (1/n) Σ_i H(p_i). An anchor whose counted
weights all vanish has no p_i: it is skipped, and n counts the others.

Weights are kept as log w_ij because w_ij = exp(cos/T) underflows at the temperatures in use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from numba import njit

from anglewise.errors import InvalidInput
from anglewise.parallel import over_rows
from anglewise.sampling import FloatArray
from anglewise.weighted_loss import SelfPairs

BoolArray = npt.NDArray[np.bool_]
Rows = Sequence[Sequence[float | None]] | npt.NDArray[np.floating] | npt.NDArray[np.integer]

MAX_LOG_WEIGHT = 1e9
EPS = float(np.finfo(np.float64).eps)
THREADED_FROM = 500
"""Rows from which a pass over the matrix pays for threads."""


@dataclass(frozen=True, eq=False)
class LogWeights:
    """A square matrix of nonnegative weights.

    Attributes:
        values: (n, n) log w_ij; -inf where w_ij = 0.
        resolution: relative rounding error of the numbers they were given in (2.2e-16, or 1.2e-7 for
            single precision).
        field: what the caller calls the matrix, for messages.
    """

    values: FloatArray
    resolution: float = EPS
    field: str = "weights"

    @classmethod
    def from_weights(cls, weights: Rows) -> LogWeights:
        """Weights w_ij ≥ 0, finite.

        Raises:
            InvalidInput: ``("weights", i)`` for a ragged row, ``("weights", i, j)`` for an entry that
                is negative, not finite or not a number.
        """
        W, resolution = _square_matrix("weights", weights)
        valid = np.isfinite(W) & (W >= 0)
        if not valid.all():
            i, j = map(int, np.argwhere(~valid)[0])
            wrong = "must not be negative" if W[i, j] < 0 else "must be finite"
            raise InvalidInput(("weights", i, j), wrong)
        with np.errstate(divide="ignore"):
            return cls(np.log(W), resolution)

    @classmethod
    def from_log_weights(cls, log_weights: Rows, field: str = "log_weights") -> LogWeights:
        """Logarithms of weights; ``None`` or -inf stands for a zero weight.

        Raises:
            InvalidInput: as `from_weights`; an entry must be finite, at most 1e9 in absolute value,
                or stand for zero.
        """
        L, resolution = _square_matrix(field, log_weights, none=-math.inf)
        bad = np.argwhere(~((np.abs(L) <= MAX_LOG_WEIGHT) | np.isneginf(L)))
        if bad.size:
            i, j = map(int, bad[0])
            raise InvalidInput((field, i, j), f"must be -inf or within ±{MAX_LOG_WEIGHT:g}")
        return cls(L, resolution, field)

    def __len__(self) -> int:
        return len(self.values)

    def positive(self, self_pairs: SelfPairs) -> BoolArray:
        """(n, n) whether w_ij > 0 and j ∈ N(i)."""
        positive = self.values > -np.inf
        if self_pairs == "excluded":
            np.fill_diagonal(positive, False)
        return positive

    def anchors(self, self_pairs: SelfPairs) -> BoolArray:
        """(n,) the anchors that count: those with a positive weight in N(i).

        Raises:
            InvalidInput: none is left.
        """
        if self_pairs == "excluded" and len(self) == 1:
            raise InvalidInput((self.field,), "a single item has no pair when self pairs are excluded")
        if self.all_positive:
            return np.ones(len(self), dtype=bool)
        live = np.asarray(self.positive(self_pairs).any(axis=1))
        if not live.any():
            raise InvalidInput((self.field,), "every anchor is skipped: no counted weight is positive")
        return live

    @cached_property
    def all_positive(self) -> bool:
        """Whether no weight is zero, counted or not."""
        return bool(self.values.min() > -np.inf)

    def probabilities(self, self_pairs: SelfPairs) -> FloatArray:
        """(n, n) p_ij; zero rows for skipped anchors."""
        logZ, _ = self._rows(self_pairs)
        log_p = self.values - np.where(np.isneginf(logZ), 0.0, logZ)[:, None]
        if self_pairs == "excluded":
            np.fill_diagonal(log_p, -np.inf)
        return np.asarray(np.exp(log_p, out=log_p))

    def entropies(self, self_pairs: SelfPairs) -> FloatArray:
        """(n,) H(p_i); 0 for skipped anchors."""
        return self._rows(self_pairs)[1]

    def _rows(self, self_pairs: SelfPairs) -> tuple[FloatArray, FloatArray]:
        """log Σ_{j∈N(i)} w_ij, -inf for skipped anchors, and H(p_i) of each row."""
        n = len(self)
        logZ, entropy = np.empty(n), np.empty(n)

        def rows(start: int, stop: int) -> None:
            _row_sums(self.values, self_pairs == "excluded", start, stop, logZ, entropy)

        over_rows(rows, n, threaded=n >= THREADED_FROM)
        return logZ, entropy


def given_log_weights(weights: LogWeights | Rows | None, log_weights: Rows | None) -> LogWeights:
    """The one of the two that was given.

    Raises:
        InvalidInput: none or both, or as `LogWeights.from_weights` and `LogWeights.from_log_weights`.
    """
    if (weights is None) == (log_weights is None):
        raise InvalidInput(("weights",), "give exactly one of weights and log_weights")
    if isinstance(weights, LogWeights):
        return weights
    if weights is not None:
        return LogWeights.from_weights(weights)
    assert log_weights is not None
    return LogWeights.from_log_weights(log_weights)


def entropy_bound(weights: LogWeights, self_pairs: SelfPairs) -> float:
    """(1/n) Σ_i H(p_i) over the anchors that count, the lower bound of [P2] on the loss.

    >>> round(entropy_bound(LogWeights.from_weights([[1.0, 1.0], [1.0, 1.0]]), "included"), 6)
    0.693147
    """
    return float(weights.entropies(self_pairs).sum() / weights.anchors(self_pairs).sum())


@njit(cache=True, nogil=True)
def _row_sums(
    L: FloatArray, skip_self: bool, start: int, stop: int, logZ: FloatArray, entropy: FloatArray
) -> None:
    for i in range(start, stop):
        top = -np.inf
        for j in range(L.shape[1]):
            if not (skip_self and i == j):
                top = max(top, L[i, j])
        logZ[i], entropy[i] = -np.inf, 0.0
        if top == -np.inf:
            continue
        total, weighted = 0.0, 0.0
        for j in range(L.shape[1]):
            x = L[i, j] - top
            if x > -745.0 and not (skip_self and i == j):  # exp underflows below
                w = np.exp(x)
                total += w
                weighted += w * x
        logZ[i] = top + np.log(total)
        entropy[i] = max(0.0, np.log(total) - weighted / total)


def _square_matrix(field: str, rows: Rows, none: float | None = None) -> tuple[FloatArray, float]:
    if isinstance(rows, np.ndarray):
        if rows.dtype.kind not in "iuf":
            raise InvalidInput((field,), "must be an array of real numbers")
        if rows.ndim != 2 or rows.shape[0] != rows.shape[1]:
            raise InvalidInput((field,), f"must be a square matrix, not of shape {rows.shape}")
        matrix = rows.astype(np.float64)
        resolution = float(np.spacing(rows.dtype.type(1))) if rows.dtype.kind == "f" else EPS
    else:
        matrix, resolution = _stack(field, rows, none), EPS
    if matrix.size == 0:
        raise InvalidInput((field,), "needs at least one row")
    return matrix, max(resolution, EPS)


def _stack(field: str, rows: Sequence[Sequence[float | None]], none: float | None) -> FloatArray:
    if isinstance(rows, (str, bytes)) or not isinstance(rows, Sequence):
        raise InvalidInput((field,), "must be a list of rows")
    n = len(rows)
    matrix = np.empty((n, n))
    for i, row in enumerate(rows):
        if isinstance(row, (str, bytes)) or not isinstance(row, (Sequence, np.ndarray)):
            raise InvalidInput((field, i), "must be a list of numbers")
        if len(row) != n:
            raise InvalidInput((field, i), f"has {len(row)} entries where the matrix has {n} rows")
        matrix[i] = _row(field, i, row, none)
    return matrix


def _row(field: str, i: int, row: Sequence[float | None], none: float | None) -> npt.ArrayLike:
    try:
        values = np.asarray(row)
        if values.ndim == 1 and values.dtype.kind in "iuf":
            return values
    except ValueError:  # entries are themselves lists of unequal length
        pass
    return [_number((field, i, j), value, none) for j, value in enumerate(row)]


def _number(field: tuple[str | int, ...], value: float | None, none: float | None) -> float:
    if value is None and none is not None:
        return none
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        raise InvalidInput(field, "must be a number")
    try:
        return float(value)
    except (OverflowError, TypeError) as error:
        raise InvalidInput(field, "must be a number within double precision") from error
