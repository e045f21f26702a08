"""The tridiagonal form, its eigenvalues, and the secular curve of the smallest eigenvalue over offsets."""

from __future__ import annotations

import numpy as np
import pytest

from anglewise.embedding import from_cosines, from_squared_distances
from anglewise.realizability import realizability
from anglewise.secular import offset_curve
from anglewise.tridiagonal import spectral_measure, tridiagonalize

RNG = np.random.default_rng(2)


def symmetric(n: int, rank: int | None = None) -> np.ndarray:
    B = RNG.normal(size=(n, rank or n))
    return B @ B.T if rank else B + B.T


@pytest.mark.parametrize("n", [1, 2, 3, 10, 60])
def test_one_basis_for_every_offset(n: int) -> None:
    M = symmetric(n)
    tri = tridiagonalize(M)
    Z = np.array([tri.lift(e) for e in np.eye(n)]).T
    np.testing.assert_allclose(Z.T @ Z, np.eye(n), atol=1e-13)
    np.testing.assert_allclose(np.abs(Z[:, 0]), 1 / np.sqrt(n))
    for alpha, beta in ((0.0, 0.0), (0.7, -2.0)):
        T = tri.plus(identity=alpha, ones=beta)
        dense = np.diag(T.t) + np.diag(T.b, 1) + np.diag(T.b, -1)
        np.testing.assert_allclose(Z @ dense @ Z.T, M + alpha * np.eye(n) + beta, atol=1e-12)
        w = np.linalg.eigvalsh(M + alpha * np.eye(n) + beta)
        np.testing.assert_allclose([T.eigenvalue(k) for k in range(n)], w, atol=1e-11)
        assert T.eigenvalue(-1) == T.eigenvalue(n - 1)
        middle = 0.5 * (w[0] + w[-1]) + 1e-9
        assert T.count_above(middle) == (w > middle).sum()
        x = T.lift(T.eigenvector(0))
        np.testing.assert_allclose((M + alpha * np.eye(n) + beta) @ x, w[0] * x, atol=1e-10)


@pytest.mark.parametrize(("n", "rank"), [(1, None), (2, None), (40, None), (40, 3)])
def test_spectral_measure(n: int, rank: int | None) -> None:
    tri = tridiagonalize(symmetric(n, rank))
    values, weights = spectral_measure(tri)
    dense = np.diag(tri.t) + np.diag(tri.b, 1) + np.diag(tri.b, -1)
    w, U = np.linalg.eigh(dense)
    scale = np.abs(w).max()
    order = np.argsort(values)
    np.testing.assert_allclose(values[order], w, atol=1e-12 * scale)
    assert weights.sum() == pytest.approx(1.0)
    for power in (1, 2, 3):  # moments do not depend on the basis inside an eigenspace
        assert weights @ values**power == pytest.approx(U[0] ** 2 @ w**power, abs=1e-11 * scale**power)


@pytest.mark.parametrize("n", [2, 3, 6, 25])
@pytest.mark.parametrize("spread", [0.0, 0.1, 3.0])
def test_the_curve_of_the_smallest_eigenvalue(n: int, spread: float) -> None:
    M = spread * symmetric(n)
    np.fill_diagonal(M, 0.0)
    curve = offset_curve(tridiagonalize(M).plus(identity=1.0))
    Q = 1 - np.eye(n)

    def smallest(kappa: float) -> float:
        return float(np.linalg.eigvalsh(np.eye(n) + M + kappa * Q)[0])

    scale = 1 + np.abs(M).sum(axis=1).max()
    best = curve.offset(curve.peak)
    top = curve.smallest(curve.peak)
    assert smallest(best) == pytest.approx(top, abs=1e-9 * scale)
    for step in (-1.0, -1e-3, 1e-3, 1.0):
        assert smallest(best + step * scale / n) <= top + 1e-12 * scale
    if top > 1e-9:
        for end in curve.ends():
            assert smallest(end) == pytest.approx(0.0, abs=1e-9 * scale)
        lower, upper = curve.ends()
        assert smallest(lower - 1e-3) < 0 < smallest(0.5 * (lower + upper))
        assert smallest(upper + 1e-3) < 0
    else:
        x = curve.P.lift(curve.refuting_vector())
        assert x.sum() ** 2 == pytest.approx(x @ x)
        assert x @ (np.eye(n) + M) @ x == pytest.approx(top * (x @ x), abs=1e-9 * scale)


@pytest.mark.parametrize("rank", [1, 2, 5, 40])
def test_embeddings(rank: int) -> None:
    n = 40
    Z = RNG.normal(size=(n, rank))
    U = Z / np.linalg.norm(Z, axis=1)[:, None]
    X, residual = from_cosines(U @ U.T, rank)
    assert residual < 1e-13
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1.0)
    np.testing.assert_allclose(X @ X.T, U @ U.T, atol=1e-12)
    D = ((Z[:, None] - Z[None, :]) ** 2).sum(axis=2)
    Y, residual = from_squared_distances(D, min(rank, n - 1))
    assert residual < 1e-12 * D.max()
    np.testing.assert_allclose(Y.sum(axis=0), 0.0, atol=1e-12 * n)
    np.testing.assert_allclose(((Y[:, None] - Y[None, :]) ** 2).sum(axis=2), D, atol=1e-11)


def test_an_embedding_that_drops_small_eigenvalues_says_so() -> None:
    U = RNG.normal(size=(20, 4))
    U /= np.linalg.norm(U, axis=1)[:, None]
    K = U @ U.T
    Z, residual = from_cosines(K, 3)
    off = np.abs(Z @ Z.T - K).max()
    assert off > 0.01
    assert residual == pytest.approx(off)


def test_eigenvalues_that_agree_to_rounding() -> None:
    # Bisection by index reports no eigenvalue for some of these.
    rng = np.random.default_rng(5)
    for _ in range(5000):
        n = int(rng.integers(2, 5))
        E = rng.normal(size=(n, n)) * 10.0 ** rng.uniform(-16, -12)
        M = np.eye(n) + E + E.T
        tri = tridiagonalize(M)
        np.testing.assert_allclose([tri.eigenvalue(k) for k in range(n)], np.linalg.eigvalsh(M), atol=1e-14)
        assert np.linalg.norm(tri.eigenvector(0)) == pytest.approx(1)


def test_lost_eigenvalue_is_recovered() -> None:
    nearly_equal = [
        [-1.2055048646159277, -1.2055048646158555, -1.2055048646159177],
        [-1.2055048646159126, -1.2055048646158741, -1.2055048646158815],
        [-1.2055048646158864, -1.2055048646158888, -1.2055048646158981],
    ]
    answer = realizability(log_weights=nearly_equal, temperature=0.1, self_pairs="excluded")
    assert answer.reason.code == "offset_interval"
