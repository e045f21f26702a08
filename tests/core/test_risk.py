"""The exact risk against the enumerated sum, its gradient against finite differences, and its convexity."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anglewise.errors import InvalidInput
from anglewise.losses import Exponential, InfoNCE, Logistic, SquaredHinge, Triplet
from anglewise.risk import Risk
from anglewise.sampling import group_classes, normalized_proportions

PROPORTIONS = normalized_proportions([0.5, 0.2, 0.2, 0.1])


def losses(k, reduction):
    return [
        InfoNCE(negatives=k, temperature=0.3, reduction=reduction),
        InfoNCE(negatives=k, temperature=0.05, alpha=0.0, beta=2.0, reduction=reduction),
        InfoNCE(negatives=k, temperature=2.0, alpha=30.0, beta=0.1, reduction=reduction),
        Logistic(negatives=k, temperature=0.4, margin=0.7, reduction=reduction),
        Exponential(negatives=k, temperature=0.5, reduction=reduction),
        SquaredHinge(negatives=k, margin=0.9, reduction=reduction),
        Triplet(negatives=k, margin=-0.2, reduction=reduction),
    ]


def psi(t, loss):
    """The loss of A1 on k arguments."""
    share = 1 / len(t) if loss.reduction == "mean" else 1.0
    if isinstance(loss, InfoNCE):
        return math.log(loss.alpha + loss.beta * share * sum(math.exp(x / loss.temperature) for x in t))
    if isinstance(loss, Logistic):
        return share * sum(math.log1p(math.exp((x + loss.margin) / loss.temperature)) for x in t)
    if isinstance(loss, Exponential):
        return share * sum(math.exp(x / loss.temperature) for x in t)
    excess = [max(0.0, x + loss.margin) for x in t]
    return share * sum(x * x if isinstance(loss, SquaredHinge) else x for x in excess)


def enumerated(lam, A, sampling, loss):
    """S(A) by summing over anchors and all sequences of negatives."""
    total, C = 0.0, len(lam)
    for i in range(C):
        p = lam if sampling == "unsupervised" else np.where(np.arange(C) == i, 0, lam) / (1 - lam[i])
        for draws in itertools.product(range(C), repeat=int(loss.negatives)):
            weight = lam[i] * math.prod(p[j] for j in draws)
            if weight > 0:
                total += weight * psi([A[i, j] - A[i, i] for j in draws], loss)
    return total


def group_gram(groups, rng):
    """A feasible Gram matrix on groups: equal classes share their inner products."""
    d = 6
    means = rng.normal(size=(len(groups), d))
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    A = means @ means.T
    within = rng.uniform(-0.1, 0.6, len(groups))
    shrink = np.where(groups.sizes > 1, np.sqrt((1 + (groups.sizes - 1) * within) / groups.sizes), 1.0)
    A = shrink[:, None] * A * shrink
    np.fill_diagonal(A, np.where(groups.sizes > 1, within, 1.0))
    return A


def full(groups, A):
    """The C × C Gram matrix."""
    F = A[np.ix_(groups.index, groups.index)].copy()
    np.fill_diagonal(F, 1.0)
    return F


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_risk_is_the_enumerated_sum(k, reduction, sampling):
    rng = np.random.default_rng(3)
    groups = group_classes(PROPORTIONS)
    A = group_gram(groups, rng)
    for loss in losses(k, reduction):
        expected = enumerated(PROPORTIONS, full(groups, A), sampling, loss)
        assert Risk(groups, sampling, loss).value(A) == pytest.approx(expected, rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
@pytest.mark.parametrize("k", [1, 4, 300])
def test_gradient_is_the_slope_of_one_ordered_pair(sampling, k):
    rng = np.random.default_rng(k)
    groups = group_classes(PROPORTIONS)
    A = group_gram(groups, rng)
    n = groups.sizes
    for loss in losses(k, "mean"):
        risk = Risk(groups, sampling, loss)
        value, H = risk.value_and_gradient(A)
        assert value == risk.value(A)
        for g, h in itertools.combinations_with_replacement(range(len(groups)), 2):
            pairs = n[g] * (n[g] - 1) if g == h else n[g] * n[h]
            if pairs == 0:
                assert H[g, h] == 0.0
                continue
            step = np.zeros_like(A)
            step[g, h] = step[h, g] = 1e-5
            slope = (risk.value(A + step) - risk.value(A - step)) / 2e-5
            expected = pairs * H[g, h] if g == h else pairs * (H[g, h] + H[h, g])
            assert slope == pytest.approx(expected, rel=2e-6, abs=1e-9)


def test_group_risk_is_the_class_risk():
    """Splitting a group into single classes changes neither the risk nor the gradient of a pair."""
    rng = np.random.default_rng(0)
    groups = group_classes(PROPORTIONS)
    order = np.argsort(groups.index, kind="stable")
    apart = group_classes(PROPORTIONS + np.array([0, 1e-9, 0, -1e-9]))
    A = group_gram(groups, rng)
    F = full(groups, A)[np.ix_(order, order)]
    for loss in (InfoNCE(negatives=50, temperature=0.2), Logistic(negatives=3)):
        one, H = Risk(groups, "supervised", loss).value_and_gradient(A)
        other, H2 = Risk(apart, "supervised", loss).value_and_gradient(F)
        assert one == pytest.approx(other, rel=1e-7)
        assert H[0, 1] == pytest.approx(H2[0, 1], rel=1e-6)
        assert H[1, 1] == pytest.approx(H2[1, 2], rel=1e-6)


def test_infinitely_many_negatives_are_the_limit():
    rng = np.random.default_rng(1)
    groups = group_classes(PROPORTIONS)
    A = group_gram(groups, rng)
    for alpha in (0.0, 1.0):
        for sampling in ("supervised", "unsupervised"):
            values = [
                Risk(
                    groups, sampling, InfoNCE(negatives=k, temperature=0.5, alpha=alpha, reduction="mean")
                ).value(A)
                for k in (10**6, 10**8, math.inf)
            ]
            assert values[1] == pytest.approx(values[2], abs=1e-7)
            assert abs(values[1] - values[2]) < abs(values[0] - values[2])


def test_logistic_is_k_times_infonce_with_one_negative():
    A = group_gram(group_classes(PROPORTIONS), np.random.default_rng(2))
    groups = group_classes(PROPORTIONS)
    one = Risk(groups, "unsupervised", Logistic(negatives=7, temperature=0.2, margin=0.3)).value(A)
    other = InfoNCE(negatives=1, temperature=0.2, beta=math.exp(0.3 / 0.2))
    assert one == pytest.approx(7 * Risk(groups, "unsupervised", other).value(A), rel=1e-14)


@pytest.mark.parametrize("temperature", [1e-3, 1e-2, 1e4])
@pytest.mark.parametrize("alpha", [0.0, 1e-300, 1e12])
@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
def test_extreme_parameters_stay_finite(temperature, alpha, sampling):
    groups = group_classes(normalized_proportions([0.7, 0.2, 0.1 - 1e-7, 1e-7]))
    A = np.array([[1, -0.9, 0.5, -1], [-0.9, 1, 0, 0.9], [0.5, 0, 1, 0.2], [-1, 0.9, 0.2, 1]])
    for k, beta in itertools.product((1, 2, 10**9, math.inf), (1e-12, 1e12)):
        loss = InfoNCE(negatives=k, temperature=temperature, alpha=alpha, beta=beta)
        value, H = Risk(groups, sampling, loss).value_and_gradient(A)
        assert math.isfinite(value)
        assert np.isfinite(H).all()
        assert (H >= 0).all()


def test_one_class_has_a_value_and_no_pairs():
    groups = group_classes(np.ones(1))
    for loss in losses(3, "sum"):
        value, H = Risk(groups, "unsupervised", loss).value_and_gradient(np.ones((1, 1)))
        assert value == pytest.approx(psi([0.0, 0.0, 0.0], loss), rel=1e-13)
        assert (H == 0).all()
    with pytest.raises(InvalidInput):
        Risk(groups, "supervised", InfoNCE())


def test_hard_negatives_are_refused():
    with pytest.raises(InvalidInput) as raised:
        Risk(group_classes(PROPORTIONS), "supervised", InfoNCE(hardness=1.0))
    assert raised.value.field == ("loss", "hardness")


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    k=st.sampled_from([1, 2, 64, 10**5]),
    log_t=st.floats(-1.2, 1.0),
    alpha=st.sampled_from([0.0, 1.0]),
    sampling=st.sampled_from(["supervised", "unsupervised"]),
)
def test_risk_is_convex_along_segments(seed, k, log_t, alpha, sampling):
    rng = np.random.default_rng(seed)
    groups = group_classes(rng.dirichlet(np.ones(5)))
    risk = Risk(groups, sampling, InfoNCE(negatives=k, temperature=10**log_t, alpha=alpha))
    A, B = group_gram(groups, rng), group_gram(groups, rng)
    value, H = risk.value_and_gradient(A)
    other, middle = risk.value(B), risk.value(0.5 * (A + B))
    n = groups.sizes
    pairs = n[:, None] * n - np.diag(n)
    slack = 1e-11 * max(abs(value), abs(other), 1e-3)
    assert middle <= 0.5 * (value + other) + slack
    assert other >= value + float((pairs * H * (B - A)).sum()) - slack
