"""E w_h w_h' of the shares w of one row's sum: the second derivatives of the exact risk (A4).

With the notation of `quadrature`, z_h = s X_h and ψ_h = p_h z_h e^{-z_h},

    E w_h w_h' = ∫_0^∞ e^{-as} [k(k-1) φ^{k-2} ψ_h ψ_h' + δ_hh' k φ^{k-1} z_h ψ_h] ds/s,
    ∂²F/∂log X_h ∂log X_h' = δ_hh' E w_h - E w_h w_h'.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from anglewise.quadrature import LEFT_END, STEP, _node, _scaled
from anglewise.sampling import FloatArray

MAX_NODES = 4000


@njit(cache=True, nogil=True, error_model="numpy")
def second_moment_row(
    log_x: FloatArray, p: FloatArray, own: float, k: float, log_a: float, moments: FloatArray
) -> None:
    """Fills moments (B, B) with E w_h w_h' for 2 ≤ k < ∞ draws from log(a + Σ X)."""
    B = log_x.size
    X, z, z_e = np.empty(B), np.empty(B), np.empty(B)
    scale, smallest, _ = _scaled(log_x, p, own, log_a, X)
    a = math.exp(log_a - scale)
    own_x = math.exp(-scale) if own > 0.0 else 0.0
    c = a + k * (own * own_x + np.dot(p, X))
    moments[:, :] = 0.0
    u = LEFT_END
    for _ in range(MAX_NODES):
        shrink = math.exp(-u)
        s = math.exp(min(u - shrink, 700.0)) / c
        own_e = math.exp(-s * own_x)
        for b in range(B):
            z[b] = s * X[b]
        log_phi, _ = _node(p, z, own, own_e, -math.expm1(-s * own_x), z_e)
        jacobian = (1.0 + shrink) * STEP
        one = k * math.exp((k - 1.0) * log_phi - a * s) * jacobian
        two = k * (k - 1.0) * math.exp((k - 2.0) * log_phi - a * s) * jacobian
        for b in range(B):
            x = p[b] * z_e[b]
            moments[b, b] += one * z[b] * x
            for b2 in range(B):
                moments[b, b2] += two * x * p[b2] * z_e[b2]
        if u > 0.0 and (one + two < 1e-22 or s * X[smallest] > 45.0):
            break
        u += STEP
