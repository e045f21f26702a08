"""minimize_risk: certified on random problems and real class counts, against references and closed forms."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anglewise.errors import InvalidInput
from anglewise.losses import Exponential, InfoNCE, Logistic, Triplet
from anglewise.risk import Risk
from anglewise.sampling import group_classes, normalized_proportions, proportions_from_counts
from anglewise.solve import minimize_risk
from benchmarks.random_problems import describe, random_problems

DATA = Path(__file__).parents[1] / "data"
COUNTS = json.loads((DATA / "real_class_counts.json").read_text())
REAL_RISKS = json.loads((DATA / "real_counts_risk.json").read_text())
GEOMETRIES = json.loads((DATA / "cl_geometry.json").read_text())


def groups_of(counts):
    return group_classes(proportions_from_counts(counts))


def full(groups, A):
    F = A[np.ix_(groups.index, groups.index)].copy()
    np.fill_diagonal(F, 1.0)
    return F


def assert_sound(groups, solution):
    """What every answer promises, certified or not."""
    A, certificate = solution.gram, solution.certificate
    assert np.isfinite(A).all()
    assert np.abs(A).max() <= 1
    assert (A == A.T).all()
    assert (A[groups.sizes == 1, groups.sizes == 1] == 1).all()
    assert certificate.min_gram_eigenvalue > -1e-9
    assert math.isfinite(solution.risk)
    assert certificate.gap >= 0
    assert certificate.lower_bound == solution.risk - certificate.gap
    assert certificate.certified == (certificate.relative_gap <= certificate.tolerance)


def test_random_problems_are_certified():
    """Strictly convex losses always; α = 0 in at least 98 %, with the truth told about the rest."""
    failures, decoupled = [], 0
    for problem in random_problems(100, seed=2, largest=400):
        solution = minimize_risk(
            problem.groups, problem.sampling, problem.loss, tolerance=1e-9, time_limit=20
        )
        assert_sound(problem.groups, solution)
        decoupled += problem.loss.alpha == 0
        if not solution.certificate.certified:
            failures.append(describe(problem, solution))
            assert problem.loss.alpha == 0, failures[-1]
            assert solution.warnings
    assert len(failures) <= max(1, 0.02 * decoupled), failures


@pytest.mark.parametrize("name", ["imagenet_lt", "places_lt", "cifar100_lt_100"])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
def test_real_counts_are_certified(name, temperature, sampling):
    groups = groups_of(COUNTS[name])
    solution = minimize_risk(groups, sampling, InfoNCE(negatives=256, temperature=temperature))
    assert_sound(groups, solution)
    assert solution.certificate.relative_gap <= 1e-9


@pytest.mark.parametrize("case", REAL_RISKS, ids=lambda case: f"{case['counts']}-{case['temperature']}")
def test_reference_risks_of_real_counts(case):
    groups = groups_of(COUNTS[case["counts"]])
    loss = InfoNCE(
        negatives=case["negatives"],
        temperature=case["temperature"],
        alpha=case["alpha"],
        reduction=case["reduction"],
    )
    solution = minimize_risk(groups, case["sampling"], loss)
    assert solution.risk == pytest.approx(case["risk"], rel=1e-9, abs=6e-11)


@pytest.mark.parametrize("case", GEOMETRIES, ids=lambda case: case["name"])
def test_reference_geometries(case):
    groups = group_classes(normalized_proportions(case["class_proportions"]))
    k = case["negatives"]
    loss = InfoNCE(
        negatives=math.inf if k in ("infinite", "inf", None) else k,
        temperature=case["temperature"],
        alpha=case["alpha"],
        reduction=case["reduction"],
    )
    solution = minimize_risk(groups, case["sampling"], loss, tolerance=1e-9)
    assert solution.certificate.certified
    assert solution.risk <= case["risk"] + 1e-9 * abs(case["risk"])
    assert solution.risk >= case["risk"] - case["certified_gap"] - 1e-9 * abs(case["risk"])
    # The reference Gram matrix is as accurate as the square root of its own gap.
    error = np.abs(full(groups, solution.gram) - np.array(case["gram"])).max()
    assert error < 1e-5 + 3 * math.sqrt(case["certified_gap"])


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
@pytest.mark.parametrize(
    "loss", [InfoNCE(), InfoNCE(alpha=0.0), Logistic(negatives=3), Exponential(negatives=3, temperature=1.0)]
)
def test_equal_proportions_give_the_simplex(loss, sampling):
    groups = group_classes(np.full(7, 1 / 7))
    solution = minimize_risk(groups, sampling, loss)
    assert_sound(groups, solution)
    assert solution.certificate.certified
    assert solution.gram == pytest.approx(np.full((1, 1), -1 / 6), abs=1e-15)


@pytest.mark.parametrize("lam", [0.5, 0.7, 1 - 1e-9])
def test_two_classes_are_antipodal(lam):
    groups = group_classes(np.array([lam, 1 - lam]))
    for sampling in ("supervised", "unsupervised"):
        for T in (1e-3, 0.1, 1e4):
            solution = minimize_risk(groups, sampling, InfoNCE(temperature=T))
            assert solution.certificate.certified
            assert (full(groups, solution.gram) == np.array([[1, -1], [-1, 1]])).all()


def test_one_class_is_a_point():
    solution = minimize_risk(group_classes(np.ones(1)), "unsupervised", InfoNCE(negatives=9))
    assert solution.certificate.certified
    assert solution.risk == pytest.approx(math.log(10))
    with pytest.raises(InvalidInput):
        minimize_risk(group_classes(np.ones(1)), "supervised", InfoNCE())


def test_three_classes_collapse_at_the_exact_threshold():
    """UCL, k = 1, T = 1: the minorities merge from l = (1 + e²)/(3 + e²) on."""
    threshold = (1 + math.e**2) / (3 + math.e**2)
    for shift in (-1e-3, 1e-3):
        majority = threshold + shift
        groups = group_classes(np.array([majority, (1 - majority) / 2, (1 - majority) / 2]))
        A = minimize_risk(groups, "unsupervised", InfoNCE(negatives=1, temperature=1.0)).gram
        if shift > 0:
            assert pytest.approx(np.array([[1, -1], [-1, 1]]), abs=1e-7) == A
        else:
            assert A[1, 1] < 1 - 1e-4


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
@pytest.mark.parametrize(
    "loss",
    [Logistic(negatives=1, temperature=0.3, margin=1.0), Exponential(negatives=4, temperature=0.3)],
    ids=["logistic", "exponential"],
)
def test_separable_losses(loss, sampling):
    groups = groups_of(COUNTS["cifar10_lt_100"])
    solution = minimize_risk(groups, sampling, loss, tolerance=1e-9)
    assert_sound(groups, solution)
    assert solution.certificate.certified
    rng = np.random.default_rng(0)
    risk = Risk(groups, sampling, loss)
    for _ in range(20):
        means = rng.normal(size=(len(groups), 9))
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        A = 0.9 * solution.gram + 0.1 * means @ means.T
        assert risk.value(A) >= solution.risk - solution.certificate.gap


def test_linear_risk_says_that_it_may_not_be_unique():
    loss = InfoNCE(negatives=1, alpha=0.0)
    solution = minimize_risk(groups_of([50, 40, 30, 20, 10]), "supervised", loss, tolerance=1e-9)
    assert solution.certificate.certified
    assert not solution.unique
    assert any("unique" in warning for warning in solution.warnings)
    assert minimize_risk(groups_of([50, 40, 30, 20, 10]), "supervised", InfoNCE()).unique


@pytest.mark.parametrize("seed", range(3))
def test_kinked_risks_are_certified_by_the_barrier(seed):
    """α = 0 at low temperature with few negatives, where the dual's ridge lies at the clip."""
    rng = np.random.default_rng(seed)
    groups = groups_of(rng.integers(1, 2000, 7))
    for sampling in ("supervised", "unsupervised"):
        loss = InfoNCE(negatives=3, temperature=0.04, alpha=0.0)
        solution = minimize_risk(groups, sampling, loss, tolerance=1e-9)
        assert_sound(groups, solution)
        assert solution.certificate.certified


