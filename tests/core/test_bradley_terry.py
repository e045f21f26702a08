"""The exact Euclidean case with self pairs excluded."""

from __future__ import annotations

import numpy as np
import pytest

from anglewise.bradley_terry import bradley_terry, fit, nearest_embedding
from anglewise.weighted import best_geometry
from anglewise.weighted_loss import evaluate, excess
from anglewise.weighted_problem import build_problem


def build(L, temperature=0.7):
    return build_problem(
        np.asarray(L, float), metric="euclidean", temperature=temperature, self_pairs="excluded"
    )


def test_two_players_in_closed_form():
    """v_1/(v_1 + v_2) is the share of wins."""
    N = np.array([[0.0, 1.0], [1.0, 0.0]])
    x, _ = fit(N, np.array([0.8, 0.2]))
    assert np.exp(x[0] - x[1]) == pytest.approx(4.0, rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [3, 8, 40])
def test_the_fit_is_stationary_and_proven(n, seed):
    problem = build(3 * np.random.default_rng(seed).standard_normal((n, n)))
    answer = bradley_terry(problem)
    _, Q, _ = problem.softmax(answer.S.copy())
    excess = Q - problem.anchors[:, None] * problem.target
    off = ~np.eye(n, dtype=bool)
    assert np.abs((excess + excess.T)[off]).max() < 1e-13
    assert 0 <= answer.gap < 1e-12
    assert answer.attained


def test_no_similarity_is_better():
    problem = build(np.random.default_rng(0).standard_normal((6, 6)))
    answer = bradley_terry(problem)
    rng = np.random.default_rng(1)
    for _ in range(200):
        E = rng.standard_normal((6, 6)) * 10 ** rng.uniform(-4, 1)
        assert problem.excess(answer.S + E + E.T) >= answer.excess - 1e-14


@pytest.mark.parametrize("seed", range(3))
def test_the_embedding_has_the_loss_of_the_fit(seed):
    problem = build(np.random.default_rng(seed).standard_normal((9, 9)))
    answer = bradley_terry(problem)
    Z = nearest_embedding(answer.S, problem.temperature)
    assert Z.shape[1] <= 8
    assert excess(problem, Z) == pytest.approx(answer.excess, abs=1e-13)
    assert np.linalg.norm(evaluate(problem, Z).gradient) < 1e-10


def test_symmetrizable_weights_attain_the_bound():
    A = np.random.default_rng(3).standard_normal((7, 7))
    L = A + A.T + np.linspace(-3, 3, 7)[:, None]
    g = best_geometry(log_weights=L, metric="euclidean", self_pairs="excluded", temperature=0.2)
    assert g.entropy_gap < 1e-13
    assert g.attained
    assert not g.unique  # all squared distances may grow by a constant


def test_gap_is_the_asymmetry_alone():
    A = np.random.default_rng(3).standard_normal((7, 7))
    g = best_geometry(log_weights=A, metric="euclidean", self_pairs="excluded")
    same = best_geometry(log_weights=A, metric="euclidean", self_pairs="excluded", temperature=5.0)
    assert g.entropy_gap > 1e-3
    assert same.loss == pytest.approx(g.loss, abs=1e-12)  # the scale is free


def test_one_sided_weights_without_a_cycle_are_approached():
    none = -np.inf
    acyclic = [[none, 0, 0, none], [0, none, 1, none], [0, 1, none, 0.5], [none, none, none, none]]
    g = best_geometry(log_weights=np.array(acyclic), metric="euclidean", self_pairs="excluded")
    assert not g.attained
    assert g.certificate.certified
    assert g.entropy_gap < 1e-9
    assert np.isfinite(g.squared_distances).all()


def test_one_sided_weights_in_a_cycle_are_not():
    none = -np.inf
    cyclic = [[none, 0, none], [none, none, 0], [0, none, none]]
    g = best_geometry(log_weights=np.array(cyclic), metric="euclidean", self_pairs="excluded")
    assert g.certificate.certified
    assert g.attained
    assert g.loss == pytest.approx(np.log(2), abs=1e-12)  # all distances equal


@pytest.mark.parametrize("dimension", [1, 2])
def test_exact_distances_in_few_dimensions(dimension):
    Y = np.random.default_rng(2).standard_normal((8, dimension))
    L = -((Y[:, None] - Y) ** 2).sum(axis=2) / 0.3
    g = best_geometry(
        log_weights=L, metric="euclidean", self_pairs="excluded", temperature=0.3, dimension=dimension
    )
    assert g.certificate.certified
    np.testing.assert_allclose(g.squared_distances, -0.3 * L, atol=1e-3)


def test_three_hundred_items():
    problem = build(np.random.default_rng(0).standard_normal((300, 300)))
    answer = bradley_terry(problem)
    assert answer.gap < 1e-12
    assert answer.iterations < 20
