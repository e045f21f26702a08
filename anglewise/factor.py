"""Non-convex problems: few dimensions, and hard negatives (A8).

    minimize S(MᵀM) over unit vectors μ_1, …, μ_C in R^d

is convex in A = MᵀM only when d does not bind and the sampling law does not depend on A. Otherwise the
exact risk is minimized over the vectors from several starts and the best is returned together with a proven
lower bound: the minimum of the convex program, below which no dimension and no hardness can get (`tilted`).
The answer is certified only where it meets that bound, or on a line, where all sign patterns were tried.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from anglewise.blas import single_threaded_blas
from anglewise.certificate import relative
from anglewise.convex_bound import ConvexBound, plain_risk
from anglewise.errors import InvalidInput, NumericalFailure
from anglewise.losses import Logistic, Loss, Triplet
from anglewise.sampling import FloatArray, Sampling
from anglewise.signs import minimize_signs
from anglewise.spheres import Objective, SphereMinimum, minimize_on_spheres
from anglewise.tilted import TiltedRisk

POLISHED_STARTS = 2
EXPLORATION_STEPS = 300
SMOOTHING_TEMPERATURES = (0.3, 0.1, 0.03, 0.01, 0.003)


@dataclass(frozen=True)
class Start:
    """One start of the search and the risk it led to."""

    name: str
    risk: float


@dataclass(frozen=True)
class FactorSolution:
    """The best geometry found.

    Attributes:
        gram: (C, C) inner products of the class means.
        means: (C, d) class means, unit rows; gram = means meansᵀ.
        risk: exact risk of ``gram``.
        lower_bound: proven; no geometry of any dimension is below it.
        certified: the risk meets the bound to the tolerance.
        exact: every candidate was compared (d = 1 with few patterns).
        gradient_norm: of the Riemannian gradient; its square is the expected relative decrease.
        starts: what every start led to before the final polish.
        evaluations, seconds: effort; seconds of wall time.
    """

    gram: FloatArray
    means: FloatArray
    risk: float
    lower_bound: float
    certified: bool
    exact: bool
    gradient_norm: float
    starts: tuple[Start, ...]
    evaluations: int
    seconds: float


def minimize_factored(
    proportions: FloatArray,
    sampling: Sampling,
    loss: Loss,
    *,
    dimension: int | None,
    tolerance: float = 1e-8,
    time_limit: float | None = None,
    starts: int | None = None,
    seed: int = 0,
    start_gram: FloatArray | None = None,
    lower_bound: float | None = None,
) -> FactorSolution:
    """The best class means in R^d found for the exact risk, hard negatives included.

    Args:
        proportions: (C,) in any order.
        dimension: d ≥ 1; None for as many as there are classes.
        tolerance: bound on the relative gap to call the answer certified.
        time_limit: seconds for the search; the first start always ends with an answer.
        starts: number of random starts beside the structured ones; by default 8, fewer for many classes.
        seed: of the random starts; equal seeds give equal answers while time does not bind.
        start_gram: (C, C) optimum of the convex program, computed here by a plain descent if absent.
        lower_bound: a proven lower bound of the convex program, if the caller has one.

    Raises:
        InvalidInput: a dimension below one, or supervised sampling with one class.
        NumericalFailure: no start led to a finite risk.
    """
    if dimension is not None and dimension < 1:
        raise InvalidInput(("dimension",), "must be at least 1")
    begun = time.monotonic()
    deadline = None if time_limit is None else begun + time_limit
    C = len(proportions)
    risk = TiltedRisk(proportions, sampling, loss)
    d = min(dimension or C, C)
    with single_threaded_blas():
        search = _on_a_line(proportions, sampling, loss, seed, deadline) if d == 1 else None
        bound = None
        if search is None or not search.exact:
            bound = ConvexBound(proportions, sampling, loss, start_gram, lower_bound, tolerance, deadline)
            objective = _objective(proportions, sampling, loss)
            smoothed = _smoothed(proportions, sampling, loss)
            search = search or _search(objective, smoothed, bound, d, starts, seed, deadline)
        gram = _gram(search.means)
        value = risk.value(gram)
        if not math.isfinite(value):
            raise NumericalFailure("no start led to a finite risk")
        lowest = value if bound is None else min(bound.at(gram), value)
    padded = np.zeros((C, dimension or d))
    padded[:, :d] = search.means
    return FactorSolution(
        gram=gram,
        means=padded,
        risk=value,
        lower_bound=lowest,
        certified=relative(plain_risk(proportions, sampling, loss), value, value - lowest) <= tolerance,
        exact=search.exact,
        gradient_norm=search.gradient_norm,
        starts=search.starts,
        evaluations=search.evaluations,
        seconds=time.monotonic() - begun,
    )


def _gram(U: FloatArray) -> FloatArray:
    A = np.clip(U @ U.T, -1.0, 1.0)
    np.fill_diagonal(A, 1.0)
    return np.asarray(A, dtype=np.float64)


@dataclass(frozen=True)
class _Search:
    means: FloatArray
    exact: bool
    gradient_norm: float
    starts: tuple[Start, ...]
    evaluations: int


def _objective(proportions: FloatArray, sampling: Sampling, loss: Loss) -> Objective:
    hard = loss.hardness > 0
    risk = TiltedRisk(proportions, sampling, loss) if hard else plain_risk(proportions, sampling, loss)
    evaluate = risk.value_and_gradient

    def objective(U: FloatArray) -> tuple[float, FloatArray]:
        value, H = evaluate(_gram(U))
        return value, (H + H.T) @ U

    return objective


def _smoothed(proportions: FloatArray, sampling: Sampling, loss: Loss) -> list[Objective]:
    """The triplet loss with its kinks rounded off, less and less: T log(1 + e^{x/T}) up to the factor T."""
    if not isinstance(loss, Triplet):
        return []
    return [
        _objective(
            proportions,
            sampling,
            Logistic(
                negatives=loss.negatives,
                reduction=loss.reduction,
                hardness=loss.hardness,
                margin=loss.margin,
                temperature=T,
            ),
        )
        for T in SMOOTHING_TEMPERATURES
    ]


def _on_a_line(
    proportions: FloatArray, sampling: Sampling, loss: Loss, seed: int, deadline: float | None
) -> _Search:
    found = minimize_signs(proportions, sampling, loss, seed=seed, deadline=deadline)
    name = "all sign patterns" if found.exact else "sign patterns by single moves"
    return _Search(found.signs[:, None], found.exact, 0.0, (Start(name, found.risk),), 0)


def _explore(
    objective: Objective, smoothed: list[Objective], U: FloatArray, deadline: float | None
) -> SphereMinimum:
    """A local minimum from U, or, if lower, from where the smoothed objectives lead."""

    def descend(f: Objective, V: FloatArray) -> SphereMinimum:
        return minimize_on_spheres(f, V, max_iterations=EXPLORATION_STEPS, newton_steps=0, deadline=deadline)

    direct = descend(objective, U)
    if not smoothed:
        return direct
    for rounded in smoothed:
        U = descend(rounded, U).U
    return min(direct, descend(objective, U), key=lambda minimum: minimum.value)


def _search(
    objective: Objective,
    smoothed: list[Objective],
    bound: ConvexBound,
    d: int,
    starts: int | None,
    seed: int,
    deadline: float | None,
) -> _Search:
    """Every start explored, the best few polished."""
    candidates = list(_starts(bound, d, starts, seed))
    found: list[tuple[str, SphereMinimum]] = []
    for position, (name, U) in enumerate(candidates):
        now = time.monotonic()
        if found and deadline is not None and now > deadline:
            break
        # As much time is left for the best few as was spent to find them.
        share = None if deadline is None else now + (deadline - now) / 2 / (len(candidates) - position)
        minimum = _explore(objective, smoothed, U, share)
        if math.isfinite(minimum.value):
            found.append((name, minimum))
    if not found:
        raise NumericalFailure("no start led to a finite risk")
    ranked = sorted(found, key=lambda item: item[1].value)
    polished = [
        minimize_on_spheres(
            objective, minimum.U, max_iterations=EXPLORATION_STEPS, newton_steps=50, deadline=deadline
        )
        for _, minimum in ranked[:POLISHED_STARTS]
    ]
    best = min(polished, key=lambda minimum: minimum.value)
    return _Search(
        means=best.U,
        exact=False,
        gradient_norm=best.gradient_norm,
        starts=tuple(Start(name, minimum.value) for name, minimum in found),
        evaluations=sum(minimum.evaluations for _, minimum in found) + sum(m.evaluations for m in polished),
    )


def _starts(bound: ConvexBound, d: int, starts: int | None, seed: int) -> Iterator[tuple[str, FloatArray]]:
    """The convex optimum projected to d dimensions; simplices shared by several classes; spread; random."""
    C = len(bound.gram)
    rng = np.random.default_rng(seed)
    eigenvalues, vectors = scipy.linalg.eigh(bound.gram)
    projected = (vectors * np.sqrt(np.maximum(eigenvalues, 0.0)))[:, ::-1][:, :d]
    if not bound.hard and d >= np.count_nonzero(eigenvalues > 1e-9 * eigenvalues[-1]):
        yield "convex optimum", projected
        return  # the dimension does not bind: the program is convex and one start is enough
    yield "projected convex optimum", projected + 1e-3 * rng.normal(size=(C, d)) / math.sqrt(d)
    rank = np.argsort(np.argsort(-bound.classes.proportions, kind="stable"))
    simplex = _simplex(min(C - 1, d))
    vertices = len(simplex)
    corners = {"tail on one vertex": np.minimum(rank, vertices - 1), "vertices in turn": rank % vertices}
    for name, vertex in corners.items():
        U = 0.05 * rng.normal(size=(C, d)) / math.sqrt(d)
        U[:, : simplex.shape[1]] += simplex[vertex]
        yield name, U
    yield "evenly spread", _spread(rng.normal(size=(C, d)))
    count = starts if starts is not None else (8 if C <= 50 else 4 if C <= 300 else 2)
    for number in range(count):
        yield f"random {number}", rng.normal(size=(C, d))


def _simplex(d: int) -> FloatArray:
    """(d + 1, d) vertices of a regular simplex on the unit sphere."""
    centered = np.eye(d + 1) - 1 / (d + 1)
    basis = np.linalg.svd(centered)[2][:d]
    vertices = centered @ basis.T
    return np.asarray(vertices / np.linalg.norm(vertices, axis=1, keepdims=True), dtype=np.float64)


def _spread(U: FloatArray) -> FloatArray:
    """Points that repel each other equally, whatever their proportions."""

    def energy(V: FloatArray) -> tuple[float, FloatArray]:
        E = np.exp(4 * (V @ V.T - 1))
        np.fill_diagonal(E, 0.0)
        return float(E.sum()), 8 * E @ V

    return minimize_on_spheres(energy, U, max_iterations=100, newton_steps=0).U