@settings(max_examples=20, deadline=None)
@given(
    counts=st.lists(st.integers(1, 10_000), min_size=3, max_size=8),
    factor=st.integers(2, 9),
    k=st.sampled_from([1, 16, 512]),
    temperature=st.sampled_from([0.07, 0.5, 3.0]),
    sampling=st.sampled_from(["supervised", "unsupervised"]),
    seed=st.integers(0, 1000),
)
def test_order_and_scale_of_the_counts_do_not_matter(counts, factor, k, temperature, sampling, seed):
    loss = InfoNCE(negatives=k, temperature=temperature)
    one = minimize_risk(groups_of(counts), sampling, loss, tolerance=1e-9)
    order = np.random.default_rng(seed).permutation(len(counts))
    moved = groups_of([factor * counts[i] for i in order])
    other = minimize_risk(moved, sampling, loss, tolerance=1e-9)
    assert one.certificate.certified
    assert other.certificate.certified
    assert other.risk == pytest.approx(one.risk, rel=2e-9)
    assert full(moved, other.gram) == pytest.approx(
        full(groups_of(counts), one.gram)[np.ix_(order, order)], abs=1e-2
    )


def test_the_answer_is_deterministic():
    groups = groups_of(COUNTS["cifar10_lt_100"])
    first, second = (minimize_risk(groups, "supervised", InfoNCE()) for _ in range(2))
    assert (first.gram == second.gram).all()
    assert first.risk == second.risk


