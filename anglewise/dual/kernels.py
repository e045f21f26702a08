"""Compiled kernels of the surrogate's dual. Units b are groups, or blocks of merged classes (`partition`).

With ω_g = w_g e^{-v_g}, row coefficients c_gb and S = Σ_{g in b} ω_g c_g:, the minimizing Gram matrix for a
dual Z = YYᵀ is explicit in each pair of units,

    A_bb' = clip(R_bb' + T log(2 T N_bb' Z_bb' / (S + Sᵀ)_bb') , -1, 1),      X = e^{(A - R)/T},

R the reference Gram matrix, N the number of ordered pairs of classes. The box |A| ≤ 1 is implied by the
elliptope: it makes the dual tighter and keeps X bounded. The scale of Z is eliminated: Z is multiplied by
the e^t that solves ⟨Z, A⟩ = 0.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from anglewise.sampling import FloatArray, IntArray

TILE = 32
LARGEST_SCALE = 600.0


@njit(cache=True, nogil=True, error_model="numpy")
def row_sums(omega: FloatArray, c: FloatArray, unit: IntArray, S: FloatArray) -> None:
    """S_b: = Σ_{g in b} ω_g c_g:."""
    S[:, :] = 0.0
    for g in range(omega.size):
        b = unit[g]
        for b2 in range(S.shape[1]):
            S[b, b2] += omega[g] * c[g, b2]


@njit(cache=True, nogil=True, error_model="numpy")
def pairs(
    start: int,
    stop: int,
    Y: FloatArray,
    N: FloatArray,
    S: FloatArray,
    R: FloatArray,
    T: float,
    raw: FloatArray,
    u: FloatArray,
    NZ: FloatArray,
) -> None:
    """Rows start..stop of the upper triangles of the unclipped A, X, and N ∘ Z over ordered pairs."""
    B, r = Y.shape
    for tile in range(start, stop, TILE):
        for tile2 in range(tile, B, TILE):
            for b in range(tile, min(tile + TILE, stop)):
                for b2 in range(max(tile2, b), min(tile2 + TILE, B)):
                    if N[b, b2] == 0.0:
                        raw[b, b2], u[b, b2], NZ[b, b2] = 1.0, 0.0, 0.0
                        continue
                    Z = 0.0
                    for a in range(r):
                        Z += Y[b, a] * Y[b2, a]
                    NZ[b, b2] = N[b, b2] * Z * (1.0 if b == b2 else 2.0)
                    x = 2.0 * T * N[b, b2] * Z / (S[b, b2] + S[b2, b])
                    if x > 0.0:
                        u[b, b2] = x
                        raw[b, b2] = R[b, b2] + T * math.log(x)
                    else:
                        u[b, b2], raw[b, b2] = 0.0, -1e9


@njit(cache=True, nogil=True, error_model="numpy")
def best_scale(raw: FloatArray, NZ: FloatArray, T: float, trace: float) -> float:
    """t with Σ NZ clip(raw + Tt, -1, 1) + trace = 0: piecewise linear and increasing."""
    low, high, t = -1e4, 1e4, 0.0
    B = raw.shape[0]
    for _ in range(200):
        f, slope, size = trace, 0.0, trace
        for b in range(B):
            for b2 in range(b, B):
                x = raw[b, b2] + T * t
                if x <= -1.0:
                    f -= NZ[b, b2]
                    size += abs(NZ[b, b2])
                elif x >= 1.0:
                    f += NZ[b, b2]
                    size += abs(NZ[b, b2])
                else:
                    f += NZ[b, b2] * x
                    size += abs(NZ[b, b2] * x)
                    slope += NZ[b, b2]
        if abs(f) <= 5e-16 * size:
            break
        if f > 0.0:
            high = t
        else:
            low = t
        step = t - f / (slope * T) if slope > 0.0 else 0.5 * (low + high)
        if not low < step < high:
            step = 0.5 * (max(low, t - 50.0) + min(high, t + 50.0))
        if abs(step - t) < 1e-16 * max(1.0, abs(t)):
            break
        t = step
    return min(max(t, -LARGEST_SCALE), LARGEST_SCALE)


@njit(cache=True, nogil=True, error_model="numpy")
def clip_pairs(
    start: int,
    stop: int,
    N: FloatArray,
    S: FloatArray,
    R: FloatArray,
    T: float,
    t: float,
    A: FloatArray,
    X: FloatArray,
    share: FloatArray,
) -> tuple[float, int]:
    """Turns rows start..stop of (raw, X, NZ) into the full A, X and X/(S + Sᵀ) (0 where clipped)."""
    B = A.shape[0]
    scale = math.exp(t)
    free = 0.0
    clipped = 0
    for tile in range(start, stop, TILE):
        for tile2 in range(tile, B, TILE):
            for b in range(tile, min(tile + TILE, stop)):
                for b2 in range(max(tile2, b), min(tile2 + TILE, B)):
                    if N[b, b2] == 0.0:
                        A[b, b2] = 1.0
                        share[b, b2] = 0.0
                        continue
                    a = A[b, b2] + T * t
                    if -1.0 < a < 1.0:
                        free += share[b, b2]
                        x = X[b, b2] * scale
                        q = x / (S[b, b2] + S[b2, b])
                    else:
                        clipped += 1
                        a = 1.0 if a >= 1.0 else -1.0
                        x = math.exp(min((a - R[b, b2]) / T, 700.0))
                        q = 0.0
                    A[b, b2] = A[b2, b] = a
                    X[b, b2] = X[b2, b] = x
                    share[b, b2] = share[b2, b] = q
    return free * scale, clipped


@njit(cache=True, nogil=True, error_model="numpy")
def row_totals(
    omega: FloatArray,
    c: FloatArray,
    unit: IntArray,
    X: FloatArray,
    share: FloatArray,
    total: FloatArray,
    free_total: FloatArray,
) -> None:
    """Σ_b ω c X over all and over unclipped pairs."""
    for g in range(omega.size):
        b = unit[g]
        all_pairs = free_pairs = 0.0
        for b2 in range(c.shape[1]):
            x = c[g, b2] * X[b, b2]
            all_pairs += x
            if share[b, b2] > 0.0:
                free_pairs += x
        total[g] = omega[g] * all_pairs
        free_total[g] = omega[g] * free_pairs


@njit(cache=True, nogil=True, error_model="numpy")
def dual_trace(Y: FloatArray, n: FloatArray) -> float:
    """tr Z = Σ_b n_b |Y_b|²."""
    trace = 0.0
    for b in range(n.size):
        for a in range(Y.shape[1]):
            trace += n[b] * Y[b, a] * Y[b, a]
    return trace


@njit(cache=True, nogil=True, error_model="numpy")
def dual_state(
    Y: FloatArray,
    omega: FloatArray,
    c: FloatArray,
    unit: IntArray,
    n: FloatArray,
    N: FloatArray,
    R: FloatArray,
    T: float,
    S: FloatArray,
    A: FloatArray,
    X: FloatArray,
    share: FloatArray,
    total: FloatArray,
    free_total: FloatArray,
) -> tuple[float, float, float, int]:
    """The minimizing Gram matrix for (Y, v), and what the derivatives need.

    Fills S, A, X, share (B, B), and per anchor group Σ_b ω c X over all (``total``) and over unclipped
    pairs (``free_total``).

    Returns:
        t, the trace of Z, ⟨N, Z⟩ over unclipped pairs (both at the best scale), the clipped pairs.
    """
    B = n.size
    row_sums(omega, c, unit, S)
    trace = dual_trace(Y, n)
    pairs(0, B, Y, N, S, R, T, A, X, share)
    t = best_scale(A, share, T, trace)
    free, clipped = clip_pairs(0, B, N, S, R, T, t, A, X, share)
    row_totals(omega, c, unit, X, share, total, free_total)
    return t, trace * math.exp(t), free, clipped


@njit(cache=True, nogil=True, error_model="numpy")
def row_weights(weight: FloatArray, v: FloatArray, omega: FloatArray) -> None:
    """ω = w e^{-v}."""
    for g in range(v.size):
        omega[g] = weight[g] * math.exp(-v[g])


@njit(cache=True, nogil=True, error_model="numpy")
def row_terms(
    weight: FloatArray,
    excess: FloatArray,
    v: FloatArray,
    total: FloatArray,
    bends: bool,
    gradient: FloatArray,
) -> tuple[float, float, float]:
    """Φ = Σ_g w (v + c0 e^{-v} - 1) + Σ_g total, excess = c0 - 1; without v if not ``bends``.

    Fills ∂Φ/∂v; returns Φ, the sum of the sizes of its terms and the largest |∂Φ/∂v_g| / w_g.
    """
    value = size = residual = 0.0
    for g in range(v.size):
        value += total[g]
        size += total[g]
        gradient[g] = 0.0
        if bends:
            shrink, constant = math.expm1(-v[g]), excess[g] * math.exp(-v[g])
            value += weight[g] * (v[g] + shrink + constant)
            size += weight[g] * (abs(v[g]) + abs(shrink) + abs(constant))
            gradient[g] = -weight[g] * (shrink + constant) - total[g]
            residual = max(residual, abs(gradient[g]) / weight[g])
    return value, size, residual


@njit(cache=True, nogil=True, error_model="numpy")
def v_hessian(
    weight: FloatArray,
    excess: FloatArray,
    omega: FloatArray,
    c: FloatArray,
    unit: IntArray,
    share: FloatArray,
    total: FloatArray,
    free_total: FloatArray,
    free: float,
    merged: bool,
    H: FloatArray,
    scaling: FloatArray,
) -> None:
    """Hessian in v of the dual function at its best scale, scaled to unit diagonal (``scaling``).

    -2 ``free_total`` is the derivative of the scale's gradient and ``free`` the scale's curvature.
    """
    G = omega.size
    for tile in range(0, G, TILE):
        for tile2 in range(tile, G, TILE):
            for g in range(tile, min(tile + TILE, G)):
                for h in range(max(tile2, g), min(tile2 + TILE, G)):
                    x = omega[g] * c[g, unit[h]] * omega[h] * c[h, unit[g]] * share[unit[g], unit[h]]
                    x = -x + (4.0 * free_total[g] * free_total[h] / free if free > 0.0 else 0.0)
                    H[g, h] = H[h, g] = x
    for g in range(G):
        b = unit[g]
        x = 0.0
        for b2 in range(c.shape[1]):
            x += omega[g] * c[g, b2] * omega[g] * c[g, b2] * share[b, b2]
        H[g, g] += omega[g] * (1.0 + excess[g]) + total[g] - x
        if merged:
            for h in range(g):
                if unit[h] == b:
                    x = 0.0
                    for b2 in range(c.shape[1]):
                        x += omega[g] * c[g, b2] * omega[h] * c[h, b2] * share[b, b2]
                    H[g, h] -= x
                    H[h, g] -= x
    for g in range(G):
        scaling[g] = 1.0 / math.sqrt(max(H[g, g], 1e-14 * weight[g]))
    for g in range(G):
        for h in range(G):
            H[g, h] *= scaling[g] * scaling[h]


@njit(cache=True, nogil=True, error_model="numpy")
def gradient_in_y(A: FloatArray, N: FloatArray, n: FloatArray, Y: FloatArray, gradient: FloatArray) -> None:
    """-2 (N ∘ A + Diag n) Y."""
    for b in range(n.size):
        for a in range(Y.shape[1]):
            x = n[b] * Y[b, a]
            for b2 in range(n.size):
                x += N[b, b2] * A[b, b2] * Y[b2, a]
            gradient[b, a] = -2.0 * x


@njit(cache=True, nogil=True, error_model="numpy")
def y_matrices(
    Y: FloatArray,
    scale: FloatArray,
    gradient: FloatArray,
    omega: FloatArray,
    c: FloatArray,
    unit: IntArray,
    n: FloatArray,
    N: FloatArray,
    T: float,
    A: FloatArray,
    X: FloatArray,
    share: FloatArray,
    K: FloatArray,
    H: FloatArray,
) -> None:
    """∂²Φ/∂v∂Y (G, Br) and ∂²Φ/∂Y∂Y (Br, Br) in Y scaled by ``scale``; for r = 1 in log Y."""
    B, r = Y.shape
    K[:, :] = 0.0
    for g in range(omega.size):
        b = unit[g]
        for b2 in range(B):
            if share[b, b2] == 0.0:
                continue
            Z = 0.0
            for a in range(r):
                Z += Y[b, a] * Y[b2, a]
            x = omega[g] * c[g, b2] * X[b, b2] / Z
            for a in range(r):
                K[g, b2 * r + a] -= x * Y[b, a] * scale[b2]
                K[g, b * r + a] -= x * Y[b2, a] * scale[b]
    for b in range(B):
        for a in range(r):
            for a2 in range(r):
                H[b * r + a, b * r + a2] = 0.0
    for b in range(B):
        for b2 in range(B):
            NT = 0.0
            if share[b, b2] > 0.0:
                Z = 0.0
                for a in range(r):
                    Z += Y[b, a] * Y[b2, a]
                NT = 2.0 * T * N[b, b2] / Z
            M = 2.0 * (N[b, b2] * A[b, b2] + (n[b] if b == b2 else 0.0))
            for a in range(r):
                for a2 in range(r):
                    x = NT * Y[b, a2] * Y[b2, a] + (M if a == a2 else 0.0)
                    x *= -scale[b] * scale[b2]
                    if b == b2:
                        H[b * r + a, b * r + a2] += x
                    else:
                        H[b * r + a, b2 * r + a2] = x
                    H[b * r + a, b * r + a2] -= NT * Y[b2, a] * Y[b2, a2] * scale[b] * scale[b]
    if r == 1:
        for b in range(B):
            H[b, b] += gradient[b, 0] * scale[b]


@njit(cache=True, nogil=True, error_model="numpy")
def eliminate_scale(K: FloatArray, H: FloatArray, e: FloatArray, free_total: FloatArray, free: float) -> None:
    """The direction e that scales Y is eliminated exactly."""
    along = np.zeros(e.size)
    h = size = 0.0
    for i in range(e.size):
        for j in range(e.size):
            along[i] += H[i, j] * e[j]
        h -= e[i] * along[i]
        size += e[i] * e[i]
    if not (h > 0.0 and free > 0.0):
        return
    for g in range(free_total.size):
        for j in range(e.size):
            K[g, j] -= 2.0 * free_total[g] / free * along[j]
    for i in range(e.size):
        for j in range(e.size):
            H[i, j] += along[i] * along[j] / h - e[i] * e[j] * (h / size**2)
