"""The feasible offsets of the cosine metric with self pairs excluded, from a secular equation.

The candidates are G(κ) = I + M + κ (11ᵀ - I). With P = I + M = Z tri(t, b) Zᵀ (see `tridiagonal`), T1 its
trailing block, μ = λ_min(T1) and S(ρ) = b0² [(T1 - ρ)⁻¹]_11,

    κ = h(ρ) = (ρ - t0 + S(ρ)) / n,     λ_min(G(κ)) = ρ - h(ρ),     ρ ≤ μ,

h convex and increasing. So λ_min is concave in κ; its maximum is where S'(ρ) = n - 1, or at μ. The feasible
κ form an interval whose ends are the roots of ρ = h(ρ), the upper one at most μ. At the lower end the
kernel of G is one-dimensional; inside, G is positive definite. (Derived for this library.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numba import njit

from anglewise.sampling import FloatArray
from anglewise.tridiagonal import Tridiagonal

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, eq=False)
class OffsetCurve:
    """λ_min(G(κ)) as a function of κ, for P with n ≥ 2.

    Attributes:
        P: I + M in tridiagonal form.
        mu: smallest eigenvalue of its trailing block.
        peak: ρ* at which λ_min is largest.
    """

    P: Tridiagonal
    mu: float
    peak: float

    def offset(self, rho: float) -> float:
        """κ = h(ρ)."""
        return (rho - float(self.P.t[0]) + _resolvent(self.P.t, self.P.b, rho)[0]) / len(self.P)

    def smallest(self, rho: float) -> float:
        """λ_min(G(h(ρ)))."""
        return rho - self.offset(rho)

    def ends(self) -> tuple[float, float]:
        """The feasible interval of κ; needs smallest(peak) ≥ 0."""
        t0, n = float(self.P.t[0]), len(self.P)
        below = min(self.peak, -t0 / (n - 1)) - 1.0  # S ≥ 0: the lower root lies above -t0/(n-1)
        lower = -_last_true(lambda r: self.smallest(-r) >= 0, -self.peak, -below)
        upper = _last_true(lambda r: self.smallest(r) >= 0, self.peak, self.mu)
        if self.mu - upper <= 4 * EPS * max(1.0, abs(self.mu)):
            upper = self.mu
        return lower, upper

    def refuting_vector(self) -> FloatArray:
        """Unit x in the tridiagonal basis with (1ᵀx)² = xᵀx and xᵀG(κ)x = λ_min at the peak, for every κ.

        y = (1, -b0 (T1 - ρ)⁻¹ e1) solves G(κ) y = ρ y; its slope in κ vanishes iff yᵀy = n. At a corner
        (ρ* = μ) the missing length comes from the eigenvector of T1 at μ, which has slope -yᵀy.
        """
        n = len(self.P)
        y = np.concatenate([[1.0], _solution(self.P.t, self.P.b, self.peak)])
        z = np.concatenate([[0.0], self.P.trailing().eigenvector(0)])
        z = math.copysign(1.0, float(y @ z)) * z
        yz, missing = float(y @ z), max(0.0, n - float(y @ y))
        if missing > 0:
            y = y + missing / (math.sqrt(yz * yz + missing) + yz) * z
        return np.asarray(y / np.linalg.norm(y))


def offset_curve(P: Tridiagonal) -> OffsetCurve:
    """Finds the peak of λ_min."""
    n = len(P)
    mu = P.trailing().eigenvalue(0)
    back = 4 * EPS * max(float(np.abs(P.t).max()), float(np.abs(P.b).max()), 1e-300)
    low = mu - abs(float(P.b[0])) / math.sqrt(n - 1)  # S' ≤ n - 1 there
    while not _resolvent(P.t, P.b, low)[1] <= n - 1:
        low -= back
        back *= 2
    peak = _last_true(lambda rho: _resolvent(P.t, P.b, rho)[1] <= n - 1, low, mu)
    return OffsetCurve(P, mu, peak)


def _last_true(holds: Callable[[float], bool], low: float, high: float) -> float:
    """The largest point of [low, high] at which ``holds``, true at low and monotone, is true."""
    for _ in range(200):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _resolvent(t: FloatArray, b: FloatArray, rho: float) -> tuple[float, float]:
    """S(ρ) and S'(ρ); (inf, inf) unless T1 - ρ is positive definite. The LDLᵀ from the far end."""
    n = len(t)
    d, slope = t[n - 1] - rho, -1.0
    if d <= 0:
        return np.inf, np.inf
    for k in range(n - 2, 0, -1):
        q = b[k] / d
        d, slope = t[k] - rho - b[k] * q, -1.0 + q * q * slope
        if d <= 0:
            return np.inf, np.inf
    s = b[0] * b[0] / d
    return s, -s / d * slope


@njit(cache=True, nogil=True)
def _solution(t: FloatArray, b: FloatArray, rho: float) -> FloatArray:
    """-(T1 - ρ)⁻¹ b0 e1, T1 - ρ positive definite."""
    n = len(t)
    d = np.empty(n)
    d[n - 1] = t[n - 1] - rho
    for k in range(n - 2, 0, -1):
        q = b[k] / d[k + 1]  # the very operations of `_resolvent`, which found all pivots positive
        d[k] = t[k] - rho - b[k] * q
    y = np.empty(n - 1)
    y[0] = -b[0] / d[1]
    for k in range(1, n - 1):
        y[k] = -b[k] / d[k + 1] * y[k - 1]
    return y
