"""The reference solver against closed forms, itself by other backends, and plain enumeration."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anglewise.conic import run_solver
from anglewise.enumeration import enumerate_outcomes, enumerated_risk, enumerated_value_and_gradient
from anglewise.errors import InvalidInput, NumericalFailure, TooLarge
from anglewise.losses import Exponential, InfoNCE, Logistic, Loss, SquaredHinge, Triplet
from anglewise.reference import solve_reference
from anglewise.sampling import FloatArray, group_classes

LAM = np.array([0.5, 0.3, 0.2])
LOSSES = [
    InfoNCE(negatives=3, temperature=0.7),
    InfoNCE(negatives=3, temperature=0.7, alpha=0.0),
    InfoNCE(negatives=3, temperature=0.7, beta=2.0, reduction="mean"),
    InfoNCE(negatives=math.inf, temperature=0.7),
    Logistic(negatives=3, temperature=0.7, margin=0.4),
    Logistic(negatives=3, temperature=0.7, reduction="mean"),
    Exponential(negatives=3, temperature=0.7),
    SquaredHinge(negatives=3, margin=1.2),
    Triplet(negatives=3, margin=1.2),
]
NAMES = [f"{type(loss).__name__}-{loss.negatives}-{loss.reduction}" for loss in LOSSES]


def random_gram(C: int, seed: int) -> np.ndarray:
    U = np.random.default_rng(seed).normal(size=(C, C))
    U /= np.linalg.norm(U, axis=1, keepdims=True)
    return U @ U.T


def psi(loss: Loss, t: np.ndarray) -> float:
    """The loss of one tuple of negatives, straight from the table of the family."""
    k = len(t)
    if isinstance(loss, InfoNCE):
        beta = loss.beta / k if loss.reduction == "mean" else loss.beta
        return math.log(loss.alpha + beta * np.exp(t / loss.temperature).sum())
    if isinstance(loss, Logistic):
        total = np.log(1 + np.exp((t + loss.margin) / loss.temperature)).sum()
    elif isinstance(loss, Exponential):
        total = np.exp(t / loss.temperature).sum()
    else:
        assert isinstance(loss, (SquaredHinge, Triplet))
        total = (np.maximum(0, t + loss.margin) ** (2 if isinstance(loss, SquaredHinge) else 1)).sum()
    return total / k if loss.reduction == "mean" else total


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
@pytest.mark.parametrize("loss", [x for x in LOSSES if math.isfinite(x.negatives)])
def test_enumeration_equals_the_sum_over_all_tuples(loss: Loss, sampling: str) -> None:
    A = random_gram(3, 0)
    total = 0.0
    for i in range(3):
        p = LAM.copy()
        if sampling == "supervised":
            p[i] = 0
            p /= 1 - LAM[i]
        for draw in itertools.product(range(3), repeat=int(loss.negatives)):
            probability = math.prod(p[j] for j in draw)
            if probability > 0:
                total += LAM[i] * probability * psi(loss, A[i, list(draw)] - A[i, i])
    assert enumerated_risk(LAM, sampling, loss, A) == pytest.approx(total, rel=1e-13)


def test_infinitely_many_negatives_are_the_limit_of_many() -> None:
    A = random_gram(3, 1)
    limit = enumerated_risk(LAM, "supervised", InfoNCE(negatives=math.inf, temperature=0.7), A)
    errors = [
        abs(
            enumerated_risk(LAM, "supervised", InfoNCE(negatives=k, temperature=0.7, reduction="mean"), A)
            - limit
        )
        for k in (500, 1000, 2000)
    ]
    assert errors[2] < 1e-4
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.02)
    assert errors[1] / errors[2] == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
def test_gradient_agrees_with_differences(loss: Loss) -> None:
    A = random_gram(3, 2)
    outcomes = enumerate_outcomes(LAM, "unsupervised", loss)
    _, G = enumerated_value_and_gradient(loss, outcomes, A)
    for i, j in itertools.permutations(range(3), 2):
        E = np.zeros((3, 3))
        E[i, j] = 1e-6
        above, below = (enumerated_value_and_gradient(loss, outcomes, A + s * E)[0] for s in (1, -1))
        assert G[i, j] == pytest.approx((above - below) / 2e-6, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
def test_balanced_classes_reach_the_simplex(loss: Loss, sampling: str) -> None:
    """All proportions equal: the simplex ETF is optimal for every convex increasing ψ ([P1])."""
    lam = np.full(4, 0.25)
    solution = solve_reference(group_classes(lam), sampling, loss)
    simplex = np.where(np.eye(4) > 0, 1.0, -1 / 3)
    assert solution.risk == pytest.approx(enumerated_risk(lam, sampling, loss, simplex), rel=1e-8)
    assert solution.certificate.certified
    if loss.strictly_convex:
        assert solution.gram[0, 0] == pytest.approx(-1 / 3, abs=1e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=NAMES)
@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
def test_imbalanced_answer_is_certified_and_not_beaten(loss: Loss, sampling: str) -> None:
    solution = solve_reference(group_classes(LAM), sampling, loss)
    assert solution.certificate.relative_gap <= (5e-8 if isinstance(loss, Triplet) else 1e-9)
    assert solution.certificate.min_gram_eigenvalue >= -1e-15
    assert np.diag(solution.gram) == pytest.approx(np.ones(3), abs=0)
    assert solution.risk == pytest.approx(enumerated_risk(LAM, sampling, loss, solution.gram), rel=1e-14)
    assert solution.unique == loss.strictly_convex
    for seed in range(20):
        B = random_gram(3, seed)
        assert enumerated_risk(LAM, sampling, loss, B) >= solution.certificate.lower_bound


@settings(max_examples=15, deadline=None)
@given(
    weights=st.lists(st.floats(0.05, 1.0), min_size=2, max_size=4),
    temperature=st.floats(0.2, 5.0),
    negatives=st.integers(1, 4),
)
def test_other_matrices_stay_above_the_bound(
    weights: list[float], temperature: float, negatives: int
) -> None:
    lam = np.array(weights) / sum(weights)
    groups = group_classes(lam)
    loss = InfoNCE(negatives=negatives, temperature=temperature)
    solution = solve_reference(groups, "supervised", loss)
    assert solution.certificate.relative_gap < 1e-6
    for seed in range(5):
        B = random_gram(len(lam), seed)
        assert enumerated_risk(lam, "supervised", loss, B) >= solution.certificate.lower_bound * (1 - 1e-14)


def test_equal_proportions_share_their_inner_products() -> None:
    groups = group_classes(np.array([0.1, 0.4, 0.1, 0.4]))
    solution = solve_reference(groups, "supervised", InfoNCE(negatives=2, temperature=0.5))
    assert solution.gram.shape == (2, 2)
    assert solution.gram == pytest.approx(solution.gram.T, abs=1e-15)
    assert solution.certificate.certified


def test_backends_agree() -> None:
    loss = InfoNCE(negatives=2, temperature=1.0)
    one = solve_reference(group_classes(LAM), "unsupervised", loss)
    other = solve_reference(group_classes(LAM), "unsupervised", loss, backend="SCS")
    assert one.report.method == "cvxpy_clarabel"
    assert other.report.method == "cvxpy_scs"
    assert other.risk == pytest.approx(one.risk, rel=1e-8)


@pytest.mark.parametrize(
    "loss",
    [
        InfoNCE(negatives=4, temperature=0.036),
        Exponential(negatives=4, temperature=0.033),
        Logistic(negatives=4, temperature=0.043, margin=0.1),
    ],
)
def test_risks_below_the_accuracy_of_the_conic_solver_are_certified(loss: Loss) -> None:
    solution = solve_reference(group_classes(LAM), "supervised", loss)
    assert solution.risk < 1e-8
    assert solution.certificate.certified


def test_one_class_is_a_point() -> None:
    solution = solve_reference(group_classes(np.ones(1)), "unsupervised", Exponential(negatives=3))
    assert solution.gram.tolist() == [[1.0]]
    assert solution.risk == pytest.approx(3.0)
    assert solution.certificate.certified


def test_too_many_draws_are_refused_without_counting_them() -> None:
    with pytest.raises(TooLarge) as refused:
        solve_reference(group_classes(LAM), "supervised", InfoNCE(negatives=10**9))
    assert refused.value.field == ("solver",)
    with pytest.raises(TooLarge):
        solve_reference(group_classes(np.full(200, 1 / 200)), "unsupervised", InfoNCE(negatives=math.inf))
    enumerate_outcomes(LAM, "supervised", InfoNCE(negatives=6665))
    with pytest.raises(TooLarge):
        enumerate_outcomes(LAM, "supervised", InfoNCE(negatives=6667))


def test_hard_negatives_are_refused() -> None:
    with pytest.raises(InvalidInput) as refused:
        solve_reference(group_classes(LAM), "supervised", InfoNCE(negatives=2, hardness=1.0))
    assert refused.value.field == ("loss", "hardness")


def test_a_panic_of_the_solver_is_a_failure() -> None:
    """Clarabel panics where every term of the risk underflows: as a BaseException, it would end a server."""

    class PanicException(BaseException):
        pass

    class Panicking:
        def solve(self, **_: object) -> None:
            raise PanicException("Eigval error")

    with pytest.raises(NumericalFailure, match="panicked"):
        run_solver(Panicking(), "CLARABEL")


@pytest.mark.parametrize("lam", [LAM, np.array([5, 3, 2, 1]) / 11], ids=len)
def test_a_risk_that_underflows_is_a_failure(lam: FloatArray) -> None:
    with pytest.raises(NumericalFailure, match="underflow"):
        solve_reference(group_classes(lam), "supervised", InfoNCE(negatives=2, temperature=0.001))


def test_many_classes_are_refused() -> None:
    """19,460 draws are few enough, but a cone of 140 classes takes more memory than there may be."""
    groups = group_classes(np.arange(1, 141) / np.arange(1, 141).sum())
    with pytest.raises(TooLarge) as refused:
        solve_reference(groups, "supervised", Logistic(negatives=1))
    assert refused.value.field == ("solver",)
