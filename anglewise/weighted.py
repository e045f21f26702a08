"""The best achievable geometry of weighted InfoNCE, with a proof of how good it is.

When the entropy lower bound of [P2] is not attained the minimizer still exists, or is approached as some
items move apart without limit. The loss is convex in the Gram matrix, so in enough dimensions the answer
carries a certificate; below that several starts are compared and the convex minimum bounds what is possible.
"""

from __future__ import annotations

import math
import time
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import eigh

from anglewise.blas import single_threaded_blas
from anglewise.bradley_terry import bradley_terry, nearest_embedding
from anglewise.errors import InvalidInput, TooLarge
from anglewise.geometry import SolverReport
from anglewise.low_dimension import minimize_in_dimension
from anglewise.named import NamedWeighting
from anglewise.sampling import FloatArray, IntArray
from anglewise.trust_region import Budget
from anglewise.weighted_certificate import certificate, check, least_gram_eigenvalue, relative
from anglewise.weighted_geometry import WeightedGeometry
from anglewise.weighted_loss import Metric, SelfPairs, WeightedLoss, evaluate
from anglewise.weighted_problem import (
    build_problem,
    check_options,
    join_twins,
    restrict,
    twin_groups,
    weight_components,
)
from anglewise.weighted_solver import solve_convex
from anglewise.weights import LogWeights, Rows, given_log_weights

MAX_EXPANDED_ITEMS = 3000
"""Rows with counts become items when self pairs are excluded in the Euclidean metric; up to this many."""
FEW_ROWS = 600
"""Up to this many rows several BLAS threads cost more than they bring."""
APART = 80.0
"""Disconnected parts are placed at squared distances of at least this times T: e^-80 is below rounding."""


@dataclass(frozen=True, eq=False)
class _Request:
    dimension: int | None
    tolerance: float
    budget: Budget
    seed: int


@dataclass(frozen=True, eq=False)
class _Found:
    """An answer on the rows of one problem; ``lower_bound`` is on the excess over the entropy bound."""

    Z: FloatArray
    excess: float
    lower_bound: float
    dual: float
    method: str
    unique: bool
    attained: bool = True
    warnings: list[str] = field(default_factory=list)


def best_geometry(
    weights: Rows | LogWeights | NamedWeighting | None = None,
    *,
    log_weights: Rows | None = None,
    counts: IntArray | None = None,
    metric: Metric = "cosine",
    temperature: float = 0.1,
    self_pairs: SelfPairs = "included",
    dimension: int | None = None,
    tolerance: float = 1e-8,
    time_limit: float | None = None,
    seed: int = 0,
) -> WeightedGeometry:
    """The embedding that minimizes weighted InfoNCE for the given weights ([P2]).

    L = (1/n) Σ_i Σ_{j ∈ N(i)} p_ij (-log q_ij), p_ij = w_ij/Σ_l w_il, q_i the softmax over N(i) of z_i·z_j/T
    with ‖z_i‖ = 1 (cosine) or -‖z_i - z_j‖²/T (Euclidean).

    Args:
        weights: (m, m) nonnegative w_ij, `LogWeights`, or a named weighting, which brings its counts.
        log_weights: (m, m) log w_ij instead; ``None`` or -inf for a zero weight.
        counts: (m,) items that each row stands for, all with the same weights; the diagonal is then the
            weight between two of them. Equal items in a matrix without counts are found and joined.
        temperature: T in [1e-3, 1e4].
        self_pairs: whether N(i) contains i.
        dimension: number of coordinates; None for as many as the optimum needs.
        tolerance: relative gap at which the answer counts as certified, and the solver stops.
        time_limit: seconds after which the best answer so far is returned.
        seed: of the random starts.

    Raises:
        InvalidInput: an argument outside its domain, named.
        TooLarge: counts that would need more than 3,000 items.
    """
    if dimension is not None and not 1 <= dimension < 2**31:
        raise InvalidInput(("dimension",), "must be a positive integer")
    if not 0 < tolerance < 1:
        raise InvalidInput(("tolerance",), "must be between 0 and 1")
    if time_limit is not None and not time_limit > 0:
        raise InvalidInput(("time_limit",), "must be positive")
    start = time.monotonic()
    budget = Budget(deadline=math.inf if time_limit is None else start + time_limit)
    request = _Request(dimension, tolerance, budget, seed)
    check_options(metric, temperature, self_pairs)
    pairs_alone = metric == "euclidean" and self_pairs == "excluded"
    L, counts = _given(weights, log_weights, counts, by_item=pairs_alone)

    def build(L: FloatArray, counts: IntArray | None) -> WeightedLoss:
        return build_problem(L, counts, metric=metric, temperature=temperature, self_pairs=self_pairs)

    group = twin_groups(L, self_pairs) if counts is None and not pairs_alone else None
    problem = build(L, counts) if group is None else build(*join_twins(L, group))
    with single_threaded_blas() if problem.rows <= FEW_ROWS else nullcontext():
        found = _solve_pairs(problem, request) if pairs_alone else _solve_rows(problem, request)
    if group is not None and _twins_separate(problem, found, request) and not budget.spent:
        group, problem = None, build(L, None)
        found = _solve_rows(problem, request)
    if counts is not None and not pairs_alone and _twins_separate(problem, found, request):
        found.warnings.append(
            "Items of one row would rather not share a point: weights given for each item allow a lower loss."
        )
    seconds = time.monotonic() - start
    report = SolverReport(
        method=found.method, iterations=budget.products, groups=problem.rows, seconds=seconds
    )
    return _geometry(problem, found, group, request, report)


