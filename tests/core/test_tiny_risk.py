"""Low temperatures: the angles decide less of the risk than rounding does, and are still the optimal ones."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

from anglewise import InfoNCE, optimal_geometry
from anglewise.losses import Exponential, Logistic, Loss
from anglewise.maps import Axis, collapse_map
from anglewise.risk import Risk
from anglewise.sampling import FloatArray, Sampling, group_classes, proportions_from_counts
from anglewise.solve import minimize_risk
from anglewise.tiny_risk import UNDETERMINED, LogRisk, has_tiny_terms, refine

COUNTS = [[5, 3, 2], [5, 2, 2], [1000, 100, 10, 1], [40, 40, 10, 9, 1]]
LOW = [0.02, 0.01, 0.003, 0.001]


def log_risk_minimizer(counts: list[int], T: float) -> FloatArray:
    """Σ_{i≠j} λ_i λ_j/(1 - λ_i) e^{A_ij/T}, minimized in logarithms over class means without any symmetry."""
    lam = np.array(counts) / sum(counts)
    C, off = len(lam), ~np.eye(len(lam), dtype=bool)
    log_weights = np.log(lam[:, None] * lam / (1 - lam)[:, None])[off]

    def objective(x: FloatArray) -> Any:
        lengths = np.linalg.norm(x.reshape(C, C), axis=1, keepdims=True)
        V = x.reshape(C, C) / lengths
        exponents = log_weights + (V @ V.T)[off] / T
        shares = np.zeros((C, C))
        shares[off] = np.exp(exponents - logsumexp(exponents))
        slope = (shares + shares.T) @ V
        slope -= V * (slope * V).sum(axis=1, keepdims=True)
        return T * float(logsumexp(exponents)), (slope / lengths).ravel()

    options: Any = {"maxiter": 50_000, "maxfun": 50_000, "ftol": 1e-16, "gtol": 1e-12}
    starts = [np.random.default_rng(seed).normal(size=C * C) for seed in range(3)]
    found = [minimize(objective, x, jac=True, method="L-BFGS-B", options=options) for x in starts]
    V = min(found, key=lambda result: result.fun).x.reshape(C, C)
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    return np.asarray(V @ V.T)


@pytest.mark.parametrize("T", LOW)
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_supervised_infonce_finds_the_limit(counts: list[int], T: float) -> None:
    """Its risk is log(1 + x) with x below 1e-25; at T = 0.001 it underflows to zero."""
    geometry = optimal_geometry(counts, loss=InfoNCE(temperature=T))
    np.testing.assert_allclose(geometry.gram, log_risk_minimizer(counts, T), rtol=0, atol=2e-6)
    assert geometry.collapse.geometry == "imbalanced"
    assert geometry.certificate.certified
    assert not geometry.warnings


@pytest.mark.parametrize(
    "loss", [Logistic(temperature=0.01, negatives=1), Logistic(margin=-100.0), Exponential(temperature=0.1)]
)
def test_other_losses_have_the_same_limit(loss: Loss) -> None:
    assert isinstance(loss, (Logistic, Exponential))
    geometry = optimal_geometry([9, 4, 3, 1], loss=loss)
    np.testing.assert_allclose(geometry.gram, log_risk_minimizer([9, 4, 3, 1], loss.temperature), atol=1e-5)


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
def test_limit_meets_the_exact_solution(sampling: Sampling) -> None:
    """Where the certified solver still resolves the angles, both agree up to what the limit drops."""
    groups = group_classes(proportions_from_counts([50, 30, 15, 5]))
    loss = InfoNCE(temperature=0.04, negatives=3)
    risk = Risk(groups, sampling, loss)
    exact = minimize_risk(groups, sampling, loss, tolerance=1e-12)
    H = risk.evaluate(exact.gram).gradient
    assert has_tiny_terms(risk, H)
    limit = LogRisk.of(risk).value_and_gradient(exact.gram)[1]
    np.testing.assert_allclose(H / H.max(), limit / limit.max(), rtol=1e-8, atol=0)


@pytest.mark.parametrize("counts", COUNTS, ids=str)
@pytest.mark.parametrize("T", LOW)
def test_collisions_do_not_hide_the_angles(counts: list[int], T: float) -> None:
    """Without supervision the risk is far from zero. Its optimum is stationary for the part that varies:
    the weighted mean slopes, with y_i = (HA)_ii, leave a positive semidefinite dual."""
    loss = InfoNCE(temperature=T, negatives=5)
    geometry = optimal_geometry(counts, sampling="unsupervised", loss=loss)
    assert not geometry.warnings
    lam, A = np.array(counts) / sum(counts), geometry.gram
    binomial = [[math.comb(4, c) * p**c * (1 - p) ** (4 - c) / (1 + c) for c in range(5)] for p in lam]
    weights = lam[:, None] * lam * np.sum(binomial, axis=1)[:, None]
    apart = np.where(np.eye(len(A), dtype=bool), -np.inf, A)
    H = weights * np.exp((apart - apart.max()) / T)
    Z = H + H.T - np.diag(((H + H.T) @ A).diagonal())
    deficit = len(A) * max(0.0, -np.linalg.eigvalsh(Z)[0])
    assert T * H.sum() > 0
    assert deficit / (2 * T * H.sum()) < 1e-3


def test_what_cannot_be_resolved_is_said() -> None:
    """In fewer dimensions than the optimum needs there is no such refinement."""
    counts = [5, 4, 3, 2, 1]
    low = optimal_geometry(counts, loss=InfoNCE(temperature=0.01), dimension=2)
    assert UNDETERMINED in low.warnings
    assert UNDETERMINED not in optimal_geometry(counts, loss=InfoNCE(temperature=0.5), dimension=2).warnings


def test_the_reference_solver_is_not_replaced() -> None:
    """It polishes its matrix at any scale, so it confirms these angles; where it does not, it says so."""
    for T, negatives in ((0.01, 2), (0.02, 3)):
        loss = InfoNCE(temperature=T, negatives=negatives)
        reference = optimal_geometry([5, 4, 2], loss=loss, solver="cvxpy")
        assert reference.solver.method.startswith("cvxpy")
        assert not reference.warnings
        np.testing.assert_allclose(reference.gram, optimal_geometry([5, 4, 2], loss=loss).gram, atol=1e-9)


def test_a_wrong_matrix_is_told_apart() -> None:
    groups = group_classes(proportions_from_counts([5, 4, 2]))
    loss = InfoNCE(temperature=0.01)
    simplex = minimize_risk(groups, "supervised", loss)
    risk = Risk(groups, "supervised", loss)
    wrong = replace(simplex, gram=np.full((3, 3), -0.5) + 1.5 * np.eye(3))
    assert UNDETERMINED in refine(risk, wrong, minimize=False).warnings
    assert refine(risk, refine(risk, wrong), minimize=False).warnings == ()


def test_a_certified_solution_is_not_made_worse() -> None:
    """Here the limit is off by a millionth, and the certificate of the exact risk notices."""
    geometry = optimal_geometry([2636, 1, 42941, 202], loss=InfoNCE(temperature=0.0623, negatives=4))
    assert geometry.certificate.certified
    assert not geometry.warnings


def test_is_left_alone_where_the_risk_tells_the_angles() -> None:
    groups = group_classes(proportions_from_counts([5, 3, 2]))
    for T in (0.05, 0.1, 1.0):
        loss = InfoNCE(temperature=T)
        solution = minimize_risk(groups, "supervised", loss)
        assert refine(Risk(groups, "supervised", loss), solution) is solution


def test_maps_at_the_lowest_temperature() -> None:
    """One majority: its risk underflows, the slope of the one unknown does not."""
    axes = Axis("temperature", (0.001,)), Axis("majority_proportion", (5 / 9,))
    result = collapse_map(*axes, "largest_cosine", classes=3, sampling="supervised", loss=InfoNCE())
    A = log_risk_minimizer([5, 2, 2], 0.001)
    assert result.values[0][0] == pytest.approx(A[1, 2], abs=1e-6)
