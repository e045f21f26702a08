"""The largest temperature at which given weights are realizable on the sphere.

*Self pairs included.* Let B_ij = log(w_ii/w_ij), read as squared distances. K(T) = 11ᵀ - T B is positive
semidefinite iff B is a Euclidean distance matrix, 1 ∈ range(B) and T ≤ 1ᵀB⁺1 = 1/(2R²), R the circumradius.
From K at one T: K(τ) ⪰ 0 iff K + (T/τ - 1) 11ᵀ ⪰ 0, and 11ᵀ only changes the first entry of tri(t, b), so the
Schur complement of the trailing block T1 decides: t0 + n (T/τ - 1) ≥ b0² [T1⁺]_11.

*Self pairs excluded.* The largest λ_min over offsets is 1 + T λ*, λ* ≤ 0 independent of T: T_max = -1/λ*.

(Derived for this library.)
"""

from __future__ import annotations

import numpy as np

from anglewise.tridiagonal import Tridiagonal, spectral_measure
from anglewise.verdict import LargestTemperature

EPS = float(np.finfo(np.float64).eps)


def largest_with_self_pairs(
    K: Tridiagonal, T: float, tolerance: float, allowance: float
) -> LargestTemperature:
    """T_max from K = 11ᵀ + M at temperature T; ``allowance`` is the absolute eigenvalue tolerance.

    0 where the weights are realizable at no temperature, "unbounded" where they are constant to within
    the relative tolerance.
    """
    n = len(K)
    if n == 1:
        return "unbounded"
    values, first = spectral_measure(K.trailing())
    scale = max(abs(float(values.max())), abs(float(values.min())), float(np.abs(K.t).max()))
    if values.min() < -allowance:
        return 0.0
    b0 = float(K.b[0]) ** 2
    # What the smallest eigenvalue of a semidefinite matrix shows below zero is the noise of all of them.
    noise = max(16 * EPS * n * scale, -float(values.min()))
    null = values <= 2 * noise
    if b0 * first[null].sum() > 1e-8 * 2 * noise * scale:
        return 0.0  # 1 is not in the range of B
    schur = b0 * float((first[~null] / values[~null]).sum())
    inverse = 1 + (schur - float(K.t[0])) / n  # T / T_max
    return "unbounded" if inverse <= tolerance else T / inverse


def largest_without_self_pairs(peak: float, T: float, tolerance: float) -> LargestTemperature:
    """T_max from max over offsets of λ_min(I + M + κ(11ᵀ - I)) at temperature T."""
    return "unbounded" if 1 - peak <= tolerance else T / (1 - peak)
