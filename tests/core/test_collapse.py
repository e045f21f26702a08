import math

import numpy as np
import pytest

from anglewise.collapse import angle_degrees, describe_collapse, minority_collapse
from anglewise.losses import InfoNCE, SquaredHinge
from anglewise.sampling import FloatArray, Groups, group_classes


def groups_of(proportions: list[float]) -> Groups:
    lam = np.array(proportions)
    return group_classes(lam / lam.sum())


def gram(rows: list[list[float]]) -> FloatArray:
    return np.array(rows, dtype=float)


def test_a_point() -> None:
    found = describe_collapse(groups_of([1]), gram([[1]]))
    assert found.geometry == "point"
    assert found.largest_cosine is None
    assert found.smallest_angle_degrees is None
    assert found.merged_classes == ()


@pytest.mark.parametrize("classes", [2, 3, 10, 20_000])
def test_the_simplex(classes: int) -> None:
    found = describe_collapse(groups_of([1] * classes), gram([[-1 / (classes - 1)]]))
    assert found.geometry == "simplex_etf"
    assert found.largest_cosine == pytest.approx(-1 / (classes - 1), abs=1e-15)
    assert found.smallest_angle_degrees == pytest.approx(math.degrees(math.acos(-1 / (classes - 1))))


def test_two_unequal_classes_are_a_simplex_of_two() -> None:
    assert describe_collapse(groups_of([3, 1]), gram([[1, -1], [-1, 1]])).geometry == "simplex_etf"


def test_the_orthogonal_frame() -> None:
    assert describe_collapse(groups_of([1, 1]), gram([[0]])).geometry == "orthogonal_frame"
    assert describe_collapse(groups_of([3, 1, 1]), gram([[1, 0], [0, 0]])).geometry == "orthogonal_frame"


def test_minority_collapse_of_equal_and_unequal_minorities() -> None:
    equal = describe_collapse(groups_of([1, 1, 30, 1]), gram([[1, -1], [-1, 1]]))
    assert equal.geometry == "minority_collapse"
    assert equal.merged_classes == ((0, 1, 3),)
    unequal = describe_collapse(groups_of([50, 1, 2]), gram([[1, -1, -1], [-1, 1, 1], [-1, 1, 1]]))
    assert unequal.geometry == "minority_collapse"
    assert unequal.merged_classes == ((1, 2),)
    assert unequal.smallest_angle_degrees == 0.0


def test_some_classes_merged_is_a_partial_collapse() -> None:
    """Groups of equal proportions merge exactly, in the caller's order, ascending."""
    A = gram([[1, -0.4, -0.2], [-0.4, 1, 0.1], [-0.2, 0.1, -0.3]])
    found = describe_collapse(groups_of([1, 5, 1, 9, 5]), gram(A.tolist()))
    assert found.geometry == "partial_collapse"
    assert found.merged_classes == ((1, 4),)
    across = gram([[1, -0.9, -0.9], [-0.9, 1, 1 - 1e-9], [-0.9, 1 - 1e-9, 1]])
    assert describe_collapse(groups_of([1, 2, 9]), across).merged_classes == ((0, 1),)
    assert describe_collapse(groups_of([1, 2, 9]), across).geometry == "partial_collapse"


def test_near_classes_are_reported_with_their_distance() -> None:
    A = gram([[1, -0.8, -0.8], [-0.8, 1, 1 - 4e-6], [-0.8, 1 - 4e-6, 1]])
    found = describe_collapse(groups_of([9, 3, 2]), A)
    assert found.geometry == "imbalanced"
    assert found.merged_classes == ()
    assert [near.classes for near in found.near] == [(1, 2)]
    assert found.near[0].one_minus_cosine == pytest.approx(4e-6, rel=1e-9)
    assert found.near_tolerance == 1e-3


def test_a_chain_of_near_classes_is_one_group_with_its_widest_distance() -> None:
    angles = np.array([0.0, 2.0, 2.03, 2.06])
    A = np.cos(angles[:, None] - angles)
    found = describe_collapse(groups_of([9, 3, 2, 1]), A)
    assert [near.classes for near in found.near] == [(1, 2, 3)]
    assert found.near[0].one_minus_cosine == pytest.approx(1 - math.cos(0.06), rel=1e-9)


def test_merged_and_near_together() -> None:
    A = gram([[1, -0.9, -0.9], [-0.9, 1, 1 - 1e-5], [-0.9, 1 - 1e-5, 1]])
    found = describe_collapse(groups_of([9, 2, 2, 1]), A)
    assert found.merged_classes == ((1, 2),)
    assert [near.classes for near in found.near] == [(1, 2, 3)]


def test_small_angles_keep_their_digits() -> None:
    assert angle_degrees(5e-17) == pytest.approx(math.degrees(1e-8), rel=1e-12)
    assert angle_degrees(2.0) == pytest.approx(180.0)


@pytest.mark.parametrize("minorities", [2, 9, 49])
@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
def test_the_margin_changes_sign_at_the_threshold(minorities: int, sampling: str) -> None:
    loss = InfoNCE(temperature=1.0)
    at = minority_collapse(groups_of([2.0] + [1.0] * minorities), sampling, loss)  # type: ignore[arg-type]
    assert at is not None
    for shift, collapsed in ((1e-9, True), (-1e-9, False)):
        small = (at.one_minus_threshold - shift) / minorities
        groups = groups_of([at.exact_threshold + shift] + [small] * minorities)
        found = minority_collapse(groups, sampling, loss)  # type: ignore[arg-type]
        assert found is not None
        assert found.collapsed is collapsed
        assert found.margin == pytest.approx(shift, rel=1e-5)


def test_the_margin_near_one_has_no_cancellation() -> None:
    """At T = 0.05 the threshold is 1 - 1e-17: in double precision every l is below it or equal to 1."""
    loss = InfoNCE(negatives=1, temperature=0.05)
    rare = 1e-18
    groups = Groups(np.array([1.0, rare]), np.array([1, 2]), np.array([0, 1, 1]))
    found = minority_collapse(groups, "unsupervised", loss)
    assert found is not None
    odds = (1 + math.exp(40)) / 2
    assert found.one_minus_threshold == pytest.approx(1 / (1 + odds), rel=1e-12)
    assert found.margin == pytest.approx(1 / (1 + odds) - 2 * rare, rel=1e-9)
    assert found.collapsed


def test_other_proportions_and_losses_have_no_threshold() -> None:
    loss = InfoNCE()
    for proportions in ([1.0] * 4, [5.0, 1.0], [5.0, 5.0, 1.0], [5.0, 2.0, 1.0]):
        assert minority_collapse(groups_of(proportions), "supervised", loss) is None
    assert minority_collapse(groups_of([5, 1, 1]), "supervised", SquaredHinge(margin=1.0)) is None
    assert minority_collapse(groups_of([5, 1, 1]), "supervised", InfoNCE(hardness=1.0)) is None
