"""From log-weights to a `WeightedLoss`: checks, anchors without positives, twins, connected components."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.special import logsumexp

from anglewise.errors import InvalidInput
from anglewise.losses import MAX_TEMPERATURE, MIN_TEMPERATURE
from anglewise.sampling import FloatArray, IntArray
from anglewise.weighted_loss import Metric, SelfPairs, WeightedLoss

TWIN_TOLERANCE = 1e-12
"""Log-weights of twins agree to within this, relative to the largest finite one (at least 1)."""

NO_WEIGHT = 1e-15
"""Euclidean: a smaller share of an anchor's weight hardly changes the loss or its bound. Leaving it out
lowers L by at most that factor, since no similarity is above that of the self pair."""


def checked_log_weights(log_weights: FloatArray) -> FloatArray:
    """The matrix as float64, square, each entry finite or -inf (a zero weight).

    Raises:
        InvalidInput: naming ``("log_weights",)`` or the offending entry.
    """
    try:
        L = np.array(log_weights, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(("log_weights",), "must be a square matrix of numbers") from None
    if L.ndim != 2 or L.shape[0] != L.shape[1] or L.shape[0] == 0:
        raise InvalidInput(("log_weights",), "must be a square matrix with at least one row")
    bad = np.argwhere(np.isnan(L) | np.isposinf(L))
    if len(bad):
        raise InvalidInput(("log_weights", int(bad[0, 0]), int(bad[0, 1])), "must be finite or -infinity")
    return L


def checked_counts(counts: IntArray | None, rows: int) -> FloatArray:
    """Positive integer counts as floats; all ones when ``counts`` is None."""
    if counts is None:
        return np.ones(rows)
    values = np.asarray(counts, dtype=np.float64)
    if values.shape != (rows,):
        raise InvalidInput(("counts",), f"must have one entry for each of the {rows} rows of log_weights")
    bad = np.flatnonzero(~((values >= 1) & (values < 2**53) & (values == np.floor(values))))
    if bad.size:
        raise InvalidInput(("counts", int(bad[0])), "must be a positive integer below 2^53")
    return values


def check_options(metric: Metric, temperature: float, self_pairs: SelfPairs) -> None:
    """Raise InvalidInput, naming the option, for one outside its domain."""
    if metric not in ("cosine", "euclidean"):
        raise InvalidInput(("metric",), "must be 'cosine' or 'euclidean'")
    if self_pairs not in ("included", "excluded"):
        raise InvalidInput(("self_pairs",), "must be 'included' or 'excluded'")
    if not MIN_TEMPERATURE <= temperature <= MAX_TEMPERATURE:
        raise InvalidInput(("temperature",), f"must be in [{MIN_TEMPERATURE:g}, {MAX_TEMPERATURE:g}]")


def build_problem(
    log_weights: FloatArray,
    counts: IntArray | None = None,
    *,
    metric: Metric = "cosine",
    temperature: float = 0.1,
    self_pairs: SelfPairs = "included",
) -> WeightedLoss:
    """The weighted loss of log-weights (m, m) between rows of ``counts`` twins each.

    An anchor whose weights are all zero has no positive; it is left out of the mean over anchors.

    Raises:
        InvalidInput: bad weights, counts, metric, temperature; or no anchor with a positive.
    """
    check_options(metric, temperature, self_pairs)
    L = checked_log_weights(log_weights)
    n = checked_counts(counts, len(L))
    N = np.tile(n, (len(L), 1))
    if self_pairs == "excluded":
        N[np.diag_indices(len(L))] -= 1
    with np.errstate(divide="ignore"):
        mass = L + np.log(N)
    live = np.isfinite(mass.max(axis=1))
    if not live.any():
        raise InvalidInput(("log_weights",), "no anchor has a positive: every compared weight is zero")
    log_share = np.full_like(L, -np.inf)
    log_share[live] = L[live] - logsumexp(mass[live], axis=1, keepdims=True)
    log_share[N == 0] = -np.inf
    P = N * np.exp(log_share)
    P[live] /= P[live].sum(axis=1, keepdims=True)
    anchors = np.where(live, n, 0.0)
    return WeightedLoss(
        log_weights=L,
        target=P,
        log_share=log_share,
        multiplicity=N,
        anchors=anchors / anchors.sum(),
        counts=n,
        temperature=float(temperature),
        metric=metric,
        self_pairs=self_pairs,
    )


def normalized_log_weights(L: FloatArray, *, excluded: bool) -> FloatArray:
    """Log-weights less their largest in each row (the loss depends on ratios inside a row only)."""
    L = L.copy()
    if excluded:
        np.fill_diagonal(L, -np.inf)
    top = L.max(axis=1, keepdims=True)
    return L - np.where(np.isfinite(top), top, 0.0)


def twin_groups(log_weights: FloatArray, self_pairs: SelfPairs) -> IntArray | None:
    """(n,) group of each item, items with equal weights from and to all others; None if all differ.

    With self pairs excluded the diagonal counts as the largest weight of its row: twins are then each
    other's nearest.
    """
    L = normalized_log_weights(log_weights, excluded=self_pairs == "excluded")
    if self_pairs == "excluded":
        np.fill_diagonal(L, 0.0)
    scale = max(1.0, -float(L.min(where=np.isfinite(L), initial=0.0)))
    np.maximum(L, -2 * scale, out=L)
    probe = np.random.default_rng(0).uniform(1.0, 2.0, len(L)) / (scale * len(L))
    key = np.round(np.column_stack([L @ probe, L.T @ probe]) * 1e10)
    _, first, group = np.unique(key, axis=0, return_index=True, return_inverse=True)
    group = group.ravel()
    if len(first) == len(L):
        return None
    L -= L[np.ix_(first, first)][np.ix_(group, group)]
    return group.astype(np.int64) if np.abs(L).max() <= TWIN_TOLERANCE * scale else None


def join_twins(log_weights: FloatArray, group: IntArray) -> tuple[FloatArray, IntArray]:
    """Log-weights (m, m) with one row for each group of twins, and the counts (m,)."""
    order = np.argsort(group, kind="stable")
    sizes = np.bincount(group)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    first = order[starts]
    L = log_weights[np.ix_(first, first)]
    for g in np.flatnonzero(sizes > 1):
        L[g, g] = log_weights[first[g], order[starts[g] + 1]]
    return L, sizes


def restrict(problem: WeightedLoss, rows: IntArray) -> WeightedLoss:
    """The loss of some rows alone."""
    return build_problem(
        problem.log_weights[np.ix_(rows, rows)],
        problem.counts[rows].astype(np.int64),
        metric=problem.metric,
        temperature=problem.temperature,
        self_pairs=problem.self_pairs,
    )


def weight_components(problem: WeightedLoss) -> IntArray:
    """(m,) connected component of each row in the graph of targets above `NO_WEIGHT`."""
    _, label = connected_components(csr_array((problem.target > NO_WEIGHT).astype(np.int8)), directed=False)
    return np.asarray(label, dtype=np.int64)


def double_center(M: FloatArray) -> FloatArray:
    """J M J, J = I - 11ᵀ/m."""
    centered = M - M.mean(axis=0) - M.mean(axis=1)[:, None] + M.mean()
    return np.asarray(centered, dtype=np.float64)


def bound_gram(problem: WeightedLoss) -> FloatArray:
    """(m, m) the symmetric matrix that would attain the entropy bound, were it a Gram matrix.

    Self pairs included: 1 + T log(w_ij/w_ii) symmetrized (cosine), or its centered negative half
    (Euclidean). Excluded: each row's largest weight stands for w_ii. Zero weights are put 2/T below the
    smallest other log-weight.
    """
    T = problem.temperature
    with np.errstate(divide="ignore"):
        L = normalized_log_weights(problem.log_weights, excluded=problem.excluded)
    finite = np.isfinite(L)
    L[~finite] = (L[finite].min() if finite.any() else 0.0) - 2 / T
    if not problem.excluded:
        L -= np.diag(L)[:, None]
    M = 0.5 * T * (L + L.T)
    np.fill_diagonal(M, 0.0)
    if problem.cosine:
        return 1 + M
    return double_center(M) / 2
