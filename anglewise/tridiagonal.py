"""One tridiagonalization that serves every offset.

A symmetric M is reduced to M = Z tri(t, b) Zᵀ with Z e1 = u, u = 1/√n. The matrices 11ᵀ and I keep
their form in this basis, 11ᵀ = Z (n e1 e1ᵀ) Zᵀ, so every M + α I + β 11ᵀ is tridiagonal too, and the
trailing block T1 of tri(t, b) is M restricted to the complement of 1. Reached by the reflector that takes
e1 to u, followed by LAPACK's `dsytrd` (lower), which keeps e1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit
from scipy.linalg import LinAlgError, eigh_tridiagonal, eigvalsh_tridiagonal, lapack

from anglewise.sampling import FloatArray


@dataclass(frozen=True, eq=False)
class Tridiagonal:
    """tri(t, b) and, optionally, the orthogonal Z that lifts its vectors.

    Attributes:
        t: (n,) diagonal.
        b: (n - 1,) off-diagonal.
        reflectors: (n, n) reflector k in row k, from column k + 1 on; None without Z.
        tau: (n - 1,) their factors.
    """

    t: FloatArray
    b: FloatArray
    reflectors: FloatArray | None = None
    tau: FloatArray | None = None

    def __len__(self) -> int:
        return len(self.t)

    def plus(self, identity: float = 0.0, ones: float = 0.0) -> Tridiagonal:
        """M + identity · I + ones · 11ᵀ."""
        t = self.t + identity
        t[0] += ones * len(t)
        return Tridiagonal(t, self.b, self.reflectors, self.tau)

    def times(self, factor: float) -> Tridiagonal:
        """factor · M."""
        return Tridiagonal(factor * self.t, factor * self.b, self.reflectors, self.tau)

    def trailing(self) -> Tridiagonal:
        """T1, the restriction to the complement of 1."""
        return Tridiagonal(self.t[1:], self.b[1:])

    def eigenvalue(self, k: int) -> float:
        """The k-th smallest, k = 0 .. n - 1; negative k counts from the largest."""
        k %= len(self.t)
        if len(self.t) == 1:
            return float(self.t[0])
        try:
            return float(eigvalsh_tridiagonal(self.t, self.b, select="i", select_range=(k, k))[0])
        except LinAlgError:  # bisection may lose count of eigenvalues that agree to rounding
            return float(eigvalsh_tridiagonal(self.t, self.b)[k])

    def eigenvector(self, k: int) -> FloatArray:
        """(n,) unit eigenvector of the k-th smallest eigenvalue, in the tridiagonal basis."""
        if len(self.t) == 1:
            return np.ones(1)
        try:
            return np.asarray(eigh_tridiagonal(self.t, self.b, select="i", select_range=(k, k))[1][:, 0])
        except LinAlgError:
            return np.asarray(eigh_tridiagonal(self.t, self.b)[1][:, k])

    def count_above(self, x: float) -> int:
        """How many eigenvalues exceed x."""
        return len(self.t) - int(_count_below(self.t, self.b, x))

    def lift(self, y: FloatArray) -> FloatArray:
        """Z y."""
        x = np.array(y, dtype=np.float64)
        if self.reflectors is not None and self.tau is not None:
            _apply_reflectors(self.reflectors, self.tau, x)
            v = _to_ones(len(x))
            x -= 2 * (v @ x) * v
        return x


def tridiagonalize(M: FloatArray) -> Tridiagonal:
    """Reduces a symmetric M (n, n), n ≥ 1, which is left as it was."""
    n = len(M)
    if n == 1:
        return Tridiagonal(np.array([M[0, 0]]), np.zeros(0))
    v = _to_ones(n)
    Mv = M @ v
    A = np.empty((n, n))
    _reflected(M, v, Mv - (v @ Mv) * v, A)
    lwork = int(lapack.dsytrd_lwork(n, lower=1)[0])
    c, t, b, tau, _ = lapack.dsytrd(A.T, lower=1, lwork=lwork, overwrite_a=1)
    return Tridiagonal(t, b, c.T, tau)


def _to_ones(n: int) -> FloatArray:
    """Unit v with (I - 2vvᵀ) e1 = 1/√n, or v = 0 for n = 1."""
    v = np.full(n, 1 / np.sqrt(n))
    v[0] -= 1
    norm = float(np.linalg.norm(v))
    return v / norm if norm > 0 else v


@njit(cache=True, nogil=True)
def _reflected(M: FloatArray, v: FloatArray, w: FloatArray, A: FloatArray) -> None:
    """A = M - 2vwᵀ - 2wvᵀ, which is (I - 2vvᵀ) M (I - 2vvᵀ) for w = Mv - (vᵀMv) v."""
    for i in range(len(M)):
        vi, wi = 2 * v[i], 2 * w[i]
        for j in range(len(M)):
            A[i, j] = M[i, j] - vi * w[j] - wi * v[j]


@njit(cache=True, nogil=True)
def _apply_reflectors(rows: FloatArray, tau: FloatArray, x: FloatArray) -> None:
    n = len(x)
    for k in range(n - 2, -1, -1):
        dot = x[k + 1]
        for j in range(k + 2, n):
            dot += rows[k, j] * x[j]
        dot *= tau[k]
        x[k + 1] -= dot
        for j in range(k + 2, n):
            x[j] -= dot * rows[k, j]


@njit(cache=True, nogil=True)
def _count_below(t: FloatArray, b: FloatArray, x: float) -> int:
    """Eigenvalues below or at x: negative pivots of the LDLᵀ of tri - x (Sylvester)."""
    tiny = 1e-300
    count, d = 0, 1.0
    for k in range(len(t)):
        d = t[k] - x - (b[k - 1] * (b[k - 1] / d) if k > 0 else 0.0)
        if abs(d) < tiny:
            d = -tiny
        if d < 0:
            count += 1
    return count


def spectral_measure(tri: Tridiagonal) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues (n,) and squared first components (n,) of the unit eigenvectors.

    The implicit QL iteration applied to e1 alone, O(n²): the nodes and weights of a Gauss quadrature
    [GolubWelsch1969].
    """
    t, b = tri.t.copy(), np.append(tri.b, 0.0)
    z = np.zeros(len(t))
    z[0] = 1.0
    _implicit_ql(t, b, z)
    return t, z * z


