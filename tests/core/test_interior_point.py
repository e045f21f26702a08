"""The two interior-point methods: the barrier on few groups and the linear risk."""

import math

import numpy as np
import pytest

from anglewise.barrier import Barrier, minimize_by_barrier
from anglewise.certificate import certify, make_feasible
from anglewise.dual.method import simplex
from anglewise.linear_risk import is_linear, minimize_linear
from anglewise.losses import Exponential, InfoNCE, Logistic
from anglewise.risk import Risk
from anglewise.sampling import group_classes, normalized_proportions

GROUPS = group_classes(normalized_proportions([0.5, 0.2, 0.1, 0.1, 0.05, 0.05]))
LINEAR = InfoNCE(negatives=1, temperature=0.2, alpha=0.0)


def simplex_gram(groups):
    return simplex(groups.sizes.astype(float), groups.classes)


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
@pytest.mark.parametrize(
    "loss",
    [
        InfoNCE(negatives=7, temperature=0.3),
        InfoNCE(negatives=1, temperature=0.3),
        InfoNCE(negatives=math.inf, temperature=0.3, alpha=0.0),
        Logistic(negatives=2, temperature=0.4, margin=0.5),
        Exponential(negatives=2, temperature=0.6),
    ],
    ids=lambda loss: f"{type(loss).__name__}-{loss.negatives}",
)
def test_barrier_derivatives(loss, sampling):
    problem = Barrier(Risk(GROUPS, sampling, loss))
    rng = np.random.default_rng(0)
    x = 0.5 * simplex_gram(GROUPS)[problem.rows, problem.columns] + rng.uniform(
        -0.05, 0.05, len(problem.rows)
    )
    point = problem.point(x)
    of_risk, of_barrier = problem.gradients(point)
    risk_hessian, barrier_hessian = problem.risk_hessian(point), problem.barrier_hessian(point)
    for i in range(len(x)):
        e = 1e-6 * np.eye(len(x))[i]
        up, down = problem.point(x + e), problem.point(x - e)
        assert (up.at.risk - down.at.risk) / 2e-6 == pytest.approx(of_risk[i], rel=1e-6, abs=1e-9)
        assert (up.barrier - down.barrier) / 2e-6 == pytest.approx(of_barrier[i], rel=1e-6, abs=1e-8)
        up_risk, up_barrier = problem.gradients(up)
        down_risk, down_barrier = problem.gradients(down)
        assert (up_risk - down_risk) / 2e-6 == pytest.approx(risk_hessian[i], rel=1e-5, abs=1e-8)
        assert (up_barrier - down_barrier) / 2e-6 == pytest.approx(barrier_hessian[i], rel=1e-5, abs=1e-6)


def test_barrier_is_minus_the_log_determinant():
    problem = Barrier(Risk(GROUPS, "supervised", LINEAR))
    x = 0.7 * simplex_gram(GROUPS)[problem.rows, problem.columns]
    A = problem.gram(x)[np.ix_(GROUPS.index, GROUPS.index)]
    np.fill_diagonal(A, 1.0)
    assert problem.point(x).barrier == pytest.approx(-np.linalg.slogdet(A)[1], rel=1e-12)
    assert problem.point(np.full_like(x, -0.9)) is None


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("temperature", [0.04, 0.5])
def test_barrier_certifies(alpha, temperature):
    risk = Risk(GROUPS, "unsupervised", InfoNCE(negatives=3, temperature=temperature, alpha=alpha))
    start = simplex_gram(GROUPS)
    A, steps = minimize_by_barrier(risk, start, gap=1e-11, deadline=math.inf)
    value, H = risk.value_and_gradient(A)
    assert certify(risk, value, H, A, tolerance=1e-9).gap < 2e-10
    assert value < risk.value(start) + 2e-10
    assert 0 < steps < 400


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
@pytest.mark.parametrize("seed", range(4))
def test_linear_risk_certifies(seed, sampling):
    rng = np.random.default_rng(seed)
    lam = rng.dirichlet(np.full(12, 0.5))
    groups = group_classes(normalized_proportions(np.concatenate([lam, lam[:4]]) / (1 + lam[:4].sum())))
    risk = Risk(groups, sampling, LINEAR)
    assert is_linear(risk.loss)
    A, _ = minimize_linear(risk, gap=1e-10, deadline=math.inf)
    A = make_feasible(groups, A)
    value, H = risk.value_and_gradient(A)
    assert certify(risk, value, H, A, tolerance=1e-9).relative_gap < 1e-9


@pytest.mark.parametrize(("first", "expected"), [(0.3, 0.0), (0.8, 0.36)])
def test_linear_unsupervised_risk_in_closed_form(first, expected):
    """S = (‖Σ λ_i μ_i‖² - 1)/T up to a constant: the mean vanishes unless one class outweighs the rest."""
    lam = np.array([first, *np.diff([0, 0.3, 0.55, 0.8, 1.0]) * (1 - first)])
    groups = group_classes(lam)
    risk = Risk(groups, "unsupervised", LINEAR)
    A, _ = minimize_linear(risk, gap=1e-11, deadline=math.inf)
    assert risk.value(A) == pytest.approx((expected - 1.0) / 0.2, rel=1e-9)
