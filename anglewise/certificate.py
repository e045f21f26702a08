"""The proof that a Gram matrix is nearly optimal (A5, A6).

With G = (H + Hᵀ)/2 on classes, y_i = (GA)_ii and Z = G - Diag(y), convexity of S gives for every B in the
elliptope S(B) ≥ S(A) + ⟨Z, B⟩, hence for any weights w > 0

    S(A) - S* ≤ (Σ_i w_i) max(0, -λ_min(W^{-1/2} Z W^{-1/2})).

w = 1, w_i = √-y_i and, if need be, w_i = -y_i are tried and the smallest bound wins. Under imbalance the
last is the tightest away from the optimum, but y_i of a small class is a cancelling sum and its rounding
counts; the square root stands it.
On groups Z splits into a G × G matrix and, inside a group of n > 1 classes, the eigenvalue -G_gg - y_g on
directions that sum to zero.

Rounding: LAPACK's smallest eigenvalue is off by a few units in the last place of the largest one, which for
a nearly semidefinite matrix is at most the trace. Four units of the trace are added to the bound. That covers
the eigenvalue as observed, not in the worst case; errors of the gradient (4e-12 relative at most) are not
included.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg
from numba import njit

from anglewise.geometry import Certificate
from anglewise.losses import InfoNCE
from anglewise.risk import Risk
from anglewise.sampling import FloatArray, Groups

SMALL = 48
"""Up to this order numpy's full spectrum is faster than a subset of LAPACK's eigenvalues."""

EPS = float(np.finfo(np.float64).eps)
SMALLEST_RISK = 1e-12
TIGHT = 1e-9
"""The third bound is skipped when the first two are within this relative gap."""


def require_finite(M: FloatArray) -> None:
    """Raises LinAlgError unless every entry is finite."""
    if not math.isfinite(float(M.sum())):
        raise np.linalg.LinAlgError("a matrix is not finite")


def smallest_eigenvalue(M: FloatArray) -> float:
    """λ_min of a symmetric matrix.

    Raises:
        LinAlgError: an entry is not finite (LAPACK may then never return).
    """
    require_finite(M)
    if len(M) <= SMALL:
        return float(np.linalg.eigvalsh(M)[0])
    return float(
        scipy.linalg.eigh(
            M, eigvals_only=True, subset_by_index=[0, 0], check_finite=False, overwrite_a=False
        )[0]
    )


def gram_on_groups(groups: Groups, A: FloatArray) -> FloatArray:
    """(G, G) matrix with the eigenvalues of the C × C Gram matrix that are constant on groups."""
    n = groups.sizes.astype(np.float64)
    root = np.sqrt(n)
    M = root[:, None] * A * root
    np.fill_diagonal(M, 1.0 + (n - 1.0) * np.where(n > 1, np.diag(A), 0.0))
    return M


def min_gram_eigenvalue(groups: Groups, A: FloatArray) -> float:
    """λ_min of the C × C Gram matrix."""
    smallest = smallest_eigenvalue(gram_on_groups(groups, A))
    inside = (1.0 - np.diag(A))[groups.sizes > 1]
    return min(smallest, float(inside.min())) if inside.size else smallest


def make_feasible(groups: Groups, A: FloatArray) -> FloatArray:
    """(A + εI)/(1 + ε), ε the size of the most negative eigenvalue: positive semidefinite, unit diagonal."""
    A = np.clip((A + A.T) / 2.0, -1.0, 1.0)
    single = groups.sizes == 1
    A[single, single] = 1.0
    shift = max(0.0, -min_gram_eigenvalue(groups, A))
    if shift == 0.0:
        return A
    A = A / (1.0 + shift * (1.0 + 1e-10))
    A[single, single] = 1.0
    return A


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_dual(
    H: FloatArray, A: FloatArray, n: FloatArray, Z: FloatArray, inside: FloatArray, y: FloatArray
) -> None:
    G = n.size
    y[:] = 0.0
    for g in range(G):
        for h in range(g):
            pair = 0.5 * (H[g, h] + H[h, g])
            Z[g, h] = Z[h, g] = math.sqrt(n[g] * n[h]) * pair
            y[g] += n[h] * pair * A[g, h]
            y[h] += n[g] * pair * A[h, g]
    for g in range(G):
        y[g] += (n[g] - 1.0) * H[g, g] * A[g, g]
        Z[g, g] = (n[g] - 1.0) * H[g, g] - y[g]
        inside[g] = -H[g, g] - y[g] if n[g] > 1 else math.inf


def dual_on_groups(groups: Groups, H: FloatArray, A: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Z on groups (G, G), its eigenvalues inside groups (G,) (∞ for single classes), and y (G,)."""
    G = len(groups)
    Z, inside, y = np.empty((G, G)), np.empty(G), np.empty(G)
    _fill_dual(H, A, groups.sizes.astype(np.float64), Z, inside, y)
    return Z, inside, y


