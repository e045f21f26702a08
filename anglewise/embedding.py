"""Coordinates from positive semidefinite matrices, z_i · z_j = K_ij, or from squared distances."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit
from scipy.linalg import blas, eigh, lapack

from anglewise.sampling import FloatArray

GOOD_RESIDUAL = 1e-10
"""Pivoted Cholesky is kept when its residual is within this, relative to the largest entry of K."""


def from_cosines(K: FloatArray, rank: int) -> tuple[FloatArray, float]:
    """Unit rows Z (n, rank) with Z Zᵀ ≈ K and the residual max |Z Zᵀ - K|; K_ii = 1."""

    def finished(Z: FloatArray) -> tuple[FloatArray, float]:
        norms = np.linalg.norm(Z, axis=1)
        Z = Z / np.where(norms > 0, norms, 1.0)[:, None]
        return Z, float(_gram_residual(_gram(Z), K))

    return _best_factor(K, rank, 1.0, finished)


def from_squared_distances(D: FloatArray, rank: int) -> tuple[FloatArray, float]:
    """Centered rows Z (n, rank) with ‖z_i - z_j‖² ≈ D_ij and the largest deviation.

    The Gram matrix is taken around the most central item. Around the mean it would have the kernel
    1/√n, which pivoted Cholesky can only drop at an n-fold loss of accuracy.
    """
    if rank == 0:
        return np.zeros((len(D), 0)), float(np.abs(D).max())
    origin = D[int(D.sum(axis=1).argmin())]
    K = 0.5 * (origin[:, None] + origin[None, :] - D)

    def finished(Z: FloatArray) -> tuple[FloatArray, float]:
        Z = Z - Z.mean(axis=0)
        return Z, float(_distance_residual(_gram(Z), D))

    return _best_factor(K, rank, float(np.abs(D).max()), finished)


def _best_factor(
    K: FloatArray, rank: int, scale: float, finished: Callable[[FloatArray], tuple[FloatArray, float]]
) -> tuple[FloatArray, float]:
    """Pivoted Cholesky [Higham2002, section 10.3]; an eigendecomposition where that is not accurate."""
    n = len(K)
    c, pivots, found, _ = lapack.dpstrf(K, lower=1, tol=0.0)
    Z = np.zeros((n, rank))
    Z[pivots - 1] = np.tril(c[:, :rank])
    Z, residual = finished(Z)
    if found >= rank and residual <= GOOD_RESIDUAL * scale:
        return Z, residual
    w, U = eigh(K, subset_by_index=[n - rank, n - 1])
    spectral = finished(U * np.sqrt(np.maximum(w, 0.0)))
    return spectral if spectral[1] < residual else (Z, residual)


def _gram(Z: FloatArray) -> FloatArray:
    """Z Zᵀ, lower triangle only."""
    return np.asarray(blas.dsyrk(1.0, Z.T, trans=1).T)


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
    return np.asarray(M - row[None, :] - row[:, None] + row.mean())
