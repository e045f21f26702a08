"""Zero weights: every case of the table, and random patterns against direct minimization of the loss."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize

from anglewise.errors import InvalidInput
from anglewise.realizability import realizability
from anglewise.verdict import Verdict
from anglewise.weighted import best_geometry
from anglewise.weights import LogWeights
from tests.core.realizability_checks import check_verdict, entropy_gap, similarities

Matrix = NDArray[np.float64]
DISTANCE: dict[str, Any] = {"metric": "euclidean", "temperature": 1.0}
FREE: dict[str, Any] = DISTANCE | {"self_pairs": "excluded"}


def decide(W: Any, **question: Any) -> Verdict:
    answer = realizability(W, **question)
    check_verdict(np.array(W, dtype=float), answer, **question)
    return answer


def blocks(*sizes: int) -> Matrix:
    W = np.zeros((sum(sizes), sum(sizes)))
    start = 0
    for size in sizes:
        W[start : start + size, start : start + size] = 1.0
        start += size
    return W


@pytest.mark.parametrize("T", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("self_pairs", ["included", "excluded"])
def test_supcon_is_never_attained_nor_approached_on_the_sphere(T: float, self_pairs: str) -> None:
    answer = decide(blocks(3, 2), temperature=T, self_pairs=self_pairs)
    assert answer.reason.code == "zero_weight_on_sphere"
    assert answer.largest_temperature == 0
    own = 0 if self_pairs == "included" else 1
    rows = [(2, 3 - own)] * 3 + [(3, 2 - own)] * 2
    expected = np.mean([math.log1p(zeros / positives * math.exp(-2 / T)) for zeros, positives in rows])
    assert answer.gap_lower_bound == pytest.approx(expected)
    antipodal = np.array([[1.0]] * 3 + [[-1.0]] * 2)
    # Two classes: the antipodal geometry is as far as the sphere goes, and meets the bound.
    gap = entropy_gap(blocks(3, 2), antipodal @ antipodal.T / T, self_pairs)
    assert answer.gap_lower_bound == pytest.approx(gap, abs=1e-14)


def test_complete_blocks_are_driven_apart() -> None:
    for question in (DISTANCE, FREE, FREE | {"dimension": 1}):
        answer = decide(blocks(4, 3, 2), **question)
        assert answer.reason.code == "approached_at_infinity"
        assert (answer.verdict, answer.attained, answer.required_dimension) == ("degenerate", False, 1)
        assert answer.witness is not None
        assert answer.witness.items == (0, 0, 0, 0, 1, 1, 1, 2, 2)
    Z = np.array([[-30.0]] * 4 + [[0.0]] * 3 + [[30.0]] * 2)
    assert entropy_gap(blocks(4, 3, 2), similarities(Z, "euclidean", 1.0), "included") < 1e-12


def test_the_largest_block_sets_the_dimension() -> None:
    Z = np.random.default_rng(0).normal(size=(5, 3))
    W = np.zeros((7, 7))
    W[:5, :5] = np.exp(similarities(Z, "euclidean", 1.0))
    W[5:, 5:] = [[1.0, 0.5], [0.5, 1.0]]
    assert decide(W, **DISTANCE).required_dimension == 3
    low = decide(W, **DISTANCE, dimension=2)
    assert (low.verdict, low.reason.code) == ("inconsistent", "rank")
    assert low.gap_lower_bound > 0


def test_a_failing_block_fails_the_whole() -> None:
    W = np.zeros((5, 5))
    W[2:, 2:] = np.exp(-np.array([[0.0, 1, 9], [1, 0, 1], [9, 1, 0]]))
    W[:2, :2] = 1.0
    answer = realizability(W, **DISTANCE)
    assert (answer.verdict, answer.reason.code) == ("inconsistent", "negative_eigenvalue")
    assert answer.witness is not None
    assert answer.witness.vector is not None
    x = answer.witness.vector
    np.testing.assert_array_equal(x[:2], 0.0)
    D = np.array([[0.0, 1, 9], [1, 0, 1], [9, 1, 0]])
    assert abs(x.sum()) < 1e-12
    assert -0.5 * x[2:] @ D @ x[2:] < 0
    W[3, 3] = 2.0
    assert realizability(W, **DISTANCE).reason.code == "self_weights"
    cyclic = np.zeros((5, 5))
    cyclic[:2, :2] = 1.0
    cyclic[2:, 2:] = [[1.0, 2, 1], [1, 1, 2], [2, 1, 1]]
    answer = decide(cyclic, **FREE)
    assert answer.reason.code == "not_symmetrisable"
    assert answer.witness is not None
    assert set(answer.witness.items) == {2, 3, 4}


def test_zero_inside_a_block() -> None:
    W = [[1.0, 0.5, 0.0], [0.5, 1.0, 0.5], [0.0, 0.5, 1.0]]
    included = decide(W, **DISTANCE)
    assert included.reason.code == "zero_inside_block"
    assert included.witness is not None
    assert included.witness.items == (0, 1, 2)
    assert included.gap_lower_bound > 0
    for d in (None, 2):
        answer = decide(W, **FREE, dimension=d)
        assert (answer.verdict, answer.attained) == ("degenerate", False)
    low = decide(W, **FREE, dimension=1)
    assert (low.verdict, low.attained) == ("undetermined", None)
    assert low.reason.code == "zero_inside_block_low_dimension"


def test_zero_self_weight() -> None:
    W = [[0.0, 1.0], [1.0, 1.0]]
    answer = decide(W, **DISTANCE)
    assert answer.reason.code == "zero_self_weight"
    assert answer.gap_lower_bound == pytest.approx(math.log(2) / 2)
    assert decide(W, **FREE).verdict == "degenerate"  # the diagonal does not count


def test_one_sided_zeros() -> None:
    W = np.array([[1.0, 0.5], [0.0, 1.0]])
    included = decide(W, **DISTANCE)
    assert included.reason.code == "one_sided_zero"
    assert included.gap_lower_bound > 0
    acyclic = [[1.0, 1, 1], [0, 1, 1], [0, 1, 1]]
    assert decide(acyclic, **FREE).reason.code == "approached_at_infinity"
    assert decide(acyclic, **FREE, dimension=1).verdict == "undetermined"
    cyclic = decide([[1.0, 1, 0], [0, 1, 1], [1, 0, 1]], **FREE)
    assert (cyclic.reason.code, cyclic.verdict) == ("one_sided_zero", "inconsistent")


def test_skipped_anchors() -> None:
    lone = [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    for question in (DISTANCE, FREE, FREE | {"dimension": 1}):
        answer = decide(lone, **question)
        assert answer.reason.code == "approached_at_infinity"
        assert answer.skipped_anchors == (2,)
    with pytest.raises(InvalidInput, match="skipped"):
        realizability(np.zeros((3, 3)))
    with pytest.raises(InvalidInput, match="skipped"):
        realizability(np.eye(3), self_pairs="excluded")


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("self_pairs", ["included", "excluded"])
def test_one_skipped_anchor_that_others_look_at(metric: str, self_pairs: str) -> None:
    """Its row is free, and its column follows from the other rows: decided like any positive weights."""
    rng = np.random.default_rng(3)
    Z = rng.normal(size=(6, 2))
    Z = Z / np.linalg.norm(Z, axis=1)[:, None] if metric == "cosine" else 0.5 * Z
    W = np.exp(similarities(Z, metric, 0.5) + rng.normal(size=6)[:, None])
    W[4] = 0.0
    answer = decide(W, metric=metric, temperature=0.5, self_pairs=self_pairs, dimension=2)
    assert answer.attained
    assert answer.skipped_anchors == (4,)
    W[0, 4] *= 3
    worse = realizability(W, metric=metric, temperature=0.5, self_pairs=self_pairs, dimension=2)
    assert worse.verdict == "inconsistent"
    assert 0 <= worse.gap_lower_bound <= entropy_gap(W, similarities(Z, metric, 0.5), self_pairs)


def test_several_skipped_anchors_that_others_look_at() -> None:
    W = np.exp(-np.random.default_rng(0).uniform(size=(5, 5)))
    W = np.sqrt(W * W.T)
    np.fill_diagonal(W, 1.0)
    W[3:] = 0.0
    free = decide(W, **FREE)
    assert (free.verdict, free.reason.code) == ("degenerate", "free_pairs")
    assert decide(W, **DISTANCE).verdict in ("undetermined", "inconsistent")
    far = W.copy()
    far[0, 1] = far[1, 0] = 5.0
    assert decide(far, **DISTANCE).verdict == "inconsistent"


def best_free_gap(W: Matrix) -> float:
    """The infimum over all symmetric similarities, self pairs excluded: convex, by L-BFGS."""
    n = len(W)
    upper = np.triu_indices(n, 1)

    def gap(s: Matrix) -> tuple[float, Matrix]:
        S = np.zeros((n, n))
        S[upper] = s
        S += S.T
        E = np.exp(S - S.max()) * (1 - np.eye(n))
        Q = E / E.sum(axis=1)[:, None]
        live = W.sum(axis=1) > 0
        P = np.where(live[:, None], W / np.where(live, W.sum(axis=1), 1.0)[:, None], Q)
        gradient = (Q - P) / live.sum()
        return entropy_gap(W, S, "excluded"), (gradient + gradient.T)[upper]

    start = np.zeros(len(upper[0]))
    options = {"maxiter": 3000, "ftol": 0.0, "gtol": 1e-10}
    return float(minimize(gap, start, jac=True, method="L-BFGS-B", options=options).fun)


def test_random_patterns_without_self_pairs() -> None:
    rng = np.random.default_rng(5)
    seen = set()
    for _ in range(80):
        n = int(rng.integers(3, 6))
        S = rng.normal(size=(n, n))
        W = np.exp(S + S.T + rng.normal(size=n)[:, None])
        if rng.random() < 0.2:
            W[0, 1] *= 2
        holes = rng.random((n, n)) < rng.uniform(0.1, 0.6)
        if rng.random() < 0.6:
            holes |= holes.T
        W[holes] = 0.0
        np.fill_diagonal(W, 0.0)
        if not W.any():
            continue
        answer = decide(W, **FREE)
        best = best_free_gap(W)
        seen.add((answer.verdict, answer.reason.code))
        if answer.verdict == "inconsistent":
            assert 0 < answer.gap_lower_bound <= best + 1e-12
            assert best > 1e-4
        else:
            assert answer.verdict == "degenerate"
            assert best < 1e-4, (W, best)
    assert {code for _, code in seen} >= {"approached_at_infinity", "not_symmetrisable", "one_sided_zero"}


def descent(W: Matrix, start: Matrix) -> float:
    """The entropy gap at a local minimum over coordinates, Euclidean, self pairs included."""

    def gap(z: Matrix) -> float:
        return entropy_gap(W, similarities(z.reshape(start.shape), "euclidean", 1.0), "included")

    return float(minimize(gap, start.ravel(), method="L-BFGS-B", options={"maxfun": 4000}).fun)


def test_random_patterns_with_self_pairs() -> None:
    """Upper bounds on the gap from a direct descent over coordinates; every bound below them."""
    rng = np.random.default_rng(6)
    codes = set()
    for _ in range(60):
        n = int(rng.integers(2, 6))
        Z = rng.normal(size=(n, 2))
        W = np.exp(similarities(Z, "euclidean", 1.0))
        group = rng.integers(0, 3, size=n)
        if rng.random() < 0.7:
            W[group[:, None] != group[None, :]] = 0.0
        for _ in range(int(rng.integers(0, 3))):
            i, j = rng.integers(0, n, size=2)
            W[i, j] = 0.0
            if rng.random() < 0.7:
                W[j, i] = 0.0
        if not W.any():
            continue
        answer = decide(W, **DISTANCE)
        codes.add(answer.reason.code)
        best = min(descent(W, Z0) for Z0 in (2 * Z, Z + 4 * np.stack([group, group**2], axis=1)))
        if answer.verdict == "inconsistent":
            assert 0 < answer.gap_lower_bound <= best
        elif answer.verdict in ("degenerate", "realizable"):
            assert best < 1e-3
    assert codes >= {"approached_at_infinity", "zero_inside_block", "one_sided_zero", "zero_self_weight"}


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_witnesses_name_counted_anchors(metric: str) -> None:
    """A skipped anchor has no weights of its own, so nothing can be read off its row."""
    rng = np.random.default_rng(7)
    seen = set()
    for _ in range(60):
        n = int(rng.integers(3, 6))
        W = rng.uniform(0.5, 2.0, size=(n, n))
        if rng.random() < 0.5:
            W = np.minimum(W, W.T)
            np.fill_diagonal(W, 1.0)
        W[rng.integers(n)] = 0.0
        answer = decide(W, metric=metric, temperature=1.0)
        seen.add(answer.reason.code)
    assert {"not_symmetrisable", "pair"} <= seen


def test_gap_bound_of_the_counted_items_alone() -> None:
    """Items that only are looked at take a share of each row, in which nothing is proven."""
    rng = np.random.default_rng(8)
    for _ in range(20):
        W = rng.uniform(0.5, 1.0, size=(5, 5))
        W[3:] = 0.0
        answer = realizability(W, temperature=0.3, self_pairs="excluded")
        assert answer.reason.code == "not_symmetrisable"
        best = best_geometry(LogWeights.from_weights(W), temperature=0.3, self_pairs="excluded")
        assert 0 < answer.gap_lower_bound <= best.entropy_gap + 1e-12
