"""Whole Newton iterations in one compiled call, for problems so small that calls cost more than arithmetic.

The equations are those of `ascent`, which solves larger problems with LAPACK. A state at (Y, v) is held in
arrays ``P`` (4, B, B), with S, A, X and share, and ``W`` (4, G), with total, free_total, ω and ∂Φ/∂v (see
`surrogate.State`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from anglewise.dual.kernels import dual_state, eliminate_scale, row_terms, row_weights, v_hessian, y_matrices
from anglewise.sampling import FloatArray, IntArray

MAX_UNKNOWNS = 48
"""Up to this many groups, and entries of Y, these kernels are faster than calls of LAPACK."""

MAX_NEWTON_STEPS = 50
MAX_HALVINGS = 40


class Model(NamedTuple):
    """What does not change in an ascent: see `surrogate.Surrogate` and `partition.Partition`."""

    weight: FloatArray
    excess: FloatArray
    c: FloatArray
    unit: IntArray
    n: FloatArray
    N: FloatArray
    R: FloatArray
    T: float
    merged: bool
    bends: bool


class Scalars(NamedTuple):
    """The numbers of a state, named as in `surrogate.State`."""

    value: float
    noise: float
    residual: float
    log_scale: float
    trace: float
    free: float
    clipped: int


@njit(cache=True, nogil=True, error_model="numpy")
def _state(m: Model, Y: FloatArray, v: FloatArray, P: FloatArray, W: FloatArray) -> Scalars:
    row_weights(m.weight, v, W[2])
    t, trace, free, clipped = dual_state(
        Y, W[2], m.c, m.unit, m.n, m.N, m.R, m.T, P[0], P[1], P[2], P[3], W[0], W[1]
    )
    value, size, residual = row_terms(m.weight, m.excess, v, W[0], m.bends, W[3])
    return Scalars(value, 1e-15 * (size + trace), residual, t, trace, 4.0 * m.T * free, clipped)


@njit(cache=True, nogil=True, error_model="numpy")
def _factored(M: FloatArray) -> bool:
    """Replaces the upper triangle of M by U with UᵀU = M; False where M is not positive definite."""
    order = M.shape[0]
    for j in range(order):
        if not M[j, j] > 0.0:
            return False
        root = math.sqrt(M[j, j])
        for k in range(j, order):
            M[j, k] /= root
        for i in range(j + 1, order):
            x = M[j, i]
            for k in range(i, order):
                M[i, k] -= x * M[j, k]
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def is_semidefinite(A: FloatArray, n: FloatArray, shift: float) -> bool:
    """Whether a Gram matrix on units has no eigenvalue below -``shift``, on units and inside them."""
    order = n.size
    M = np.empty((order, order))
    for b in range(order):
        for b2 in range(order):
            M[b, b2] = math.sqrt(n[b] * n[b2]) * A[b, b2]
        M[b, b] = 1.0 + shift
        if n[b] > 1.0:
            M[b, b] += (n[b] - 1.0) * A[b, b]
            if not 1.0 - A[b, b] > -shift:
                return False
    return _factored(M)


@njit(cache=True, nogil=True, error_model="numpy")
def _factored_with_jitter(M: FloatArray, U: FloatArray) -> bool:
    """Fills U with the factor of M, of unit diagonal, plus the smallest jitter that works."""
    jitter = 1e-14
    while jitter < 10.0:
        U[:, :] = M
        for i in range(M.shape[0]):
            U[i, i] += jitter
        if _factored(U):
            return True
        jitter *= 100.0
    return False


@njit(cache=True, nogil=True, error_model="numpy")
def _half_solved(U: FloatArray, K: FloatArray) -> None:
    """K ← U⁻ᵀ K."""
    for i in range(U.shape[0]):
        for k in range(K.shape[1]):
            K[i, k] /= U[i, i]
        for j in range(i + 1, U.shape[0]):
            x = U[i, j]
            for k in range(K.shape[1]):
                K[j, k] -= x * K[i, k]


@njit(cache=True, nogil=True, error_model="numpy")
def _back_solved(U: FloatArray, x: FloatArray) -> None:
    """x ← U⁻¹ x."""
    for i in range(U.shape[0] - 1, -1, -1):
        for j in range(i + 1, U.shape[0]):
            x[i] -= U[i, j] * x[j]
        x[i] /= U[i, i]


@njit(cache=True, nogil=True, error_model="numpy")
def _solved(U: FloatArray, x: FloatArray) -> None:
    """x ← (UᵀU)⁻¹ x."""
    for i in range(U.shape[0]):
        x[i] /= U[i, i]
        for j in range(i + 1, U.shape[0]):
            x[j] -= U[i, j] * x[i]
    _back_solved(U, x)


@njit(cache=True, nogil=True, error_model="numpy")
def _newton_step(m: Model, W: FloatArray, P: FloatArray, free: float, d: FloatArray) -> bool:
    """Fills d (G,) with the Newton step in v, no entry above 3; False where the Hessian is not finite."""
    G = d.size
    H, U, scaling = np.empty((G, G)), np.empty((G, G)), np.empty(G)
    v_hessian(m.weight, m.excess, W[2], m.c, m.unit, P[3], W[0], W[1], free, m.merged, H, scaling)
    if not _factored_with_jitter(H, U):
        return False
    for g in range(G):
        d[g] = -scaling[g] * W[3, g]
    _solved(U, d)
    largest = 0.0
    for g in range(G):
        d[g] *= scaling[g]
        largest = max(largest, abs(d[g]))
    if largest > 3.0:
        d *= 3.0 / largest
    return True


@njit(cache=True, nogil=True, error_model="numpy")
def minimize_over_v(
    m: Model, Y: FloatArray, v: FloatArray, tolerance: float, P: FloatArray, W: FloatArray
) -> tuple[FloatArray, int, Scalars, bool]:
    """min_v Φ(Y, v) by damped Newton, as `ascent.minimize_over_v`.

    Args:
        P, W: (2, 4, B, B) and (2, 4, G), room for two states.

    Returns:
        v, which of the two states is the one there, its numbers, and False after a breakdown.
    """
    now = 0
    state = _state(m, Y, v, P[0], W[0])
    if not m.bends:
        return v, now, state, math.isfinite(state.value)
    d, last = np.empty(v.size), math.inf
    for _ in range(MAX_NEWTON_STEPS):
        residual = state.residual
        if residual < tolerance or (residual < 1e-10 and residual > 0.3 * last):
            break
        last = residual
        if not (math.isfinite(state.value) and _newton_step(m, W[now], P[now], state.free, d)):
            return v, now, state, False
        largest, slope = np.abs(d).max(), (d * W[now, 3]).sum()
        step, trial = 1.0, 1 - now
        for _ in range(MAX_HALVINGS):
            new = _state(m, Y, v + step * d, P[trial], W[trial])
            if not math.isfinite(new.value):
                return v, now, state, False
            if new.value <= state.value + 1e-4 * step * slope + state.noise:
                break
            if residual < 1e-3 and new.residual < 0.5 * residual:
                break
            step *= 0.5
            if step * largest < 1e-13:
                break
        v, state, now = v + step * d, new, trial
    return v, now, state, math.isfinite(state.value)


@njit(cache=True, nogil=True, error_model="numpy")
def _ascent_direction(M: FloatArray, g: FloatArray, jitter: float) -> FloatArray:
    """M⁻¹ g for the upper triangle of M; absolute eigenvalues where M is indefinite (saddle-free Newton)."""
    U = M.copy()
    for i in range(g.size):
        U[i, i] += jitter
    d = g.copy()
    if _factored(U):
        _solved(U, d)
        return d
    if not math.isfinite(M.sum()):
        d[:] = math.nan
        return d
    for i in range(g.size):
        for j in range(i):
            M[i, j] = M[j, i]
    w, V = np.linalg.eigh(M)
    inner = np.zeros(g.size)
    for a in range(g.size):
        for i in range(g.size):
            inner[a] += V[i, a] * g[i] / max(abs(w[a]), 1e-10)
    for i in range(g.size):
        d[i] = 0.0
        for a in range(g.size):
            d[i] += V[i, a] * inner[a]
    return d


@njit(cache=True, nogil=True, error_model="numpy")
def direction(
    m: Model,
    Y: FloatArray,
    scale: FloatArray,
    gradient: FloatArray,
    free: float,
    P: FloatArray,
    W: FloatArray,
) -> tuple[FloatArray, FloatArray, bool]:
    """The Newton direction in scaled Y (B·r,) and how v follows it (G,), as `ascent.newton_direction`.

    Returns:
        both, and False after a breakdown.
    """
    B, r = Y.shape
    G, order = m.unit.size, B * r
    K, H = np.empty((G, order)), np.empty((order, order))
    y_matrices(Y, scale, gradient, W[2], m.c, m.unit, m.n, m.N, m.T, P[1], P[2], P[3], K, H)
    g, e, follow = np.empty(order), np.empty(order), np.zeros(G)
    for b in range(B):
        for a in range(r):
            g[b * r + a] = gradient[b, a] * scale[b]
            e[b * r + a] = Y[b, a] / scale[b]
    eliminate_scale(K, H, e, W[1], free)
    M = -H
    Hv, U, scaling = np.empty((G, G)), np.empty((G, G)), np.empty(G)
    if m.bends:
        v_hessian(m.weight, m.excess, W[2], m.c, m.unit, P[3], W[0], W[1], free, m.merged, Hv, scaling)
        if not _factored_with_jitter(Hv, U):
            return g, follow, False
        for h in range(G):
            K[h] *= scaling[h]
        _half_solved(U, K)
        for h in range(G):
            for i in range(order):
                x = K[h, i]
                for j in range(i, order):
                    M[i, j] += x * K[h, j]
    root = np.empty(order)
    for i in range(order):
        b = i // r
        root[i] = 1.0 / math.sqrt(max(abs(M[i, i]), 2.0 * m.n[b] * scale[b] * scale[b]))
    for i in range(order):
        g[i] *= root[i]
        for j in range(order):
            M[i, j] *= root[i] * root[j]
    d = root * _ascent_direction(M, g, 0.0 if r == 1 else 1e-12)
    if m.bends:
        for h in range(G):
            for i in range(order):
                follow[h] += K[h, i] * d[i]
        _back_solved(U, follow)
        follow *= scaling
    return d, follow, math.isfinite(d.sum())
