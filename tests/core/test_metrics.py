"""Metrics on real embeddings: definitions, closed forms, traps, degenerate input."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from anglewise.class_moments import class_moments, labeled_embeddings, unit_rows
from anglewise.errors import InvalidInput
from anglewise.metrics import gram_factor, measure
from anglewise.pair_metrics import MAX_PAIRED_ITEMS, Weighting
from anglewise.procrustes import procrustes_similarity, r2_procrustes, r2_similarity
from anglewise.weighted import best_geometry


def simplex(C):
    return (C * np.eye(C) - 1) / (C - 1)


def sample(C=4, d=6, n=200, noise=0.2, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(C, n, p=np.arange(C, 0, -1) / (C * (C + 1) / 2))
    M = rng.standard_normal((C, d))
    return M[y] + noise * rng.standard_normal((n, d)), y


def test_metrics_are_their_definitions():
    X, y = sample()
    Z = X / np.linalg.norm(X, axis=1)[:, None]
    C, n = 4, len(y)
    A = simplex(C)
    L = np.where(np.eye(C) > 0, 0.0, -1.0)
    got = measure(X, y, predicted_gram=A, weighting=Weighting(L, temperature=0.5))
    means = np.array([Z[y == c].mean(axis=0) for c in range(C)])
    centered = means - means.mean(axis=0)
    within = sum(np.outer(z - means[c], z - means[c]) for z, c in zip(Z, y, strict=True)) / n
    between = centered.T @ centered / C
    variance = [((Z[y == c] - means[c]) ** 2).sum(axis=1).mean() for c in range(C)]
    pairs = [(c, k) for c in range(C) for k in range(c)]
    U = means / np.linalg.norm(means, axis=1)[:, None]
    K = centered @ centered.T
    s = np.linalg.svd(Z, compute_uv=False)
    p = s / s.sum()
    same = [((Z[i] - Z[j]) ** 2).sum() for i in range(n) for j in range(i) if y[i] == y[j]]
    D = ((Z[:, None] - Z) ** 2).sum(axis=2)
    upper = np.triu_indices(n, 1)
    S = Z @ Z.T / 0.5
    log_q = S - np.log(np.exp(S).sum(axis=1))[:, None]
    P = np.exp(L)[y][:, y]
    P /= P.sum(axis=1)[:, None]
    expected = {
        "nc1": np.trace(within @ np.linalg.pinv(between, rcond=1e-10)) / C,
        "cdnv": np.mean(
            [(variance[c] + variance[k]) / (2 * ((means[c] - means[k]) ** 2).sum()) for c, k in pairs]
        ),
        "nc2": np.linalg.norm(K / np.linalg.norm(K) - (np.eye(C) - 1 / C) / np.sqrt(C - 1)),
        "gram_distance_max": np.abs(U @ U.T - A).max(),
        "gram_distance_fro": np.linalg.norm(U @ U.T - A) / C,
        "minority_collapse_index": max(U[c] @ U[k] for c, k in pairs),
        "effective_rank": np.exp(-(p * np.log(p)).sum()),
        "alignment": np.mean(same),
        "uniformity": np.log(np.mean(np.exp(-2 * D[upper]))),
        "entropic_gap": (P * (np.log(P) - log_q)).sum() / n,
        "r2_similarity": r2_similarity(Z @ Z.T, A[y][:, y]),
        "r2_procrustes": r2_procrustes(Z, gram_factor(A)[y]),
        "procrustes_similarity": procrustes_similarity(Z, gram_factor(A)[y]),
    }
    values = got.values()
    assert set(values) == set(expected)
    assert got.reasons == {}
    for name, value in expected.items():
        assert values[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_collapsed_simplex_is_perfect(dtype):
    C = 5
    y = np.repeat(np.arange(C), [40, 3, 7, 1, 20])
    Z = gram_factor(simplex(C))[y].astype(dtype)
    m = measure(Z, y, predicted_gram=simplex(C))
    slack = 1e-12 if dtype is np.float64 else 1e-6
    assert m.nc1 is not None
    assert 0 <= m.nc1 < slack
    assert m.nc2 == pytest.approx(0, abs=slack)
    assert m.gram_distance_max == pytest.approx(0, abs=slack)
    assert m.minority_collapse_index == pytest.approx(-1 / (C - 1), abs=slack)
    assert m.r2_similarity == pytest.approx(1, abs=slack)
    assert m.r2_procrustes == pytest.approx(1, abs=slack)
    assert m.effective_rank is not None
    assert m.effective_rank <= C - 1 + 1e-5


def test_nc1_survives_means_of_low_rank():
    """More classes than dimensions, and merged classes: the pseudo-inverse is cut, the value is finite."""
    X, y = sample(C=9, d=3)
    assert (measure(X, y).nc1 or -1) > 0
    X, y = sample(C=3, d=8, noise=0.0)
    X[y == 2] = X[y == 1][0]
    m = measure(X, y)
    assert m.nc1 == pytest.approx(0, abs=1e-25)
    assert m.cdnv is None
    assert "coincide" in m.reasons["cdnv"]
    assert m.minority_collapse_index == pytest.approx(1.0, abs=1e-14)


def test_metrics_do_not_depend_on_rotation_order_or_label_names():
    X, y = sample(d=5)
    rotation = np.linalg.qr(np.random.default_rng(1).standard_normal((5, 5)))[0]
    order = np.random.default_rng(2).permutation(len(y))
    names = np.array(["a", "b", "c", "d"])[y]
    a = measure(X, y, predicted_gram=simplex(4)).values()
    b = measure((X @ rotation)[order], names[order], predicted_gram=simplex(4)).values()
    for name in a:
        assert b[name] == (None if a[name] is None else pytest.approx(a[name], rel=1e-8))


def test_blocks_of_rows_change_nothing(monkeypatch):
    X, y = sample(n=97)
    whole = class_moments(labeled_embeddings(X, y))
    monkeypatch.setattr("anglewise.class_moments.BLOCK_NUMBERS", 50)
    pieces = class_moments(labeled_embeddings(X, y))
    np.testing.assert_allclose(pieces.means, whole.means, atol=1e-14)
    np.testing.assert_allclose(pieces.within_scatter, whole.within_scatter, atol=1e-12)
    np.testing.assert_allclose(pieces.within_variance, whole.within_variance, atol=1e-14)


def test_memory_is_bounded_by_blocks_not_by_items_squared():
    n, d = 60_000, 32
    X = np.random.default_rng(0).standard_normal((n, d)).astype(np.float32)
    y = np.arange(n) % 50
    tracemalloc.start()
    m = measure(X, y, predicted_gram=simplex(50))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150e6  # an n x n array would take 29 GB
    assert m.r2_similarity is not None
    assert m.uniformity is None
    assert str(MAX_PAIRED_ITEMS) in m.reasons["uniformity"]


@settings(max_examples=60, deadline=None)
@given(
    X=arrays(
        np.float64,
        st.tuples(st.integers(1, 8), st.integers(1, 4)),
        elements=st.sampled_from([0.0, 1.0, -1.0, 1.0 + 1e-15, 1e-30, 3.0, 1e30]),
    ),
    classes=st.integers(1, 4),
    unit=st.booleans(),
)
def test_degenerate_embeddings_give_numbers_or_reasons(X, classes, unit):
    y = np.arange(len(X)) % classes
    C = len(set(y.tolist()))
    m = measure(X, y, predicted_gram=np.eye(C), weighting=Weighting(np.zeros((len(X), len(X)))), unit=unit)
    for name, value in m.values().items():
        if value is None:
            assert m.reasons[name]
        else:
            assert math.isfinite(value)
            assert name not in m.reasons
    if m.nc1 is not None:
        assert m.nc1 >= 0


@pytest.mark.parametrize(
    ("X", "y", "missing", "present"),
    [
        (np.zeros((4, 3)), [0, 0, 1, 1], ["nc1", "nc2", "effective_rank", "r2_procrustes"], ["alignment"]),
        (np.ones((4, 3)), [0, 0, 1, 1], ["nc1", "cdnv", "nc2"], ["effective_rank", "gram_distance_max"]),
        (np.ones((1, 2)), ["a"], ["nc1", "uniformity", "alignment", "r2_similarity"], ["effective_rank"]),
        (np.eye(3), [5, 5, 5], ["nc1", "cdnv", "minority_collapse_index"], ["alignment", "uniformity"]),
        (np.array([[1.0], [-1.0]]), [0, 0], ["gram_distance_max"], ["alignment"]),
    ],
)
def test_reasons(X, y, missing, present):
    m = measure(X, y, predicted_gram=np.eye(len(set(y))))
    assert all(m.values()[name] is None and m.reasons[name] for name in missing)
    assert all(m.values()[name] is not None for name in present)
    assert m.reasons["entropic_gap"] == "no weights were given"


@pytest.mark.parametrize(
    ("X", "y", "field"),
    [
        ([[1.0, np.nan]], [0], ("embeddings", 0, 1)),
        ([[1.0], [np.inf]], [0, 1], ("embeddings", 1, 0)),
        (np.array([[1.0], [1e200]]), [0, 1], ("embeddings", 1, 0)),
        ([[1.0], [1.0, 2.0]], [0, 1], ("embeddings",)),
        ([], [], ("embeddings",)),
        ([["a"]], [0], ("embeddings",)),
        ([[1.0]], [0, 1], ("labels",)),
        ([[1.0], [2.0]], [0, 1.5], ("labels", 1)),
        ([[1.0], [2.0]], np.array([0, np.nan]), ("labels", 1)),
        ([[1.0], [2.0]], [0, "a"], ("labels",)),
        ([[1.0], [2.0]], [True, False], ("labels", 0)),
        ([[1.0], [2.0]], [0, 2**70], ("labels",)),
    ],
)
def test_bad_input_is_named(X, y, field):
    with pytest.raises(InvalidInput) as error:
        measure(X, y)
    assert error.value.field == field


def test_bad_predictions_and_weights_are_named():
    with pytest.raises(InvalidInput) as error:
        measure(np.eye(2), [0, 1], predicted_gram=np.eye(3))
    assert error.value.field == ("predicted_gram",)
    with pytest.raises(InvalidInput) as error:
        measure(np.eye(2), [0, 1], weighting=Weighting(np.zeros((3, 3))))
    assert error.value.field == ("weighting", "log_weights")


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("self_pairs", ["included", "excluded"])
def test_entropic_gap_of_a_best_geometry(metric, self_pairs):
    L = np.random.default_rng(3).standard_normal((9, 9))
    g = best_geometry(log_weights=L, metric=metric, self_pairs=self_pairs, temperature=0.4)
    weighting = Weighting(L, temperature=0.4, metric=metric, self_pairs=self_pairs)
    assert measure(g.embedding, np.arange(9), weighting=weighting).entropic_gap == pytest.approx(
        g.entropy_gap, rel=1e-9
    )


def test_rectangular_rotations_flatter():
    """An embedding with much of its length off the target's plane: zero padding keeps that visible."""
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((60, 2))
    Y -= Y.mean(axis=0)
    extra = 0.9 * rng.standard_normal((60, 3))
    extra -= extra.mean(axis=0)
    extra -= Y @ np.linalg.lstsq(Y, extra, rcond=None)[0]
    X = np.hstack([Y, extra]) @ np.linalg.qr(rng.standard_normal((5, 5)))[0]
    U, _, Vt = np.linalg.svd(X.T @ Y, full_matrices=False)
    flattering = 1 - ((Y - X @ (U @ Vt)) ** 2).sum() / (Y**2).sum()
    honest = r2_procrustes(X, Y)
    assert flattering > 0.99
    assert honest is not None
    assert honest < 0.0
    padded = np.pad(Y, ((0, 0), (0, 3)))
    U, _, Vt = np.linalg.svd(X.T @ padded)
    assert honest == pytest.approx(1 - ((padded - X @ U @ Vt) ** 2).sum() / (Y**2).sum(), abs=1e-12)


