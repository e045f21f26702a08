"""Maximizes the surrogate's dual over Y for a fixed partition and rank: nested Newton.

The inner problem, the minimum over v, is convex; the outer ascent uses the Schur complement
Kᵀ Φ_vv⁻¹ K - Φ_YY. Nesting matters: a simultaneous Newton step from a cold start diverges at low temperature.
For one column it works in log Y, which keeps Y positive.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from anglewise.certificate import require_finite
from anglewise.dual import small
from anglewise.dual.kernels import eliminate_scale, gradient_in_y, y_matrices
from anglewise.dual.surrogate import State, Surrogate
from anglewise.sampling import FloatArray

JITTERS = (1e-14, 1e-12, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1.0)
INNER_TOLERANCE = 1e-14


@dataclass
class DualPoint:
    """Y (B, r), v (G,), the state there, and ``decrement``: twice what Newton expects to gain."""

    Y: FloatArray
    v: FloatArray
    state: State
    decrement: float


def factor(M: FloatArray) -> FloatArray:
    """Upper Cholesky factor of a symmetric matrix of unit diagonal, with the smallest jitter that works."""
    diagonal = np.diag_indices(len(M))
    for jitter in JITTERS:
        shifted = M.copy()
        shifted[diagonal] += jitter
        # The transpose of a C-ordered array is Fortran-ordered: no further copy.
        L, info = lapack.dpotrf(shifted.T, lower=0, clean=0, overwrite_a=1)
        if info == 0:
            return np.asarray(L, dtype=np.float64)
    raise FloatingPointError("the inner Hessian is not finite")


def minimize_over_v(
    s: Surrogate, Y: FloatArray, v: FloatArray, tolerance: float = INNER_TOLERANCE
) -> tuple[FloatArray, State]:
    """min_v Φ(Y, v) by damped Newton; ``tolerance`` on |∂Φ/∂v_g| / w_g."""
    if s.is_small(Y):
        return s.minimized_over_v(Y, v, tolerance)
    state = s.state(Y, v)
    if not s.bends:
        return v, state
    last = math.inf
    for _ in range(50):
        residual = state.residual
        if residual < tolerance or (residual < 1e-10 and residual > 0.3 * last):
            break
        last = residual
        H, scaling = s.v_hessian(state)
        d = -scaling * lapack.dpotrs(factor(H), scaling * state.gradient)[0]
        d *= min(1.0, 3.0 / float(np.abs(d).max()))
        slope, step = float(d @ state.gradient), 1.0
        for _ in range(40):
            new = s.state(Y, v + step * d)
            if new.value <= state.value + 1e-4 * step * slope + state.noise:
                break
            if residual < 1e-3 and new.residual < 0.5 * residual:
                break
            step *= 0.5
            if step * float(np.abs(d).max()) < 1e-13:
                break
            s.release(new)
        s.release(state)
        v, state = v + step * d, new
    return v, state


@dataclass
class _Direction:
    """The Newton direction in scaled Y (B·r,) and how v follows it (G,)."""

    d: FloatArray
    follow: FloatArray


def newton_direction(s: Surrogate, point: DualPoint, scale: FloatArray, gradient: FloatArray) -> _Direction:
    p, Y, state = s.partition, point.Y, point.state
    B, r = Y.shape
    if s.is_small(Y):
        d, follow, finite = small.direction(s.model, Y, scale, gradient, state.free, state.pairs, state.rows)
        if not finite:
            raise FloatingPointError("the Newton direction is not finite")
        return _Direction(d, follow)
    K, H = np.empty((len(point.v), B * r)), np.empty((B * r, B * r))
    y_matrices(
        Y, scale, gradient, state.omega, s.c, p.unit, p.n, p.N, s.T, state.A, state.X, state.share, K, H
    )
    g = (gradient * scale[:, None]).ravel()
    e = (Y / scale[:, None]).ravel()
    eliminate_scale(K, H, e, state.free_total, state.free)
    H *= -1.0
    if s.bends:
        Hv, scaling = s.v_hessian(state)
        U = factor(Hv)
        K *= scaling[:, None]
        # (U⁻ᵀ K)ᵀ in place: the transpose of a C-ordered array is Fortran-ordered.
        half = blas.dtrsm(1.0, U, K.T, side=1, lower=0, overwrite_b=1)
        M = blas.dsyrk(1.0, half, beta=1.0, c=H.T, lower=0, overwrite_c=1)
    else:
        M = H.T
    # From here on only the upper triangle of M counts.
    size = np.maximum(np.abs(np.diag(M)), 2.0 * np.repeat(p.n * scale * scale, r))
    root = 1.0 / np.sqrt(size)
    M *= root[:, None]
    M *= root
    d = root * _ascent_direction(M, root * g, 0.0 if r == 1 else 1e-12)
    follow = np.zeros(len(point.v))
    if s.bends:
        follow = scaling * blas.dtrsv(U, half.T @ d, lower=0)
    return _Direction(d, follow)


def _ascent_direction(M: FloatArray, g: FloatArray, jitter: float) -> FloatArray:
    """M⁻¹ g, with the absolute values of M's eigenvalues where M is indefinite (saddle-free Newton)."""
    shifted = M.copy(order="F")
    shifted[np.diag_indices(len(M))] += jitter
    U, info = lapack.dpotrf(shifted, lower=0, clean=0, overwrite_a=1)
    if info == 0:
        return np.asarray(lapack.dpotrs(U, g)[0], dtype=np.float64)
    require_finite(M)
    w, V = np.linalg.eigh(M, UPLO="U")
    return np.asarray(V @ ((V.T @ g) / np.maximum(np.abs(w), 1e-10)), dtype=np.float64)


