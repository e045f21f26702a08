import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anglewise.comparators import comparators, seli, seli_grams
from anglewise.enumeration import enumerated_risk
from anglewise.losses import Exponential, InfoNCE, Logistic, Loss
from anglewise.means import expand_rows
from anglewise.risk import Risk
from anglewise.sampling import Groups, group_classes, proportions_from_counts

LOSSES: list[Loss] = [
    InfoNCE(negatives=3, temperature=0.7),
    Logistic(negatives=4, temperature=0.5, margin=0.2),
    Exponential(negatives=2, temperature=1.5),
]


def grouped(counts: list[int]) -> Groups:
    return group_classes(proportions_from_counts(counts))


def svd_seli(counts: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Cosines of classifiers and embeddings from the definition, one column a sample."""
    C = len(counts)
    label = np.repeat(np.arange(C), counts)
    Z = (np.eye(C) - 1 / C)[:, label]
    V, singular, Ut = np.linalg.svd(Z, full_matrices=False)
    V, singular, Ut = V[:, : C - 1], singular[: C - 1], Ut[: C - 1]
    first = np.searchsorted(label, np.arange(C))
    W, H = V * singular @ V.T, (Ut.T * singular @ Ut)[np.ix_(first, first)]
    return tuple(M / np.sqrt(np.outer(np.diag(M), np.diag(M))) for M in (W, H))  # type: ignore[return-value]


def test_seli_of_two_majorities_and_two_minorities() -> None:
    classifiers, embeddings = seli_grams(grouped([10, 10, 1, 1]))
    expected = [[-0.45899, -0.38210], [-0.38210, 0.07945]]
    np.testing.assert_allclose(classifiers, expected, atol=5e-6)
    expected = [[-0.19460, -0.26602], [-0.26602, -0.64853]]
    np.testing.assert_allclose(embeddings, expected, atol=5e-6)


@settings(deadline=None, max_examples=30, derandomize=True)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=7))
def test_seli_on_groups_equals_the_singular_value_decomposition(counts: list[int]) -> None:
    groups = grouped(counts)
    for on_groups, on_classes in zip(seli_grams(groups), svd_seli(counts), strict=True):
        np.testing.assert_allclose(expand_rows(groups, on_groups, 0, len(counts)), on_classes, atol=1e-12)


def test_seli_of_a_balanced_problem_is_the_simplex() -> None:
    classifiers, embeddings = seli_grams(grouped([7] * 6))
    np.testing.assert_allclose([classifiers, embeddings], -1 / 5, atol=1e-14)


def test_seli_stays_accurate_under_extreme_imbalance() -> None:
    """Four classes n, n, 1, 1: by symmetry minorities become opposite embeddings as n grows."""
    _, embeddings = seli_grams(grouped([10**15, 10**15, 1, 1]))
    assert np.isfinite(embeddings).all()
    assert embeddings[1, 1] == pytest.approx(-1, abs=1e-6)


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_risks_equal_enumeration(sampling: str, loss: Loss) -> None:
    counts = [6, 3, 3, 1]
    groups = grouped(counts)
    risk = Risk(groups, sampling, loss)  # type: ignore[arg-type]
    lam, C = proportions_from_counts(counts), len(counts)
    simplex = (np.eye(C) * C - 1) / (C - 1)
    found = comparators(groups, risk.value)
    for name, A in (("simplex_etf", simplex), ("orthogonal_frame", np.eye(C)), ("seli", svd_seli(counts)[1])):
        expected = enumerated_risk(lam, sampling, loss, A)  # type: ignore[arg-type]
        assert found[name].risk == pytest.approx(expected, rel=1e-10)


def test_a_single_class_has_no_comparators() -> None:
    groups = grouped([5])
    risk = Risk(groups, "unsupervised", InfoNCE())
    assert comparators(groups, risk.value) == {}
    assert seli(groups, risk.value) is None


def test_no_seli_where_double_precision_loses_rare_classes() -> None:
    """Its embeddings would be noise, or not a number at all."""
    assert seli(grouped([2**53 - 1, 7, 1]), lambda A: float(np.abs(A).max())) is not None
    groups = group_classes(np.array([1.0, 1e-36, 1e-109, 1e-204]))
    risks = comparators(groups, Risk(groups, "unsupervised", LOSSES[0]).value)
    assert set(risks) == {"simplex_etf", "orthogonal_frame"}
