import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anglewise
from anglewise.enumeration import enumerated_risk
from anglewise.errors import InvalidInput, TooLarge
from anglewise.losses import Exponential, InfoNCE, Logistic, Loss, SquaredHinge, Triplet
from anglewise.optimum import optimal_geometry
from anglewise.sampling import FloatArray, Sampling
from anglewise.thresholds import collapse_threshold

DATA = Path(__file__).parent.parent / "data"
REFERENCE = json.loads((DATA / "cl_geometry.json").read_text())
REAL_RISKS = json.loads((DATA / "real_counts_risk.json").read_text())
REAL_COUNTS = json.loads((DATA / "real_class_counts.json").read_text())
SAMPLINGS: tuple[Sampling, ...] = ("supervised", "unsupervised")

SMOOTH: list[Loss] = [
    InfoNCE(negatives=2, temperature=0.5),
    InfoNCE(negatives=3, temperature=1.0, alpha=0.0),
    InfoNCE(negatives=math.inf, temperature=0.4, beta=3.0),
    Logistic(negatives=2, temperature=0.6, margin=0.3),
    Exponential(negatives=4, temperature=0.8),
]
HINGES: list[Loss] = [SquaredHinge(negatives=2, margin=1.5), Triplet(negatives=2, margin=1.0)]


def name_of(loss: Loss) -> str:
    return f"{type(loss).__name__}-{loss.negatives}"


def random_gram(classes: int, rank: int, seed: int) -> FloatArray:
    U = np.random.default_rng(seed).normal(size=(classes, rank))
    U /= np.linalg.norm(U, axis=1)[:, None]
    return np.asarray(U @ U.T)


def infonce(row: dict[str, Any]) -> InfoNCE:
    names = ("negatives", "temperature", "alpha", "reduction")
    return InfoNCE(**{name: row[name] for name in names})


@pytest.mark.parametrize("row", REFERENCE, ids=lambda row: row["name"])
def test_reference_geometries(row: dict[str, Any]) -> None:
    found = optimal_geometry(
        class_proportions=row["class_proportions"], sampling=row["sampling"], loss=infonce(row)
    )
    assert found.certificate.certified
    assert found.risk == pytest.approx(row["risk"], rel=2e-8)
    np.testing.assert_allclose(found.gram, row["gram"], atol=2e-6)


@pytest.mark.parametrize("row", REAL_RISKS, ids=lambda row: f"{row['counts']}-{row['sampling']}")
def test_risks_of_real_class_counts(row: dict[str, Any]) -> None:
    found = optimal_geometry(REAL_COUNTS[row["counts"]], sampling=row["sampling"], loss=infonce(row))
    assert found.certificate.certified
    assert found.risk == pytest.approx(row["risk"], rel=2e-8)
    assert found.rank <= found.classes - 1


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("loss", [*SMOOTH, SquaredHinge(margin=2.5)], ids=name_of)
@pytest.mark.parametrize("classes", [2, 3, 40])
def test_balanced_classes_form_the_simplex(classes: int, loss: Loss, sampling: Sampling) -> None:
    found = optimal_geometry([7] * classes, sampling=sampling, loss=loss)
    simplex = (classes * np.eye(classes) - 1) / (classes - 1)
    assert found.certificate.certified
    assert found.collapse.geometry == "simplex_etf"
    assert found.rank == classes - 1
    np.testing.assert_allclose(found.gram, simplex, atol=1e-8)
    assert found.risk == pytest.approx(found.comparators["simplex_etf"].risk, rel=1e-8)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("loss", SMOOTH + HINGES, ids=name_of)
def test_the_reference_solver_agrees(loss: Loss, sampling: Sampling) -> None:
    counts = [6, 3, 3, 1]
    found = optimal_geometry(counts, sampling=sampling, loss=loss)
    reference = optimal_geometry(counts, sampling=sampling, loss=loss, solver="cvxpy", tolerance=1e-6)
    assert found.certificate.certified
    assert reference.certificate.certified
    assert reference.solver.method.startswith("cvxpy")
    assert found.risk == pytest.approx(reference.risk, rel=1e-6, abs=1e-9)
    assert found.risk == pytest.approx(
        enumerated_risk(np.array(counts) / 13, sampling, loss, found.gram), rel=1e-10, abs=1e-14
    )


