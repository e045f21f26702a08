"""Weighted InfoNCE as a function of a factor Z of the Gram matrix: loss, gradient, Hessian products.

    L = Σ_i a_i [ log Σ_j N_ij e^{S_ij} - Σ_j P_ij S_ij ],   P_ij = N_ij w_ij / Σ_l N_il w_il          ([P2])

Items are rows 1..m; a row stands for ``counts[i]`` exchangeable items (twins) at one point. N_ij is the
number of items of row j that an anchor of row i is compared with: counts_j, less one on the diagonal when
self pairs are excluded. a_i is the share of anchors in row i, zero where an anchor has no positive.

The similarity S of a factor Z (rows z_i) is z_i·z_j/T with ‖z_i‖ = 1 (cosine) or -‖z_i - z_j‖²/T (Euclidean).
L is convex in S, so it is convex in the Gram matrix for both metrics.

At low temperatures L exceeds its entropy bound by e^{-1/T} and less, which is what decides the geometry. So
the excess, not L, is what is computed and minimized, to full relative accuracy: with x_ij = log(q_ij/p_ij) up
to a constant for each row, Σ_j p_ij x_ij = 0,

    KL(p_i‖q_i) = log(1 + Σ_j p_ij (e^{x_ij} - 1 - x_ij)),    no term negative.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numba import njit

from anglewise.sampling import FloatArray

Metric = Literal["cosine", "euclidean"]
SelfPairs = Literal["included", "excluded"]


def row_dot(A: FloatArray, B: FloatArray) -> FloatArray:
    """Σ_j A_ij B_ij for every row i."""
    return np.asarray(np.einsum("ij,ij->i", A, B), dtype=np.float64)


@njit(cache=True, nogil=True)
def _divergence(
    S: FloatArray,
    P: FloatArray,
    log_p: FloatArray,
    N: FloatArray,
    a: FloatArray,
    Q: FloatArray,
    E: FloatArray,
    full: bool,
) -> float:
    """Σ_i a_i KL(p_i‖q_i); if ``full``, Q = a_i q_ij and E = a_i (q_ij - p_ij). log_p is of one item."""
    m = S.shape[0]
    total = 0.0
    for i in range(m):
        if a[i] == 0:
            if full:
                Q[i] = 0.0
                E[i] = 0.0
            continue
        mean = 0.0
        for j in range(m):
            if P[i, j] > 0:
                mean += P[i, j] * (S[i, j] - log_p[i, j])
        # What rounding left of Σ p x, removed from x itself: x may be far smaller than the mean.
        rest = 0.0
        for j in range(m):
            if P[i, j] > 0:
                rest += P[i, j] * (S[i, j] - log_p[i, j] - mean)
        top = -np.inf
        for j in range(m):
            if N[i, j] > 0 and S[i, j] - mean > top:
                top = S[i, j] - mean
        # Beyond the range of exp the divergence is large and needs no care.
        shift = top if top > 300 else 0.0
        excess = -1.0 if shift > 0 else 0.0
        for j in range(m):
            q = 0.0
            d = 0.0
            if N[i, j] > 0:
                if shift > 0:
                    q = N[i, j] * np.exp(S[i, j] - mean - shift)
                    d = q
                    excess += q
                elif P[i, j] > 1e-100 and S[i, j] - log_p[i, j] - mean < 400:
                    x = S[i, j] - log_p[i, j] - mean - rest
                    if abs(x) < 0.1:
                        tail = 1 + x / 7 * (1 + x / 8 * (1 + x / 9 * (1 + x / 10)))
                        tail = x * x / 2 * (1 + x / 3 * (1 + x / 4 * (1 + x / 5 * (1 + x / 6 * tail))))
                    else:
                        tail = np.exp(x) - 1 - x
                    d = P[i, j] * (x + tail)
                    q = P[i, j] + d
                    excess += P[i, j] * tail
                else:
                    q = N[i, j] * np.exp(S[i, j] - mean)
                    d = q - P[i, j]
                    excess += d
                    if P[i, j] > 0:
                        excess -= P[i, j] * (S[i, j] - log_p[i, j] - mean)
            if full:
                Q[i, j] = q
                E[i, j] = d
        total += a[i] * (shift + np.log1p(excess))
        if full:
            scale = a[i] / (1 + excess)
            for j in range(m):
                Q[i, j] *= scale
                if shift > 0:
                    E[i, j] = Q[i, j] - a[i] * P[i, j]
                else:
                    E[i, j] = scale * (E[i, j] - excess * P[i, j])
    return total


@dataclass(frozen=True, eq=False)
class WeightedLoss:
    """The loss of one weight matrix, on rows that may stand for several twins.

    Attributes:
        log_weights: (m, m) log w, -inf for zero; the diagonal is the weight between two items of a row.
        target: (m, m) P, the rows sum to 1 (to 0 for anchors without a positive).
        log_share: (m, m) log(P_ij/N_ij), the target of one item; -inf where it is zero.
        multiplicity: (m, m) N.
        anchors: (m,) a, sums to 1.
        counts: (m,) items in each row.
        temperature: T > 0.
    """

    log_weights: FloatArray
    target: FloatArray
    log_share: FloatArray
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
    def entropy_bound(self) -> float:
        """Σ_i a_i H(p_i), the least value any similarity could give ([P2])."""
        return self.entropy(self.target)

    def entropy(self, Q: FloatArray) -> float:
        """Σ_i a_i H(q_i) of row distributions Q spread evenly over the N_ij items of each row j."""
        with np.errstate(divide="ignore", invalid="ignore"):
            terms = np.where(Q > 0, -Q * np.log(Q / self.multiplicity), 0.0)
        return float(self.anchors @ terms.sum(axis=1))

    @cached_property
    def rounding(self) -> float:
        """An excess that rounding of the similarities makes; none where each row has one positive entry."""
        if ((self.target > 0).sum(axis=1) <= 1).all():
            return 0.0
        finite = np.isfinite(self.log_share) & (self.target > 0)
        spread = float(np.abs(self.log_share[finite]).max(initial=0.0)) + 1 / self.temperature
        return (16 * float(np.finfo(np.float64).eps) * spread) ** 2

    def similarity(self, Z: FloatArray) -> FloatArray:
        """(m, m) S of the embedding with rows z_i."""
        S = Z @ Z.T
        if not self.cosine:
            squares = np.diag(S).copy()
            S *= -2.0
            S += squares[:, None]
            S += squares[None, :]
            np.maximum(S, 0.0, out=S)
            np.fill_diagonal(S, 0.0)
            S *= -1.0
        else:
            np.fill_diagonal(S, 1.0)
        S /= self.temperature
        return S

    def excess(self, S: FloatArray) -> float:
        """Σ_i a_i KL(p_i‖q_i) at similarity S (m, m): L less the entropy bound."""
        return float(self._divergence(S, S, S, full=False))

    def softmax(self, S: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        """The excess, a_i q_ij and a_i (q_ij - p_ij) at similarity S."""
        Q, E = np.empty_like(S), np.empty_like(S)
        return float(self._divergence(S, Q, E, full=True)), Q, E

    def _divergence(self, S: FloatArray, Q: FloatArray, E: FloatArray, *, full: bool) -> float:
        value: float = _divergence(
            S, self.target, self.log_share, self.multiplicity, self.anchors, Q, E, full
        )
        return value


@dataclass(frozen=True, eq=False)
class Point:
    """The loss at one factor Z, with what Hessian products and certificates need.

    Attributes:
        Z: (m, r) embedding.
        excess: L(Z) less the entropy bound.
        gradient: (m, r) Riemannian gradient (on unit rows for cosine).
        Q: (m, m) a_i q_ij.
        Gamma: (m, m) symmetric part of a_i (q_ij - p_ij), the gradient of L in S; zero diagonal, since
            the self-similarity of a point is fixed.
        own: (m,) that diagonal.
        y: (m,) cosine: Σ_{j≠i} 2 Γ_ij z_i·z_j/T, twice the multiplier of ‖z_i‖² = 1.
            Euclidean: row sums of Gamma.
    """

    Z: FloatArray
    excess: float
    gradient: FloatArray
    Q: FloatArray
    Gamma: FloatArray
    own: FloatArray
    y: FloatArray


def excess(problem: WeightedLoss, Z: FloatArray) -> float:
    """L(Z) less the entropy bound."""
    return problem.excess(problem.similarity(Z))


def evaluate(problem: WeightedLoss, Z: FloatArray) -> Point:
    """L, its Riemannian gradient and the softmax at Z."""
    T = problem.temperature
    value, Q, E = problem.softmax(problem.similarity(Z))
    Gamma = 0.5 * (E + E.T)
    own = np.diag(Gamma).copy()
    np.fill_diagonal(Gamma, 0.0)
    if problem.cosine:
        H = (2 / T) * (Gamma @ Z)
        y = row_dot(H, Z)
        return Point(Z, value, H - y[:, None] * Z, Q, Gamma, own, y)
    degree = Gamma.sum(axis=1)
    return Point(Z, value, (-4 / T) * (degree[:, None] * Z - Gamma @ Z), Q, Gamma, own, degree)


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
    symmetric = R + R.T
    if problem.cosine:
        H = (symmetric @ Z + 2 * (point.Gamma @ V)) / T - point.y[:, None] * V
        return project(problem, Z, H)
    degree = 0.5 * symmetric.sum(axis=1)
    H = degree[:, None] * Z - 0.5 * (symmetric @ Z) + point.y[:, None] * V - point.Gamma @ V
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
