"""An optimal class geometry and everything that proves or describes it.

The Gram matrix is held on groups of equal proportions; rows of the full C × C matrix and of the class
means are produced on demand, so 20,000 classes need no 20,000 × 20,000 array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anglewise.sampling import FloatArray

GeometryName = Literal[
    "point",
    "simplex_etf",
    "minority_collapse",
    "partial_collapse",
    "imbalanced",
    "orthogonal_frame",
]


@dataclass(frozen=True)
class Certificate:
    """A proven bound on how far a risk is above the minimum ([P1] program; A5).

    Attributes:
        gap: upper bound on S(A) - S(A*), in units of the risk; never negative.
        relative_gap: gap / |risk| (|risk| below 1e-12 counts as 1e-12); where the risk may cross
            zero (α = 0), gap / max(|risk|, 1).
        lower_bound: risk - gap.
        certified: relative_gap ≤ tolerance.
        tolerance: the requested bound on ``relative_gap``.
        min_dual_eigenvalue: λ_min(G - Diag(y)), G the symmetric gradient, y_i = (GA)_ii.
        min_gram_eigenvalue: λ_min(A).
    """

    gap: float
    relative_gap: float
    lower_bound: float
    certified: bool
    tolerance: float
    min_dual_eigenvalue: float
    min_gram_eigenvalue: float


@dataclass(frozen=True)
class MinorityCollapse:
    """One majority and C - 1 equal minorities against the exact threshold (A7).

    ``margin`` is majority_proportion - exact_threshold, computed without cancellation near 1;
    ``collapsed`` is margin ≥ 0 up to the threshold's accuracy. ``sufficient_threshold`` is [P1]'s,
    for InfoNCE at temperature 1 only.
    """

    majority_proportion: float
    exact_threshold: float
    one_minus_threshold: float
    sufficient_threshold: float | None
    collapsed: bool
    margin: float


@dataclass(frozen=True)
class NearMerge:
    """Classes linked by 1 - cosine ≤ `Collapse.near_tolerance` that have not all merged.

    ``one_minus_cosine`` is the largest 1 - cosine between any two of ``classes``.
    """

    classes: tuple[int, ...]
    one_minus_cosine: float


@dataclass(frozen=True)
class Collapse:
    """Which classes share a direction, and the shape of the whole ([P1] Theorems on NC and MC).

    The certificate bounds the risk, not the Gram matrix, so merging is read off with a stated tolerance.

    Attributes:
        within_class: samples of one class share one direction; true at every optimum.
        geometry: name of the shape.
        merged_classes: classes linked by 1 - cosine ≤ ``merge_tolerance``, ascending.
        near: see `NearMerge`.
        largest_cosine: between two different classes; ``None`` for one class.
        smallest_angle_degrees: the angle of ``largest_cosine``.
        minority_collapse: for one majority and at least two equal minorities.
    """

    within_class: bool
    geometry: GeometryName
    merged_classes: tuple[tuple[int, ...], ...]
    near: tuple[NearMerge, ...]
    merge_tolerance: float
    largest_cosine: float | None
    smallest_angle_degrees: float | None
    minority_collapse: MinorityCollapse | None
    near_tolerance: float = 1e-3


@dataclass(frozen=True)
class SolverReport:
    """How the answer was found. ``seconds`` is wall time; ``groups`` the number of unknown groups."""

    method: str
    iterations: int
    groups: int
    seconds: float


@dataclass(frozen=True)
class GroupSolution:
    """What a solver returns: the best Gram matrix it found on groups, and its proof.

    Attributes:
        gram: (G, G) inner products between classes of groups g and h; the diagonal is the inner
            product of two different classes of group g (1 where the group has one class).
        risk: the exact risk of ``gram``, including every constant.
        certificate: the proof.
        report: method, iterations, seconds.
        unique: False when the minimizer is known or suspected not to be unique.
        warnings: plain sentences for people.
    """

    gram: FloatArray
    risk: float
    certificate: Certificate
    report: SolverReport
    unique: bool = True
    warnings: tuple[str, ...] = ()