@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    counts=st.lists(st.integers(1, 300), min_size=2, max_size=8),
    temperature=st.floats(0.08, 5),
    k=st.sampled_from([1, 4, 256, math.inf]),
    sampling=st.sampled_from(SAMPLINGS),
    seed=st.integers(0, 10**6),
)
def test_facts_of_every_optimum(
    counts: list[int], temperature: float, k: float, sampling: Sampling, seed: int
) -> None:
    """Certified, rank at most C - 1, no feasible matrix below the bound, equal counts see equal angles."""
    loss = InfoNCE(negatives=k, temperature=temperature)
    found = optimal_geometry(counts, sampling=sampling, loss=loss)
    C, A, M = len(counts), found.gram, found.class_means
    assert found.certificate.certified
    assert found.rank == M.shape[1] <= C - 1
    np.testing.assert_allclose(M @ M.T, A, atol=1e-12)
    np.testing.assert_array_equal(np.diag(A), 1.0)
    assert np.linalg.eigvalsh(A)[0] > -1e-12
    for i in range(C):
        for j in range(i):
            if counts[i] == counts[j]:
                others = [h for h in range(C) if h not in (i, j)]
                np.testing.assert_array_equal(A[i, others], A[j, others])
    if k == 4 and C <= 5:
        lam = np.array(counts) / sum(counts)
        for shift in range(3):
            B = random_gram(C, 1 + shift, seed + shift)
            assert enumerated_risk(lam, sampling, loss, B) >= found.certificate.lower_bound


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("classes", [3, 10, 50])
@pytest.mark.parametrize(
    "loss",
    [
        InfoNCE(negatives=1, temperature=1.0),
        InfoNCE(negatives=256, temperature=1.0),
        InfoNCE(negatives=math.inf, temperature=0.7),
        Logistic(negatives=3, temperature=0.9),
        Exponential(temperature=1.0),
    ],
    ids=name_of,
)
def test_minorities_merge_exactly_at_the_threshold(loss: Loss, classes: int, sampling: Sampling) -> None:
    threshold = collapse_threshold(classes, sampling, loss).exact_threshold
    assert threshold is not None
    for shift, collapsed in ((-1e-4, False), (1e-4, True)):
        majority = threshold + shift
        proportions = [majority] + [(1 - majority) / (classes - 1)] * (classes - 1)
        found = optimal_geometry(class_proportions=proportions, sampling=sampling, loss=loss)
        minority = found.collapse.minority_collapse
        assert found.certificate.certified
        assert minority is not None
        assert minority.collapsed is collapsed
        assert minority.margin == pytest.approx(shift, rel=1e-6)
        assert (found.collapse.geometry == "minority_collapse") is collapsed
        assert (found.rank == 1) is collapsed


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_nine_tenths_of_three_classes(sampling: Sampling) -> None:
    loss = InfoNCE(negatives=256, temperature=1.0, reduction="mean")
    found = optimal_geometry([900, 50, 50], sampling=sampling, loss=loss)
    assert found.collapse.geometry == "minority_collapse"
    assert found.collapse.merged_classes == ((1, 2),)
    np.testing.assert_array_equal(found.gram, [[1, -1, -1], [-1, 1, 1], [-1, 1, 1]])


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("classes", [3, 12])
@pytest.mark.parametrize("k", [1, 30, 10**5])
def test_minorities_merge_above_the_published_thresholds(sampling: Sampling, classes: int, k: int) -> None:
    majority = 0.9439 if sampling == "supervised" else 0.9293
    proportions = [majority] + [(1 - majority) / (classes - 1)] * (classes - 1)
    loss = InfoNCE(negatives=k, temperature=1.0)
    found = optimal_geometry(class_proportions=proportions, sampling=sampling, loss=loss)
    assert found.collapse.geometry == "minority_collapse"


def test_four_distinct_vectors_of_rank_two() -> None:
    """A rank below C - 1 does not mean that classes have merged."""
    loss = InfoNCE(negatives=2, temperature=8.84)
    found = optimal_geometry(class_proportions=[0.4661, 0.2718, 0.2482, 0.0139], loss=loss)
    assert found.rank == 2
    assert found.collapse.merged_classes == ()
    assert found.collapse.geometry == "imbalanced"


def test_two_classes_are_antipodal_and_one_is_a_point() -> None:
    two = optimal_geometry([100, 1])
    np.testing.assert_array_equal(two.gram, [[1, -1], [-1, 1]])
    assert two.collapse.geometry == "simplex_etf"
    one = optimal_geometry([3], sampling="unsupervised", dimension=2, loss=InfoNCE(negatives=4, hardness=1))
    assert one.risk == pytest.approx(math.log(5))
    assert one.collapse.geometry == "point"
    np.testing.assert_array_equal(one.class_means, [[1, 0]])


