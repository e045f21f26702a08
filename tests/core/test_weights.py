"""Log-weights: validation by field, zeros, skipped anchors, the entropy bound and symmetrization."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from anglewise.errors import InvalidInput
from anglewise.symmetry import asymmetry_witness, symmetrize
from anglewise.weights import LogWeights, entropy_bound

RNG = np.random.default_rng(1)


@pytest.mark.parametrize(
    ("weights", "field"),
    [
        ([], ("weights",)),
        ("ab", ("weights",)),
        ([[1.0, 2.0]], ("weights", 0)),
        ([[1.0, 2.0], [1.0]], ("weights", 1)),
        ([[1.0, 2.0], "xy"], ("weights", 1)),
        ([[1.0, 2.0], 3.0], ("weights", 1)),
        ([[1.0, -2.0], [1.0, 1.0]], ("weights", 0, 1)),
        ([[1.0, 2.0], [math.nan, 1.0]], ("weights", 1, 0)),
        ([[1.0, 2.0], [1.0, math.inf]], ("weights", 1, 1)),
        ([[1.0, None], [1.0, 1.0]], ("weights", 0, 1)),
        ([[1.0, "2"], [1.0, 1.0]], ("weights", 0, 1)),
        ([[True, False], [1.0, 1.0]], ("weights", 0, 0)),
        ([[1.0, [2.0]], [1.0, 1.0]], ("weights", 0, 1)),
        ([[1.0, 10**400], [1.0, 1.0]], ("weights", 0, 1)),
        ([[1.0, 1j], [1.0, 1.0]], ("weights", 0, 1)),
        (np.ones((2, 3)), ("weights",)),
        (np.ones(3), ("weights",)),
        (np.ones((0, 0)), ("weights",)),
        (np.ones((2, 2), dtype=complex), ("weights",)),
    ],
)
def test_invalid_weights(weights: Any, field: tuple[str | int, ...]) -> None:
    with pytest.raises(InvalidInput) as error:
        LogWeights.from_weights(weights)
    assert error.value.field == field


@pytest.mark.parametrize("entry", [math.nan, math.inf, 1e10, -1e10, "0"])
def test_invalid_log_weights(entry: Any) -> None:
    with pytest.raises(InvalidInput) as error:
        LogWeights.from_log_weights([[0.0, entry], [0.0, 0.0]])
    assert error.value.field == ("log_weights", 0, 1)


def test_zeros_in_every_spelling() -> None:
    from_weights = LogWeights.from_weights([[1.0, 0.0], [-0.0, 2]]).values
    from_logs = LogWeights.from_log_weights([[0.0, None], [-math.inf, math.log(2)]]).values
    np.testing.assert_array_equal(from_weights, from_logs)
    assert np.isneginf(from_logs[0, 1])


def test_input_is_neither_kept_nor_changed() -> None:
    L = np.zeros((2, 2))
    weights = LogWeights.from_log_weights(L)
    weights.probabilities("excluded")
    weights.positive("excluded")
    np.testing.assert_array_equal(L, 0.0)
    assert weights.values is not L


def test_single_precision_is_remembered() -> None:
    assert LogWeights.from_weights(np.ones((2, 2), dtype=np.float32)).resolution == pytest.approx(
        1.19e-7, rel=0.01
    )
    assert LogWeights.from_weights(np.ones((2, 2))).resolution == LogWeights.from_weights([[1]]).resolution


def test_skipped_anchors() -> None:
    weights = LogWeights.from_weights([[1.0, 0, 0], [1.0, 1.0, 0], [0, 0, 5.0]])
    np.testing.assert_array_equal(weights.anchors("included"), [True, True, True])
    np.testing.assert_array_equal(weights.anchors("excluded"), [False, True, False])
    np.testing.assert_array_equal(weights.probabilities("excluded"), [[0.0, 0, 0], [1.0, 0, 0], [0, 0, 0]])
    assert entropy_bound(weights, "excluded") == 0
    assert entropy_bound(weights, "included") == pytest.approx(math.log(2) / 3)


@pytest.mark.parametrize("self_pairs", ["included", "excluded"])
def test_entropy_bound_of_random_weights(self_pairs: Any) -> None:
    W = RNG.exponential(size=(6, 6))
    W[RNG.random((6, 6)) < 0.2] = 0.0
    W[:, 0] = 1.0
    W[0, 1] = 1.0
    counted = W * (1 if self_pairs == "included" else 1 - np.eye(6))
    P = counted / counted.sum(axis=1)[:, None]
    entropy = -np.where(P > 0, P * np.log(np.where(P > 0, P, 1.0)), 0.0).sum(axis=1).mean()
    weights = LogWeights.from_weights(W)
    assert entropy_bound(weights, self_pairs) == pytest.approx(entropy, abs=1e-14)
    np.testing.assert_allclose(weights.probabilities(self_pairs), P, atol=1e-15)
    far = LogWeights.from_log_weights(weights.values + 1e5)
    assert entropy_bound(far, self_pairs) == pytest.approx(entropy, abs=1e-9)


@pytest.mark.parametrize("n", [2, 3, 70, 150])
def test_symmetrization(n: int) -> None:
    S = RNG.normal(size=(n, n))
    S += S.T
    np.fill_diagonal(S, 0.0)
    c = RNG.normal(size=n)
    free = symmetrize(S - c[:, None], 0.5, included=False)
    off = ~np.eye(n, dtype=bool)
    assert free.residual < 1e-13
    assert abs(free.M[off].mean()) < 1e-12
    np.testing.assert_allclose(np.ptp((free.M / 0.5 - S)[off]), 0.0, atol=1e-12)
    assert free.shift == pytest.approx(S[off].mean() - c.mean())
    fixed = symmetrize(S - c[:, None], 0.5, included=True)
    np.testing.assert_allclose(fixed.M, 0.5 * S, atol=1e-13)
    assert fixed.spread == pytest.approx(np.ptp(np.append(S[off], 0.0)))


def test_the_worst_pair_lies_on_a_cycle_at_least_as_bad() -> None:
    for _ in range(50):
        n = int(RNG.integers(3, 8))
        L = RNG.normal(size=(n, n))
        sym = symmetrize(L - np.diag(np.diag(L)), 1.0, included=False)
        code, witness = asymmetry_witness(L, np.ones(n, dtype=bool), False, 0.0)
        i, j, l = witness.items  # noqa: E741
        assert code == "not_symmetrisable"
        total = L[i, j] - L[j, i] + L[j, l] - L[l, j] + L[l, i] - L[i, l]
        assert witness.value == pytest.approx(total)
        assert abs(total) >= sym.residual * (1 - 1e-12)
