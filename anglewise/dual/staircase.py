"""Minimizes a surrogate over the elliptope: the ascent on Y, with the partition and the rank it needs.

When the minimizing A of the dual is indefinite, either classes want to coincide (an unclipped inner product
above 1: merge them) or the dual matrix needs another column, along the negative eigenvector of A. When A is
positive semidefinite, an unmerged partition is optimal by strong duality; a merged one is checked with the
certificate on all classes, and split along a negative direction.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.linalg import lapack

from anglewise.certificate import SMALL, dual_on_groups, dual_weights, require_finite, weighted_gap
from anglewise.dual import small
from anglewise.dual.ascent import DualPoint, ascend, minimize_over_v
from anglewise.dual.partition import BoolArray, Partition, merge, merged_dual, positive, split
from anglewise.dual.surrogate import Surrogate
from anglewise.sampling import FloatArray

MAX_CYCLES = 60
MAX_COLUMNS = 12
INDEFINITE = 1e-11
DEFINITE = 1e-13


@dataclass
class Stair:
    """Where the search stands: a feasible group Gram matrix with an estimate of its gap, and its dual."""

    gap: float
    gram: FloatArray
    partition: Partition
    Y: FloatArray
    v: FloatArray


def smallest_pair(M: FloatArray) -> tuple[float, FloatArray]:
    """λ_min of a symmetric matrix and its eigenvector."""
    require_finite(M)
    if len(M) <= SMALL:
        w, V = np.linalg.eigh(M)
        return float(w[0]), V[:, 0]
    w, V = scipy.linalg.eigh(M, subset_by_index=[0, 0], check_finite=False)
    return float(w[0]), V[:, 0]


def shifted_is_definite(M: FloatArray, shift: float) -> bool:
    """Whether M + shift I has a Cholesky factor."""
    shifted = M.copy()
    shifted[np.diag_indices(len(M))] += shift
    return bool(lapack.dpotrf(shifted.T, lower=0, clean=0, overwrite_a=1)[1] == 0)


def minimize_surrogate(
    s: Surrogate, partition: Partition, Y: FloatArray, v: FloatArray, tabu: BoolArray, tolerance: float,
    deadline: float,
) -> Stair:  # fmt: skip
    """The best point found; ``gap`` at most ``tolerance`` unless it stalled or ran out of time."""
    best: Stair | None = None
    for _ in range(MAX_CYCLES):
        s.set_partition(partition)
        point = ascend(s, Y, v, 0.1 * tolerance / s.stretch, deadline)
        stair, least, direction = _feasible(s, point)
        if stair.gap > tolerance:
            point = ascend(s, point.Y, point.v, 0.0, deadline)
            stair, least, direction = _feasible(s, point)
        if best is None or stair.gap < best.gap:
            best = stair
        if best.gap <= tolerance or time.monotonic() > deadline:
            break
        if least < -INDEFINITE:
            merged = merge(partition, _unclipped(s, point), tabu)
            if merged is not None:
                Y, v, partition = merged_dual(partition, merged, point.Y), point.v, merged
            elif point.Y.shape[1] < min(len(partition) - 1, MAX_COLUMNS):
                Y, v = _another_column(s, point, direction)
            else:
                break
            continue
        found = _split(s, stair, tabu)
        if found is None:
            break
        partition, Y = found
        v = point.v
    assert best is not None
    return best


def _feasible(s: Surrogate, point: DualPoint) -> tuple[Stair, float, FloatArray]:
    """The point made feasible, with its estimated gap; λ_min of A on units and its direction per class."""
    p, A = s.partition, point.state.A
    least, direction = -DEFINITE, np.empty(0)
    if not _is_semidefinite(p, A):
        least, direction = smallest_pair(p.unit_matrix(A))
        direction = direction / np.sqrt(p.n)
        least = min(least, p.least_inside(A))
    shift = max(0.0, -least) * (1.0 + 1e-10)
    gram = p.expand(np.clip(A / (1.0 + shift), -1.0, 1.0))
    # Unmerged, strong duality holds: only the repair costs something.
    gap = _model_gap(s, gram) if p.any_merged else shift * point.state.trace * s.stretch
    return Stair(gap, gram, p, point.Y, point.v), least, direction


def _is_semidefinite(p: Partition, A: FloatArray) -> bool:
    """Up to rounding, on all classes."""
    if len(p) <= small.MAX_UNKNOWNS:
        return bool(small.is_semidefinite(A, p.n, DEFINITE))
    return p.least_inside(A) > -DEFINITE and shifted_is_definite(p.unit_matrix(A), DEFINITE)


def _model_gap(s: Surrogate, gram: FloatArray) -> float:
    groups = s.risk.groups
    Z, inside, y = dual_on_groups(groups, s.gradient(gram), gram)
    return weighted_gap(groups, Z, inside, dual_weights(y))[0]


def _unclipped(s: Surrogate, point: DualPoint) -> FloatArray:
    """R + T log(2 T N Z / (S + Sᵀ)), the inner products before the box."""
    p = s.partition
    x = 2.0 * s.T * p.N * (point.Y @ point.Y.T)
    S2 = point.state.S + point.state.S.T
    positive_pairs = p.active & (x > 0) & (S2 > 0)
    ratio = np.where(positive_pairs, x, 1.0) / np.where(positive_pairs, S2, 1.0)
    raw = np.where(positive_pairs, s.reference + s.T * np.log(ratio), -1e9)
    return np.where(p.active, raw, 1.0)


def _another_column(s: Surrogate, point: DualPoint, direction: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Y with a column along a negative direction of A, as long as the dual increases."""
    p = s.partition
    size = 0.3 * math.sqrt(float((p.n[:, None] * point.Y**2).sum()))
    for _ in range(40):
        Y = np.column_stack((point.Y, size * direction))
        v, state = minimize_over_v(s, Y, point.v)
        if state.value > point.state.value:
            break
        s.release(state)
        size *= 0.5
    return Y, v