def _given(
    weights: Rows | LogWeights | NamedWeighting | None,
    log_weights: Rows | None,
    counts: IntArray | None,
    *,
    by_item: bool,
) -> tuple[FloatArray, IntArray | None]:
    """The logarithms, and how many items each row stands for; every item a row where ``by_item``."""
    if not isinstance(weights, NamedWeighting):
        return given_log_weights(weights, log_weights).values, counts
    if log_weights is not None or counts is not None:
        field = "counts" if log_weights is None else "log_weights"
        raise InvalidInput((field,), f"the weighting {weights.name} brings its own")
    return (weights.per_item().values, None) if by_item else (weights.log_weights.values, weights.counts)


def _twins_separate(problem: WeightedLoss, found: _Found, request: _Request) -> bool:
    """Whether equal items would rather not be at one point: the dual matrix is negative inside a row."""
    loss = problem.entropy_bound + found.excess
    if relative(found.excess - found.lower_bound, loss) <= request.tolerance:
        return False
    return check(problem, evaluate(problem, found.Z), 1).inside < 0


def _solve_rows(problem: WeightedLoss, request: _Request) -> _Found:
    """Cosine, or Euclidean with self pairs included."""
    if problem.cosine:
        return _solve_connected(problem, request)
    labels = weight_components(problem)
    parts = [np.flatnonzero(labels == c) for c in range(labels.max() + 1)]
    if len(parts) == 1:
        return _solve_connected(problem, request)
    found, bounds = [], []
    for rows in parts:
        if problem.anchors[rows].any():
            part = restrict(problem, rows)
            found.append(_solve_connected(part, request))
            bounds.append(part.entropy_bound)
        else:  # a single row without positives, to which no anchor gives weight: any place will do
            found.append(_Found(np.zeros((1, 1)), 0.0, 0.0, 0.0, "placed apart", unique=False))
            bounds.append(0.0)
    return _place_apart(problem, parts, found, bounds)


def _solve_connected(problem: WeightedLoss, request: _Request) -> _Found:
    best = solve_convex(problem, request.tolerance, request.budget, request.seed)
    Z = best.point.Z
    found = _Found(
        Z,
        best.point.excess,
        best.lower_bound,
        best.dual_eigenvalue,
        "factor trust region",
        _unique(problem, Z),
    )
    if request.dimension is not None and request.dimension < Z.shape[1]:
        return _fewer_dimensions(problem, found, request)
    return found


def _fewer_dimensions(problem: WeightedLoss, found: _Found, request: _Request) -> _Found:
    """Restart below the rank of ``found``, which stays the bound."""
    assert request.dimension is not None
    point, starts = minimize_in_dimension(
        problem,
        request.dimension,
        [found.Z],
        found.lower_bound,
        request.tolerance,
        request.budget,
        request.seed,
    )
    bound = problem.entropy_bound
    loss = bound + point.excess
    met = relative(point.excess - found.lower_bound, loss) <= request.tolerance
    warnings = list(found.warnings)
    if not met:
        warnings.append(
            f"In {request.dimension} dimensions the problem is not convex: this is the best of {starts} "
            f"starts; without a limit on the dimension the loss is {bound + found.excess:.9g}."
        )
    return _Found(
        point.Z,
        point.excess,
        min(found.lower_bound, point.excess),
        found.dual,
        "factor trust region, several starts",
        found.unique and met,
        found.attained,
        warnings,
    )


def _solve_pairs(problem: WeightedLoss, request: _Request) -> _Found:
    """Euclidean, self pairs excluded: Bradley-Terry on single items."""
    total = int(problem.counts.sum())
    if total > problem.rows:
        raise InvalidInput(
            ("counts",),
            "Euclidean geometry with self pairs excluded keeps equal items apart; give one row for each item",
        )
    if total > MAX_EXPANDED_ITEMS:
        raise TooLarge(("log_weights",), f"more than {MAX_EXPANDED_ITEMS} items")
    fit = bradley_terry(problem)
    point = evaluate(problem, nearest_embedding(fit.S, problem.temperature))
    warnings = []
    if not fit.attained:
        warnings.append(
            "The minimum is approached, not attained, as some distances grow without limit; the geometry "
            "returned is finite and within rounding of it."
        )
    lower = min(fit.excess - fit.gap, point.excess)
    found = _Found(point.Z, point.excess, lower, 0.0, "Bradley-Terry Newton", False, fit.attained, warnings)
    request.budget.products += fit.iterations
    if request.dimension is not None and request.dimension < point.Z.shape[1]:
        return _fewer_dimensions(problem, found, request)
    return found


