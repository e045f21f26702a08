import dataclasses
import math

import numpy as np
import pytest

from anglewise.enumeration import enumerated_risk
from anglewise.errors import InvalidInput, TooLarge
from anglewise.losses import Exponential, InfoNCE, Logistic, Loss, SquaredHinge, Triplet
from anglewise.maps import Axis, CollapseMap, collapse_map
from anglewise.means import expand_rows
from anglewise.risk import Risk
from anglewise.thresholds import collapse_threshold
from anglewise.two_levels import two_level_groups, two_level_optimum

T1 = InfoNCE(temperature=1.0, negatives=16)
MAJORITIES = Axis("majority_proportion", (0.4, 0.6, 0.95))
NEGATIVES = Axis("negatives", (1, 16, math.inf))


def test_thresholds_of_a_map_are_the_single_thresholds() -> None:
    temperatures = Axis("temperature", (0.05, 1.0))
    loss = InfoNCE(reduction="mean")
    found = collapse_map(
        temperatures, NEGATIVES, "exact_threshold", classes=5, sampling="supervised", loss=loss
    )
    for i, k in enumerate(NEGATIVES.values):
        for j, T in enumerate(temperatures.values):
            one = InfoNCE(negatives=k, temperature=T, reduction="mean")
            assert found.values[i][j] == collapse_threshold(5, "supervised", one).exact_threshold


def test_angles_fall_to_zero_where_the_minorities_collapse() -> None:
    cosine = collapse_map(
        MAJORITIES, Axis("alpha", (0.0, 1.0)), "largest_cosine", classes=10, sampling="unsupervised", loss=T1
    )
    angle = collapse_map(
        MAJORITIES,
        Axis("alpha", (0.0, 1.0)),
        "smallest_angle_degrees",
        classes=10,
        sampling="unsupervised",
        loss=T1,
    )
    for cosines, angles in zip(cosine.values, angle.values, strict=True):
        np.testing.assert_allclose(np.cos(np.radians(np.array(angles, dtype=float))), cosines, atol=1e-12)
        assert cosines[2] == 1.0
        assert angles[2] == 0.0
        assert -1 / 9 < cosines[0] < cosines[1] < 1  # type: ignore[operator]