def test_counts_proportions_and_order_of_classes() -> None:
    counts = np.array([5, 60, 5, 17])
    loss = InfoNCE(temperature=0.3)
    found = optimal_geometry(counts, loss=loss)
    scaled = optimal_geometry(class_proportions=counts / counts.sum(), loss=loss)
    np.testing.assert_allclose(scaled.gram, found.gram, atol=1e-9)
    order = [3, 1, 0, 2]
    permuted = optimal_geometry(counts[order], loss=loss)
    np.testing.assert_array_equal(permuted.gram, found.gram[np.ix_(order, order)])


def test_more_dimensions_than_the_rank_are_zero() -> None:
    counts, loss = [6, 3, 1], InfoNCE(temperature=0.5)
    found, padded = optimal_geometry(counts, loss=loss), optimal_geometry(counts, loss=loss, dimension=5)
    assert found.class_means.shape == (3, 2)
    assert (padded.rank, padded.dimension) == (2, 5)
    np.testing.assert_array_equal(padded.class_means, np.pad(found.class_means, ((0, 0), (0, 3))))


@pytest.mark.parametrize("dimension", [1, 2])
def test_few_dimensions_come_with_the_convex_bound(dimension: int) -> None:
    counts, loss = [6, 3, 3, 1], InfoNCE(negatives=2, temperature=0.5)
    free = optimal_geometry(counts, loss=loss)
    found = optimal_geometry(counts, loss=loss, dimension=dimension)
    assert free.rank == 3
    assert found.class_means.shape == (4, dimension)
    assert np.linalg.matrix_rank(found.gram, tol=1e-9) == dimension
    assert found.risk > free.risk
    lam = np.array(counts) / 13
    assert found.risk == pytest.approx(enumerated_risk(lam, "supervised", loss, found.gram), rel=1e-12)
    for seed in range(20):
        assert found.risk <= enumerated_risk(lam, "supervised", loss, random_gram(4, dimension, seed))
    if dimension == 2:
        assert not found.certificate.certified
        assert found.certificate.lower_bound == pytest.approx(free.risk, rel=1e-8)
        assert any("not convex" in warning for warning in found.warnings)


def test_few_dimensions_are_certified_where_the_convex_bound_is_met() -> None:
    """A collapsed optimum needs one dimension, however many classes there are."""
    loss = InfoNCE(negatives=16, temperature=1.0)
    found = optimal_geometry([960, 10, 10, 10, 10], sampling="unsupervised", loss=loss, dimension=1)
    assert found.certificate.certified
    assert found.collapse.geometry == "minority_collapse"


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("loss", SMOOTH + HINGES, ids=name_of)
def test_nonnegative_means_are_the_axes(loss: Loss, sampling: Sampling) -> None:
    counts = [1, 5, 5, 2]
    found = optimal_geometry(counts, sampling=sampling, loss=loss, nonnegative=True, dimension=6)
    assert found.certificate.certified
    assert found.certificate.gap == 0
    assert found.collapse.geometry == "orthogonal_frame"
    np.testing.assert_array_equal(found.gram, np.eye(4))
    np.testing.assert_array_equal(found.class_means, np.eye(4, 6))
    lam = np.array(counts) / 13
    rng = np.random.default_rng(0)
    for _ in range(20):
        U = rng.uniform(size=(4, 4))
        U /= np.linalg.norm(U, axis=1)[:, None]
        assert enumerated_risk(lam, sampling, loss, U @ U.T) >= found.risk - 1e-15
    assert found.unique is (not isinstance(loss, Triplet) or loss.margin >= 1)


def test_hard_negatives_have_a_bound_and_no_certificate() -> None:
    loss = InfoNCE(negatives=2, temperature=0.5, hardness=2.0)
    found = optimal_geometry([5, 3, 2], loss=loss)
    plain = optimal_geometry([5, 3, 2], loss=InfoNCE(negatives=2, temperature=0.5))
    assert not found.certificate.certified
    assert found.risk >= plain.risk
    assert found.certificate.lower_bound == pytest.approx(plain.risk, rel=1e-8)
    assert any("Hard negatives" in warning for warning in found.warnings)
    balanced = optimal_geometry([4, 4, 4], loss=loss)
    assert balanced.certificate.certified
    assert balanced.collapse.geometry == "simplex_etf"