def _place_apart(
    problem: WeightedLoss, parts: list[IntArray], found: list[_Found], bounds: list[float]
) -> _Found:
    """Parts without weights between them, side by side along the first axis."""
    share = np.array([problem.anchors[rows].sum() for rows in parts])
    columns = max(part.Z.shape[1] for part in found)
    Z = np.zeros((problem.rows, columns))
    edge = 0.0
    for rows, part in zip(parts, found, strict=True):
        width = part.Z.shape[1]
        first = part.Z[:, 0] - part.Z[:, 0].min()
        Z[rows, :width] = part.Z
        Z[rows, 0] = edge + first
        edge += first.max() + math.sqrt(APART * problem.temperature)
    Z -= Z.mean(axis=0)
    warnings = [
        f"The weights fall into {len(parts)} parts with no weight (or below 1e-15) between them: the minimum "
        "is approached, not attained, as the parts move apart; here the difference is below rounding."
    ]
    for part in found:
        warnings += [w for w in part.warnings if w not in warnings]
    # Leaving out a share of the targets lowers L by at most that factor: no log-sum-exp is below S_ii = 0.
    dropped = max(
        float((problem.target[rows].sum(axis=1) - problem.target[np.ix_(rows, rows)].sum(axis=1)).max())
        for rows in parts
    )
    least = float(share @ [b + part.lower_bound for b, part in zip(bounds, found, strict=True)])
    excess = problem.excess(problem.similarity(Z))
    return _Found(
        Z,
        excess,
        min((1 - max(dropped, 0.0)) * least - problem.entropy_bound, excess),
        min(part.dual for part in found),
        found[int(share.argmax())].method,
        unique=False,
        attained=False,
        warnings=warnings,
    )


def _unique(problem: WeightedLoss, Z: FloatArray) -> bool:
    """Whether no other Gram matrix has the same loss.

    Softmaxes fix every similarity up to a constant for each row. With self pairs excluded one constant is
    left, G + c(11ᵀ - I): it must leave the cone for c of either sign, which the kernel of G decides.
    """
    idle = problem.anchors == 0
    if idle.sum() > 1 or (idle.any() and (problem.counts[idle] > 1).any()):
        return False
    if not problem.excluded:
        return True
    root = np.sqrt(problem.counts)
    values, vectors = eigh((Z @ Z.T) * np.outer(root, root))
    kernel = vectors[:, values < 1e-7 * values[-1]]
    on_constant = float(((kernel.T @ root) ** 2).sum())
    lower_blocked = kernel.shape[1] > 0 and on_constant > 1 + 1e-6
    twins = bool((problem.counts > 1).any())
    upper_blocked = twins or kernel.shape[1] > 1 or (kernel.shape[1] == 1 and on_constant < 1 - 1e-6)
    return lower_blocked and upper_blocked


def _geometry(
    problem: WeightedLoss,
    found: _Found,
    group: IntArray | None,
    request: _Request,
    report: SolverReport,
) -> WeightedGeometry:
    """The public answer; ``group`` gives the row of each item where equal items were joined."""
    each = np.arange(problem.rows) if group is None else group
    Z = found.Z if problem.cosine else found.Z - found.Z[each].mean(axis=0)
    G = Z @ Z.T
    distances = None
    if problem.cosine:
        np.fill_diagonal(G, 1.0)
        np.clip(G, -1.0, 1.0, out=G)
    else:
        distances = (-problem.temperature * problem.similarity(Z))[each][:, each] + 0.0
    s = np.linalg.svd(Z, compute_uv=False)
    rank = int((s > 1e-7 * s[0]).sum()) if s[0] > 0 else 0
    least = least_gram_eigenvalue(G, s)
    if len(each) > problem.rows:
        least = min(least, 0.0)
    Z, G = Z[each], G[each][:, each]
    if request.dimension is not None and Z.shape[1] < request.dimension:
        Z = np.pad(Z, ((0, 0), (0, request.dimension - Z.shape[1])))
    gap = max(found.excess - found.lower_bound, 0.0)
    loss = problem.entropy_bound + found.excess
    proof = certificate(loss, gap, request.tolerance, found.dual, least)
    used = int(problem.counts[problem.anchors > 0].sum())
    total = int(problem.counts.sum())
    warnings = list(found.warnings)
    if used < total:
        warnings.append(f"{total - used} of {total} anchors have no positive and are left out of the mean.")
    if request.budget.out_of_time and not proof.certified:
        warnings.append("The time limit was reached before the certificate closed.")
    elif not proof.certified and request.dimension is None:
        warnings.append(f"The proven relative gap is {proof.relative_gap:.2g}, above the tolerance.")
    return WeightedGeometry(
        metric=problem.metric,
        gram=G,
        squared_distances=distances,
        embedding=Z,
        dimension=Z.shape[1],
        rank=rank,
        loss=loss,
        entropy_bound=problem.entropy_bound,
        entropy_gap=found.excess,
        certificate=proof,
        report=report,
        unique=found.unique,
        attained=found.attained,
        anchors=total,
        anchors_used=used,
        warnings=tuple(warnings),
    )
