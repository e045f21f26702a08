"""A splitting method for separable convex functions over the elliptope, on groups of equal proportions.

    minimize Σ_{i≠j} ω_ij max(0, A_ij + b)   over A ⪰ 0, diag(A) = 1

alternates between the sum, whose proximal step is a formula per entry, and the cone, whose projection is an
eigenvalue decomposition [Boyd2011], [Wen2010]. Both act on D A D, D² = Diag(λ): the scaling under which
ω_ij is nearly constant, so that rare classes converge with the rest. The fixed-point iteration is
accelerated by Anderson mixing with a safeguard [Walker2011].

A matrix that is constant on groups is held in orthonormal coordinates: the G × G matrix of its action on
vectors constant on groups, and √(n_g - 1) times its eigenvalue on vectors of group g that sum to zero.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

from anglewise.sampling import FloatArray, Groups

RELAXATION = 1.6
MEMORY = 20
RESIDUAL_GROWTH = 2.0
"""An accelerated step may at most double the smallest residual in memory; otherwise the memory is dropped."""

STALL = 0.9
"""The residual must fall by this factor within `MEMORY` steps, or a leap is tried."""

MIXING_RIDGE = 1e-10
MAX_DOUBLINGS = 12
FIRST_PENALTY, LAST_PENALTY, PENALTY_DECAY = 0.1, 2e-3, 0.6
DECAY_EVERY = 500


class _Coordinates:
    """Between class matrices constant on groups and their orthonormal coordinates (G² + G,)."""

    def __init__(self, groups: Groups) -> None:
        self.n = groups.sizes.astype(np.float64)
        self.root = np.sqrt(np.outer(self.n, self.n))
        self.inside = np.sqrt(self.n - 1)
        self.G = len(groups)

    def pack(self, pairs: FloatArray, diagonal: FloatArray) -> FloatArray:
        """pairs (G, G) the entries between two different classes, diagonal (G,) those of one class."""
        M = self.root * pairs
        own = np.diag(pairs)
        np.fill_diagonal(M, diagonal + (self.n - 1) * own)
        return np.concatenate([M.ravel(), self.inside * (diagonal - own)])

    def unpack(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        M = x[: self.G**2].reshape(self.G, self.G)
        e = np.divide(x[self.G**2 :], self.inside, out=np.zeros(self.G), where=self.inside > 0)
        pairs = M / self.root
        np.fill_diagonal(pairs, (np.diag(M) - e) / self.n)
        return pairs, (np.diag(M) + (self.n - 1) * e) / self.n

    def project(self, x: FloatArray) -> FloatArray:
        """The nearest positive semidefinite matrix."""
        M = x[: self.G**2].reshape(self.G, self.G)
        eigenvalues, vectors = scipy.linalg.eigh((M + M.T) / 2, check_finite=False)
        kept = eigenvalues > 0
        positive = (vectors[:, kept] * eigenvalues[kept]) @ vectors[:, kept].T
        return np.concatenate([positive.ravel(), np.maximum(x[self.G**2 :], 0.0)])


class _FixedPoint:
    """x ↦ x after one round: project, take the proximal step from the reflection, relax."""

    def __init__(self, groups: Groups, weights: FloatArray, b: float) -> None:
        self.at = _Coordinates(groups)
        self.D = np.sqrt(np.outer(groups.proportions, groups.proportions))
        self.diagonal = groups.proportions
        self.weights = (weights + weights.T) / 2 / self.D**2
        self.b = b
        self.penalty = FIRST_PENALTY * float(self.weights.max())

    def round(self, x: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The next x, the projection of x, and the slopes."""
        projected = self.at.project(x)
        dual = x - projected
        V = self.at.unpack(projected - dual)[0] / self.D
        tau = self.weights / self.penalty
        slopes = np.clip(np.divide(V + self.b, tau, out=np.zeros_like(V), where=tau > 0), 0.0, 1.0)
        A = self.at.pack((V - tau * slopes) * self.D, self.diagonal)
        return dual + RELAXATION * A + (1 - RELAXATION) * projected, projected, slopes

    def rescale(self, x: FloatArray, factor: float) -> FloatArray:
        """The same primal and dual point under penalty · factor."""
        projected = self.at.project(x)
        self.penalty *= factor
        return projected + (x - projected) / factor

    def gram(self, projected: FloatArray) -> FloatArray:
        pairs, diagonal = self.at.unpack(projected)
        length = np.sqrt(np.maximum(diagonal, 1e-12 * self.diagonal))
        A: FloatArray = np.clip(pairs / np.outer(length, length), -1.0, 1.0)
        single = self.at.n == 1
        A[single, single] = 1.0
        return A


