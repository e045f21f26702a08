"""Laplacians of masses between rows that stand for several equal items."""

from __future__ import annotations

import numpy as np

from anglewise.sampling import FloatArray


def laplacian_between(A: FloatArray, counts: FloatArray) -> FloatArray:
    """Laplacian of symmetric masses A (m, m) on orthonormal row vectors; its kernel is √counts."""
    off = A / np.sqrt(np.outer(counts, counts))
    np.fill_diagonal(off, 0.0)
    degree = (A.sum(axis=1) - np.diag(A)) / counts
    return np.asarray(np.diag(degree) - off, dtype=np.float64)


def without_kernel(L: FloatArray, counts: FloatArray) -> FloatArray:
    """L with the eigenvalue 0 of √counts moved to the top."""
    v = np.sqrt(counts / counts.sum())
    return np.asarray(L + (np.abs(L).max() * len(L)) * np.outer(v, v), dtype=np.float64)
