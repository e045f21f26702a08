"""Proven bounds on how far a geometry is above the best, valid at any embedding.

With q the softmax of any similarity and H the entropy, L(S') ≥ Σ_i a_i H(q_i) + ⟨Γ(q), S'⟩ for every S',
Γ = sym a(q - p). Each bound makes the linear term nonnegative over all Gram matrices of the metric.

`dual_polish` sharpens both near the optimum.

Cosine: for every diagonal matrix Y with Γ/T - Y ⪰ 0, L ≥ Σ_i a_i H(q_i) + tr Y. At an embedding
Y_i = z_i·∂L/∂z_i / 2 makes the value L itself; shifting it by the least eigenvalue, weighted by any w > 0,
costs Σw · max(0, -λ_min).

Euclidean, self pairs included: the scale is free, so Lap(sym a(p - q)) ⪰ 0 is needed. Mixing q with the
identity, q' = (1 - θ) q + θ I, repairs it; L ≥ Σ_i a_i H(q'_i). The weights must connect all items.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh, eigvalsh

from anglewise.dual_polish import polished_gap
from anglewise.geometry import Certificate
from anglewise.laplacian import laplacian_between, without_kernel
from anglewise.sampling import FloatArray
from anglewise.weighted_loss import Point, WeightedLoss

EPS = float(np.finfo(np.float64).eps)
NO_SCALE = 1e-280
"""Multipliers below this are those of a loss that underflows: a quotient by them may overflow."""
MAX_CHECKED = 500
"""Rows up to which the least eigenvalue of the Gram matrix is computed from its entries."""


@dataclass(frozen=True, eq=False)
class DualCheck:
    """The dual matrix at a point.

    Attributes:
        gap: proven bound on L minus its minimum; infinite when this check proves nothing.
        eigenvalue: least eigenvalue of the dual matrix over items (twins included).
        inside: least eigenvalue for moves of the items of one row against each other; infinite if none.
        eigenvalues: (k,) the least ones of the matrix between rows.
        directions: (m, k) their eigenvectors, along which a new dimension lowers the loss.
    """

    gap: float
    eigenvalue: float
    inside: float
    eigenvalues: FloatArray
    directions: FloatArray


def least_eigenpairs(M: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    """The k least eigenvalues of a symmetric matrix and their eigenvectors."""
    values, vectors = eigh(M, subset_by_index=[0, min(k, len(M)) - 1])
    return values, vectors


def cosine_dual(problem: WeightedLoss, point: Point) -> tuple[FloatArray, FloatArray]:
    """The dual matrix on orthonormal row vectors (m, m), and its eigenvalues inside rows of several items."""
    n, T = problem.counts, problem.temperature
    between = point.Gamma / (T * np.sqrt(np.outer(n, n))) - np.diag(point.y / (2 * n))
    several = n > 1
    others = n[several] - 1 if problem.excluded else n[several]
    inside = -point.y[several] / (2 * n[several]) - point.own[several] / (T * others)
    return between, inside


def check_cosine(problem: WeightedLoss, point: Point, k: int) -> DualCheck:
    """Theory A5, with the sharper of two weightings of the shift."""
    between, inside = cosine_dual(problem, point)
    values, vectors = least_eigenpairs(between, k)
    spread = float(inside.min(initial=np.inf))
    least = min(float(values[0]), spread)
    n = problem.counts
    # The eigenvalue itself is known to a rounding error only; the shift must cover it.
    shift = max(0.0, -least) + EPS * float(np.abs(between).max())
    gap = float(n.sum()) * shift
    scale = -point.y / (2 * n)
    if least < 0 and scale.max() > NO_SCALE:
        w = np.maximum(scale, 1e-3 * scale.max())
        root = np.sqrt(w)
        scaled = float(eigvalsh(between / np.outer(root, root), subset_by_index=[0, 0])[0])
        scaled = min(scaled, float((inside / w[n > 1]).min(initial=np.inf)))
        gap = min(gap, float(n @ w) * (max(0.0, -scaled) + EPS * float((np.abs(np.diag(between)) / w).max())))
    gap = min(gap, polished_gap(problem, point, between, 0.0))
    return DualCheck(gap, least, spread, values, vectors)


def mixed_entropy(problem: WeightedLoss, Q: FloatArray, theta: float) -> float:
    """Σ_i a_i H((1 - θ) q_i + θ e_i): a share θ moves to the anchor itself, one of its row's items."""
    own = np.diag(Q) / problem.counts
    rest = (1 - theta) * Q
    np.fill_diagonal(rest, np.diag(rest) * (problem.counts - 1) / problem.counts)
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(Q > 0, (1 - theta) * Q / problem.multiplicity, 1.0)
    anchor = (1 - theta) * own + theta
    anchor = np.where(anchor > 0, anchor, 1.0)
    h = -(rest * np.log(np.where(each > 0, each, 1.0))).sum(axis=1) - anchor * np.log(anchor)
    return float(problem.anchors @ h)


