"""The parts of the dual method: the surrogate's match, its dual's derivatives, strong duality, partitions."""

import math

import numpy as np
import pytest

from anglewise.certificate import dual_on_groups, make_feasible, relative
from anglewise.dual import solve_dual
from anglewise.dual.ascent import DualPoint, ascend, minimize_over_v, newton_direction
from anglewise.dual.coarse import pooled
from anglewise.dual.kernels import gradient_in_y
from anglewise.dual.method import simplex
from anglewise.dual.partition import Partition, components, merge, merged_dual, one_unit_per_group, split
from anglewise.dual.small import MAX_UNKNOWNS
from anglewise.dual.staircase import dual_factor, minimize_surrogate
from anglewise.dual.surrogate import Surrogate
from anglewise.losses import Exponential, InfoNCE, Logistic
from anglewise.risk import Risk
from anglewise.sampling import group_classes, normalized_proportions

GROUPS = group_classes(normalized_proportions([0.35, 0.2, 0.2, 0.1, 0.05, 0.05, 0.05]))
LOSSES = [
    InfoNCE(negatives=16, temperature=0.3),
    InfoNCE(negatives=3, temperature=0.8, alpha=0.0),
    InfoNCE(negatives=math.inf, temperature=0.2),
    Logistic(negatives=5, temperature=0.5),
    Exponential(negatives=2, temperature=0.7),
]


def simplex_gram(groups):
    return simplex(groups.sizes.astype(float), groups.classes)


def surrogate_at(loss, A, stretch=1.0, sampling="unsupervised"):
    risk = Risk(GROUPS, sampling, loss)
    return Surrogate(risk, risk.evaluate(A), A, stretch)


def dual_start(s, A):
    y = dual_on_groups(GROUPS, s.at.gradient, A)[2]
    return np.sqrt(np.maximum(-y, 1e-6))[:, None]


def some_gram(seed):
    rng = np.random.default_rng(seed)
    A = rng.uniform(-0.6, 0.4, (len(GROUPS), len(GROUPS)))
    return make_feasible(GROUPS, A + A.T)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("stretch", [1.0, 3.0])
def test_the_surrogate_has_the_gradient_of_the_risk(loss, stretch):
    A = some_gram(0)
    s = surrogate_at(loss, A, stretch)
    assert s.gradient(A) == pytest.approx(s.at.gradient, rel=1e-12)
    pairs = GROUPS.sizes[:, None] * s.risk.law.neighbors
    step = 1e-4 * (some_gram(1) - A)
    nearby = s.risk.evaluate(A + step).gradient
    if isinstance(loss, Exponential) and stretch == 1.0:
        assert s.gradient(A + step) == pytest.approx(nearby, rel=1e-12)
    # The surrogate is at least as curved as the risk (a majorizer at stretch 1, up to M).
    curved = (pairs * (s.gradient(A + step) - s.at.gradient) * step).sum() * stretch
    exact = (pairs * (nearby - s.at.gradient) * step).sum()
    assert curved > 0.5 * exact > 0


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("columns", [1, 2])
def test_gradients_of_the_dual_function(loss, columns):
    rng = np.random.default_rng(columns)
    A = some_gram(2)
    s = surrogate_at(loss, A)
    s.set_partition(one_unit_per_group(GROUPS))
    Y = dual_start(s, A) * np.exp(0.1 * rng.normal(size=(len(GROUPS), columns)))
    v = 0.1 * rng.normal(size=len(GROUPS)) if s.bends else np.zeros(len(GROUPS))
    state = s.state(Y, v)
    step = rng.normal(size=len(GROUPS)) if s.bends else np.zeros(len(GROUPS))
    slope = (s.state(Y, v + 1e-5 * step).value - s.state(Y, v - 1e-5 * step).value) / 2e-5
    assert slope == pytest.approx(float(state.gradient @ step), rel=1e-6, abs=1e-10)
    Y *= math.exp(state.log_scale / 2)
    gradient = np.empty_like(Y)
    state = s.state(Y, v)
    assert abs(state.log_scale) < 1e-9
    p = s.partition
    gradient_in_y(state.A, p.N, p.n, Y, gradient)
    direction = rng.normal(size=Y.shape)
    slope = (s.state(Y + 1e-6 * direction, v).value - s.state(Y - 1e-6 * direction, v).value) / 2e-6
    assert slope == pytest.approx(float((gradient * direction).sum()), rel=1e-4, abs=1e-8)


