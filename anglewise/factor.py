"""Non-convex problems: few dimensions, and hard negatives (A8).

    minimize S(MᵀM) over unit vectors μ_1, …, μ_C in R^d

is convex in A = MᵀM only when d does not bind and the sampling law does not depend on A. Otherwise the
exact risk is minimized over the vectors from several starts and the best is returned together with a proven
lower bound: the minimum of the convex program, below which no dimension and no hardness can get (`tilted`).
The answer is certified only where it meets that bound, or on a line, where all sign patterns were tried.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from anglewise.blas import single_threaded_blas
from anglewise.certificate import certify, make_feasible, relative
from anglewise.errors import InvalidInput, NumericalFailure
from anglewise.group_factor import factor_descent
from anglewise.losses import Loss
from anglewise.risk import Risk
from anglewise.sampling import FloatArray, Sampling, group_classes
from anglewise.signs import minimize_signs
from anglewise.spheres import Objective, SphereMinimum, minimize_on_spheres
from anglewise.tilted import TiltedRisk, single_class_groups

POLISHED_STARTS = 2
EXPLORATION_STEPS = 300


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
            bound = _ConvexBound(proportions, sampling, loss, start_gram, lower_bound, tolerance, deadline)
            search = search or _search(_objective(risk, loss, bound), bound, d, starts, seed, deadline)
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


def plain_risk(proportions: FloatArray, sampling: Sampling, loss: Loss) -> Risk:
    """The convex risk on all classes: the same loss without hardness."""
    plain = dataclasses.replace(loss, hardness=0.0)
    return Risk(single_class_groups(proportions), sampling, plain)


@dataclass(frozen=True)
class _Search:
    means: FloatArray
    exact: bool
    gradient_norm: float
    starts: tuple[Start, ...]
    evaluations: int


class _ConvexBound:
    """The convex program without hardness and without a limit on the dimension."""

    def __init__(
        self,
        proportions: FloatArray,
        sampling: Sampling,
        loss: Loss,
        gram: FloatArray | None,
        lower_bound: float | None,
        tolerance: float,
        deadline: float | None,
    ) -> None:
        self.hard = loss.hardness > 0
        self.risk = plain_risk(proportions, sampling, loss)
        self.classes = self.risk.groups
        self.tolerance = tolerance
        if gram is None:
            gram = self._descend(proportions, sampling, deadline)
        self.gram = make_feasible(self.classes, gram)
        # ψ increases in every t ≥ -2: a bound that needs no proof of optimality at all.
        apart = self.risk.value(np.full(self.gram.shape, -1.0) + 2 * np.eye(len(self.gram)))
        known = -math.inf if lower_bound is None else lower_bound
        self.lowest = max(known, apart, self._certified_below(self.gram))

    def _descend(self, proportions: FloatArray, sampling: Sampling, deadline: float | None) -> FloatArray:
        """The convex optimum on groups of equal proportions, on every pair of classes."""
        groups = group_classes(proportions)
        G = len(groups)
        A0 = np.full((G, G), -1 / max(groups.classes - 1, 1))
        np.fill_diagonal(A0, np.where(groups.sizes > 1, np.diag(A0), 1.0))
        half = None if deadline is None else (time.monotonic() + deadline) / 2
        problem = Risk(groups, sampling, self.risk.loss)
        A, _ = factor_descent(groups, problem.value_and_gradient, A0, deadline=half)
        full = A[np.ix_(groups.index, groups.index)]
        np.fill_diagonal(full, 1.0)
        return full

    def _certified_below(self, A: FloatArray) -> float:
        value, H = self.risk.value_and_gradient(A)
        return certify(self.risk, value, H, A, tolerance=self.tolerance).lower_bound

    def at(self, gram: FloatArray) -> float:
        """The best proven bound, the one from the answer itself included."""
        feasible = make_feasible(self.classes, gram)
        return max(self.lowest, self._certified_below(feasible))


def _objective(risk: TiltedRisk, loss: Loss, bound: _ConvexBound) -> Objective:
    evaluate = risk.value_and_gradient if loss.hardness > 0 else bound.risk.value_and_gradient

    def objective(U: FloatArray) -> tuple[float, FloatArray]:
        value, H = evaluate(_gram(U))
        return value, (H + H.T) @ U

    return objective


def _on_a_line(
    proportions: FloatArray, sampling: Sampling, loss: Loss, seed: int, deadline: float | None
) -> _Search:
    found = minimize_signs(proportions, sampling, loss, seed=seed, deadline=deadline)
    name = "all sign patterns" if found.exact else "sign patterns by single moves"
    return _Search(found.signs[:, None], found.exact, 0.0, (Start(name, found.risk),), 0)


def _search(
    objective: Objective,
    bound: _ConvexBound,
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
        minimum = minimize_on_spheres(
            objective, U, max_iterations=EXPLORATION_STEPS, newton_steps=0, deadline=share
        )
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


def _starts(bound: _ConvexBound, d: int, starts: int | None, seed: int) -> Iterator[tuple[str, FloatArray]]:
    """The convex optimum projected to d dimensions; simplices shared by several classes; spread; random."""
    C = len(bound.gram)
    rng = np.random.default_rng(seed)
    eigenvalues, vectors = scipy.linalg.eigh(bound.gram)
    projected = (vectors * np.sqrt(np.maximum(eigenvalues, 0.0)))[:, ::-1][:, :d]
    yield "projected convex optimum", projected + 1e-3 * rng.normal(size=(C, d)) / math.sqrt(d)
    if not bound.hard and d >= np.count_nonzero(eigenvalues > 1e-9 * eigenvalues[-1]):
        return  # the dimension does not bind: the program is convex and one start is enough
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