def check_euclidean(problem: WeightedLoss, point: Point, k: int) -> DualCheck:
    """Theory B3, self pairs included; with them excluded only the eigenvalues are computed."""
    n, T = problem.counts, problem.temperature
    dual = (2 / T) * laplacian_between(-point.Gamma, n)
    values, vectors = least_eigenpairs(without_kernel(dual, n), min(k, len(dual)))
    several = n > 1
    inside = (-2 / T) * (point.y + point.own)[several] / n[several]
    spread = float(inside.min(initial=np.inf))
    least = min(float(values[0]), spread)
    if problem.excluded:
        return DualCheck(np.inf, least, spread, values, vectors)
    A = problem.anchors[:, None] * problem.target
    A = 0.5 * (A + A.T)
    full = (2 / T) * laplacian_between(A, n)
    connectivity = float(eigvalsh(without_kernel(full, n), subset_by_index=[0, 0])[0])
    connectivity = min(connectivity, float(((2 / T) * A.sum(axis=1) / n)[several].min(initial=np.inf)))
    connectivity -= 4 * EPS * float(np.abs(full).max())
    if connectivity <= 0:
        return DualCheck(np.inf, least, spread, values, vectors)
    delta = max(0.0, -least) + 4 * EPS * float(np.abs(dual).max())
    theta = delta / (delta + connectivity)
    live = np.where(problem.anchors > 0, problem.anchors, 1.0)
    gap = point.excess + problem.entropy_bound - mixed_entropy(problem, point.Q / live[:, None], theta)
    gap = min(gap, polished_gap(problem, point, dual, connectivity))
    return DualCheck(max(gap, 0.0), least, spread, values, vectors)


def check(problem: WeightedLoss, point: Point, k: int = 4) -> DualCheck:
    """The dual check of the problem's metric, with k candidate directions.

    One row has no Euclidean geometry to choose: its gap is that of the entropy bound alone.
    """
    if not problem.cosine and problem.rows == 1:
        return DualCheck(np.inf, 0.0, np.inf, np.zeros(0), np.zeros((1, 0)))
    return check_cosine(problem, point, k) if problem.cosine else check_euclidean(problem, point, k)


def least_gram_eigenvalue(G: FloatArray, singular_values: npt.NDArray[np.floating]) -> float:
    """Of the matrix returned; above `MAX_CHECKED` rows, of Z Zᵀ from the singular values of Z."""
    if len(G) <= MAX_CHECKED:
        return float(eigvalsh(G, subset_by_index=[0, 0])[0])
    return float(singular_values[-1] ** 2) if len(singular_values) == len(G) else 0.0


def relative(gap: float, loss: float) -> float:
    """gap / |loss|, |loss| at least 1e-12."""
    return gap / max(abs(loss), 1e-12)


def certificate(loss: float, gap: float, tolerance: float, dual: float, gram: float) -> Certificate:
    """The public form of a proven gap."""
    return Certificate(
        gap=gap,
        relative_gap=relative(gap, loss),
        lower_bound=loss - gap,
        certified=relative(gap, loss) <= tolerance,
        tolerance=tolerance,
        min_dual_eigenvalue=dual,
        min_gram_eigenvalue=gram,
    )
