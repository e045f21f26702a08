"""Few dimensions and hard negatives against enumeration, differences, grids and the convex solver."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anglewise.certificate import certify
from anglewise.errors import InvalidInput
from anglewise.factor import minimize_factored
from anglewise.group_factor import factor_descent, factor_objective, factor_of, gram_of
from anglewise.losses import Exponential, InfoNCE, Logistic, Loss, SquaredHinge, Triplet
from anglewise.reference import solve_reference
from anglewise.risk import Risk
from anglewise.sampling import group_classes
from anglewise.signs import _search, _SignProblem, _signs, minimize_signs
from anglewise.spheres import minimize_on_spheres
from anglewise.tilted import TiltedRisk, expected_loss, single_class_groups

LAM = np.array([0.5, 0.3, 0.15, 0.05])
SAMPLINGS = ["supervised", "unsupervised"]
LOSSES = [
    InfoNCE(negatives=1, temperature=0.7),
    InfoNCE(negatives=3, temperature=0.7),
    InfoNCE(negatives=3, temperature=0.3, alpha=0.0),
    InfoNCE(negatives=4, temperature=0.1, beta=2.0, reduction="mean"),
    InfoNCE(negatives=math.inf, temperature=0.5),
    InfoNCE(negatives=math.inf, temperature=0.5, alpha=0.0),
    Logistic(negatives=3, temperature=0.7, margin=0.4),
    Exponential(negatives=3, temperature=0.7, reduction="mean"),
    SquaredHinge(negatives=3, margin=1.2),
    Triplet(negatives=2, margin=1.2),
]


def unit_rows(C: int, d: int, seed: int) -> np.ndarray:
    U = np.random.default_rng(seed).normal(size=(C, d))
    return U / np.linalg.norm(U, axis=1, keepdims=True)


def psi(loss: Loss, t: np.ndarray) -> float:
    k = len(t)
    if isinstance(loss, InfoNCE):
        beta = loss.beta / k if loss.reduction == "mean" else loss.beta
        return math.log(loss.alpha + beta * np.exp(t / loss.temperature).sum())
    if isinstance(loss, Logistic):
        total = np.log(1 + np.exp((t + loss.margin) / loss.temperature)).sum()
    elif isinstance(loss, Exponential):
        total = np.exp(t / loss.temperature).sum()
    else:
        total = (np.maximum(0, t + loss.margin) ** (2 if isinstance(loss, SquaredHinge) else 1)).sum()
    return total / k if loss.reduction == "mean" else total


def tilted_by_enumeration(lam: np.ndarray, sampling: str, loss: Loss, A: np.ndarray) -> float:
    """The definition: every tuple of negatives, each drawn with weight p(j|i) e^{η A_ij}."""
    C, total = len(lam), 0.0
    for i in range(C):
        w = lam * np.exp(loss.hardness * A[i])
        if sampling == "supervised":
            w[i] = 0.0
        w /= w.sum()
        for draw in itertools.product(range(C), repeat=int(loss.negatives)):
            probability = math.prod(w[list(draw)])
            if probability > 0:
                total += lam[i] * probability * psi(loss, A[i, list(draw)] - 1)
    return total


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("loss", [x for x in LOSSES if math.isfinite(x.negatives)])
@pytest.mark.parametrize("hardness", [0.0, 0.8, 6.0])
def test_tilted_risk_is_its_definition(loss: Loss, sampling: str, hardness: float) -> None:
    hard = dataclasses.replace(loss, hardness=hardness)
    U = unit_rows(4, 3, 0)
    expected = tilted_by_enumeration(LAM, sampling, hard, U @ U.T)
    assert TiltedRisk(LAM, sampling, hard).value(U @ U.T) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("loss", LOSSES)
def test_tilted_gradient_agrees_with_differences(loss: Loss, sampling: str) -> None:
    risk = TiltedRisk(LAM, sampling, dataclasses.replace(loss, hardness=1.5))
    U = unit_rows(4, 3, 1)
    A = U @ U.T
    value, H = risk.value_and_gradient(A)
    assert not np.diag(H).any()
    for i, j in itertools.permutations(range(4), 2):
        E = np.zeros((4, 4))
        E[i, j] = 1e-4
        f = [risk.value(A + s * E) for s in (-2, -1, 1, 2)]
        slope = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / 12e-4
        assert H[i, j] == pytest.approx(slope, rel=1e-6, abs=1e-10 * max(1, abs(value)))


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("negatives", [2, 64, 10**6])
@pytest.mark.parametrize("temperature", [0.03, 0.5, 10.0])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_without_hardness_it_is_the_plain_risk(
    sampling: str, negatives: int, temperature: float, alpha: float
) -> None:
    loss = InfoNCE(negatives=negatives, temperature=temperature, alpha=alpha)
    U = unit_rows(4, 3, 2)
    value, H = TiltedRisk(LAM, sampling, loss).value_and_gradient(U @ U.T)
    plain, G = Risk(single_class_groups(LAM), sampling, loss).value_and_gradient(U @ U.T)
    assert value == pytest.approx(plain, rel=1e-12)
    assert pytest.approx(G, rel=1e-9, abs=1e-12 * np.abs(G).max()) == H
    nearly = dataclasses.replace(loss, hardness=1e-9)
    assert TiltedRisk(LAM, sampling, nearly).value(U @ U.T) == pytest.approx(plain, rel=1e-6)


def test_effects_are_centered_and_change_the_law_as_one_draw_does() -> None:
    """∂E/∂w_j against a difference in the weights, along directions that keep their sum."""
    loss = InfoNCE(negatives=5, temperature=0.4)
    t, w = np.array([[0.0, -0.5, -1.3]]), np.array([[0.2, 0.5, 0.3]])
    _, _, effect = expected_loss(loss, t, w)
    assert float((w * effect).sum()) == pytest.approx(0.0, abs=1e-14)
    direction = np.array([[1.0, -0.4, -0.6]])
    above, below = (expected_loss(loss, t, w + s * direction)[0][0] for s in (1e-5, -1e-5))
    assert float((effect * direction).sum()) == pytest.approx((above - below) / 2e-5, rel=1e-8)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    hardness=st.floats(0.0, 50.0),
    sampling=st.sampled_from(SAMPLINGS),
    loss=st.sampled_from(LOSSES),
)
def test_hardness_never_lowers_the_risk(seed: int, hardness: float, sampling: str, loss: Loss) -> None:
    """The tilted law dominates the plain one and ψ increases: the bound that is reported rests on this."""
    U = unit_rows(4, 3, seed)
    plain = TiltedRisk(LAM, sampling, loss).value(U @ U.T)
    hard = TiltedRisk(LAM, sampling, dataclasses.replace(loss, hardness=hardness)).value(U @ U.T)
    assert hard >= plain - 1e-12 * max(1.0, abs(plain))


def test_infinite_tilt_is_the_hardest_negative() -> None:
    """η = 1000 draws the most similar other class only."""
    loss = InfoNCE(negatives=3, temperature=0.5, hardness=1000.0)
    U = unit_rows(4, 3, 5)
    A = U @ U.T
    hardest = (A - 2 * np.eye(4)).max(axis=1) - 1
    expected = float(LAM @ np.log(1 + 3 * np.exp(hardest / 0.5)))
    assert TiltedRisk(LAM, "supervised", loss).value(A) == pytest.approx(expected, rel=1e-10)


def angle_grid_minimum(lam: np.ndarray, risk: Risk | TiltedRisk, C: int, steps: int) -> float:
    """Every choice of C angles on a grid of the circle, the first angle zero, then local refinement."""
    angles = np.arange(steps) * 2 * np.pi / steps
    best, where = math.inf, np.zeros(C)
    for rest in itertools.product(angles, repeat=C - 1):
        theta = np.array([0.0, *rest])
        value = risk.value(np.cos(theta[:, None] - theta[None, :]))
        if value < best:
            best, where = value, theta
    step = angles[1]
    while step > 1e-7:
        moved = False
        for c in range(1, C):
            for s in (step, -step):
                theta = where.copy()
                theta[c] += s
                value = risk.value(np.cos(theta[:, None] - theta[None, :]))
                if value < best:
                    best, where, moved = value, theta, True
        step = step if moved else step / 2
    return best


@pytest.mark.parametrize("C", [3, 4, 5])
@pytest.mark.parametrize("hardness", [0.0, 2.0])
def test_the_plane_against_a_grid_of_angles(C: int, hardness: float) -> None:
    lam = np.arange(C, 0, -1.0) ** 2
    lam /= lam.sum()
    loss = InfoNCE(negatives=math.inf, temperature=0.5, hardness=hardness)
    risk = TiltedRisk(lam, "supervised", loss)
    grid = angle_grid_minimum(lam, risk, C, {3: 60, 4: 24, 5: 12}[C])
    solution = minimize_factored(lam, "supervised", loss, dimension=2)
    assert solution.risk <= grid * (1 + 1e-9)
    if C < 5:  # the grid is fine enough to lie in the basin of the best minimum
        assert solution.risk >= grid * (1 - 1e-6)
    assert solution.means.shape == (C, 2)
    assert np.linalg.norm(solution.means, axis=1) == pytest.approx(np.ones(C), abs=1e-14)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_free_dimension_gives_the_convex_optimum(loss: Loss, sampling: str) -> None:
    reference = solve_reference(group_classes(LAM), sampling, loss)
    solution = minimize_factored(LAM, sampling, loss, dimension=3)
    assert solution.risk == pytest.approx(reference.risk, rel=2e-8)
    assert solution.certified
    assert solution.lower_bound <= reference.risk + 1e-12 * abs(reference.risk)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_fewer_dimensions_cost_more_and_never_pass_the_bound(sampling: str) -> None:
    lam = np.array([8, 6, 5, 4, 3, 2.0]) / 28
    loss = InfoNCE(negatives=16, temperature=0.2)
    found = [minimize_factored(lam, sampling, loss, dimension=d) for d in (1, 2, 3, 5)]
    risks = [solution.risk for solution in found]
    assert risks == sorted(risks, reverse=True)
    convex = risks[-1]
    assert found[-1].certified
    for solution in found[1:3]:
        assert solution.lower_bound == pytest.approx(convex, rel=1e-8)
        assert not solution.certified
        assert solution.gradient_norm < 1e-9
        assert min(start.risk for start in solution.starts) >= solution.risk * (1 - 1e-12)


def test_a_triplet_that_fits_in_the_plane_is_certified_there() -> None:
    """The convex optimum has rank 2: the plane costs nothing, kinks or not."""
    lam = np.array([0.35, 0.25, 0.2, 0.1, 0.1])
    loss = Triplet(negatives=1, margin=2.5)
    solution = minimize_factored(lam, "supervised", loss, dimension=2)
    reference = solve_reference(group_classes(lam), "supervised", loss)
    assert solution.risk == pytest.approx(reference.risk, rel=1e-8)
    assert solution.certified


def test_a_given_optimum_and_bound_are_used() -> None:
    loss = InfoNCE(negatives=16, temperature=0.2)
    convex = minimize_factored(LAM, "supervised", loss, dimension=None)
    bounded = minimize_factored(
        LAM, "supervised", loss, dimension=2, start_gram=convex.gram, lower_bound=convex.lower_bound
    )
    alone = minimize_factored(LAM, "supervised", loss, dimension=2)
    assert bounded.risk == pytest.approx(alone.risk, rel=1e-10)
    assert bounded.lower_bound == pytest.approx(alone.lower_bound, rel=1e-8)


def test_balanced_hard_negatives_are_certified_at_the_simplex() -> None:
    """All t of an anchor are equal there, so the tilt changes nothing and the bound is met."""
    solution = minimize_factored(
        np.full(5, 0.2), "supervised", InfoNCE(negatives=8, hardness=3.0), dimension=None
    )
    assert solution.certified
    assert solution.gram[0, 1:] == pytest.approx(np.full(4, -0.25), abs=1e-6)


def test_equal_seeds_give_equal_answers() -> None:
    loss = InfoNCE(negatives=16, temperature=0.2)
    one, other = (minimize_factored(LAM, "supervised", loss, dimension=2, seed=3) for _ in range(2))
    assert one.risk == other.risk
    assert (one.gram == other.gram).all()


def test_more_dimensions_than_classes_are_padded() -> None:
    solution = minimize_factored(LAM, "supervised", InfoNCE(negatives=2), dimension=9)
    assert solution.means.shape == (4, 9)
    assert solution.means @ solution.means.T == pytest.approx(solution.gram, abs=1e-12)


def test_dimension_zero_is_refused() -> None:
    with pytest.raises(InvalidInput) as refused:
        minimize_factored(LAM, "supervised", InfoNCE(negatives=2), dimension=0)
    assert refused.value.field == ("dimension",)


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("hardness", [0.0, 1.0])
def test_the_line_against_every_sign_vector(loss: Loss, sampling: str, hardness: float) -> None:
    lam = np.array([0.3, 0.2, 0.2, 0.14, 0.1, 0.06])
    hard = dataclasses.replace(loss, hardness=hardness)
    risk = TiltedRisk(lam, sampling, hard)
    vectors = [np.array((1.0, *rest)) for rest in itertools.product((1.0, -1.0), repeat=5)]
    brute = min(risk.value(np.outer(s, s)) for s in vectors)
    found = minimize_signs(lam, sampling, hard)
    assert found.exact
    assert found.risk == pytest.approx(brute, rel=1e-12, abs=1e-300)
    assert risk.value(np.outer(found.signs, found.signs)) == pytest.approx(brute, rel=1e-12)
    solution = minimize_factored(lam, sampling, hard, dimension=1)
    assert solution.exact
    assert solution.certified
    assert solution.lower_bound == solution.risk == pytest.approx(brute, rel=1e-12)


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_single_moves_find_a_local_minimum_near_the_best(sampling: str) -> None:
    rng = np.random.default_rng(0)
    lam = rng.random(11) + 0.05
    lam /= lam.sum()
    loss = InfoNCE(negatives=16, temperature=0.3)
    exact = minimize_signs(lam, sampling, loss)
    assert exact.exact
    groups = group_classes(lam)
    problem = _SignProblem(groups, sampling, loss)
    pattern, risk = _search(problem, 0, 8, None)
    assert exact.risk <= risk <= exact.risk * 1.01
    signs = _signs(groups, pattern)
    assert TiltedRisk(lam, sampling, loss).value(np.outer(signs, signs)) == pytest.approx(risk, rel=1e-12)


def test_many_classes_on_a_line_are_searched_not_enumerated() -> None:
    lam = np.arange(1, 41.0)
    lam /= lam.sum()
    solution = minimize_factored(lam, "unsupervised", InfoNCE(negatives=math.inf), dimension=1)
    assert not solution.exact
    assert solution.lower_bound < solution.risk
    assert set(np.unique(solution.means)) == {-1.0, 1.0}


@pytest.mark.parametrize("loss", [*LOSSES[:8], SquaredHinge(negatives=3, margin=1.7)])
def test_descent_on_groups_meets_its_certificate(loss: Loss) -> None:
    groups = group_classes(np.array([0.3, 0.1, 0.1, 0.1, 0.2, 0.2]))
    risk = Risk(groups, "supervised", loss)
    A0 = np.where(np.eye(3) * (groups.sizes == 1) > 0, 1.0, -0.2)
    A, minimum = factor_descent(groups, risk.value_and_gradient, A0)
    value, H = risk.value_and_gradient(A)
    assert value == pytest.approx(minimum.value, rel=1e-14)
    assert certify(risk, value, H, A, tolerance=1e-8).relative_gap < 1e-8


def test_factor_gradient_agrees_with_differences() -> None:
    groups = group_classes(np.array([0.3, 0.1, 0.1, 0.1, 0.2, 0.2]))
    risk = Risk(groups, "unsupervised", InfoNCE(negatives=3, temperature=0.4))
    objective = factor_objective(groups, risk.value_and_gradient)
    U = factor_of(groups, np.full((3, 3), -0.2), 3, noise=0.3)
    value, gradient = objective(U)
    assert np.linalg.norm(U, axis=1) == pytest.approx(np.ones(3))
    assert value == risk.value(gram_of(groups, U))
    for g, a in itertools.product(range(3), range(3)):
        E = np.zeros_like(U)
        E[g, a] = 1e-6
        difference = (objective(U + E)[0] - objective(U - E)[0]) / 2e-6
        assert gradient[g, a] == pytest.approx(difference, rel=1e-6, abs=1e-9)


def test_spheres_reach_a_planted_minimum() -> None:
    """max Σ w_i <u_i, v_i>: the minimizer is v itself, whatever the weights."""
    V = unit_rows(6, 4, 8)
    w = np.logspace(0, -8, 6)[:, None]
    minimum = minimize_on_spheres(lambda U: (-float((w * U * V).sum()), -w * V), unit_rows(6, 4, 9))
    assert pytest.approx(V, abs=1e-10) == minimum.U
    assert minimum.gradient_norm < 1e-12


def test_a_deadline_in_the_past_still_returns_the_start() -> None:
    V = unit_rows(3, 2, 1)
    minimum = minimize_on_spheres(lambda U: (-float((U * V).sum()), -V), unit_rows(3, 2, 2), deadline=0.0)
    assert minimum.evaluations == 1
    assert math.isfinite(minimum.value)
