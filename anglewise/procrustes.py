"""How well one embedding, or one similarity matrix, reproduces another.

Rotations are square: with fewer columns on one side that side is padded with zeros. A rectangular
"rotation" is a projection, which throws away what does not fit and so flatters.
"""

from __future__ import annotations

import numpy as np

from anglewise.errors import InvalidInput
from anglewise.sampling import FloatArray


def _pair(X: FloatArray, Y: FloatArray) -> tuple[FloatArray, FloatArray]:
    X, Y = np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)
    if X.ndim != 2 or Y.ndim != 2 or len(X) != len(Y) or len(X) == 0:
        raise InvalidInput(("target",), "must be a matrix with as many rows as the embedding")
    for name, Z in (("embedding", X), ("target", Y)):
        if not np.isfinite(Z).all():
            i, j = map(int, np.argwhere(~np.isfinite(Z))[0])
            raise InvalidInput((name, i, j), "must be finite")
    return X - X.mean(axis=0), Y - Y.mean(axis=0)


def nuclear_norm(M: FloatArray) -> float:
    """Sum of singular values."""
    return float(np.linalg.svd(M, compute_uv=False).sum())


def r2_from_norms(nuclear: float, measured: float, target: float) -> float | None:
    """1 - min_R ‖Y - XR‖²/‖Y‖² from ‖XᵀY‖_*, ‖X‖² and ‖Y‖² of centered X and Y; None when Y = 0.

    The best orthogonal R has tr(RᵀXᵀY) = ‖XᵀY‖_*, and ‖XR‖ = ‖X‖: R is square.
    """
    return None if target <= 0 else (2 * nuclear - measured) / target


def similarity_from_norms(nuclear: float, measured: float, target: float) -> float | None:
    """‖XᵀY‖_*/(‖X‖‖Y‖), in [0, 1]; None when either is zero."""
    if measured <= 0 or target <= 0:
        return None
    return float(min(1.0, nuclear / (np.sqrt(measured) * np.sqrt(target))))


def r2_procrustes(embedding: FloatArray, target: FloatArray) -> float | None:
    """1 - ‖Y - XR‖²/‖Y‖², X and Y centered, R the best rotation or reflection (Part C).

    1 for a perfect match; negative when X is worse than its own mean. Not scale invariant.
    None when all target rows are equal.

    Args:
        embedding: (n, d) X.
        target: (n, e) Y; d and e may differ.

    >>> square = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    >>> r2_procrustes(square, square[[1, 2, 3, 0]])
    1.0
    """
    X, Y = _pair(embedding, target)
    return r2_from_norms(nuclear_norm(X.T @ Y), float((X**2).sum()), float((Y**2).sum()))


def procrustes_similarity(embedding: FloatArray, target: FloatArray) -> float | None:
    """‖XᵀY‖_*/(‖X‖‖Y‖), X and Y centered: in [0, 1], unchanged by scale. None when either is constant."""
    X, Y = _pair(embedding, target)
    return similarity_from_norms(nuclear_norm(X.T @ Y), float((X**2).sum()), float((Y**2).sum()))


def r2_similarity(similarity: FloatArray, target: FloatArray) -> float | None:
    """1 - Σ_{i<j} (S_ij - S*_ij)² / Σ_{i<j} (S*_ij - mean)² (Part C). None when the target is constant.

    Args:
        similarity: (n, n) symmetric.
        target: (n, n) symmetric.
    """
    S, target = np.asarray(similarity, dtype=np.float64), np.asarray(target, dtype=np.float64)
    if S.ndim != 2 or S.shape[0] != S.shape[1] or S.shape != target.shape:
        raise InvalidInput(("target",), "must be square and of the shape of the similarity")
    upper = np.triu_indices(len(S), 1)
    s, t = S[upper], target[upper]
    if not (np.isfinite(s).all() and np.isfinite(t).all()):
        raise InvalidInput(("target",), "and the similarity must be finite")
    spread = float(((t - t.mean()) ** 2).sum()) if t.size else 0.0
    if spread <= 1e-24 * float((t**2).sum()):
        return None
    return 1 - float(((s - t) ** 2).sum()) / spread
