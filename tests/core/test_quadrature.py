"""E log(α + β Σ X) against enumeration of the draws and against a four times finer trapezoid rule."""

import itertools
import math

import numpy as np
import pytest

from anglewise import quadrature
from anglewise.quadrature import log_sum_rows, single_draw_rows
from anglewise.second_moments import second_moment_row

SAMPLES = [
    (T, log_alpha, log_beta, k, own)
    for T in (0.03, 0.1, 1.0, 10.0)
    for log_alpha in (-math.inf, 0.0, 3.0, -27.0)
    for log_beta in (0.0, -3.0, 27.0)
    for k in (2, 3)
    for own in (0.0, 0.3)
]


def one_row(log_x, p, own, k, log_alpha, log_beta):
    """Value, shares and the constant's second moment of one anchor."""
    value, share, second = np.zeros(1), np.zeros((1, len(p))), np.zeros(1)
    if k == 1:
        single_draw_rows(
            0, 1, log_x[None], p[None], np.array([own]), log_alpha, log_beta, value, share, second
        )
    else:
        log_sum_rows(
            0, 1, log_x[None], p[None], np.array([own]), float(k), log_alpha, log_beta, value, share, second
        )
    return float(value[0]), share[0], float(second[0])


def enumerated(log_x, p, own, k, log_alpha, log_beta):
    """The same by summing over all sequences of draws, and E w_h w_h'."""
    X = np.append(np.exp(log_x), 1.0)
    probability = np.append(p, own)
    value, first, second = 0.0, np.zeros(len(p)), np.zeros((len(p), len(p)))
    constant = 0.0
    for draws in itertools.product(range(len(X)), repeat=k):
        weight = math.prod(probability[j] for j in draws)
        y = math.exp(log_beta) * np.bincount(draws, minlength=len(X)) * X
        total = math.exp(log_alpha) + y.sum()
        w = y[:-1] / total
        value += weight * math.log(total)
        first += weight * w
        second += weight * np.outer(w, w)
        constant += weight * ((math.exp(log_alpha) + y[-1]) / total) ** 2
    return value, first, second, constant


@pytest.mark.parametrize("k", [1, 2, 3])
def test_rows_agree_with_enumeration(k):
    rng = np.random.default_rng(k)
    for T, log_alpha, log_beta, _, own in SAMPLES[::3]:
        p = rng.dirichlet(np.ones(3)) * (1 - own)
        log_x = (rng.uniform(-1, 1, 3) - 1) / T
        value, share, constant = one_row(log_x, p, own, k, log_alpha, log_beta)
        expected, first, _, square = enumerated(log_x, p, own, k, log_alpha, log_beta)
        assert value == pytest.approx(expected, rel=1e-12, abs=1e-12)
        assert p * share == pytest.approx(first, rel=4e-12, abs=1e-300)
        assert constant == pytest.approx(square, rel=1e-10, abs=1e-14)


def test_second_moments_agree_with_enumeration():
    rng = np.random.default_rng(5)
    for T, log_alpha, log_beta, k, own in SAMPLES[1::7]:
        p = rng.dirichlet(np.ones(3)) * (1 - own)
        log_x = (rng.uniform(-1, 1, 3) - 1) / T
        moments = np.empty((3, 3))
        second_moment_row(log_x, p, own, float(k), log_alpha - log_beta, moments)
        expected = enumerated(log_x, p, own, k, log_alpha, log_beta)[2]
        assert moments == pytest.approx(expected, rel=1e-8, abs=1e-14 * expected.max())


def trapezoid(log_x, p, own, k, log_a, step):
    """log c + ∫ (e^{-cs} - e^{-as} φ^k) ds/s and the shares, plainly, in numpy."""
    X = np.exp(log_x)
    a = math.exp(log_a)
    c = a + k * (own + p @ X)
    u = np.arange(-4.2, 90.0, step)[:, None]
    s = np.exp(u - np.exp(-u)) / c
    jacobian = (1 + np.exp(-u)) * step
    one_minus_phi = (p * -np.expm1(-s * X)).sum(axis=1, keepdims=True) - own * np.expm1(-s)
    phi = (p * np.exp(-s * X)).sum(axis=1, keepdims=True) + own * np.exp(-s)
    log_phi = np.where(
        one_minus_phi < 0.5, np.log1p(-np.minimum(one_minus_phi, 0.5)), np.log(np.maximum(phi, 1e-300))
    )
    difference = np.exp(-c * s) * -np.expm1(np.minimum(c * s - a * s + k * log_phi, 700.0))
    shares = (k * np.exp((k - 1) * log_phi - a * s - s * X) * s * X * jacobian).sum(axis=0)
    return math.log(c) + float((difference * jacobian).sum()), shares


@pytest.mark.parametrize("k", [2, 16, 256, 100_000])
@pytest.mark.parametrize("own", [0.0, 0.2])
def test_a_finer_rule_gives_the_same(k, own):
    rng = np.random.default_rng(k)
    for T in (0.1, 1.0, 10.0):
        p = rng.dirichlet(np.full(6, 0.3)) * (1 - own)
        log_x = (rng.uniform(-1, 1, 6) - 1) / T
        value, share, _ = one_row(log_x, p, own, k, 0.0, 0.0)
        fine_value, fine_share = trapezoid(log_x, p, own, k, 0.0, quadrature.STEP / 4)
        assert value == pytest.approx(fine_value, rel=1e-11, abs=1e-13)
        assert share == pytest.approx(fine_share, rel=4e-12)


def test_tiny_risks_keep_their_relative_accuracy():
    """At low temperature log(1 + Y) is Y, of order 1e-27, whatever the number of draws."""
    log_x = np.array([-62.0, -63.0])
    p = np.array([0.4, 0.6])
    for k in (2, 100, 10_000):
        value, share, _ = one_row(log_x, p, 0.0, k, 0.0, 0.0)
        assert value == pytest.approx(k * p @ np.exp(log_x), rel=1e-12)
        assert share == pytest.approx(k * np.exp(log_x), rel=4e-12)


def test_shares_sum_to_one_without_a_constant():
    """α = 0 and no collisions: the shares of the draws are all there is, even when X spans e^{-2000}."""
    p = np.array([0.5, 0.3, 0.2])
    for log_x in (np.array([-1.0, -2.0, -0.5]), np.array([-1.0, -2000.0, -700.0])):
        for k in (1, 2, 5, 1000):
            value, share, constant = one_row(log_x, p, 0.0, k, -math.inf, 0.0)
            assert p @ share == pytest.approx(1.0, rel=1e-11)
            assert constant == 0.0
            assert log_x.min() <= value - math.log(k) <= log_x.max()


def test_two_draws_far_apart():
    """log(X_1 + X_2) is the larger one plus log 2 on a tie when the X are e^{-1000} apart."""
    p, log_x = np.array([0.7, 0.3]), np.array([0.0, -1000.0])
    value, share, _ = one_row(log_x, p, 0.0, 2, -math.inf, 0.0)
    assert value == pytest.approx(0.49 * math.log(2) + 0.09 * (math.log(2) - 1000), rel=1e-12)
    assert p * share == pytest.approx([0.91, 0.09], rel=1e-11)
