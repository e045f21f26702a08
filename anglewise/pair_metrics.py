"""Metrics that need all pairs of items: refused above a stated number, never of n × n memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from anglewise.class_moments import LabeledEmbeddings, unit_rows
from anglewise.errors import InvalidInput
from anglewise.sampling import FloatArray
from anglewise.weighted_loss import Metric, SelfPairs

MAX_PAIRED_ITEMS = 10_000
"""Metrics over all pairs of items are computed up to this many items."""


class Unavailable(Exception):
    """A metric has no value for these embeddings; the message says why."""


@dataclass(frozen=True, eq=False)
class Weighting:
    """The loss that the entropic gap is measured for.

    Attributes:
        log_weights: (n, n) between items, or (C, C) between classes in order of the sorted labels.
        temperature: T.
    """

    log_weights: FloatArray
    temperature: float = 0.1
    metric: Metric = "cosine"
    self_pairs: SelfPairs = "included"


def row_blocks(rows: int, width: int) -> Iterator[slice]:
    """Consecutive rows, 4 million numbers of the given width at a time."""
    step = max(1, 4_000_000 // max(1, width))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def _needs_few_items(data: LabeledEmbeddings) -> None:
    if data.items > MAX_PAIRED_ITEMS:
        raise Unavailable(f"it needs all pairs of items: refused above {MAX_PAIRED_ITEMS} items")


def uniformity(data: LabeledEmbeddings) -> float:
    """log mean_{i<j} e^{-2‖z_i - z_j‖²}."""
    _needs_few_items(data)
    if data.items < 2:
        raise Unavailable("there is only one item")
    X = data.rows(slice(0, data.items))
    squares = np.einsum("ij,ij->i", X, X)
    tops, n = [], data.items
    for rows in row_blocks(n, n):
        D = np.maximum(squares[rows, None] + squares - 2 * (X[rows] @ X.T), 0.0)
        D[np.arange(len(D)), np.arange(rows.start, rows.stop)] = np.inf
        tops.append(float(logsumexp(-2 * D)))
    return float(logsumexp(tops) - np.log(n * (n - 1)))


def entropic_gap(data: LabeledEmbeddings, weighting: Weighting | None) -> float:
    """(1/n) Σ_i KL(p_i‖q_i) over the items with a positive."""
    if weighting is None:
        raise Unavailable("no weights were given")
    L, n = np.asarray(weighting.log_weights, dtype=np.float64), data.items
    by_class = L.shape == (data.classes, data.classes) and data.classes != n
    if not by_class and L.shape != (n, n):
        raise InvalidInput(("weighting", "log_weights"), "must have one row for each item or each class")
    if np.isnan(L).any() or np.isposinf(L).any():
        raise InvalidInput(("weighting", "log_weights"), "must be finite or -infinity")
    _needs_few_items(data)
    X = data.embeddings.astype(np.float64)
    X = unit_rows(X) if weighting.metric == "cosine" else X - X.mean(axis=0)
    index = data.index if by_class else np.arange(n)
    gap, used = 0.0, 0
    for rows in row_blocks(n, n):
        log_p = L[index[rows]][:, index]
        log_q = _log_similarity(X, rows, weighting)
        if weighting.self_pairs == "excluded":
            own = (np.arange(log_p.shape[0]), np.arange(rows.start, rows.stop))
            log_p[own] = log_q[own] = -np.inf
        live = np.isfinite(log_p.max(axis=1))
        log_p, log_q = log_p[live], log_q[live]
        log_p -= logsumexp(log_p, axis=1, keepdims=True)
        log_q -= logsumexp(log_q, axis=1, keepdims=True)
        positive = np.isfinite(log_p)
        gap += float((np.exp(log_p[positive]) * (log_p[positive] - log_q[positive])).sum())
        used += int(live.sum())
    if used == 0:
        raise Unavailable("no item has a positive weight to another")
    return max(gap / used, 0.0)


def _log_similarity(X: FloatArray, rows: slice, weighting: Weighting) -> FloatArray:
    K = X[rows] @ X.T
    if weighting.metric == "euclidean":
        squares = np.einsum("ij,ij->i", X, X)
        K = -np.maximum(squares[rows, None] + squares - 2 * K, 0.0)
    return np.asarray(K / weighting.temperature, dtype=np.float64)
