"""Squared hinge and triplet against cvxpy, closed forms, random geometries and dense linear algebra."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anglewise.enumeration import enumerated_risk
from anglewise.errors import InvalidInput
from anglewise.hinge import minimize_hinge
from anglewise.losses import InfoNCE, SquaredHinge, Triplet
from anglewise.reference import solve_reference
from anglewise.sampling import Groups, group_classes
from anglewise.splitting import HingeSplitting, _Coordinates

LAM = np.array([0.4, 0.25, 0.15, 0.1, 0.05, 0.05])
SAMPLINGS = ["supervised", "unsupervised"]


def expand(groups: Groups, gram: np.ndarray) -> np.ndarray:
    A = gram[np.ix_(groups.index, groups.index)].copy()
    np.fill_diagonal(A, 1.0)
    return A


def random_gram(C: int, d: int, seed: int) -> np.ndarray:
    U = np.random.default_rng(seed).normal(size=(C, d))
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    return U @ U.T


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("kind", [SquaredHinge, Triplet])
@pytest.mark.parametrize("margin", [-3.0, 0.0, 0.7, 1.2])
def test_small_margins_leave_nothing_but_collisions(kind, sampling: str, margin: float) -> None:
    """m ≤ C/(C-1): the simplex has no positive term; what is left is Σ λ_i² k φ(0)."""
    loss = kind(negatives=3, margin=margin)
    solution = minimize_hinge(group_classes(LAM), sampling, loss)
    power = 2 if kind is SquaredHinge else 1
    collisions = 3 * max(0.0, margin) ** power * float(LAM @ LAM) * (sampling == "unsupervised")
    assert solution.risk == pytest.approx(collisions, rel=1e-13, abs=1e-25)
    assert solution.certificate.certified
    assert not solution.unique
    assert len(solution.warnings) == 1


def test_any_geometry_below_the_margin_is_as_good() -> None:
    """The warning says so: all cosines at most 1 - m."""
    loss = SquaredHinge(negatives=2, margin=0.5)
    solution = minimize_hinge(group_classes(np.full(3, 1 / 3)), "unsupervised", loss)
    other = np.array([[1.0, 0.5, -0.2], [0.5, 1.0, 0.1], [-0.2, 0.1, 1.0]])
    assert enumerated_risk(np.full(3, 1 / 3), "unsupervised", loss, other) == pytest.approx(solution.risk)
    assert "0.5" in solution.warnings[0]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("kind", [SquaredHinge, Triplet])
@pytest.mark.parametrize("margin", [1.25, 1.5, 1.9, 2.0, 3.0])
def test_against_the_conic_solver(kind, sampling: str, margin: float) -> None:
    groups = group_classes(LAM)
    loss = kind(negatives=4, margin=margin)
    solution = minimize_hinge(groups, sampling, loss)
    reference = solve_reference(groups, sampling, loss)
    assert solution.certificate.certified
    assert solution.risk == pytest.approx(reference.risk, rel=2e-8 if kind is Triplet else 1e-9)
    assert solution.certificate.lower_bound <= reference.risk * (1 + 1e-14)
    assert reference.certificate.lower_bound <= solution.risk * (1 + 1e-14)
    if solution.unique and kind is SquaredHinge:
        assert solution.gram == pytest.approx(reference.gram, abs=1e-5)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("kind", [SquaredHinge, Triplet])
@pytest.mark.parametrize("margin", [1.3, 2.5])
def test_the_answer_is_feasible_and_its_risk_is_its_own(kind, sampling: str, margin: float) -> None:
    groups = group_classes(LAM)
    loss = kind(negatives=4, margin=margin)
    solution = minimize_hinge(groups, sampling, loss)
    A = expand(groups, solution.gram)
    assert np.linalg.eigvalsh(A)[0] >= -1e-14
    assert solution.gram == pytest.approx(solution.gram.T, abs=1e-15)
    assert enumerated_risk(LAM, sampling, loss, A) == pytest.approx(solution.risk, rel=1e-13)


@settings(max_examples=15, deadline=None)
@given(
    counts=st.lists(st.integers(1, 50), min_size=2, max_size=6),
    margin=st.floats(0.5, 3.0),
    kind=st.sampled_from([SquaredHinge, Triplet]),
    sampling=st.sampled_from(SAMPLINGS),
    seed=st.integers(0, 1000),
)
def test_no_geometry_is_below_the_bound(counts, margin: float, kind, sampling: str, seed: int) -> None:
    lam = np.array(counts) / sum(counts)
    loss = kind(negatives=2, margin=margin)
    solution = minimize_hinge(group_classes(lam), sampling, loss, tolerance=1e-7)
    floor = solution.certificate.lower_bound - 1e-13 * max(1.0, abs(solution.risk))
    assert 0 <= solution.certificate.gap == pytest.approx(solution.risk - solution.certificate.lower_bound)
    for d in range(1, len(lam) + 1):
        assert enumerated_risk(lam, sampling, loss, random_gram(len(lam), d, seed + d)) >= floor


@pytest.mark.parametrize("kind", [SquaredHinge, Triplet])
@pytest.mark.parametrize("margin", [1.3, 2.0, 4.0])
def test_balanced_classes_stay_at_the_simplex(kind, margin: float) -> None:
    solution = minimize_hinge(group_classes(np.full(10, 0.1)), "supervised", kind(negatives=1, margin=margin))
    power = 2 if kind is SquaredHinge else 1
    assert solution.risk == pytest.approx((margin - 10 / 9) ** power, rel=1e-8)
    assert solution.certificate.certified


@pytest.mark.parametrize(
    ("lam", "loss", "unique"),
    [
        ([0.7, 0.3], SquaredHinge(margin=1.5), False),
        ([0.7, 0.3], Triplet(margin=2.0), True),
        ([0.7, 0.3], SquaredHinge(margin=2.5), True),
        ([0.5, 0.3, 0.2], SquaredHinge(margin=1.4), False),
        ([0.5, 0.3, 0.2], SquaredHinge(margin=1.8), True),
        ([0.5, 0.3, 0.2], SquaredHinge(margin=2.5), True),
        ([0.5, 0.3, 0.2], Triplet(margin=1.8), False),
        ([1.0], Triplet(margin=1.8), True),
    ],
)
def test_uniqueness_is_claimed_only_where_it_is_proven(lam, loss, unique: bool) -> None:
    solution = minimize_hinge(group_classes(np.array(lam)), "unsupervised", loss)
    assert solution.unique is unique
    assert bool(solution.warnings) is not unique
    assert solution.certificate.certified


def test_a_unique_squared_hinge_has_one_answer_from_any_side() -> None:
    """Proven unique: the conic solver must find the same matrix, not only the same risk."""
    groups = group_classes(LAM)
    loss = SquaredHinge(margin=1.7)
    solution = minimize_hinge(groups, "supervised", loss)
    assert solution.unique
    assert solve_reference(groups, "supervised", loss).gram == pytest.approx(solution.gram, abs=1e-5)


@pytest.mark.parametrize("kind", [SquaredHinge, Triplet])
@pytest.mark.parametrize("margin", [1.5, 2.5])
def test_eight_thousand_classes_need_no_class_matrix(kind, margin: float) -> None:
    lam = np.repeat([10.0, 5.0, 2.0, 1.0], 2000)
    groups = group_classes(lam / lam.sum())
    tracemalloc.start()
    solution = minimize_hinge(groups, "supervised", kind(negatives=3, margin=margin), tolerance=1e-7)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
    assert solution.gram.shape == (4, 4)
    assert solution.certificate.certified


def test_extreme_imbalance_is_certified() -> None:
    lam = np.geomspace(1e4, 1, 15)
    groups = group_classes(lam / lam.sum())
    for loss in (SquaredHinge(negatives=4, margin=1.3), Triplet(negatives=4, margin=1.3)):
        assert minimize_hinge(groups, "supervised", loss).certificate.certified


def test_out_of_time_is_an_honest_answer() -> None:
    rng = np.random.default_rng(0)
    lam = rng.random(30) + 0.05
    lam /= lam.sum()
    groups = group_classes(lam)
    loss = Triplet(negatives=1, margin=1.3)
    hasty = minimize_hinge(groups, "supervised", loss, time_limit=1e-3)
    patient = minimize_hinge(groups, "supervised", loss, tolerance=1e-5)
    assert not hasty.certificate.certified
    assert hasty.certificate.lower_bound <= patient.risk
    assert hasty.risk >= patient.certificate.lower_bound
    assert patient.certificate.certified


def test_other_losses_are_refused() -> None:
    with pytest.raises(InvalidInput):
        minimize_hinge(group_classes(LAM), "supervised", InfoNCE())  # type: ignore[arg-type]
    with pytest.raises(InvalidInput) as refused:
        minimize_hinge(group_classes(LAM), "supervised", Triplet(margin=1.5, hardness=1.0))
    assert refused.value.field == ("loss", "hardness")


def test_group_coordinates_are_those_of_the_class_matrix() -> None:
    """Norm and projection on groups against the dense class matrix."""
    groups = group_classes(np.array([0.3, 0.1, 0.1, 0.1, 0.2, 0.2]))
    at = _Coordinates(groups)
    rng = np.random.default_rng(4)
    pairs = rng.normal(size=(3, 3))
    pairs = pairs + pairs.T
    diagonal = rng.normal(size=3)

    def dense(x: np.ndarray) -> np.ndarray:
        off, own = at.unpack(x)
        X = off[np.ix_(groups.index, groups.index)].copy()
        np.fill_diagonal(X, own[groups.index])
        return X

    x = at.pack(pairs, diagonal)
    X = dense(x)
    single = groups.sizes == 1
    off, own = at.unpack(x)
    assert off[~np.diag(single)] == pytest.approx(pairs[~np.diag(single)])
    assert own == pytest.approx(diagonal)
    assert np.linalg.norm(x) == pytest.approx(np.linalg.norm(X))
    eigenvalues, vectors = np.linalg.eigh(X)
    positive = (vectors * np.maximum(eigenvalues, 0)) @ vectors.T
    assert dense(at.project(x)) == pytest.approx(positive, abs=1e-13)


def test_splitting_stays_within_the_slopes_and_the_elliptope() -> None:
    groups = group_classes(LAM)
    weights = np.where(np.eye(5) * (groups.sizes == 1) > 0, 0.0, 0.1)
    start = np.where(np.eye(5) * (groups.sizes == 1) > 0, 1.0, -0.2)
    method = HingeSplitting(groups, weights, 0.5, start)
    for _ in range(50):
        method.advance()
        assert method.slopes.min() >= 0
        assert method.slopes.max() <= 1
        assert np.linalg.eigvalsh(expand(groups, method.gram))[0] >= -1e-12
