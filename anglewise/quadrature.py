"""E log(α + β Σ_l X_{J_l}) over k independent draws J_l, and its derivatives, exactly for any k (A4).

With a = α/β, log z = ∫_0^∞ (e^{-s} - e^{-sz}) ds/s and φ(s) = Σ_j p_j e^{-s X_j},

    E log(a + Σ_l X_{J_l}) = log c + ∫_0^∞ (e^{-cs} - e^{-as} φ(s)^k) ds/s,   c = a + k Σ_j p_j X_j,
    share_j = k ∫_0^∞ s X_j e^{-s X_j} e^{-as} φ(s)^{k-1} ds/s,               ∂/∂log X_j = p_j share_j.

s = exp(u - e^{-u})/c makes the trapezoid rule in u converge double-exponentially at s → 0. When c < 4a
the integral of log(1 + Σ X/a) is taken instead, which does not cancel: risks of 1e-27 keep their
relative accuracy. Everything is scaled by the largest of a and the X_j, so nothing overflows.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from anglewise.sampling import FloatArray

STEP = 0.15
"""Trapezoid step in u: errors of 1e-14 in the value and at most 4e-12 in the gradient."""

LEFT_END = -3.7
MAX_NODES = 20_000
TABULATED = 128
"""Nodes that are computed once for all rows: most rows need no more."""
UNDERFLOW = -650.0
LARGEST = 1e304


@njit(cache=True, nogil=True, error_model="numpy")
def _scaled(
    log_x: FloatArray, p: FloatArray, own: float, log_a: float, X: FloatArray
) -> tuple[float, int, int]:
    """X = e^{log_x - scale} where p > 0; returns the scale and the places of the smallest and largest X."""
    scale = max(log_a, 0.0) if own > 0.0 else log_a
    smallest = largest = -1
    for b in range(log_x.size):
        if p[b] > 0.0:
            scale = max(scale, log_x[b])
            if smallest < 0 or log_x[b] < log_x[smallest]:
                smallest = b
            if largest < 0 or log_x[b] > log_x[largest]:
                largest = b
    for b in range(log_x.size):
        X[b] = math.exp(log_x[b] - scale) if p[b] > 0.0 else 0.0
    return scale, smallest, largest


@njit(cache=True, nogil=True, error_model="numpy")
def _place(number: int) -> tuple[float, float, float, float]:
    """A node in units of c: log cs, cs, e^{-cs} and the weight of the node."""
    u = LEFT_END + number * STEP
    shrink = math.exp(-u)
    cs = math.exp(min(u - shrink, 700.0))
    return u - shrink, cs, math.exp(-cs), (1.0 + shrink) * STEP


@njit(cache=True, nogil=True, error_model="numpy")
def _node(
    p: FloatArray, z: FloatArray, own: float, own_e: float, own_d: float, z_e: FloatArray
) -> tuple[float, float]:
    """log φ and φ at one node, without cancellation at either end; fills z e^{-z}."""
    phi = own * own_e
    one_minus_phi = own * own_d
    for b in range(z.size):
        if z[b] > 0.5:
            e = math.exp(-z[b])
            d = 1.0 - e
        else:
            d = -math.expm1(-z[b])
            e = 1.0 - d
        phi += p[b] * e
        one_minus_phi += p[b] * d
        z_e[b] = z[b] * e
    if one_minus_phi < 0.5:
        return math.log1p(-one_minus_phi), 1.0 - one_minus_phi
    phi = max(phi, 1e-308)
    return math.log(phi), phi


@njit(cache=True, nogil=True, error_model="numpy")
def _term(
    from_alpha: bool, cs: float, alpha_s: float, log_phi_k: float, all_gone: float
) -> tuple[float, float]:
    """The integrand of the value in u, and e^{-as} φ^k; ``all_gone`` is e^{-cs}."""
    if not from_alpha:
        remaining = math.exp(log_phi_k - alpha_s)
        if cs - alpha_s + log_phi_k < 0.1:
            return -math.expm1(cs - alpha_s + log_phi_k) * all_gone, remaining
        return all_gone - remaining, remaining
    decay = math.exp(-alpha_s)
    if log_phi_k > -0.5:
        drawn = -math.expm1(log_phi_k)
        return drawn * decay, (1.0 - drawn) * decay
    remaining = math.exp(log_phi_k - alpha_s)
    return decay - remaining, remaining


@njit(cache=True, nogil=True, error_model="numpy")
def _log_sum_row(
    log_x: FloatArray,
    p: FloatArray,
    own: float,
    k: float,
    log_alpha: float,
    log_beta: float,
    places: FloatArray,
    share: FloatArray,
    work: FloatArray,
) -> tuple[float, float]:
    """One anchor: E log(α + β Σ X) and E[(share of α and of collisions)²]; fills share."""
    X, z, z_e = work[0], work[1], work[2]
    scale, smallest, largest = _scaled(log_x, p, own, log_alpha - log_beta, X)
    log_a = log_alpha - log_beta - scale
    a = math.exp(log_a)
    own_x = math.exp(-scale) if own > 0.0 else 0.0
    m = own * own_x
    for b in range(X.size):
        m += p[b] * X[b]
    c = a + k * m
    log_c = math.log(c)
    from_alpha = c < 4.0 * a
    # The smallest X underflows and no α hides it: z = sX is then formed in logarithms.
    wide = log_x[smallest] - scale < UNDERFLOW and log_a < UNDERFLOW / 2
    share[:] = 0.0
    value = second = own_z = own_e = own_d = 0.0
    for number in range(MAX_NODES):
        if number < TABULATED:
            log_cs, cs = places[number, 0], places[number, 1]
            all_gone, jacobian = places[number, 2], places[number, 3]
        else:
            log_cs, cs, all_gone, jacobian = _place(number)
        s = min(cs / c, LARGEST)
        alpha_s = a / c * cs
        if own > 0.0:
            own_z = s * own_x
            own_e, own_d = math.exp(-own_z), -math.expm1(-own_z)
        for b in range(X.size):
            z[b] = s * X[b]
        if wide:
            for b in range(X.size):
                z[b] = math.exp(min(log_cs - log_c + log_x[b] - scale, 700.0)) if p[b] > 0.0 else 0.0
        log_phi, phi = _node(p, z, own, own_e, own_d, z_e)
        term, remaining = _term(from_alpha, cs, alpha_s, k * log_phi, all_gone)
        value += term * jacobian
        # e^{-as} φ^{k-1}, from φ^k unless that underflows.
        others = remaining / phi if remaining > 1e-250 else math.exp((k - 1.0) * log_phi - alpha_s)
        weight = k * others
        for b in range(X.size):
            share[b] += weight * jacobian * z_e[b]
        own_draw = own * own_z * own_e
        two_draws = (k - 1.0) * weight / phi * own_draw * own_draw
        second += jacobian * (
            alpha_s * alpha_s * remaining + (2.0 * alpha_s + own_z) * weight * own_draw + two_draws
        )
        if cs > 40.0:
            # What is left of share_b is at most weight e^{-z_b}; of the value, e^{-as} φ^k per unit of u.
            shares_done = (
                weight * math.exp(-z[smallest]) <= 1e-17 * share[smallest] or weight <= 1e-22 * share[largest]
            )
            value_done = alpha_s > 40.0 if from_alpha else (remaining < 1e-20 or z[smallest] > 45.0)
            if shares_done and value_done:
                break
    base = log_alpha if from_alpha else log_beta + scale + log_c
    return base + value, second


@njit(cache=True, nogil=True, error_model="numpy")
def log_sum_rows(
    start: int,
    stop: int,
    log_x: FloatArray,
    p: FloatArray,
    own: FloatArray,
    k: float,
    log_alpha: float,
    log_beta: float,
    value: FloatArray,
    share: FloatArray,
    second: FloatArray,
) -> None:
    """Rows start..stop, 2 ≤ k < ∞ draws.

    Args:
        log_x: (G, G) log X_gh.
        p: (G, G) probability that one draw gives X_gh; (G,) ``own``: that it gives 1.
        k, log_alpha, log_beta: of log(α + β Σ X).
        value: (G,) filled with E log(α + β Σ X).
        share: (G, G) filled with share_gh (0 where p is 0).
        second: (G,) filled with E w², w the share of α and of collisions in the sum.
    """
    work, places = np.empty((3, log_x.shape[1])), np.empty((TABULATED, 4))
    for number in range(TABULATED):
        places[number] = _place(number)
    for g in range(start, stop):
        value[g], second[g] = _log_sum_row(
            log_x[g], p[g], own[g], k, log_alpha, log_beta, places, share[g], work
        )


@njit(cache=True, nogil=True, error_model="numpy")
def _log_add(log_x: float, log_y: float) -> tuple[float, float, float]:
    """log(x + y) and the shares of x and y in the sum."""
    ratio = math.exp(-abs(log_x - log_y))
    large, small = 1.0 / (1.0 + ratio), ratio / (1.0 + ratio)
    total = max(log_x, log_y) + math.log1p(ratio)
    return (total, large, small) if log_x > log_y else (total, small, large)


@njit(cache=True, nogil=True, error_model="numpy")
def single_draw_rows(
    start: int,
    stop: int,
    log_x: FloatArray,
    p: FloatArray,
    own: FloatArray,
    log_alpha: float,
    log_beta: float,
    value: FloatArray,
    share: FloatArray,
    second: FloatArray,
) -> None:
    """As `log_sum_rows` for one draw, in closed form."""
    for g in range(start, stop):
        value[g] = second[g] = 0.0
        if own[g] > 0.0:
            total, _, _ = _log_add(log_alpha, log_beta)
            value[g] += own[g] * total
            second[g] += own[g]
        for b in range(log_x.shape[1]):
            share[g, b] = 0.0
            if p[g, b] > 0.0:
                total, constant, variable = _log_add(log_alpha, log_beta + log_x[g, b])
                value[g] += p[g, b] * total
                share[g, b] = variable
                second[g] += p[g, b] * constant * constant
