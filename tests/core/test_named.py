"""Named weightings: their formulas, their domains, and the facts [P2] states about them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anglewise.errors import InvalidInput, TooLarge
from anglewise.named import euclidean, named_weighting, soft_supcon, supcon, x_clr, y_aware
from anglewise.realizability import realizability
from tests.core.realizability_checks import check_verdict, similarities

RNG = np.random.default_rng(7)


def test_labels_and_counts_say_the_same() -> None:
    by_label = supcon(labels=["b", "a", "b", "c"])
    assert by_label.classes == ("a", "b", "c")
    assert by_label.level == "class"
    np.testing.assert_array_equal(by_label.counts, [1, 2, 1])
    np.testing.assert_array_equal(by_label.index, [1, 0, 1, 2])
    W = np.exp(by_label.per_item().values)
    np.testing.assert_array_equal(W, [[1, 0, 1, 0], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]])
    by_count = supcon(class_counts=[2, 1, 1])
    assert by_count.items == 4
    np.testing.assert_array_equal(np.exp(by_count.per_item().values)[0], [1.0, 1.0, 0.0, 0.0])


def test_single_items_of_a_class_have_no_positive() -> None:
    weighting = supcon(class_counts=[3, 1, 2, 1])
    np.testing.assert_array_equal(weighting.skipped_rows("excluded"), [1, 3])
    assert weighting.skipped_anchors("excluded") == 2
    assert weighting.skipped_anchors("included") == 0
    answer = realizability(weighting.per_item(), metric="euclidean", self_pairs="excluded", dimension=2)
    assert answer.skipped_anchors == (3, 6)
    assert answer.reason.code == "approached_at_infinity"
    assert soft_supcon(0.1, class_counts=[3, 1]).skipped_anchors("excluded") == 0


def test_kernels() -> None:
    Y = RNG.normal(size=(5, 2))
    D = ((Y[:, None] - Y[None, :]) ** 2).sum(axis=2)
    np.testing.assert_allclose(y_aware(0.7, targets=Y).log_weights.values, -D / (2 * 0.49), atol=1e-14)
    scalar = euclidean(2.0, labels=[0.0, 1.0, 3.0])
    np.testing.assert_allclose(scalar.log_weights.values[0], [0, -1 / 8, -9 / 8])
    assert (scalar.metric, scalar.level) == ("euclidean", "item")
    U = Y / np.linalg.norm(Y, axis=1)[:, None]
    np.testing.assert_allclose(x_clr(0.3, targets=Y).log_weights.values, U @ U.T / 0.3, atol=1e-13)


def test_vectors_per_class() -> None:
    weighting = y_aware(1.0, targets=[[0.0], [2.0]], class_counts=[2, 1])
    assert weighting.level == "class"
    expected = np.array([[0, 0, -2], [0, 0, -2], [-2, -2, 0.0]])
    np.testing.assert_allclose(weighting.per_item().values, expected)


@pytest.mark.parametrize(
    ("name", "arguments", "field"),
    [
        ("simclr", {}, ("name",)),
        ("supcon", {}, ("labels",)),
        ("supcon", {"labels": [0, 1], "class_counts": [1, 1]}, ("labels",)),
        ("supcon", {"labels": []}, ("labels",)),
        ("supcon", {"labels": [0, math.nan]}, ("labels", 1)),
        ("supcon", {"labels": [0, "1"]}, ("labels", 1)),
        ("supcon", {"class_counts": [2, 0]}, ("class_counts", 1)),
        ("supcon", {"class_counts": [2, 1], "epsilon": 0.1}, ("epsilon",)),
        ("soft_supcon", {"class_counts": [2, 1]}, ("epsilon",)),
        ("soft_supcon", {"class_counts": [2, 1], "epsilon": 0.0}, ("epsilon",)),
        ("soft_supcon", {"class_counts": [2, 1], "epsilon": "0.1"}, ("epsilon",)),
        ("y_aware", {"targets": [[0.0], [1.0]], "sigma": -1.0}, ("sigma",)),
        ("y_aware", {"targets": [[0.0], [math.inf]], "sigma": 1.0}, ("targets", 1, 0)),
        ("y_aware", {"targets": [[0.0], [1.0, 2.0]], "sigma": 1.0}, ("targets",)),
        ("y_aware", {"targets": [[0.0], [1e60]], "sigma": 1.0}, ("sigma",)),
        ("euclidean", {"labels": [0.0, math.nan], "sigma": 1.0}, ("labels", 1)),
        ("x_clr", {"targets": [[1.0, 0.0], [0.0, 0.0]], "label_temperature": 0.1}, ("targets", 1)),
        ("x_clr", {"targets": [[1.0]], "label_temperature": 0.0}, ("label_temperature",)),
        ("x_clr", {"targets": [[1.0]], "class_counts": [1, 2], "label_temperature": 1.0}, ("class_counts",)),
    ],
)
def test_domains(name: str, arguments: dict[str, Any], field: tuple[str | int, ...]) -> None:
    with pytest.raises(InvalidInput) as error:
        named_weighting(name, **arguments)
    assert error.value.field == field


def test_too_many_items_for_a_matrix() -> None:
    with pytest.raises(TooLarge):
        supcon(class_counts=[20_000, 1]).per_item()


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(1, 4), min_size=2, max_size=6),
    factor=st.floats(0.3, 1.7).filter(lambda f: abs(f - 1) > 1e-3),
    T=st.floats(0.05, 2.0),
)
def test_soft_supcon_is_realizable_up_to_the_simplex(counts: list[int], factor: float, T: float) -> None:
    """Inter-class cosine 1 + T log ε for any class sizes; attained iff T log(1/ε) ≤ C/(C - 1)."""
    C = len(counts)
    epsilon = math.exp(-factor * C / ((C - 1) * T))
    weighting = soft_supcon(epsilon, class_counts=counts)
    answer = realizability(weighting.per_item(), temperature=T)
    assert answer.verdict == ("realizable" if factor < 1 else "inconsistent")
    assert answer.largest_temperature == pytest.approx(C / ((C - 1) * math.log(1 / epsilon)))
    if factor < 1:
        assert answer.required_dimension == C
        assert answer.gram is not None
        assert answer.gram[0, -1] == pytest.approx(1 + T * math.log(epsilon))


@pytest.mark.parametrize("C", [2, 3, 10])
def test_at_the_simplex(C: int) -> None:
    T = 0.2
    for shift, verdict, dimension in (
        (0.0, "realizable", C - 1),
        (1e-12, "realizable", C - 1),
        (-1e-12, "realizable", C - 1),
        (1e-6, "inconsistent", None),
        (-1e-6, "realizable", C),
    ):
        epsilon = math.exp(-(1 + shift) * C / ((C - 1) * T))
        answer = realizability(soft_supcon(epsilon, class_counts=[2] * C).per_item(), temperature=T)
        assert (answer.verdict, answer.required_dimension) == (verdict, dimension), shift


@settings(max_examples=50, deadline=None)
@given(
    labels=st.lists(st.integers(-20, 20), min_size=3, max_size=7, unique=True),
    spreads=st.floats(0.1, 10.0),
    T=st.floats(0.05, 1.0),
)
def test_y_aware_scalars_are_never_realizable_with_self_pairs(
    labels: list[int], spreads: float, T: float
) -> None:
    sigma = spreads * float(max(labels) - min(labels))
    answer = realizability(y_aware(sigma, labels=[float(y) for y in labels]).per_item(), temperature=T)
    assert answer.largest_temperature == 0
    if T / sigma**2 > 1e-3 or spreads < 3:  # flatter weights are within the tolerance of constant ones
        assert answer.verdict == "inconsistent" or answer.close_call


def test_y_aware_scalars_are_inconsistent_up_to_ten_spreads() -> None:
    labels = [0.0, 0.5, 1.0, 2.0]
    for sigma in (0.1, 1.0, 5.0, 20.0):
        answer = realizability(y_aware(sigma, labels=labels).per_item(), temperature=0.5)
        assert answer.verdict == "inconsistent", sigma
        assert answer.largest_temperature == 0
        assert answer.gap_lower_bound > 0
    flat = realizability(y_aware(300.0, labels=labels).per_item(), temperature=0.5)
    assert flat.verdict == "realizable"
    assert flat.close_call
    assert flat.largest_temperature == 0
    excluded = realizability(y_aware(1.0, labels=labels).per_item(), temperature=0.5, self_pairs="excluded")
    assert excluded.reason.code == "offset_interval"


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("radius", [0.4, 1.0])
@pytest.mark.parametrize("scale", [0.5, 1.0, 1.01, 1.6])
def test_y_aware_on_a_sphere(dim: int, radius: float, scale: float) -> None:
    """Realizable iff R √T / σ ≤ 1, in one dimension less at equality."""
    Y = RNG.normal(size=(9, dim))
    Y *= radius / np.linalg.norm(Y, axis=1)[:, None]
    T = 0.3
    sigma = radius * math.sqrt(T) / scale
    answer = realizability(y_aware(sigma, targets=Y + 5.0).per_item(), temperature=T)
    assert answer.verdict == ("realizable" if scale <= 1 else "inconsistent")
    assert answer.largest_temperature == pytest.approx(T / scale**2, rel=1e-9)
    if scale <= 1:
        assert answer.required_dimension == (dim if scale == 1 else dim + 1)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_euclidean_labels_are_recovered_up_to_isometry(dim: int) -> None:
    Y, sigma, T = RNG.normal(size=(8, dim)), 0.8, 0.3
    weighting = euclidean(sigma, targets=Y)
    answer = realizability(weighting.per_item(), metric="euclidean", temperature=T)
    assert (answer.verdict, answer.required_dimension) == ("realizable", dim)
    assert answer.largest_temperature == "unbounded"
    assert answer.embedding is not None
    np.testing.assert_allclose(
        similarities(answer.embedding, "euclidean", T), weighting.log_weights.values, atol=1e-10
    )
    if dim > 1:
        low = realizability(weighting.per_item(), metric="euclidean", temperature=T, dimension=dim - 1)
        assert (low.reason.code, low.required_dimension) == ("rank", dim)


def test_x_clr_by_temperature_ratio() -> None:
    """cos_z = 1 - r (1 - cos_y), r = T/T_w: always for r ≤ 1; r > 1 iff 1 ∈ range and 1ᵀG⁺1 ≤ r/(r - 1)."""
    Y = RNG.normal(size=(6, 3))
    U = Y / np.linalg.norm(Y, axis=1)[:, None]
    for r in (0.3, 1.0):
        answer = realizability(x_clr(0.5, targets=Y).per_item(), temperature=0.5 * r)
        assert (answer.verdict, answer.required_dimension) == ("realizable", 3 if r == 1 else 4)
        assert answer.gram is not None
        np.testing.assert_allclose(answer.gram, 1 - r * (1 - U @ U.T), atol=1e-12)
    assert realizability(x_clr(0.5, targets=Y).per_item(), temperature=0.51).verdict == "inconsistent"


@pytest.mark.parametrize("cosine", [-0.2, 0.28, 0.7])
def test_x_clr_on_a_cone(cosine: float) -> None:
    """Three labels with mutual cosine g: r ≤ 1.5 / (1 - g)."""
    G = np.full((3, 3), cosine) + (1 - cosine) * np.eye(3)
    Y = np.linalg.cholesky(G)
    limit, T_w = 1.5 / (1 - cosine), 0.4
    for factor in (0.5, 0.999, 1.001, 3.0):
        W = x_clr(T_w, targets=Y).per_item()
        answer = realizability(W, temperature=T_w * limit * factor)
        assert answer.verdict == ("realizable" if factor < 1 else "inconsistent")
        assert answer.largest_temperature == pytest.approx(T_w * limit)
        check_verdict(np.exp(W.values), answer, temperature=T_w * limit * factor)
