"""The best geometry of weighted InfoNCE by a general conic solver: slow, for checks at small sizes."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from anglewise.errors import NumericalFailure, TooLarge
from anglewise.sampling import FloatArray, IntArray
from anglewise.weighted_loss import Metric, SelfPairs, WeightedLoss, excess
from anglewise.weighted_problem import build_problem

MAX_ROWS = 100


@dataclass(frozen=True, eq=False)
class ReferenceGeometry:
    """What the conic solver returns, made feasible.

    Attributes:
        embedding: (m, m) factor of its Gram matrix (unit rows for cosine).
        loss: L of ``embedding``, computed here.
        reported: the solver's own value.
    """

    embedding: FloatArray
    loss: float
    reported: float


def solve_weighted_reference(
    log_weights: FloatArray,
    *,
    counts: IntArray | None = None,
    metric: Metric = "cosine",
    temperature: float = 0.1,
    self_pairs: SelfPairs = "included",
    backend: str = "CLARABEL",
    **options: float,
) -> ReferenceGeometry:
    """Minimize L over the elliptope (cosine) or centered Gram matrices (Euclidean) with cvxpy ([P2]).

    Raises:
        TooLarge: more than 100 rows.
        NumericalFailure: the solver returned no matrix.
    """
    problem = build_problem(
        log_weights, counts, metric=metric, temperature=temperature, self_pairs=self_pairs
    )
    if problem.rows > MAX_ROWS:
        raise TooLarge(("solver",), f"the conic solver takes at most {MAX_ROWS} items")
    cp: Any = importlib.import_module("cvxpy")  # takes seconds to load
    G = cp.Variable((problem.rows, problem.rows), PSD=True)
    model = cp.Problem(cp.Minimize(_loss(cp, problem, G)), _constraints(cp, problem, G))
    try:
        model.solve(solver=backend, **options)
    except cp.SolverError as error:
        raise NumericalFailure(f"{backend}: {error}") from error
    if G.value is None:
        raise NumericalFailure(f"{backend}: {model.status}")
    Z = _factor(problem, np.asarray(G.value, dtype=np.float64))
    loss = problem.entropy_bound + excess(problem, Z)
    return ReferenceGeometry(Z, loss, float(model.value))


def _loss(cp: Any, problem: WeightedLoss, G: Any) -> Any:
    terms = []
    norms = cp.diag(G)
    for i in np.flatnonzero(problem.anchors > 0):
        S = G[i, :] if problem.cosine else 2 * G[i, :] - norms[i] - norms
        S = S / problem.temperature
        seen = np.flatnonzero(problem.multiplicity[i] > 0)
        log_n = np.log(problem.multiplicity[i, seen])
        terms.append(
            problem.anchors[i] * (cp.log_sum_exp(S[seen] + log_n) - problem.target[i, seen] @ S[seen])
        )
    return cp.sum(terms)


def _constraints(cp: Any, problem: WeightedLoss, G: Any) -> list[Any]:
    if problem.cosine:
        return [cp.diag(G) == 1]
    return [cp.sum(G, axis=1) == 0]


def _factor(problem: WeightedLoss, G: FloatArray) -> FloatArray:
    eigenvalues, vectors = np.linalg.eigh((G + G.T) / 2)
    Z = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    if problem.cosine:
        Z = Z / np.linalg.norm(Z, axis=1)[:, None]
    return np.asarray(Z, dtype=np.float64)
