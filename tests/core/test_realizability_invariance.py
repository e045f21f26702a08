"""What must not change a verdict, and the cases users of neighboring libraries stumbled over."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from anglewise.design import design_weights
from anglewise.errors import InvalidInput
from anglewise.realizability import realizability
from anglewise.verdict import Verdict
from anglewise.weights import LogWeights
from tests.core.realizability_checks import check_verdict, random_weights, similarities

Matrix = NDArray[np.float64]
KINDS = ["planted", "distances", "noisy", "asymmetric", "stretched"]


def same(a: Verdict, b: Verdict) -> None:
    assert (a.verdict, a.attained, a.reason.code, a.required_dimension) == (
        b.verdict,
        b.attained,
        b.reason.code,
        b.required_dimension,
    )
    if a.margin is not None:
        assert b.margin == pytest.approx(a.margin, abs=1e-9)
    if isinstance(a.largest_temperature, float):
        assert b.largest_temperature == pytest.approx(a.largest_temperature, rel=1e-6, abs=1e-9)
    else:
        assert a.largest_temperature == b.largest_temperature


questions = st.fixed_dictionaries(
    {
        "metric": st.sampled_from(["cosine", "euclidean"]),
        "self_pairs": st.sampled_from(["included", "excluded"]),
        "temperature": st.floats(0.1, 3.0),
        "dimension": st.sampled_from([None, 1, 2, 3, 6]),
    }
)


@settings(max_examples=150, deadline=None)
@given(
    question=questions,
    kind=st.sampled_from(KINDS),
    n=st.integers(2, 7),
    seed=st.integers(0, 2**32 - 1),
)
def test_invariances(question: dict[str, Any], kind: str, n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    L = np.log(random_weights(rng, n, kind, question["temperature"]))
    answer = realizability(log_weights=L, **question, embed=False)
    if answer.close_call:
        return
    for scale in (1e-6, 1e6):
        same(answer, realizability(log_weights=L + math.log(scale), **question, embed=False))
    order = rng.permutation(n)
    same(answer, realizability(log_weights=L[np.ix_(order, order)], **question, embed=False))
    noise = 1e-13 * rng.normal(size=(n, n))
    same(answer, realizability(log_weights=L + noise + noise.T, **question, embed=False))
    if question["self_pairs"] == "included":
        twice = np.append(np.arange(n), rng.integers(0, n))
        repeated = realizability(log_weights=L[np.ix_(twice, twice)], **question, embed=False)
        assert (repeated.verdict, repeated.reason.code) == (answer.verdict, answer.reason.code)
        assert repeated.required_dimension == answer.required_dimension
    if question["metric"] == "euclidean":
        hot = question | {"temperature": 2 * question["temperature"]}
        assert realizability(log_weights=L, **hot, embed=False).verdict == answer.verdict


@settings(max_examples=80, deadline=None)
@given(
    self_pairs=st.sampled_from(["included", "excluded"]),
    kind=st.sampled_from(["planted", "distances", "noisy", "stretched"]),
    n=st.integers(2, 7),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_largest_temperature_separates(self_pairs: str, kind: str, n: int, seed: int) -> None:
    W = random_weights(np.random.default_rng(seed), n, kind, 1.0)
    hottest = realizability(W, temperature=1.0, self_pairs=self_pairs, embed=False).largest_temperature
    if hottest == "unbounded":
        assert realizability(W, temperature=1e4, self_pairs=self_pairs, embed=False).attained
    elif hottest == 0:
        for T in (1e-3, 0.1, 10.0):
            cold = realizability(W, temperature=T, self_pairs=self_pairs, embed=False)
            assert not cold.attained or cold.close_call
    else:
        assert isinstance(hottest, float)
        for factor, attained in ((0.5, True), (1 - 1e-4, True), (1 + 1e-4, False), (2.0, False)):
            T = hottest * factor
            if 1e-3 <= T <= 10:  # the tolerance is in units of T
                answer = realizability(W, temperature=T, self_pairs=self_pairs, embed=False)
                assert answer.attained == attained or answer.close_call
                assert answer.largest_temperature == pytest.approx(hottest, rel=1e-5)


def test_the_largest_temperature_depends_on_the_dimension() -> None:
    U = np.random.default_rng(0).normal(size=(6, 3))
    U /= np.linalg.norm(U, axis=1)[:, None]
    L = (U @ U.T - 1) / 0.5
    assert realizability(log_weights=L, temperature=0.5, dimension=3).largest_temperature == pytest.approx(
        0.5
    )
    assert realizability(log_weights=L, temperature=0.5, dimension=2).largest_temperature == 0
    free = realizability(log_weights=L, temperature=0.5, dimension=2, self_pairs="excluded")
    assert free.largest_temperature is None


@pytest.mark.parametrize("n", [20, 60])
def test_single_precision_input(n: int) -> None:
    """Rounding to single precision does not refute a low-dimensional geometry."""
    U = np.random.default_rng(n).normal(size=(n, 3))
    U /= np.linalg.norm(U, axis=1)[:, None]
    W = np.exp((U @ U.T - 1) / 0.5).astype(np.float32)
    W = np.sqrt(W * W.T)
    for self_pairs in ("included", "excluded"):
        question: dict[str, Any] = {"temperature": 0.5, "self_pairs": self_pairs, "dimension": 3}
        automatic = realizability(W, **question)
        assert automatic.attained
        assert automatic.tolerance >= 4 * n * 1.19e-7
        explicit = realizability(W.astype(np.float64), **question, tolerance=4 * n * 1.2e-7)
        assert explicit.attained
        assert explicit.required_dimension == automatic.required_dimension == 3
        assert explicit.residual is not None
        assert explicit.residual < 1e-4
        assert not realizability(W.astype(np.float64), **question).attained


def test_noise_below_the_tolerance_keeps_equal_weights_equal() -> None:
    rng = np.random.default_rng(0)
    for self_pairs in ("included", "excluded"):
        for metric in ("cosine", "euclidean"):
            E = 1e-12 * rng.normal(size=(8, 8))
            answer = realizability(1 + E + E.T, metric=metric, self_pairs=self_pairs, dimension=1)
            assert answer.attained, (metric, self_pairs)


def test_tolerance_is_raised_to_the_rounding_of_the_input() -> None:
    L = np.full((3, 3), 1e6)
    assert realizability(log_weights=L, tolerance=1e-15).tolerance == pytest.approx(
        8 * 2.2e-16 * 1e6, rel=0.01
    )
    assert realizability(log_weights=np.zeros((3, 3)), tolerance=1e-6).tolerance == 1e-6


def test_points_in_the_plane() -> None:
    """Coordinates must reproduce the distances they were made from."""
    X = np.array([[1.0, 5], [1, 4], [1, 1], [3, 3]])
    D = ((X[:, None] - X[None, :]) ** 2).sum(axis=2)
    answer = realizability(log_weights=-D / 0.7, metric="euclidean", temperature=0.7)
    assert (answer.verdict, answer.required_dimension) == ("realizable", 2)
    assert answer.residual is not None
    assert answer.residual < 1e-9
    assert answer.embedding is not None
    np.testing.assert_allclose(-0.7 * similarities(answer.embedding, "euclidean", 0.7), D, atol=1e-9)
    gram_eigenvalues = np.linalg.eigvalsh(answer.embedding @ answer.embedding.T)
    np.testing.assert_allclose(gram_eigenvalues, [0, 0, 2.9568, 8.7932], atol=1e-4)


def test_the_path_metric_of_a_star() -> None:
    """The squared path distances of K(1,3) are not Euclidean; their square roots are."""
    d = np.array([[0.0, 1, 1, 1], [1, 0, 2, 2], [1, 2, 0, 2], [1, 2, 2, 0]])
    answer = realizability(log_weights=-(d**2), metric="euclidean", temperature=1.0)
    assert (answer.verdict, answer.reason.code) == ("inconsistent", "negative_eigenvalue")
    assert answer.witness is not None
    assert answer.witness.value == pytest.approx(-0.25)
    assert answer.largest_temperature == 0
    assert answer.gap_lower_bound > 0
    roots = realizability(log_weights=-d, metric="euclidean", temperature=1.0)
    assert (roots.verdict, roots.required_dimension) == ("realizable", 3)
    assert roots.embedding is not None
    np.testing.assert_allclose(
        np.linalg.eigvalsh(roots.embedding @ roots.embedding.T), [0, 0.25, 1, 1], atol=1e-12
    )
    with pytest.raises(InvalidInput, match=r"-0\.25"):
        design_weights(squared_distances=d**2, metric="euclidean")


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_singular_matrix_is_a_boundary_case_and_not_a_refutation(scale: float) -> None:
    G = np.array([[4.0, -4, 0], [-4, 8, -4], [0, -4, 4]])
    D = np.diag(G)[:, None] + np.diag(G)[None, :] - 2 * G
    L = -D / 0.1 + math.log(scale)
    for W in (LogWeights.from_log_weights(L), scale * np.exp(-D / 0.1)):
        answer = realizability(W, metric="euclidean", temperature=0.1)
        assert (answer.verdict, answer.required_dimension) == ("realizable", 2)
        assert not answer.close_call


@pytest.mark.parametrize("n", [50, 200])
@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("self_pairs", ["included", "excluded"])
def test_larger_problems(n: int, metric: str, self_pairs: str) -> None:
    rng = np.random.default_rng(n)
    Z = rng.normal(size=(n, 4))
    if metric == "cosine":
        Z /= np.linalg.norm(Z, axis=1)[:, None]
    S = similarities(Z, metric, 0.2) + rng.normal(size=n)[:, None]
    question: dict[str, Any] = {"metric": metric, "temperature": 0.2, "self_pairs": self_pairs}
    W = np.exp(S - S.max())
    for d in (None, n - 1, 4):
        answer = realizability(W, **question, dimension=d)
        assert answer.attained
        assert answer.residual is not None
        assert answer.residual < 1e-8
        check_verdict(W, answer, **question, dimension=d)
    low = realizability(W, **question, dimension=3)
    assert low.reason.code == "rank"
    assert low.gap_lower_bound > 0
    W[3, 7] *= 1.01
    broken = realizability(W, **question)
    assert broken.verdict == "inconsistent"
    check_verdict(W, broken, **question)


@settings(max_examples=200, deadline=None)
@given(
    question=questions,
    T=st.sampled_from([1e-3, 0.1, 1e4]),
    n=st.integers(1, 6),
    magnitude=st.sampled_from([0.0, 1e-12, 1e-3, 1.0, 50.0, 1e4, 1e9]),
    zeros=st.sampled_from([0.0, 0.1, 0.5]),
    symmetric=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_no_input_breaks_it(
    question: dict[str, Any],
    T: float,
    n: int,
    magnitude: float,
    zeros: float,
    symmetric: bool,
    seed: int,
) -> None:
    """Extreme weights give an answer without NaN, or say which argument is impossible."""
    rng = np.random.default_rng(seed)
    L = rng.uniform(-magnitude, magnitude, size=(n, n))
    holes = rng.random((n, n)) < zeros
    if symmetric:
        L, holes = np.minimum(L, L.T), holes | holes.T
        np.fill_diagonal(L, magnitude)
    L[holes] = -np.inf
    weights = LogWeights.from_log_weights(L)
    if not weights.positive(question["self_pairs"]).any():
        with pytest.raises(InvalidInput, match=r"skipped|no pair"):
            realizability(weights, **question | {"temperature": T})
        return
    answer = realizability(weights, **question | {"temperature": T})
    for name, value in vars(answer).items():
        parts = vars(value).items() if hasattr(value, "__dataclass_fields__") else [(name, value)]
        for part, number in parts:
            if isinstance(number, (float, np.ndarray)):
                assert np.isfinite(number).all(), (name, part)
    assert answer.witness is None or answer.witness.statement
    if answer.verdict == "inconsistent":
        assert answer.witness is not None
