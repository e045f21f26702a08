"""The linear risk: InfoNCE with α = 0 and one negative is a MaxCut-type semidefinite program in A.

    min ⟨G, A⟩ over the elliptope;   dual: max Σ_i y_i with Z = G - Diag(y) ⪰ 0.

An interior-point method in the dual variables y alone (one per group; HKM direction): each step factors two
G × G matrices. The minimizer need not be unique; the analytic center of the optimal face is approached.
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt
import scipy.linalg

from anglewise.losses import InfoNCE, Loss
from anglewise.risk import Risk
from anglewise.sampling import FloatArray

BoolArray = npt.NDArray[np.bool_]
MAX_STEPS = 80
CENTERING = 0.1
TO_BOUNDARY = 0.95
FINAL_STEPS = 4


def is_linear(loss: Loss) -> bool:
    """Whether the risk is linear in the Gram matrix."""
    return isinstance(loss, InfoNCE) and loss.alpha == 0 and loss.negatives == 1


class _SplitMatrix:
    """A symmetric C × C matrix constant on groups: a G × G block and eigenvalues inside groups."""

    def __init__(self, block: FloatArray, inside: FloatArray) -> None:
        self.block, self.inside = block, inside

    def longest_step(self, direction: _SplitMatrix, several: BoolArray) -> float:
        """The largest t ≤ 1 that keeps the matrix positive definite, shortened by `TO_BOUNDARY`."""
        L = np.linalg.cholesky(self.block)
        half = scipy.linalg.solve_triangular(L, direction.block, lower=True)
        scaled = scipy.linalg.solve_triangular(L, half.T, lower=True)
        least = float(np.linalg.eigvalsh(0.5 * (scaled + scaled.T))[0])
        if several.any():
            least = min(least, float((direction.inside[several] / self.inside[several]).min()))
        return 1.0 if least >= -TO_BOUNDARY else TO_BOUNDARY / -least


def minimize_linear(risk: Risk, *, gap: float, deadline: float) -> tuple[FloatArray, int]:
    """A Gram matrix whose duality gap is about ``gap``, and the steps it took.

    Args:
        risk: a risk that `is_linear`.
        gap: in units of the risk.
        deadline: `time.monotonic` seconds.
    """
    groups = risk.groups
    n = groups.sizes.astype(np.float64)
    G, C = len(n), groups.classes
    several = n > 1
    _, H = risk.value_and_gradient(np.eye(G))
    Gs = 0.5 * (H + H.T)
    root = np.sqrt(n)
    cost = root[:, None] * Gs * root
    np.fill_diagonal(cost, (n - 1.0) * np.diag(Gs))
    inner = np.diag(Gs)
    # Diagonally dominant start.
    y = -1.1 * (np.abs(Gs) @ n) - 1e-12 * float(np.abs(Gs).max())
    X = _SplitMatrix(np.eye(G), np.ones(G))
    centered = 0
    steps = 0
    while steps < MAX_STEPS:
        steps += 1
        Z = _SplitMatrix(cost - np.diag(y), np.where(several, -inner - y, 1.0))
        # ⟨Z, X⟩; the primal is feasible throughout, so this is the duality gap.
        distance = float((Z.block * X.block).sum() + ((n - 1.0) * Z.inside * X.inside).sum())
        if time.monotonic() > deadline or centered >= FINAL_STEPS:
            break
        # The certificate reads y off A, so the last steps return to the central path, XZ = μI.
        centered += distance <= gap
        mu = (1.0 if centered else CENTERING) * distance / C
        inverse = np.linalg.inv(Z.block)
        inverse = 0.5 * (inverse + inverse.T)
        schur = X.block * inverse + np.diag((n - 1.0) * X.inside / Z.inside)
        dy = np.linalg.solve(schur, n - mu * (np.diag(inverse) + (n - 1.0) / Z.inside))
        change = X.block @ (dy[:, None] * inverse)
        dX = _SplitMatrix(
            mu * inverse - X.block + 0.5 * (change + change.T),
            np.asarray(np.where(several, (mu + X.inside * dy) / Z.inside - X.inside, 0.0), dtype=np.float64),
        )
        dZ = _SplitMatrix(np.diag(-dy), -dy)
        X_step, y_step = X.longest_step(dX, several), Z.longest_step(dZ, several)
        X = _SplitMatrix(X.block + X_step * dX.block, X.inside + X_step * dX.inside)
        y = y + y_step * dy
    return _gram(n, X), steps


def _gram(n: FloatArray, X: _SplitMatrix) -> FloatArray:
    """The group Gram matrix of X, its diagonal restored to 1 exactly."""
    root = np.sqrt(n)
    unit = (np.diag(X.block) + (n - 1.0) * X.inside) / n
    scale = 1.0 / np.sqrt(unit)
    A = scale[:, None] * (X.block / root[:, None] / root) * scale
    inside = scale * scale * X.inside
    np.fill_diagonal(A, np.where(n > 1, 1.0 - inside, 1.0))
    return np.asarray(A, dtype=np.float64)