class _Mixing:
    """Anderson mixing: the combination of past points whose residuals cancel best."""

    def __init__(self) -> None:
        self.points: list[FloatArray] = []
        self.residuals: list[FloatArray] = []

    @property
    def smallest(self) -> float:
        return min(float(np.linalg.norm(residual)) for residual in self.residuals)

    def clear(self) -> None:
        self.points.clear()
        self.residuals.clear()

    def propose(self, x: FloatArray, residual: FloatArray) -> FloatArray | None:
        self.points.append(x)
        self.residuals.append(residual)
        if len(self.points) > MEMORY + 1:
            del self.points[0], self.residuals[0]
        if len(self.points) < 3:
            return None
        dx = np.diff(np.array(self.points), axis=0)
        df = np.diff(np.array(self.residuals), axis=0)
        normal = df @ df.T
        normal[np.diag_indices(len(normal))] += MIXING_RIDGE * np.trace(normal) + 1e-300
        weights = np.linalg.solve(normal, df @ residual)
        return np.asarray(x + residual - weights @ (dx + df), dtype=np.float64)


class HingeSplitting:
    """The method as a sequence of points; the caller proves bounds from them and stops.

    Args:
        weights: (G, G) ω per ordered pair of classes.
        b: shift of the hinge.
        start: (G, G) group Gram matrix.
    """

    def __init__(self, groups: Groups, weights: FloatArray, b: float, start: FloatArray) -> None:
        self.map = _FixedPoint(groups, weights, b)
        self.mixing = _Mixing()
        self.count = self.plain_steps = 0
        self.checked = np.inf
        self._move_to(self.map.at.pack(start * self.map.D, self.map.diagonal))

    def _move_to(self, x: FloatArray) -> None:
        self.x = x
        self.following, self.projected, self.slopes = self.map.round(x)
        self.residual = self.following - x
        self.size = float(np.linalg.norm(self.residual))

    def advance(self) -> None:
        """One step: accelerated where that helps, else plain."""
        self.count += 1
        if self.count % DECAY_EVERY == 0 and self.map.penalty > LAST_PENALTY * self.map.weights.max():
            # High penalties settle the entries at their kinks; low ones then finish the flat directions.
            self._restart(self.map.rescale(self.x, PENALTY_DECAY))
        elif self.count % MEMORY == 0 and self._stalled():
            self._leap()
        elif self.plain_steps > 0:
            self.plain_steps -= 1
            self._move_to(self.following)
        else:
            self._accelerated_step()

    def _restart(self, x: FloatArray) -> None:
        self.mixing.clear()
        self.checked = np.inf
        self._move_to(x)

    def _stalled(self) -> bool:
        stalled = self.size > STALL * self.checked
        self.checked = self.size
        return stalled

    def _accelerated_step(self) -> None:
        proposal = self.mixing.propose(self.x, self.residual)
        allowed = RESIDUAL_GROWTH * self.mixing.smallest
        following = self.following
        if proposal is not None:
            self._move_to(proposal)
            if self.size <= allowed:
                return
            self.mixing.clear()
        self._move_to(following)

    def _leap(self) -> None:
        """Where the map is a translation mixing stands still: follow the residual as far as it stays."""
        x, residual, size = self.x, self.residual, self.size
        self._restart(self.following)
        self.plain_steps = MEMORY
        length = 4.0
        for _ in range(MAX_DOUBLINGS):
            before = self.x
            self._move_to(x + length * residual)
            if self.size > 1.001 * size:
                self._move_to(before)
                return
            length *= 4.0

    @property
    def gram(self) -> FloatArray:
        """(G, G) group Gram matrix with unit diagonal."""
        return self.map.gram(self.projected)
