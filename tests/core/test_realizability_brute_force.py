"""Verdicts against a dense decision by another route: eigenvalues of the full matrix on bisected offsets.

For a fixed offset the required Gram matrix is known; its smallest eigenvalue is a concave function of the
offset, maximized here by golden section, and its sign changes are bisected. No tridiagonal form, no secular
equation.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar

from anglewise.realizability import realizability
from tests.core.realizability_checks import check_verdict, entropy_gap, random_weights, similarities

Matrix = NDArray[np.float64]
CLEAR = 1e-6
"""Cases whose deciding eigenvalue is smaller than this, relative, are boundary cases and tested apart."""


def dense_gram(L: Matrix, T: float, metric: str) -> Matrix:
    """The only candidate with self pairs included."""
    n = len(L)
    asked = T * (L - np.diag(L)[:, None])
    asked = 0.5 * (asked + asked.T)
    J = np.eye(n) - 1 / n
    return 1 + asked if metric == "cosine" else 0.5 * J @ asked @ J


def family(L: Matrix, T: float, metric: str, kappa: float) -> Matrix:
    """The candidate at one offset with self pairs excluded."""
    n = len(L)
    off = 1 - np.eye(n)
    R = (L - L.T) * off
    c = -R.mean(axis=1)
    M = T * off * (L + L.T + c[:, None] + c[None, :]) / 2
    J = np.eye(n) - 1 / n
    return np.eye(n) + M + kappa * off if metric == "cosine" else 0.5 * J @ (M + kappa * off) @ J


def asymmetry(L: Matrix, self_pairs: str) -> float:
    R = L - L.T
    np.fill_diagonal(R, 0)
    c = -np.diag(L) if self_pairs == "included" else -R.mean(axis=1)
    return float(np.abs(R + c[:, None] - c[None, :]).max())


def brute_force(W: Matrix, metric: str, T: float, self_pairs: str, d: int | None) -> set[str]:
    """Possible verdicts: one, or two in a boundary case."""
    L, n = np.log(W), len(W)
    if (asym := asymmetry(L, self_pairs)) > CLEAR:
        return {"inconsistent"}
    if asym > 1e-12:
        return {"inconsistent", "realizable", "degenerate"}
    fits = n + 1 if d is None else d
    if self_pairs == "included":
        return _by_spectrum(dense_gram(L, T, metric), T, fits, "realizable")
    if metric == "euclidean":
        if fits >= n - 1:
            return {"degenerate"}
        complement = np.linalg.svd(np.eye(n) - 1 / n)[0][:, : n - 1]
        low = float(np.linalg.eigvalsh(2 * complement.T @ family(L, T, metric, 0.0) @ complement)[0])
        return _by_spectrum(family(L, T, metric, low), T, fits, "realizable")

    def smallest(kappa: float) -> float:
        return float(np.linalg.eigvalsh(family(L, T, metric, kappa))[0])

    reach = 10.0 + 2 * T * np.ptp(L) + T * np.abs(L).max()
    best = minimize_scalar(
        lambda k: -smallest(k), bounds=(-reach, reach), method="bounded", options={"xatol": 1e-12}
    )
    scale = float(np.abs(np.linalg.eigvalsh(family(L, T, metric, best.x))).max())
    if -best.fun < -CLEAR * scale:
        return {"inconsistent"}
    if -best.fun < CLEAR * scale:
        return {"inconsistent", "realizable", "degenerate"}
    if fits >= n - 1:
        return {"degenerate"}
    upper = brentq(smallest, best.x, best.x + 2 * reach + 2 * scale, xtol=1e-15, rtol=1e-15)
    return _by_spectrum(family(L, T, metric, upper), T, fits, "realizable")


def _by_spectrum(K: Matrix, T: float, fits: int, positive: str) -> set[str]:
    w = np.linalg.eigvalsh(K)
    scale = max(float(np.abs(w).max()), T)
    if w[0] < -CLEAR * scale:
        return {"inconsistent"}
    if w[0] < -1e-11 * scale or ((w > 1e-11 * scale) & (w < CLEAR * scale)).any():
        return {"inconsistent", positive}
    return {positive if (w > CLEAR * scale).sum() <= fits else "inconsistent"}


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("self_pairs", ["included", "excluded"])
@pytest.mark.parametrize("kind", ["planted", "distances", "noisy", "asymmetric", "stretched"])
def test_agrees_with_dense_decision(metric: str, self_pairs: str, kind: str) -> None:
    rng = np.random.default_rng([len(kind), metric == "cosine", self_pairs == "included"])
    clear = 0
    for _ in range(60):
        n = int(rng.integers(2, 8))
        T = float(10.0 ** rng.uniform(-1, 0.7))
        d = None if rng.random() < 0.5 else int(rng.integers(1, n + 1))
        W = random_weights(rng, n, kind, T)
        question = {"metric": metric, "temperature": T, "self_pairs": self_pairs, "dimension": d}
        answer = realizability(W, **question)
        possible = brute_force(W, metric, T, self_pairs, d)
        assert answer.verdict in possible, (question, answer)
        clear += len(possible) == 1
        check_verdict(W, answer, **question)
        if answer.embedding is not None:
            assert entropy_gap(W, similarities(answer.embedding, metric, T), self_pairs) < 1e-8
        if answer.verdict == "inconsistent":
            assert 0 < answer.gap_lower_bound <= best_gap_found(W, metric, T, self_pairs, d, rng)
    assert clear > 30


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("self_pairs", ["included", "excluded"])
def test_planted_geometries_attain_the_bound(metric: str, self_pairs: str) -> None:
    """Weights made from a geometry are never refuted in its dimension, whatever the row constants."""
    rng = np.random.default_rng(11)
    for _ in range(60):
        n, T = int(rng.integers(2, 9)), float(10.0 ** rng.uniform(-1, 0.7))
        r = int(rng.integers(1, n + 1))
        Z = rng.normal(size=(n, r))
        Z = Z / np.linalg.norm(Z, axis=1)[:, None] if metric == "cosine" else 0.3 * Z
        W = np.exp(similarities(Z, metric, T) - 1 / T + rng.normal(size=n)[:, None])
        for d in (None, r):
            answer = realizability(W, metric=metric, temperature=T, self_pairs=self_pairs, dimension=d)
            assert answer.attained, (n, r, d, answer)
            if self_pairs == "included":
                own = np.linalg.matrix_rank(Z - (Z.mean(axis=0) if metric == "euclidean" else 0))
                assert (answer.verdict, answer.required_dimension) == ("realizable", own)
            check_verdict(W, answer, metric, T, self_pairs=self_pairs, dimension=d)


def best_gap_found(
    W: Matrix, metric: str, T: float, self_pairs: str, d: int | None, rng: np.random.Generator
) -> float:
    """The smallest entropy gap of some geometries: random ones and the nearest to what W asks for."""
    n = len(W)
    L = np.log(W)
    r = n if d is None else min(d, n)
    K = dense_gram(L, T, metric)
    w, U = np.linalg.eigh(K)
    starts = [U[:, -r:] * np.sqrt(np.maximum(w[-r:], 1e-12))]
    starts += [rng.normal(size=(n, r)) for _ in range(4)]
    gaps = []
    for Z in starts:
        X = Z / np.linalg.norm(Z, axis=1)[:, None] if metric == "cosine" else Z
        gaps.append(entropy_gap(W, similarities(X, metric, T), self_pairs))
    return min(gaps)
