"""Coordinates from a positive semidefinite matrix: rows z_i with z_i · z_j = K_ij."""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy.linalg import blas, eigh, lapack

from anglewise.sampling import FloatArray

GOOD_RESIDUAL = 1e-11
"""Pivoted Cholesky is kept when its residual is within this, relative to the largest entry of K."""


def factor(
    K: FloatArray, rank: int, *, unit: bool = False, D: FloatArray | None = None
) -> tuple[FloatArray, float]:
    """Z (n, rank) with Z Zᵀ ≈ K and the residual max |Z Zᵀ - K|, or of squared distances from D if given.

    K (n, n) is positive semidefinite of numerical rank ``rank``; with ``unit`` its diagonal is 1 and the
    rows of Z get length 1. Pivoted Cholesky [Higham2002, section 10.3]; an eigendecomposition where
    dropping the rest of the spectrum costs the Cholesky factor its accuracy.
    """
    n = len(K)
    if rank == 0:
        return np.zeros((n, 0)), float(np.abs(K if D is None else D).max())
    c, pivots, found, _ = lapack.dpstrf(K, lower=1, tol=0.0)
    Z = np.zeros((n, rank))
    Z[pivots - 1] = np.tril(c[:, :rank])
    Z, residual = _finished(Z, K, unit, D)
    if found >= rank and residual <= GOOD_RESIDUAL * float(np.abs(np.diag(K)).max()):
        return Z, residual
    w, U = eigh(K, subset_by_index=[n - rank, n - 1])
    spectral = _finished(U * np.sqrt(np.maximum(w, 0.0)), K, unit, D)
    return spectral if spectral[1] < residual else (Z, residual)


def _finished(Z: FloatArray, K: FloatArray, unit: bool, D: FloatArray | None) -> tuple[FloatArray, float]:
    if unit:
        norms = np.linalg.norm(Z, axis=1)
        Z = Z / np.where(norms > 0, norms, 1.0)[:, None]
    gram = blas.dsyrk(1.0, Z.T, trans=1).T
    return Z, float(_gram_residual(gram, K) if D is None else _distance_residual(gram, D))


@njit(cache=True, nogil=True)
def _gram_residual(gram: FloatArray, K: FloatArray) -> float:
    """max |gram_ij - K_ij| over j ≤ i."""
    worst = 0.0
    for i in range(len(K)):
        for j in range(i + 1):
            worst = max(worst, abs(gram[i, j] - K[i, j]))
    return worst


@njit(cache=True, nogil=True)
def _distance_residual(gram: FloatArray, D: FloatArray) -> float:
    """max |gram_ii + gram_jj - 2 gram_ij - D_ij| over j < i."""
    worst = 0.0
    for i in range(len(D)):
        for j in range(i):
            worst = max(worst, abs(gram[i, i] + gram[j, j] - 2 * gram[i, j] - D[i, j]))
    return worst


def centered(M: FloatArray) -> FloatArray:
    """J M J with J = I - 11ᵀ/n."""
    row = M.mean(axis=0)
    K = M - row[None, :]
    K -= row[:, None]
    K += row.mean()
    return np.asarray(K)