def test_triplet_says_that_its_minimizer_may_not_be_unique() -> None:
    found = optimal_geometry([5, 3, 2], loss=Triplet(negatives=1, margin=0.2))
    assert not found.unique
    assert found.risk == pytest.approx(0, abs=1e-9)
    assert found.warnings


def test_twenty_thousand_classes_in_three_groups() -> None:
    counts = np.repeat([500, 20, 5], [1000, 9000, 10_000])
    found = optimal_geometry(counts, loss=InfoNCE(temperature=0.1))
    assert found.certificate.certified
    assert found.group_gram.shape == (3, 3)
    rows, gram = found.mean_rows(995, 1005), found.gram_rows(995, 1005)
    np.testing.assert_allclose(rows @ rows.T, gram[:, 995:1005], atol=1e-12)
    assert gram.shape == (10, 20_000)


def test_a_time_limit_still_gives_an_answer_with_its_gap() -> None:
    found = optimal_geometry(REAL_COUNTS["cifar100_lt_100"], time_limit=1e-3)
    assert 0 <= found.certificate.gap < math.inf
    assert found.certificate.lower_bound <= found.risk


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"class_counts": None}, ("class_counts",)),
        ({"class_proportions": [0.5, 0.5]}, ("class_proportions",)),
        ({"class_counts": [3, 0]}, ("class_counts", 1)),
        ({"class_counts": [3, 1.5]}, ("class_counts", 1)),
        ({"class_counts": None, "class_proportions": [0.5, 0.6]}, ("class_proportions",)),
        ({"class_counts": None, "class_proportions": [0.5, math.nan]}, ("class_proportions", 1)),
        ({"class_counts": [4]}, ("sampling",)),
        ({"sampling": "both"}, ("sampling",)),
        ({"dimension": 0}, ("dimension",)),
        ({"dimension": 1.5}, ("dimension",)),
        ({"dimension": 1, "nonnegative": True}, ("dimension",)),
        ({"solver": "magic"}, ("solver",)),
        ({"solver": "cvxpy", "nonnegative": True}, ("solver",)),
        ({"solver": "cvxpy", "loss": InfoNCE(hardness=1)}, ("solver",)),
        ({"tolerance": 1e-13}, ("tolerance",)),
        ({"tolerance": 0.2}, ("tolerance",)),
        ({"tolerance": math.nan}, ("tolerance",)),
        ({"time_limit": 0}, ("time_limit",)),
        (
            {"loss": InfoNCE(hardness=1), "nonnegative": True, "sampling": "unsupervised"},
            ("nonnegative",),
        ),
    ],
)
def test_bad_input_names_its_field(arguments: dict[str, Any], field: tuple[object, ...]) -> None:
    valid: dict[str, Any] = {"class_counts": [3, 2]}
    with pytest.raises(InvalidInput) as caught:
        optimal_geometry(**(valid | arguments))
    assert caught.value.field == field


def test_problems_beyond_a_method_are_too_large() -> None:
    with pytest.raises(TooLarge):
        optimal_geometry([5, 4, 3, 2, 1], loss=InfoNCE(negatives=256), solver="cvxpy")
    with pytest.raises(TooLarge):
        optimal_geometry([2] * 2000 + [1], loss=InfoNCE(hardness=1))


def test_public_names_are_sorted_and_exist() -> None:
    constants = [name for name in anglewise.__all__ if name.isupper()]
    classes = [name for name in anglewise.__all__ if name[0].isupper() and not name.isupper()]
    rest = [name for name in anglewise.__all__ if not name[0].isupper()]
    assert anglewise.__all__ == sorted(constants) + sorted(classes) + sorted(rest)
    assert all(hasattr(anglewise, name) for name in anglewise.__all__)


def test_a_loss_by_its_name_is_refused() -> None:
    with pytest.raises(InvalidInput, match="InfoNCE") as refusal:
        optimal_geometry([3, 2, 1], loss="infonce")  # type: ignore[arg-type]
    assert refusal.value.field == ("loss",)


@pytest.mark.parametrize("value", ["infinite", None, True, 1j])
def test_an_attribute_of_a_loss_that_is_no_number_is_named(value: Any) -> None:
    with pytest.raises(InvalidInput, match="number") as refusal:
        InfoNCE(negatives=value)
    assert refusal.value.field == ("loss", "negatives")


def test_a_geometry_introduces_itself_in_one_line() -> None:
    text = repr(optimal_geometry([900, 50, 50]))
    assert text.startswith("<Geometry of 3 classes: imbalanced, risk ")
    assert "certified (relative gap " in text
