"""The certificate against the full class-level matrices, and as a bound on the true excess."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anglewise.certificate import (
    EPS,
    certify,
    dual_on_groups,
    dual_weights,
    make_feasible,
    min_gram_eigenvalue,
    weighted_gap,
)
from anglewise.losses import InfoNCE
from anglewise.risk import Risk
from anglewise.sampling import group_classes, normalized_proportions
from anglewise.solve import minimize_risk

PROPORTIONS = normalized_proportions([0.4, 0.15, 0.15, 0.15, 0.05, 0.05, 0.05])


def full(groups, A):
    F = A[np.ix_(groups.index, groups.index)].copy()
    np.fill_diagonal(F, 1.0)
    return F


def random_group_gram(groups, rng):
    A = rng.uniform(-1, 1, (len(groups), len(groups)))
    return make_feasible(groups, A + A.T)


def class_level(groups, H, A):
    """Z = G - Diag(y) on all classes, and y."""
    G = full(groups, 0.5 * (H + H.T))
    np.fill_diagonal(G, 0.0)
    y = np.diag(G @ full(groups, A))
    return G - np.diag(y), y


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
def test_group_matrices_have_the_eigenvalues_of_the_class_matrices(sampling):
    rng = np.random.default_rng(0)
    groups = group_classes(PROPORTIONS)
    risk = Risk(groups, sampling, InfoNCE(negatives=9, temperature=0.5))
    for _ in range(5):
        A = random_group_gram(groups, rng)
        _, H = risk.value_and_gradient(A)
        Z, y = class_level(groups, H, A)
        on_groups, inside, y_group = dual_on_groups(groups, H, A)
        assert y_group[groups.index] == pytest.approx(y, rel=1e-12, abs=1e-15)
        repeated = [np.repeat(inside[g], groups.sizes[g] - 1) for g in range(len(groups))]
        spectrum = np.sort(np.concatenate([np.linalg.eigvalsh(on_groups), *repeated]))
        assert spectrum == pytest.approx(np.linalg.eigvalsh(Z), abs=1e-13)
        assert min_gram_eigenvalue(groups, A) == pytest.approx(
            np.linalg.eigvalsh(full(groups, A))[0], abs=1e-13
        )
        for weights in (np.ones(len(groups)), dual_weights(y_group), np.arange(1.0, len(groups) + 1)):
            w = weights[groups.index]
            least = np.linalg.eigvalsh(Z / np.sqrt(w[:, None] * w))[0]
            gap, smallest = weighted_gap(groups, on_groups, inside, weights)
            assert smallest == pytest.approx(least, rel=1e-10, abs=1e-11)
            assert gap >= w.sum() * max(0.0, -least) * (1 - 1e-10)


def test_feasible_matrices():
    rng = np.random.default_rng(1)
    groups = group_classes(PROPORTIONS)
    for _ in range(20):
        A = random_group_gram(groups, rng)
        F = full(groups, A)
        assert np.linalg.eigvalsh(F)[0] > -1e-14
        assert (np.diag(F) == 1).all()
        assert np.abs(F).max() <= 1
        assert make_feasible(groups, A) == pytest.approx(A, abs=1e-14)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    k=st.sampled_from([1, 3, 256]),
    log_t=st.floats(-1.3, 1.0),
    alpha=st.sampled_from([0.0, 1.0]),
    sampling=st.sampled_from(["supervised", "unsupervised"]),
)
def test_the_gap_bounds_the_true_excess(seed, k, log_t, alpha, sampling):
    """No feasible point, the solved optimum included, lies below risk - gap."""
    rng = np.random.default_rng(seed)
    groups = group_classes(rng.dirichlet(np.full(4, 0.5)))
    loss = InfoNCE(negatives=k, temperature=10**log_t, alpha=alpha)
    risk = Risk(groups, sampling, loss)
    optimum = minimize_risk(groups, sampling, loss)
    for _ in range(3):
        A = random_group_gram(groups, rng)
        value, H = risk.value_and_gradient(A)
        certificate = certify(risk, value, H, A, tolerance=1e-8)
        assert certificate.lower_bound <= optimum.risk + 1e-12 * abs(optimum.risk)
        assert optimum.certificate.lower_bound <= value
        assert certificate.gap >= 0


def test_the_gap_is_relative_to_the_risk():
    groups = group_classes(PROPORTIONS)
    rng = np.random.default_rng(2)
    A = random_group_gram(groups, rng)
    for loss, floor in ((InfoNCE(negatives=1), 1e-12), (InfoNCE(negatives=1, alpha=0.0), 1.0)):
        risk = Risk(groups, "supervised", loss)
        value, H = risk.value_and_gradient(A)
        certificate = certify(risk, value, H, A, tolerance=1e-8)
        assert certificate.relative_gap == pytest.approx(certificate.gap / max(abs(value), floor))
        assert certificate.lower_bound == value - certificate.gap
        assert not certificate.certified
        loose = certify(risk, value, H, A, tolerance=2 * certificate.relative_gap)
        assert loose.certified


def test_scaled_weights_are_tighter_under_imbalance():
    """At a slightly wrong point of a problem with imbalance 1e6 the plain bound is ten times too large."""
    groups = group_classes(
        normalized_proportions(np.geomspace(1, 1e-6, 30) / np.geomspace(1, 1e-6, 30).sum())
    )
    loss = InfoNCE(negatives=256, temperature=1.0)
    risk = Risk(groups, "unsupervised", loss)
    A = minimize_risk(groups, "unsupervised", loss).gram * (1 - 1e-7)
    np.fill_diagonal(A, 1.0)
    value, H = risk.value_and_gradient(A)
    Z, inside, y = dual_on_groups(groups, H, A)
    plain = weighted_gap(groups, Z, inside, np.ones(30))[0]
    scaled = weighted_gap(groups, Z, inside, dual_weights(y))[0]
    assert certify(risk, value, H, A, tolerance=1e-12).gap == min(
        plain, scaled, weighted_gap(groups, Z, inside, np.sqrt(dual_weights(y)))[0]
    )
    assert scaled < 0.2 * plain


def test_rounding_is_part_of_the_bound():
    """At an exact optimum the bound is a few units in the last place of the trace, not zero."""
    groups = group_classes(np.full(5, 0.2))
    risk = Risk(groups, "supervised", InfoNCE(negatives=3, temperature=0.5))
    A = np.array([[-0.25]])
    value, H = risk.value_and_gradient(A)
    certificate = certify(risk, value, H, A, tolerance=1e-8)
    assert 0 < certificate.gap < 1e3 * EPS * value
    assert certificate.certified