@pytest.mark.parametrize("loss", LOSSES[:-1], ids=lambda loss: type(loss).__name__)
def test_v_hessian_is_the_slope_of_the_gradient(loss):
    A = some_gram(3)
    s = surrogate_at(loss, A)
    s.set_partition(one_unit_per_group(GROUPS))
    Y, v = dual_start(s, A), np.full(len(GROUPS), 0.05)
    state = s.state(Y, v)
    H, scaling = s.v_hessian(state)
    H = H / scaling[:, None] / scaling
    for g in range(len(GROUPS)):
        e = np.eye(len(GROUPS))[g]
        slope = (s.state(Y, v + 1e-6 * e).gradient - s.state(Y, v - 1e-6 * e).gradient) / 2e-6
        assert slope == pytest.approx(H[g], rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_strong_duality_of_the_surrogate(loss, sampling):
    """At the top of the ascent A is feasible, AZ = 0, and Z is the surrogate's gradient."""
    A = simplex_gram(GROUPS)
    s = surrogate_at(loss, A, sampling=sampling)
    s.set_partition(one_unit_per_group(GROUPS))
    point = ascend(s, dual_start(s, A), np.zeros(len(GROUPS)), 0.0, math.inf)
    if point.state.clipped == 0:
        H = s.gradient(point.state.A)
        Z = point.Y @ point.Y.T
        pairs = one_unit_per_group(GROUPS).N
        # The model counts T/T_s = 1 times the risk, summed over both orders of a pair.
        assert pairs * Z == pytest.approx(pairs * 0.5 * (H + H.T), rel=1e-6, abs=1e-12)
    n = GROUPS.sizes[:, None]
    residual = (s.partition.N * point.state.A) @ point.Y + n * point.Y
    assert np.abs(residual / n).max() < 1e-9 * np.abs(point.Y).max()


def test_minimizing_over_v_never_increases():
    A = some_gram(4)
    s = surrogate_at(LOSSES[0], A)
    s.set_partition(one_unit_per_group(GROUPS))
    Y, v = dual_start(s, A), np.full(len(GROUPS), 2.0)
    before = s.state(Y, v).value
    v, state = minimize_over_v(s, Y, v)
    assert state.value <= before
    assert np.abs(state.gradient / s.weight).max() < 1e-10


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("merged", [False, True])
def test_compiled_newton_steps_are_those_of_lapack(loss, columns, merged, monkeypatch):
    A = some_gram(2)
    s = surrogate_at(loss, A)
    plain = one_unit_per_group(GROUPS)
    last_two = np.minimum(plain.unit, len(GROUPS) - 2)
    together = Partition(GROUPS, last_two, np.arange(len(GROUPS) - 1) == len(GROUPS) - 2)
    s.set_partition(together if merged else plain)
    Y = np.random.default_rng(3).uniform(0.1, 0.4, (len(s.partition), columns))
    found = []
    for limit in (MAX_UNKNOWNS, 0):
        monkeypatch.setattr("anglewise.dual.small.MAX_UNKNOWNS", limit)
        v, state = minimize_over_v(s, Y, np.zeros(len(GROUPS)))
        point = DualPoint(Y * math.exp(state.log_scale / 2), v, state, math.inf)
        gradient = np.empty_like(Y)
        gradient_in_y(state.A, s.partition.N, s.partition.n, point.Y, gradient)
        newton = newton_direction(s, point, np.sqrt((point.Y**2).sum(axis=1)), gradient)
        found.append((v, state.value, state.A, newton.d, newton.follow))
    for compiled, lapack in zip(*found, strict=True):
        assert compiled == pytest.approx(lapack, rel=1e-7, abs=1e-9)
        assert np.abs(lapack).max() > 0 or not s.bends


def test_partitions_merge_expand_and_split():
    single = one_unit_per_group(GROUPS)
    raw = np.full((4, 4), 0.2)
    raw[2, 3] = raw[3, 2] = 1.5
    tabu = np.zeros((4, 4), dtype=bool)
    merged = merge(single, raw, tabu)
    assert merged is not None
    assert merged.unit.tolist() == [0, 1, 2, 2]
    assert merged.merged.tolist() == [False, False, True]
    assert merged.n.tolist() == [1, 2, 1]
    Y = merged_dual(single, merged, np.arange(1.0, 5.0)[:, None])
    assert Y[:, 0].tolist() == [1, 2, 1 * 3 + 3 * 4]
    A = merged.expand(np.array([[1.0, 0.1, -0.5], [0.1, 0.3, -0.2], [-0.5, -0.2, 1.0]]))
    assert A[2, 3] == 1.0
    assert A[3, 3] == 1.0
    assert A[1, 1] == 0.3
    assert A[0, 2] == A[0, 3] == -0.5
    direction = np.array([0.0, 0.0, 1.0, -1.0])
    apart = split(merged, direction, np.full(4, np.inf), -1.0, tabu)
    assert apart is not None
    assert len(apart) == 4
    assert tabu[2, 3]
    assert tabu[3, 2]
    assert merge(single, raw, tabu) is None
    linked = np.zeros((5, 5), dtype=bool)
    linked[0, 3] = linked[3, 0] = linked[3, 4] = linked[4, 3] = True
    assert len({int(c) for c in components(linked)}) == 3


def test_a_group_whose_classes_repel_leaves_its_block():
    tabu = np.zeros((4, 4), dtype=bool)
    block = Partition(GROUPS, np.array([0, 1, 1, 2]), np.array([False, True, False]))
    inside = np.array([np.inf, -0.5, 0.2, 0.2])
    apart = split(block, np.zeros(4), inside, -0.1, tabu)
    assert apart is not None
    assert apart.unit[1] != apart.unit[2]
    assert not apart.merged[apart.unit[1]]
    assert split(one_unit_per_group(GROUPS), np.zeros(4), inside, -0.1, tabu) is None


def test_the_dual_matrix_is_factored():
    """A rank-one Z is recovered from its off-diagonal gradient and diagonal."""
    z = np.array([1.0, 0.5, 0.25, 0.1])
    p = one_unit_per_group(GROUPS)
    Y = dual_factor(p, np.outer(z, z), -z * z)
    assert np.abs(Y) == pytest.approx(z[:, None], rel=1e-6)


def test_minimizing_the_exponential_surrogate_solves_the_problem():
    """For the exponential loss one surrogate is the whole problem."""
    risk = Risk(GROUPS, "supervised", Exponential(negatives=1, temperature=0.4))
    A = simplex_gram(GROUPS)
    s = Surrogate(risk, risk.evaluate(A), A)
    tabu = np.zeros((4, 4), dtype=bool)
    stair = minimize_surrogate(
        s, one_unit_per_group(GROUPS), dual_start(s, A), np.zeros(4), tabu, 1e-13, math.inf
    )
    answer = solve_dual(risk, tolerance=1e-9, deadline=math.inf)
    assert risk.value(stair.gram) == pytest.approx(answer.best.at.risk, rel=1e-9)
    assert relative(risk, answer.best.at.risk, answer.best.gap) <= 1e-9


def test_pools_keep_classes_and_mass():
    rng = np.random.default_rng(0)
    groups = group_classes(normalized_proportions(rng.dirichlet(np.full(300, 0.8))))
    small, pool = pooled(groups)
    assert small.sizes.sum() == groups.sizes.sum()
    assert (small.sizes * small.proportions).sum() == pytest.approx(1.0)
    assert (np.diff(small.proportions) < 0).all()
    assert (np.diff(pool) >= 0).all()
    assert len(small.index) == groups.classes
