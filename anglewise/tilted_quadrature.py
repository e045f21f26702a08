"""E log(α + β Σ_l X_{J_l}) and how it changes with the law of the draws, exactly for any k (A4, A8).

With a = α/β and φ(s) = Σ_j w_j e^{-s X_j} as in `quadrature`, one draw fixed to j instead of drawn changes
the expectation by

    E_j - E = ∫_0^∞ e^{-as} φ(s)^{k-1} (φ(s) - e^{-s X_j}) ds/s,

and since E is a homogeneous polynomial of degree k in w, ∂E/∂w_j = k E_j. Only differences matter when the
weights sum to one, so `effect_j` = k (E_j - E) is what the kernel returns; Σ_j w_j effect_j = 0.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from anglewise.quadrature import LEFT_END, MAX_NODES, STEP, UNDERFLOW
from anglewise.sampling import FloatArray


@njit(cache=True, nogil=True, error_model="numpy")
def _scaled(log_x: FloatArray, w: FloatArray, log_a: float, X: FloatArray) -> tuple[float, float]:
    """X = e^{log_x - scale} where w > 0; returns the scale and the smallest exponent."""
    scale, least = log_a, 0.0
    for j in range(log_x.size):
        if w[j] > 0.0:
            scale = max(scale, log_x[j])
            least = min(least, log_x[j])
    for j in range(log_x.size):
        X[j] = math.exp(log_x[j] - scale) if w[j] > 0.0 else 0.0
    return scale, least - scale


@njit(cache=True, nogil=True, error_model="numpy")
def _node(z: FloatArray, w: FloatArray, e: FloatArray, d: FloatArray) -> tuple[float, float]:
    """Fills e = e^{-z} and d = 1 - e, each without cancellation; returns Σ w e and Σ w d."""
    phi = complement = 0.0
    for j in range(z.size):
        if z[j] > 0.5:
            e[j] = math.exp(-z[j])
            d[j] = 1.0 - e[j]
        else:
            d[j] = -math.expm1(-z[j])
            e[j] = 1.0 - d[j]
        phi += w[j] * e[j]
        complement += w[j] * d[j]
    return phi, complement


@njit(cache=True, nogil=True, error_model="numpy")
def _row(
    log_x: FloatArray,
    w: FloatArray,
    k: float,
    log_alpha: float,
    log_beta: float,
    share: FloatArray,
    effect: FloatArray,
    work: FloatArray,
) -> float:
    X, z, e, d = work[0], work[1], work[2], work[3]
    scale, least = _scaled(log_x, w, log_alpha - log_beta, X)
    log_a = log_alpha - log_beta - scale
    a = math.exp(log_a)
    c = a + k * np.dot(w, X)
    log_c = math.log(c)
    from_alpha = c < 4.0 * a  # then integrate log(1 + Σ X/a), which does not cancel
    wide = least < UNDERFLOW and log_a < UNDERFLOW / 2  # the smallest X underflows: form sX in logarithms
    share[:] = 0.0
    effect[:] = 0.0
    value = shared = 0.0
    u = LEFT_END
    for _ in range(MAX_NODES):
        shrink = math.exp(-u)
        log_s = u - shrink - log_c
        s = math.exp(min(log_s, 700.0))
        cs = math.exp(min(u - shrink, 700.0))
        alpha_s = a / c * cs
        for j in range(X.size):
            z[j] = math.exp(min(log_s + log_x[j] - scale, 700.0)) if wide and w[j] > 0.0 else s * X[j]
        phi, complement = _node(z, w, e, d)
        log_phi = math.log1p(-complement) if complement < 0.5 else math.log(max(phi, 1e-308))
        jacobian = (1.0 + shrink) * STEP
        remaining = math.exp(k * log_phi - alpha_s)
        if from_alpha:
            value -= math.expm1(k * log_phi) * math.exp(-alpha_s) * jacobian
        elif cs - alpha_s + k * log_phi < 0.1:
            value -= math.expm1(cs - alpha_s + k * log_phi) * math.exp(-cs) * jacobian
        else:
            value += (math.exp(-cs) - remaining) * jacobian
        weight = k * math.exp((k - 1.0) * log_phi - alpha_s) * jacobian
        for j in range(X.size):
            share[j] += weight * z[j] * e[j]
            effect[j] += weight * (d[j] - complement if complement < 0.5 else phi - e[j])
            shared += weight * w[j] * z[j] * e[j]
        over = not from_alpha and k * remaining <= 1e-19 * shared
        if cs > 40.0 and (alpha_s > 45.0 or over):
            break
        u += STEP
    base = log_alpha if from_alpha else log_beta + scale + log_c
    return base + value


@njit(cache=True, nogil=True, error_model="numpy")
def weighted_log_sum_rows(
    start: int,
    stop: int,
    log_x: FloatArray,
    w: FloatArray,
    k: float,
    log_alpha: float,
    log_beta: float,
    value: FloatArray,
    share: FloatArray,
    effect: FloatArray,
) -> None:
    """Rows start..stop of N laws over M values, 1 ≤ k < ∞ draws.

    Args:
        log_x: (N, M) log X; (N, M) ``w``: probabilities, rows summing to one.
        k, log_alpha, log_beta: of log(α + β Σ X).
        value: (N,) filled with E log(α + β Σ X).
        share: (N, M) filled; w share is the derivative by log X.
        effect: (N, M) filled with the derivative by w, centered.
    """
    work = np.empty((4, log_x.shape[1]))
    for i in range(start, stop):
        value[i] = _row(log_x[i], w[i], k, log_alpha, log_beta, share[i], effect[i], work)
