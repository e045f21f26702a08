"""Proven gaps are never below the true excess, at any point, good or bad."""

from __future__ import annotations

import numpy as np
import pytest

from anglewise.trust_region import Budget
from anglewise.weighted_certificate import check, mixed_entropy
from anglewise.weighted_loss import evaluate, retract
from anglewise.weighted_problem import build_problem, weight_components
from anglewise.weighted_solver import solve_convex

POINTS = 40


def problems():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        A = rng.standard_normal((6, 6)) * rng.choice([0.3, 1.0, 4.0])
        L = (A + A.T) / 2 if seed % 2 else A
        counts = [1, 2, 1, 3, 1, 2] if seed > 1 else None
        for metric in ("cosine", "euclidean"):
            for self_pairs in ("included", "excluded"):
                if (metric, self_pairs) != ("euclidean", "excluded"):
                    yield build_problem(L, counts, metric=metric, temperature=0.6, self_pairs=self_pairs)


@pytest.mark.parametrize("problem", list(problems()), ids=lambda p: f"{p.metric}-{p.self_pairs}")
def test_bounds_hold_at_random_and_nearly_optimal_points(problem):
    best = solve_convex(problem, 1e-11, Budget())
    spread = False if (problem.counts == 1).all() else best.gap > 1e-6
    rng = np.random.default_rng(1)
    tightest = np.inf
    for k in range(POINTS):
        if k % 2:
            Z = rng.standard_normal((6, 1 + k % 5)) * 10 ** rng.uniform(-2, 1)
        else:
            Z = best.point.Z + 10 ** rng.uniform(-6, 0) * rng.standard_normal(best.point.Z.shape)
        point = evaluate(problem, retract(problem, Z))
        gap = check(problem, point).gap
        assert gap >= point.excess - best.point.excess - 1e-12
        tightest = min(tightest, gap)
    assert spread or tightest < 0.02


def test_items_bound_is_the_rows_bound():
    """A collapsed embedding of items has the certificate of its rows with counts."""
    L = np.array([[0.0, -2.0, -1.0], [-2.0, 0.0, -3.0], [-1.0, -3.0, 0.0]])
    counts = np.array([2, 1, 3])
    item = np.repeat(np.arange(3), counts)
    Z = np.random.default_rng(0).standard_normal((3, 3))
    for metric, self_pairs in (("cosine", "included"), ("cosine", "excluded"), ("euclidean", "included")):
        rows = build_problem(L, counts, metric=metric, temperature=0.4, self_pairs=self_pairs)
        items = build_problem(L[np.ix_(item, item)], metric=metric, temperature=0.4, self_pairs=self_pairs)
        Y = retract(rows, Z)
        a, b = check(rows, evaluate(rows, Y)), check(items, evaluate(items, Y[item]))
        assert a.eigenvalue == pytest.approx(b.eigenvalue, abs=1e-10)
        best = solve_convex(rows, 1e-11, Budget())
        assert best.gap < 1e-10
        assert check(items, evaluate(items, best.point.Z[item])).gap < 1e-8


@pytest.mark.parametrize(
    ("metric", "self_pairs"), [("cosine", "included"), ("cosine", "excluded"), ("euclidean", "included")]
)
def test_the_gap_is_of_second_order(metric, self_pairs):
    """A tenth of the distance to the optimum: the gap falls a hundredfold, and stays near the excess."""
    A = np.random.default_rng(5).standard_normal((15, 15))
    problem = build_problem(A + A.T, metric=metric, temperature=0.8, self_pairs=self_pairs)
    best = solve_convex(problem, 1e-13, Budget()).point
    move = np.random.default_rng(6).standard_normal(best.Z.shape)
    gaps, excesses = [], []
    for size in (1e-3, 1e-4, 1e-5):
        point = evaluate(problem, retract(problem, best.Z + size * move))
        gaps.append(check(problem, point).gap)
        excesses.append(point.excess - best.excess)
    assert gaps[1] < 0.05 * gaps[0]
    assert gaps[2] < 0.05 * gaps[1]
    assert excesses[1] <= gaps[1] < 300 * excesses[1]


def test_mixing_all_the_way_leaves_no_entropy():
    problem = build_problem(np.zeros((3, 3)), [1, 2, 1], metric="euclidean")
    Q = problem.target
    assert mixed_entropy(problem, Q, 0.0) == pytest.approx(np.log(4), abs=1e-14)
    assert mixed_entropy(problem, Q, 1.0) == pytest.approx(0.0, abs=1e-14)


@pytest.mark.parametrize("self_pairs", ["included", "excluded"])
def test_items_that_should_separate_are_not_certified_at_one_point(self_pairs):
    """Two items that weigh another far more than each other: the row's own eigenvalue says so."""
    L = np.array([[-5.0, 0.0], [0.0, -5.0]])
    problem = build_problem(L, [2, 1], temperature=0.5, self_pairs=self_pairs)
    rows = solve_convex(problem, 1e-10, Budget())
    assert rows.gap > 1e-3
    apart = build_problem(L[[0, 0, 1]][:, [0, 0, 1]], temperature=0.5, self_pairs=self_pairs)
    items = solve_convex(apart, 1e-10, Budget())
    assert items.gap < 1e-9
    assert rows.gap >= rows.point.excess - items.point.excess > 1e-4


def test_components_of_the_weights():
    L = np.array([[0.0, 0.0, -np.inf], [-np.inf, 0.0, -np.inf], [-np.inf, -np.inf, 0.0]])
    labels = weight_components(build_problem(L, metric="euclidean"))
    assert labels[0] == labels[1] != labels[2]
