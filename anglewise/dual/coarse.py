"""A starting point for many groups from a problem with few.

The optimal inner product of two classes is a smooth function of their proportions. Neighboring groups are
pooled into a few dozen, the small problem is solved, and its Gram matrix and dual are interpolated in log λ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.interpolate import CubicSpline

from anglewise.risk import Risk
from anglewise.sampling import FloatArray, Groups, IntArray

MIN_GROUPS = 120
POOLS = 48
COARSE_TOLERANCE = 1e-7


@dataclass(frozen=True)
class Start:
    """A group Gram matrix, not necessarily feasible, a dual vector Y (G, 1), and the surrogate's T_s/T."""

    gram: FloatArray
    Y: FloatArray
    stretch: float


def pooled(groups: Groups) -> tuple[Groups, IntArray]:
    """Groups of nearly equal proportions pooled, and the pool of each group (G,)."""
    log_lam = np.log(groups.proportions)
    edges = np.linspace(log_lam[0], log_lam[-1], POOLS + 1)[1:-1]
    pool = np.unique(np.searchsorted(-edges, -log_lam), return_inverse=True)[1]
    sizes = np.bincount(pool, weights=groups.sizes).astype(np.int64)
    mass = np.bincount(pool, weights=groups.sizes * groups.proportions)
    return Groups(mass / sizes, sizes, pool[groups.index].astype(np.int64)), pool.astype(np.int64)


def interpolated_start(risk: Risk, solve: Callable[[Risk], Start | None]) -> Start | None:
    """A start for ``risk`` from its pooled problem; None when that has no simple answer.

    Args:
        solve: returns the answer for a risk, with a positive dual vector, or None.
    """
    small, _ = pooled(risk.groups)
    if len(small) < 4:
        return None
    answer = solve(Risk(small, risk.sampling, risk.loss))
    if answer is None:
        return None
    # The largest and smallest groups lie outside, by less than the width of a pool: there it extrapolates.
    at, to = -np.log(small.proportions), -np.log(risk.groups.proportions)
    A = _with_smooth_diagonal(answer.gram, small.sizes)
    half = CubicSpline(at, A, axis=0)(to)
    gram = np.clip(CubicSpline(at, half, axis=1)(to), -1.0, 1.0)
    gram = 0.5 * (gram + gram.T)
    single = risk.groups.sizes == 1
    gram[single, single] = 1.0
    z = np.exp(CubicSpline(at, np.log(answer.Y[:, 0]))(to))
    return Start(gram, z[:, None], answer.stretch) if math.isfinite(float(z.sum())) else None


def _with_smooth_diagonal(A: FloatArray, sizes: IntArray) -> FloatArray:
    """The diagonal of single-class pools, 1 by convention, replaced by its neighbors' inner products."""
    A = A.copy()
    for g in np.flatnonzero(sizes == 1):
        near = [A[g, h] for h in (g - 1, g + 1) if 0 <= h < len(A)]
        A[g, g] = float(np.mean(near))
    return A
