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

from anglewise.certificate import smallest_eigenvalue
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
        least = smallest_eigenvalue(0.5 * (scaled + scaled.T))
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
    # Z nearly a multiple of the identity: near the central path, for any imbalance.
    y = np.full(G, -2.0 * float((np.abs(Gs) @ n).max()))
    X = _SplitMatrix(np.eye(G), np.ones(G))
    centered, shortest = 0, 1.0
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
        # A short last step means that the iterate has left the central path: return to it first.
        mu = (1.0 if centered else 1.0 - (1.0 - CENTERING) * shortest) * distance / C
        inverse = _inverse(Z.block)
        schur = X.block * inverse + np.diag((n - 1.0) * X.inside / Z.inside)
        dy = scipy.linalg.solve(schur, n - mu * (np.diag(inverse) + (n - 1.0) / Z.inside), assume_a="pos")
        change = X.block @ (dy[:, None] * inverse)
        inside: FloatArray = np.where(several, (mu + X.inside * dy) / Z.inside - X.inside, 0.0)
        dX = _SplitMatrix(mu * inverse - X.block + 0.5 * (change + change.T), inside)
        dZ = _SplitMatrix(np.diag(-dy), -dy)
        X_step, y_step = X.longest_step(dX, several), Z.longest_step(dZ, several)
        X = _SplitMatrix(X.block + X_step * dX.block, X.inside + X_step * dX.inside)
        y = y + y_step * dy
        shortest = min(X_step, y_step)
    return _gram(n, X), steps


def _inverse(M: FloatArray) -> FloatArray:
    """M⁻¹ by Cholesky, whose accuracy does not suffer from badly scaled rows."""
    L = np.linalg.cholesky(M)
    half = scipy.linalg.solve_triangular(L, np.eye(len(M)), lower=True)
    return np.asarray(half.T @ half, dtype=np.float64)


def _gram(n: FloatArray, X: _SplitMatrix) -> FloatArray:
    """The group Gram matrix of X, its diagonal restored to 1 exactly."""
    root = np.sqrt(n)
    unit = (np.diag(X.block) + (n - 1.0) * X.inside) / n
    scale = 1.0 / np.sqrt(unit)
    A = scale[:, None] * (X.block / root[:, None] / root) * scale
    inside = np.asarray(scale * scale * X.inside, dtype=np.float64)
    np.fill_diagonal(A, np.where(n > 1, 1.0 - inside, 1.0))
    return np.asarray(A, dtype=np.float64)