def _split(s: Surrogate, stair: Stair, tabu: BoolArray) -> tuple[Partition, FloatArray] | None:
    """The partition split along the certificate's negative direction, with the dual factored anew."""
    groups, p = s.risk.groups, stair.partition
    if not p.any_merged:
        return None
    H = s.gradient(stair.gram)
    Z, inside, y = dual_on_groups(groups, H, stair.gram)
    w = dual_weights(y)
    root = np.sqrt(w)
    least, direction = smallest_pair(Z / root[:, None] / root)
    direction = direction / np.sqrt(w * groups.sizes)
    new = split(p, direction, inside / w, least, tabu)
    return None if new is None else (new, dual_factor(new, H, y))


def dual_factor(partition: Partition, H: FloatArray, y: FloatArray) -> FloatArray:
    """Y with YYᵀ ≈ Z, the dual matrix of gradient H averaged over the classes of the units."""
    groups = partition.groups
    n = groups.sizes.astype(np.float64)
    pairs = n[:, None] * n - np.diag(n)
    on_groups = pairs * (0.5 * (H + H.T)) - np.diag(n * y)
    total = np.zeros((len(partition), len(partition)))
    np.add.at(total, (partition.unit[:, None], partition.unit[None, :]), on_groups)
    Z = total / (partition.n[:, None] * partition.n)
    size = np.sqrt(np.maximum(np.diag(Z), 1e-28 * float(np.diag(Z).max())))
    scaled = Z / (size[:, None] * size)
    require_finite(scaled)
    w, V = np.linalg.eigh(scaled)
    kept = np.flatnonzero(w > 1e-9 * w[-1])[::-1][:MAX_COLUMNS]
    Y = size[:, None] * (V[:, kept] * np.sqrt(w[kept]))
    return positive(Y) if Y.shape[1] == 1 else np.asarray(Y, dtype=np.float64)
