"""The loss on factors against its definition, and its derivatives against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from anglewise.errors import InvalidInput
from anglewise.weighted_loss import evaluate, excess, hessian_product, project, retract
from anglewise.weighted_problem import build_problem, join_twins, twin_groups

CASES = [
    (metric, self_pairs, counts)
    for metric in ("cosine", "euclidean")
    for self_pairs in ("included", "excluded")
    for counts in (None, [1, 3, 2, 1, 4, 1])
]


def random_log_weights(n, seed=0, zeros=0.0):
    rng = np.random.default_rng(seed)
    L = rng.standard_normal((n, n))
    L[rng.random((n, n)) < zeros] = -np.inf
    return L


def loss(problem, Z):
    return problem.entropy_bound + excess(problem, Z)


def loss_by_definition(L, Z, metric, T, self_pairs):
    """(1/n) Σ_i Σ_j p_ij (-log q_ij), item by item."""
    n = len(L)
    total, used = 0.0, 0
    for i in range(n):
        others = [j for j in range(n) if self_pairs == "included" or j != i]
        w = np.exp(L[i, others])
        if w.sum() == 0:
            continue
        if metric == "cosine":
            s = np.array([Z[i] @ Z[j] / T for j in others])
        else:
            s = np.array([-((Z[i] - Z[j]) ** 2).sum() / T for j in others])
        p = w / w.sum()
        total += float(p @ (np.log(np.exp(s).sum()) - s))
        used += 1
    return total / used


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("self_pairs", ["included", "excluded"])
@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_loss_is_its_definition(metric, self_pairs, zeros):
    L = random_log_weights(7, seed=3, zeros=zeros)
    if zeros:
        L[2] = -np.inf
    problem = build_problem(L, metric=metric, temperature=0.7, self_pairs=self_pairs)
    Z = retract(problem, np.random.default_rng(1).standard_normal((7, 3)))
    expected = loss_by_definition(L, Z, metric, 0.7, self_pairs)
    assert loss(problem, Z) == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize(("metric", "self_pairs", "counts"), CASES)
def test_rows_with_counts_stand_for_twins(metric, self_pairs, counts):
    L = random_log_weights(6, seed=5)
    n = np.array(counts if counts else [1] * 6)
    item = np.repeat(np.arange(6), n)
    problem = build_problem(L, n, metric=metric, temperature=0.4, self_pairs=self_pairs)
    items = build_problem(L[np.ix_(item, item)], metric=metric, temperature=0.4, self_pairs=self_pairs)
    Z = retract(problem, np.random.default_rng(1).standard_normal((6, 4)))
    assert loss(problem, Z) == pytest.approx(loss(items, Z[item]), abs=1e-12)
    assert problem.entropy_bound == pytest.approx(items.entropy_bound, abs=1e-12)


@pytest.mark.parametrize("self_pairs", ["included", "excluded"])
def test_twins_are_found_and_joined(self_pairs):
    classes = np.array([2, 0, 1, 0, 2, 2, 0])
    L = np.where(classes[:, None] == classes, 0.0, -np.inf) + np.arange(7)[:, None]
    problem = build_problem(L, temperature=0.5, self_pairs=self_pairs)
    group = twin_groups(L, self_pairs)
    assert group is not None
    assert len(set(zip(group.tolist(), classes.tolist(), strict=True))) == 3
    reduced = build_problem(*join_twins(L, group), temperature=0.5, self_pairs=self_pairs)
    assert sorted(reduced.counts) == [1, 3, 3]
    assert reduced.entropy_bound == pytest.approx(problem.entropy_bound, abs=1e-13)


def test_almost_equal_items_are_not_twins():
    L = np.zeros((4, 4))
    L[0, 1] = 1e-6
    assert twin_groups(L, "included") is not None  # items 2 and 3
    L[2, 3] = 2e-6
    assert twin_groups(L, "included") is None


@pytest.mark.parametrize(("metric", "self_pairs", "counts"), CASES)
def test_gradient_and_hessian_products(metric, self_pairs, counts):
    rng = np.random.default_rng(7)
    problem = build_problem(
        random_log_weights(6, seed=2), counts, metric=metric, temperature=0.6, self_pairs=self_pairs
    )
    Z = retract(problem, rng.standard_normal((6, 3)))
    V = project(problem, Z, rng.standard_normal((6, 3)))
    if metric == "euclidean":
        V -= V.mean(axis=0)
    point = evaluate(problem, Z)
    h = 1e-4

    def along(t):
        return loss(problem, retract(problem, Z + t * V))

    # Row normalization is a second-order retraction, so both derivatives along it are Riemannian.
    slope = (along(h) - along(-h)) / (2 * h)
    curvature = (along(h) - 2 * along(0.0) + along(-h)) / h**2
    assert float(np.vdot(point.gradient, V)) == pytest.approx(slope, abs=1e-7)
    assert float(np.vdot(V, hessian_product(problem, point, V))) == pytest.approx(curvature, abs=2e-6)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_hessian_is_symmetric(metric):
    rng = np.random.default_rng(8)
    problem = build_problem(random_log_weights(6, seed=2), metric=metric, temperature=0.6)
    Z = retract(problem, rng.standard_normal((6, 3)))
    point = evaluate(problem, Z)
    U, V = (project(problem, Z, rng.standard_normal((6, 3))) for _ in range(2))
    forward = np.vdot(U, hessian_product(problem, point, V))
    assert forward == pytest.approx(np.vdot(V, hessian_product(problem, point, U)), abs=1e-12)
    assert abs(forward) > 1e-4


@pytest.mark.parametrize("temperature", [1e-3, 0.01, 1.0, 1e4])
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_extreme_temperatures_and_weights_stay_finite(metric, temperature):
    L = random_log_weights(5, seed=1) * 1e4
    problem = build_problem(L, metric=metric, temperature=temperature, self_pairs="excluded")
    point = evaluate(problem, retract(problem, np.random.default_rng(0).standard_normal((5, 2))))
    assert np.isfinite(point.excess)
    assert np.isfinite(point.gradient).all()


def test_small_excesses_keep_their_relative_accuracy():
    """Two classes of two items: KL = log(1 + e^{-2/T}) at opposite points, e^{-200} at T = 0.01."""
    L = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    for T in (1.0, 0.05, 0.01):
        problem = build_problem(L, [2, 2], temperature=T)
        point = evaluate(problem, np.array([[1.0], [-1.0]]))
        assert point.excess == pytest.approx(np.log1p(np.exp(-2 / T)), rel=1e-12)
        q = np.exp(-2 / T) / (1 + np.exp(-2 / T))
        assert point.Gamma[0, 1] == pytest.approx(q / 2, rel=1e-12)
        np.testing.assert_allclose(point.own, -q / 2, rtol=1e-12)


def test_quadratic_excess_near_the_bound():
    """KL is half the variance of log q/p to leading order, far below the rounding of the loss."""
    rng = np.random.default_rng(2)
    L = rng.standard_normal((5, 5))
    problem = build_problem(L, temperature=1.0)
    E = 1e-9 * rng.standard_normal((5, 5))
    p = problem.target
    variance = (p * E**2).sum(axis=1) - (p * E).sum(axis=1) ** 2
    assert problem.excess(L + E) == pytest.approx(variance.mean() / 2, rel=1e-4)


@pytest.mark.parametrize("spread", [1.0, 100.0, 1e3, 1e4])
def test_excess_is_the_divergence_at_every_scale(spread):
    """Against log-sum-exp, where the divergence is large enough for that to be accurate."""
    rng = np.random.default_rng(4)
    L, S = spread * rng.standard_normal((6, 6)), rng.uniform(-spread, 0, (6, 6))
    problem = build_problem(L, metric="euclidean", temperature=0.5)
    log_p = L - logsumexp(L, axis=1, keepdims=True)
    log_q = S - logsumexp(S, axis=1, keepdims=True)
    expected = float((np.exp(log_p) * (log_p - log_q)).sum(axis=1).mean())
    value, Q, E = problem.softmax(S)
    assert value == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(Q * 6, np.exp(log_q), atol=1e-13)
    np.testing.assert_allclose(E * 6, np.exp(log_q) - np.exp(log_p), atol=1e-13)


def test_equal_points_give_the_logarithm_of_the_comparisons():
    # 8 samples in 2 views, all features equal, self pairs excluded: log 15 at every temperature.
    labels = np.repeat(np.arange(8), 2)
    L = np.where(labels[:, None] == labels, 0.0, -np.inf)
    for T in (0.01, 0.07, 1.0):
        problem = build_problem(L, temperature=T, self_pairs="excluded")
        assert loss(problem, np.ones((16, 1))) == pytest.approx(np.log(15), abs=1e-12)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"log_weights": [[0.0, 1.0]]}, ("log_weights",)),
        ({"log_weights": []}, ("log_weights",)),
        ({"log_weights": [[0.0, np.nan], [0.0, 0.0]]}, ("log_weights", 0, 1)),
        ({"log_weights": [[0.0, 0.0], [np.inf, 0.0]]}, ("log_weights", 1, 0)),
        ({"log_weights": [[-np.inf]]}, ("log_weights",)),
        ({"log_weights": [[0.0]], "self_pairs": "excluded"}, ("log_weights",)),
        ({"counts": [1, 0]}, ("counts", 1)),
        ({"counts": [1, 2, 3]}, ("counts",)),
        ({"counts": [1.5, 2]}, ("counts", 0)),
        ({"metric": "hamming"}, ("metric",)),
        ({"self_pairs": "some"}, ("self_pairs",)),
        ({"temperature": 0.0}, ("temperature",)),
        ({"temperature": float("nan")}, ("temperature",)),
    ],
)
def test_bad_input_is_named(change, field):
    arguments = {"log_weights": np.zeros((2, 2)), **change}
    L = arguments.pop("log_weights")
    with pytest.raises(InvalidInput) as error:
        build_problem(L, arguments.pop("counts", None), **arguments)
    assert error.value.field == field