def test_a_time_limit_returns_the_best_point_so_far():
    x = np.geomspace(1, 1e-5, 400)
    groups = group_classes(x / x.sum())
    solution = minimize_risk(groups, "unsupervised", InfoNCE(temperature=1.0), time_limit=1e-4)
    assert_sound(groups, solution)
    assert not solution.certificate.certified
    assert any("time limit" in warning for warning in solution.warnings)


def test_a_breakdown_falls_back(monkeypatch):
    """An exception inside the dual never escapes; the barrier answers instead."""

    def broken(*args, **kwargs):
        raise np.linalg.LinAlgError("broken")

    monkeypatch.setattr("anglewise.dual.method.minimize_surrogate", broken)
    groups = groups_of([50, 30, 20, 10])
    solution = minimize_risk(groups, "supervised", InfoNCE(negatives=4, temperature=0.5))
    assert solution.certificate.certified
    assert solution.report.method == "barrier Newton"
    monkeypatch.setattr("anglewise.solve.solve_dual", broken)
    monkeypatch.setattr("anglewise.solve.minimize_by_barrier", broken)
    last = minimize_risk(groups, "supervised", InfoNCE(negatives=4, temperature=0.5))
    assert_sound(groups, last)
    assert not last.certificate.certified


def test_other_losses_are_refused():
    with pytest.raises(InvalidInput):
        minimize_risk(groups_of([2, 1]), "supervised", Triplet())
    with pytest.raises(InvalidInput):
        minimize_risk(groups_of([2, 1]), "supervised", InfoNCE(hardness=0.5))


def test_a_stalled_dual_is_followed_by_a_descent_on_the_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = group_classes(proportions_from_counts(list(range(100, 1100, 20))))
    loss = InfoNCE(temperature=0.5)
    whole = minimize_risk(groups, "supervised", loss)

    def stalled(*_: object, **__: object) -> None:
        raise FloatingPointError

    monkeypatch.setattr("anglewise.solve.solve_dual", stalled)
    found = minimize_risk(groups, "supervised", loss)
    assert found.report.method == "descent on a factor"
    assert found.certificate.certified
    assert found.risk == pytest.approx(whole.risk, rel=1e-8)