def test_r2_sees_scale_and_similarity_does_not():
    X, _ = sample()
    Y = X[:, ::-1]
    assert r2_procrustes(X, Y) == pytest.approx(1, abs=1e-12)
    assert r2_procrustes(3 * X, Y) == pytest.approx(1 - 4, abs=1e-12)
    assert procrustes_similarity(3 * X, Y) == pytest.approx(1, abs=1e-12)
    assert r2_similarity(2 * X @ X.T, 2 * X @ X.T) == 1
    assert (r2_similarity(2 * X @ X.T, X @ X.T) or 1) < 0.5


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), d=st.integers(1, 5), e=st.integers(1, 5))
def test_procrustes_bounds(seed, d, e):
    rng = np.random.default_rng(seed)
    X, Y = rng.standard_normal((12, d)), rng.standard_normal((12, e))
    similarity, r2 = procrustes_similarity(X, Y), r2_procrustes(X, Y)
    assert similarity is not None
    assert r2 is not None
    assert 0 <= similarity <= 1
    # The best scale of X turns r² into the squared similarity.
    assert r2 <= similarity**2 + 1e-12
    rotated = X @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    assert r2_procrustes(rotated, Y) == pytest.approx(r2, abs=1e-10)


def test_constant_targets_have_no_r2():
    X = np.random.default_rng(0).standard_normal((5, 2))
    assert r2_procrustes(X, np.ones((5, 3))) is None
    assert procrustes_similarity(np.ones((5, 3)), X) is None
    assert r2_similarity(X @ X.T, np.ones((5, 5))) is None


def test_unit_rows_scale_safely():
    X = np.array([[3e200, 4e200], [3e-200, 4e-200], [0.0, 0.0]])
    np.testing.assert_allclose(unit_rows(X), [[0.6, 0.8], [0.6, 0.8], [0, 0]], rtol=1e-15)