@njit(cache=True, nogil=True, error_model="numpy")
def _fill_scaled(
    Z: FloatArray, inside: FloatArray, w: FloatArray, n: FloatArray, scaled: FloatArray
) -> tuple[float, float, float]:
    """W^{-1/2} Z W^{-1/2}; returns its least eigenvalue inside groups, its absolute trace and Σ w."""
    least, trace, total = math.inf, 0.0, 0.0
    for g in range(w.size):
        for h in range(w.size):
            scaled[g, h] = Z[g, h] / math.sqrt(w[g]) / math.sqrt(w[h])
        total += n[g] * w[g]
        trace += abs(Z[g, g]) / w[g]
        if n[g] > 1:
            least = min(least, inside[g] / w[g])
            trace += (n[g] - 1.0) * abs(inside[g]) / w[g]
    return least, trace, total


def weighted_gap(groups: Groups, Z: FloatArray, inside: FloatArray, w: FloatArray) -> tuple[float, float]:
    """The bound for weights w, and λ_min(W^{-1/2} Z W^{-1/2})."""
    scaled = np.empty_like(Z)
    least, trace, total = _fill_scaled(Z, inside, w, groups.sizes.astype(np.float64), scaled)
    smallest = min(smallest_eigenvalue(scaled), least)
    return total * (max(0.0, -smallest) + 4.0 * EPS * trace), smallest


def dual_weights(y: FloatArray) -> FloatArray:
    """w_i = -y_i, kept positive."""
    return np.maximum(-y, max(1e-13 * float(np.abs(y).max()), 1e-300))


def relative(risk: Risk, value: float, gap: float) -> float:
    """gap / |risk|, or gap / max(|risk|, 1) where the risk may cross zero (α = 0)."""
    loss = risk.loss
    floor = 1.0 if isinstance(loss, InfoNCE) and loss.alpha == 0 else SMALLEST_RISK
    return gap / max(abs(value), floor)


def certify(
    risk: Risk, value: float, H: FloatArray, A: FloatArray, *, tolerance: float, proven: float = math.inf
) -> Certificate:
    """The certificate of a feasible A with risk ``value`` and gradient ``H`` (`Risk.value_and_gradient`).

    Args:
        proven: the bound for w = √-y, or a better one, where it is known for this A already.

    Returns:
        the smallest of the bounds for w = 1, √-y and -y, with λ_min of Z and of A on all classes.
    """
    groups = risk.groups
    least_gram = min_gram_eigenvalue(groups, A)
    if groups.classes == 1:
        return Certificate(0.0, 0.0, value, True, tolerance, 0.0, 1.0)
    Z, inside, y = dual_on_groups(groups, H, A)
    plain, least_dual = weighted_gap(groups, Z, inside, np.ones(len(groups)))
    w = dual_weights(y)
    root = proven if math.isfinite(proven) else weighted_gap(groups, Z, inside, np.sqrt(w))[0]
    gap = min(plain, root)
    if relative(risk, value, gap) > min(tolerance, TIGHT):
        gap = min(gap, weighted_gap(groups, Z, inside, w)[0])
    if not math.isfinite(gap):
        raise FloatingPointError("the certificate is not finite")
    relative_gap = relative(risk, value, gap)
    return Certificate(
        gap=gap,
        relative_gap=relative_gap,
        lower_bound=value - gap,
        certified=relative_gap <= tolerance,
        tolerance=tolerance,
        min_dual_eigenvalue=least_dual,
        min_gram_eigenvalue=least_gram,
    )