@njit(cache=True, nogil=True)
def _implicit_ql(d: FloatArray, e: FloatArray, z: FloatArray) -> None:
    n = len(d)
    eps = 2.2e-16
    for l in range(n):  # noqa: E741
        for _ in range(60):
            m = l
            while m < n - 1 and abs(e[m]) > eps * (abs(d[m]) + abs(d[m + 1])):
                m += 1
            if m == l:
                break
            g = (d[l + 1] - d[l]) / (2 * e[l])
            r = math.sqrt(g * g + 1.0)
            g = d[m] - d[l] + e[l] / (g + (r if g >= 0 else -r))
            s, c, p = 1.0, 1.0, 0.0
            underflow = False
            for i in range(m - 1, l - 1, -1):
                f, h = s * e[i], c * e[i]
                r = math.sqrt(f * f + g * g)
                e[i + 1] = r
                if r == 0.0:  # deflation on the way
                    d[i + 1] -= p
                    e[m] = 0.0
                    underflow = True
                    break
                s, c = f / r, g / r
                g = d[i + 1] - p
                r = (d[i] - g) * s + 2 * c * h
                p = s * r
                d[i + 1] = g + p
                g = c * r - h
                f = z[i + 1]
                z[i + 1] = s * z[i] + c * f
                z[i] = c * z[i] - s * f
            if underflow:
                continue
            d[l] -= p
            e[l] = g
            e[m] = 0.0
