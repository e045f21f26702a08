"""Weighted InfoNCE as a function of a factor Z of the Gram matrix: loss, gradient, Hessian products.

    L = Σ_i a_i [ log Σ_j N_ij e^{S_ij} - Σ_j P_ij S_ij ],   P_ij = N_ij w_ij / Σ_l N_il w_il          ([P2])

Items are rows 1..m; a row stands for ``counts[i]`` exchangeable items (twins) at one point. N_ij is the
number of items of row j that an anchor of row i is compared with: counts_j, less one on the diagonal when
self pairs are excluded. a_i is the share of anchors in row i, zero where an anchor has no positive.

The similarity S of a factor Z (rows z_i) is z_i·z_j/T with ‖z_i‖ = 1 (cosine) or -‖z_i - z_j‖²/T (Euclidean).
L is convex in S, so it is convex in the Gram matrix for both metrics.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from anglewise.sampling import FloatArray

Metric = Literal["cosine", "euclidean"]
SelfPairs = Literal["included", "excluded"]


def row_dot(A: FloatArray, B: FloatArray) -> FloatArray:
    """Σ_j A_ij B_ij for every row i."""
    return np.asarray(np.einsum("ij,ij->i", A, B), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class WeightedLoss:
    """The loss of one weight matrix, on rows that may stand for several twins.

    Attributes:
        log_weights: (m, m) log w, -inf for zero; the diagonal is the weight between two items of a row.
        target: (m, m) P, the rows sum to 1 (to 0 for anchors without a positive).
        multiplicity: (m, m) N.
        anchors: (m,) a, sums to 1.
        counts: (m,) items in each row.
        temperature: T > 0.
    """

    log_weights: FloatArray
    target: FloatArray
    multiplicity: FloatArray
    anchors: FloatArray
    counts: FloatArray
    temperature: float
    metric: Metric
    self_pairs: SelfPairs

    @property
    def rows(self) -> int:
        return len(self.anchors)

    @property
    def cosine(self) -> bool:
        return self.metric == "cosine"

    @property
    def excluded(self) -> bool:
        return self.self_pairs == "excluded"

    @cached_property
    def uncompared(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Rows whose diagonal takes no part (one item, self pairs excluded)."""
        return np.flatnonzero(np.diag(self.multiplicity) == 0).astype(np.int64)

    @cached_property
    def entropy_bound(self) -> float:
        """Σ_i a_i H(p_i), the least value any similarity could give ([P2])."""
        return self.entropy(self.target)

    def entropy(self, Q: FloatArray) -> float:
        """Σ_i a_i H(q_i) of row distributions Q spread evenly over the N_ij items of each row j."""
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(Q > 0, -Q * np.log(Q / self.multiplicity), 0.0)
        return float(self.anchors @ terms.sum(axis=1))

    def similarity(self, Z: FloatArray) -> FloatArray:
        """(m, m) S of the embedding with rows z_i."""
        S = Z @ Z.T
        if not self.cosine:
            squares = np.diag(S).copy()
            S *= -2.0
            S += squares[:, None]
            S += squares[None, :]
            np.maximum(S, 0.0, out=S)
            S *= -1.0
        S /= self.temperature
        return S

    def softmax(self, S: FloatArray) -> tuple[float, FloatArray]:
        """L at similarity S, and a_i q_ij; S is overwritten."""
        linear = row_dot(self.target, S)
        S[self.uncompared, self.uncompared] = -np.inf
        top = S.max(axis=1)
        S -= top[:, None]
        np.exp(S, out=S)
        S *= self.multiplicity
        total = S.sum(axis=1)
        loss = float(self.anchors @ (np.log(total) + top - linear))
        S *= (self.anchors / total)[:, None]
        return loss, S

    def loss(self, S: FloatArray) -> float:
        """L at similarity S (m, m)."""
        return self.softmax(S.copy())[0]


@dataclass(frozen=True, eq=False)
class Point:
    """The loss at one factor Z, with what Hessian products and certificates need.

    Attributes:
        Z: (m, r) embedding.
        loss: L(Z).
        gradient: (m, r) Riemannian gradient (on unit rows for cosine).
        Q: (m, m) a_i q_ij.
        Gamma: (m, m) symmetric part of a_i (q_ij - p_ij), the gradient of L in S.
        y: (m,) cosine: z_i · ∂L/∂z_i, twice the multiplier of ‖z_i‖² = 1. Euclidean: row sums of Gamma.
    """

    Z: FloatArray
    loss: float
    gradient: FloatArray
    Q: FloatArray
    Gamma: FloatArray
    y: FloatArray


def value(problem: WeightedLoss, Z: FloatArray) -> float:
    """L(Z)."""
    return problem.softmax(problem.similarity(Z))[0]


def evaluate(problem: WeightedLoss, Z: FloatArray) -> Point:
    """L, its Riemannian gradient and the softmax at Z."""
    T = problem.temperature
    loss, Q = problem.softmax(problem.similarity(Z))
    excess = Q - problem.anchors[:, None] * problem.target
    Gamma = 0.5 * (excess + excess.T)
    if problem.cosine:
        E = (2 / T) * (Gamma @ Z)
        y = row_dot(E, Z)
        return Point(Z, loss, E - y[:, None] * Z, Q, Gamma, y)
    degree = Gamma.sum(axis=1)
    return Point(Z, loss, (-4 / T) * (degree[:, None] * Z - Gamma @ Z), Q, Gamma, degree)


def hessian_product(problem: WeightedLoss, point: Point, V: FloatArray) -> FloatArray:
    """Riemannian Hessian of L at ``point`` applied to a tangent V (m, r).

    With D = dS[V] the change of similarity, R_ij = a_i q_ij (D_ij - Σ_l q_il D_il) is the change of the
    gradient in S; the chain rule back to Z adds the terms of Gamma.
    """
    Z, T = point.Z, problem.temperature
    D = V @ Z.T
    if problem.cosine:
        D = (D + D.T) / T
    else:
        squares = np.diag(D)
        D = (-2 / T) * (squares[:, None] + squares[None, :] - D - D.T)
    live = np.where(problem.anchors > 0, problem.anchors, 1.0)
    D -= (row_dot(point.Q, D) / live)[:, None]
    R = np.multiply(point.Q, D, out=D)
    if problem.cosine:
        H = (R @ Z + R.T @ Z + 2 * (point.Gamma @ V)) / T - point.y[:, None] * V
        return project(problem, Z, H)
    degree = 0.5 * (R.sum(axis=1) + R.sum(axis=0))
    H = degree[:, None] * Z - 0.5 * (R @ Z + R.T @ Z) + point.y[:, None] * V - point.Gamma @ V
    return np.asarray((-4 / T) * H, dtype=np.float64)


def project(problem: WeightedLoss, Z: FloatArray, V: FloatArray) -> FloatArray:
    """V without its component along each z_i (cosine)."""
    if not problem.cosine:
        return V
    return np.asarray(V - row_dot(V, Z)[:, None] * Z, dtype=np.float64)


def retract(problem: WeightedLoss, Z: FloatArray) -> FloatArray:
    """Rows divided by their norms (cosine) or columns centered (Euclidean)."""
    if not problem.cosine:
        return np.asarray(Z - Z.mean(axis=0), dtype=np.float64)
    norms = np.linalg.norm(Z, axis=1)
    if norms.min() > 0:
        return np.asarray(Z / norms[:, None])
    Z = Z.copy()
    Z[norms == 0, 0] = 1.0
    return np.asarray(Z / np.linalg.norm(Z, axis=1)[:, None])