@pytest.mark.parametrize("classes", [3, 10, 50])
@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
@pytest.mark.parametrize(
    "loss",
    [
        T1,
        InfoNCE(negatives=math.inf, temperature=0.5, alpha=0.0),
        Logistic(negatives=3, temperature=0.8),
        Exponential(temperature=1.3),
        SquaredHinge(margin=3.0),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_the_optimum_collapses_exactly_at_the_threshold(classes: int, sampling: str, loss: Loss) -> None:
    threshold = collapse_threshold(classes, sampling, loss).exact_threshold  # type: ignore[arg-type]
    assert threshold is not None
    for shift, collapsed in ((-1e-4, False), (1e-4, True)):
        groups = two_level_groups(threshold + shift, classes - 1)
        found = two_level_optimum(groups, sampling, loss)  # type: ignore[arg-type]
        assert found.certificate.certified
        assert (found.one_minus_cosine == 0) is collapsed


def test_the_one_dimensional_optimum_beats_its_neighbors_by_enumeration() -> None:
    loss, minorities = InfoNCE(negatives=2, temperature=0.7), 3
    groups = two_level_groups(0.5, minorities)
    found = two_level_optimum(groups, "supervised", loss)
    lam = np.array([0.5] + [0.5 / 3] * 3)

    def risk(A: np.ndarray) -> float:
        return enumerated_risk(lam, "supervised", loss, expand_rows(groups, A, 0, 4))

    best = risk(found.gram)
    assert best == pytest.approx(Risk(groups, "supervised", loss).value(found.gram), rel=1e-12)
    for c in found.gram[0, 1] + np.array([-1e-3, 1e-3]):
        a = (minorities * c * c - 1) / (minorities - 1)
        assert risk(np.array([[1, c], [c, a]])) > best


def test_balanced_proportions_give_the_simplex_and_smaller_ones_a_reason() -> None:
    found = collapse_map(
        Axis("majority_proportion", (0.1, 0.25)),
        Axis("alpha", (1.0,)),
        classes=4,
        sampling="supervised",
        loss=T1,
    )
    assert found.values[0][0] is None
    assert "not a majority" in (found.reasons[0][0] or "")
    assert found.values[0][1] == pytest.approx(-1 / 3, abs=1e-12)
    assert found.reasons[0][1] is None


def test_classes_as_an_axis_with_a_fixed_majority() -> None:
    classes = Axis("classes", (3, 10))
    found = collapse_map(classes, NEGATIVES_MEAN, sampling="supervised", loss=T1, majority_proportion=0.6)
    assert np.array(found.values, dtype=float).shape == (2, 2)


NEGATIVES_MEAN = Axis("negatives", (1, 8))


def test_undefined_cells_have_reasons() -> None:
    x, y = Axis("classes", (3, 4)), Axis("negatives", (1, 2))
    found = collapse_map(x, y, "exact_threshold", sampling="supervised", loss=SquaredHinge(margin=1.0))
    assert found.values == ((None, None), (None, None))
    assert all("never" in (reason or "") for row in found.reasons for reason in row)
    flat = collapse_map(MAJORITIES, y, classes=4, sampling="supervised", loss=Triplet(margin=-0.5))
    assert flat.values == ((None,) * 3, (None,) * 3)
    assert all("flat" in (reason or "") for row in flat.reasons for reason in row)


def test_rows_are_announced_and_the_map_is_plain_data() -> None:
    rows: list[int] = []
    found = collapse_map(
        MAJORITIES, Axis("alpha", (1.0, 2.0)), classes=3, sampling="supervised", loss=T1, on_row=rows.append
    )
    assert rows == [1, 2]
    assert CollapseMap(**{f.name: getattr(found, f.name) for f in dataclasses.fields(found)}) == found


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"y": MAJORITIES}, ("y", "name")),
        ({"x": Axis("speed", (1,))}, ("x", "name")),  # type: ignore[arg-type]
        ({"quantity": "exact_threshold"}, ("x", "name")),
        ({"quantity": "risk"}, ("quantity",)),
        ({"classes": None}, ("classes",)),
        ({"y": Axis("classes", (3,))}, ("classes",)),
        ({"classes": 2}, ("classes",)),
        ({"classes": 2.5}, ("classes",)),
        ({"majority_proportion": 0.5}, ("majority_proportion",)),
        ({"x": Axis("alpha", (1.0,))}, ("majority_proportion",)),
        ({"x": Axis("alpha", (1.0,)), "majority_proportion": 1.0}, ("majority_proportion",)),
        ({"x": Axis("majority_proportion", (0.5, 1.5))}, ("x", "values", 1)),
        ({"x": Axis("majority_proportion", ())}, ("x", "values")),
        ({"y": Axis("negatives", (2, 2.5))}, ("y", "values", 1)),
        ({"y": Axis("negatives", (math.inf,))}, ("y", "values", 0)),
        ({"y": Axis("temperature", (0.1, -1))}, ("y", "values", 1)),
        ({"y": Axis("temperature", (math.nan,))}, ("y", "values", 0)),
        ({"y": Axis("alpha", (True,))}, ("y", "values", 0)),
        ({"y": Axis("alpha", (1.0,)), "loss": Exponential()}, ("y", "name")),
        ({"y": Axis("temperature", (1.0,)), "loss": Triplet()}, ("y", "name")),
        ({"loss": InfoNCE(hardness=0.5)}, ("loss", "hardness")),
        ({"sampling": "both"}, ("sampling",)),
    ],
)
def test_conflicts_name_their_field(arguments: dict[str, object], field: tuple[object, ...]) -> None:
    valid: dict[str, object] = {"classes": 5, "sampling": "supervised", "loss": T1, "x": MAJORITIES}
    valid |= {"y": NEGATIVES_MEAN} | arguments
    with pytest.raises(InvalidInput) as caught:
        collapse_map(**valid)  # type: ignore[arg-type]
    assert caught.value.field == field


def test_a_large_map_is_refused() -> None:
    many = Axis("majority_proportion", tuple(np.linspace(0.5, 0.9, 51).tolist()))
    with pytest.raises(TooLarge):
        collapse_map(many, Axis("negatives", tuple(range(1, 51))), classes=5, sampling="supervised", loss=T1)


def test_axes_may_be_pairs_and_everything_else_has_a_default() -> None:
    axes = ("temperature", [0.1, 1.0]), ("majority_proportion", [0.5, 0.9])
    found = collapse_map(*axes, classes=10)  # type: ignore[arg-type]
    assert found == collapse_map(
        Axis("temperature", (0.1, 1.0)), Axis("majority_proportion", (0.5, 0.9)), classes=10, loss=InfoNCE()
    )


@pytest.mark.parametrize("axis", ["temperature", ("temperature",), ("temperature", 3), None])
def test_what_is_no_axis_is_named(axis: object) -> None:
    with pytest.raises(InvalidInput) as refusal:
        collapse_map(MAJORITIES, axis, classes=10)  # type: ignore[arg-type]
    assert refusal.value.field == ("y",)
