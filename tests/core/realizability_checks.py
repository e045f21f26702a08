"""Random weights, and independent checks of a verdict: everything recomputed from W and the answer alone."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from anglewise.verdict import Verdict

Matrix = NDArray[np.float64]


def random_weights(rng: np.random.Generator, n: int, kind: str, T: float) -> Matrix:
    """Weights whose verdicts vary: planted Gram matrices, noise around them, row scalings, twins."""
    r = int(rng.integers(1, n + 2))
    Z = rng.normal(size=(n, r))
    if kind != "distances":
        Z /= np.linalg.norm(Z, axis=1)[:, None]
    S = Z @ Z.T / T
    if kind == "distances":
        S = -((Z[:, None] - Z[None, :]) ** 2).sum(axis=2) / T
    elif kind == "noisy":
        E = rng.normal(size=(n, n)) * 10.0 ** rng.uniform(-3, 0.5)
        S = S + E + E.T - 2 * np.diag(np.diag(E))
    elif kind == "asymmetric":
        S = S + rng.normal(size=(n, n)) * 0.1
    elif kind == "stretched":
        S = S * rng.uniform(0.5, 2.0)
    if rng.random() < 0.3:
        S = S + rng.normal(size=n)[:, None]  # constants of the rows do not matter
    if n > 2 and rng.random() < 0.3:
        S[1], S[:, 1] = S[0], S[:, 0]
    return np.exp(S - S.max())


def counted(n: int, self_pairs: str) -> NDArray[np.bool_]:
    return np.ones((n, n), dtype=bool) if self_pairs == "included" else ~np.eye(n, dtype=bool)


def similarities(Z: Matrix, metric: str, T: float) -> Matrix:
    if metric == "cosine":
        return Z @ Z.T / T
    return -(((Z[:, None, :] - Z[None, :, :]) ** 2).sum(axis=2)) / T


def entropy_gap(W: Matrix, S: Matrix, self_pairs: str) -> float:
    """(1/n) Σ KL(p_i ‖ q_i) over anchors with a positive weight."""
    gaps = []
    for i, inside in enumerate(counted(len(W), self_pairs)):
        w, s = W[i, inside], S[i, inside]
        if not w.any():
            continue
        p = w / w.sum()
        log_q = s - s.max() - math.log(np.exp(s - s.max()).sum())
        kept = p > 0
        gaps.append(float((p[kept] * (np.log(p[kept]) - log_q[kept])).sum()))
    return sum(gaps) / len(gaps)


def check_verdict(
    W: Matrix,
    answer: Verdict,
    metric: str = "cosine",
    temperature: float = 0.1,
    *,
    self_pairs: str = "included",
    dimension: int | None = None,
) -> None:
    """Embeddings attain the bound and reproduce their matrices; witnesses are true."""
    T = temperature
    assert answer.unique == (answer.verdict == "realizable")
    assert answer.gap_lower_bound >= 0
    if answer.attained and answer.embedding is not None:
        for Z in (answer.embedding, answer.second_embedding):
            if Z is not None:
                assert dimension is None or Z.shape[1] <= dimension
                check_embedding(W, Z, answer, metric, T, self_pairs)
        assert answer.required_dimension in (None, answer.embedding.shape[1])
        if answer.verdict == "degenerate":
            assert answer.second_embedding is not None
            first, second = (similarities(Z, metric, T) for Z in (answer.embedding, answer.second_embedding))
            assert np.abs(first - second).max() > 1e-6  # not congruent
    if answer.verdict == "inconsistent":
        assert answer.embedding is None
        check_witness(W, answer, metric, T, self_pairs)


def check_embedding(W: Matrix, Z: Matrix, answer: Verdict, metric: str, T: float, self_pairs: str) -> None:
    assert answer.residual is not None
    S = similarities(Z, metric, T)
    if metric == "cosine":
        np.testing.assert_allclose(np.linalg.norm(Z, axis=1), 1.0, atol=1e-12)
    if Z is answer.embedding:
        matrix = answer.gram if metric == "cosine" else answer.squared_distances
        assert matrix is not None
        np.testing.assert_array_equal(matrix, matrix.T)
        np.testing.assert_array_equal(np.diag(matrix), 1.0 if metric == "cosine" else 0.0)
        own = T * S if metric == "cosine" else -T * S
        assert np.abs(own - matrix).max() <= answer.residual + 1e-12 * max(1.0, np.abs(matrix).max())
    # Rows of s - log w are constant, to the residual, over counted pairs.
    for inside, s, w in zip(counted(len(W), self_pairs), S, W, strict=True):
        if w[inside].any():
            constant = s[inside] - np.log(w[inside])
            assert np.ptp(constant) * T <= 2 * answer.residual + 1e-11 * max(1.0, T * np.abs(constant).max())


def check_witness(W: Matrix, answer: Verdict, metric: str, T: float, self_pairs: str) -> None:
    witness = answer.witness
    assert witness is not None
    with np.errstate(divide="ignore"):
        L = np.log(W)
    items = witness.items
    if witness.kind == "cycle":
        around = zip(items, (*items[1:], items[0]), strict=True)
        total = sum(L[a, b] - L[b, a] for a, b in around)
        assert abs(total) > 0
        np.testing.assert_allclose(witness.value, total, rtol=1e-6, atol=1e-12)
    elif witness.kind == "self_pair":
        i, j = items
        np.testing.assert_allclose(witness.value, L[i, j] - L[i, i] - L[j, i] + L[j, j], rtol=1e-6)
    elif witness.kind == "pair" and answer.reason.code == "pair":
        i, j = items
        asked = T * (L[i, j] - L[i, i])
        value = 1 + asked if metric == "cosine" else -asked
        assert abs(value) > 1 if metric == "cosine" else value < 0
        np.testing.assert_allclose(witness.value, value, rtol=1e-6, atol=1e-12)
    elif witness.kind == "vector":
        check_vector(L, answer, metric, T, self_pairs)
    elif witness.kind == "rank":
        assert witness.value is not None
        assert witness.value > 0
    elif witness.kind == "zero":
        assert W[items] == 0
    elif witness.kind == "pair":
        assert W[items] == 0 < W[items[::-1]]
    elif witness.kind == "path":
        assert W[items[0], items[-1]] == 0
        assert all(max(W[a, b], W[b, a]) > 0 for a, b in pairwise(items))
    else:
        assert witness.kind == "directed_cycle"
        assert W[items[1], items[0]] == 0
        assert all(W[a, b] > 0 for a, b in zip(items, (*items[1:], items[0]), strict=True))


def check_vector(L: Matrix, answer: Verdict, metric: str, T: float, self_pairs: str) -> None:
    witness = answer.witness
    assert witness is not None
    x = witness.vector
    assert x is not None
    moved = np.flatnonzero(x)  # a witness inside one block says nothing of the others
    x, L, n = x[moved], L[np.ix_(moved, moved)], len(moved)
    if not np.isfinite(L).all():
        assert "skipped anchors" in witness.statement
        return
    assert witness.value is not None
    assert witness.value < 0
    if self_pairs == "included":
        asked = T * (L - np.diag(L)[:, None])
        J = np.eye(n) - 1 / n
        K = 1 + asked if metric == "cosine" else 0.5 * J @ asked @ J
    else:
        assert abs(x.sum() ** 2 - x @ x) <= 1e-8
        R = L - L.T
        np.fill_diagonal(R, 0)
        c = -R.mean(axis=1)
        K = np.eye(n) + T * (1 - np.eye(n)) * np.where(np.eye(n) == 1, 0.0, (L + L.T + c[:, None] + c) / 2)
    np.testing.assert_allclose(x @ x, 1, rtol=1e-10)
    np.testing.assert_allclose(witness.value, x @ K @ x, rtol=1e-5, atol=1e-10)