def ascend(
    s: Surrogate, Y: FloatArray, v: FloatArray, tolerance: float, deadline: float, max_steps: int = 120
) -> DualPoint:
    """Trust-region Newton ascent of D(Y) = min_v Φ(Y, v), until less than ``tolerance`` is left to gain."""
    p = s.partition
    B, r = Y.shape
    v, state = minimize_over_v(s, Y, v)
    point = DualPoint(Y * math.exp(state.log_scale / 2), v, state, math.inf)
    radius = 2.0 if r == 1 else 1.5
    last_residual, flat = math.inf, 0
    gradient = np.empty((B, r))
    for _ in range(max_steps):
        gradient_in_y(point.state.A, p.N, p.n, point.Y, gradient)
        size = np.sqrt((point.Y**2).sum(axis=1)) if r > 1 else point.Y[:, 0]
        scale = np.maximum(size, 1e-16 * float(size.max()))
        norm = math.sqrt(float(p.n @ (scale * scale)))
        residual = float((np.abs(gradient).max(axis=1) / np.sqrt(p.n)).max()) / norm
        if residual < 2e-15 * math.sqrt(B) or (residual < 1e-11 and residual > 0.3 * last_residual):
            break
        last_residual = residual
        if time.monotonic() > deadline:
            break
        newton = newton_direction(s, point, scale, gradient)
        limit = min(1.0, radius / float(np.abs(newton.d).max()))
        slope = limit * float(newton.d @ (gradient * scale[:, None]).ravel())
        new = _line_search(s, point, scale, newton.d * limit, newton.follow * limit, slope)
        if new is None:
            point.decrement = slope
            break
        step, moved = new
        previous, moved.decrement = point.decrement, slope
        s.release(point.state)
        flat = flat + 1 if slope < moved.state.noise else 0
        full = step == 1.0 and limit == 1.0
        radius = min(20.0, 2.5 * radius) if step == 1.0 else max(0.3, radius * step)
        radius = radius if r == 1 else min(radius, 1.5)
        point = moved
        # Newton converges at least as fast as it did: what is left is below slope²/previous.
        if flat > 3 or (full and slope >= 0.0 and slope * min(1.0, slope / previous) < tolerance):
            break
    return point


def _line_search(
    s: Surrogate, point: DualPoint, scale: FloatArray, d: FloatArray, follow: FloatArray, slope: float
) -> tuple[float, DualPoint] | None:
    """Backtracks until the dual increases enough; None when it does not."""
    B, r = point.Y.shape
    step = 1.0
    for attempt in range(20):
        if r == 1:
            Y = point.Y * np.exp(step * d)[:, None]
        else:
            Y = point.Y + scale[:, None] * (step * d).reshape(B, r)
        v, new = minimize_over_v(s, Y, point.v - follow if attempt == 0 else point.v)
        if new.value >= point.state.value + 1e-4 * step * slope - 4.0 * point.state.noise:
            return step, DualPoint(Y * math.exp(new.log_scale / 2), v, new, slope)
        s.release(new)
        step *= 0.3
    return None
