"""Best achievable geometries: published and derived values, closed forms, a conic solver, edge cases."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anglewise.errors import InvalidInput
from anglewise.losses import InfoNCE
from anglewise.named import named_weighting
from anglewise.sampling import group_classes, proportions_from_counts
from anglewise.solve import minimize_risk
from anglewise.weighted import best_geometry
from anglewise.weighted_geometry import WeightedGeometry
from anglewise.weighted_reference import solve_weighted_reference

DATA = Path(__file__).parent.parent / "data"
SUPCON = json.loads((DATA / "supcon_geometry.json").read_text())
REALIZABILITY = [c for c in json.loads((DATA / "realizability.json").read_text()) if "best_loss" in c]


def supcon(classes):
    L = np.full((classes, classes), -np.inf)
    np.fill_diagonal(L, 0.0)
    return L


def random_weights(n, seed):
    A = np.random.default_rng(seed).standard_normal((n, n))
    return (A + A.T) / 2


def assert_sound(g: WeightedGeometry):
    """Everything every answer must satisfy."""
    assert np.isfinite(g.embedding).all()
    assert np.isfinite(g.gram).all()
    np.testing.assert_allclose(g.gram, g.gram.T, atol=1e-12)
    assert g.certificate.gap >= 0
    assert g.certificate.certified == (g.certificate.relative_gap <= g.certificate.tolerance)
    assert g.certificate.lower_bound == pytest.approx(g.loss - g.certificate.gap, abs=1e-12)
    assert g.certificate.min_gram_eigenvalue >= -1e-9 * max(1.0, np.abs(g.gram).max())
    assert g.entropy_gap == pytest.approx(max(g.loss - g.entropy_bound, 0), abs=1e-12)
    assert g.loss >= g.entropy_bound - 1e-9
    assert g.embedding.shape[1] == g.dimension >= g.rank
    scale = max(1.0, np.abs(g.gram).max())
    if g.metric == "cosine":
        np.testing.assert_allclose(np.diag(g.gram), 1.0, atol=1e-14)
        np.testing.assert_allclose(g.embedding @ g.embedding.T, g.gram, atol=1e-12)
        assert g.squared_distances is None
    else:
        Z = g.embedding
        D = ((Z[:, None] - Z) ** 2).sum(axis=2)
        np.testing.assert_allclose(g.squared_distances, D, atol=1e-10 * scale)


@pytest.mark.parametrize("case", SUPCON, ids=lambda c: f"{c['class_counts']} T={c['temperature']}")
def test_supcon_reference(case):
    counts = case["class_counts"]
    g = best_geometry(
        log_weights=supcon(len(counts)),
        counts=counts,
        temperature=case["temperature"],
        self_pairs=case["self_pairs"],
        tolerance=1e-11,
    )
    assert_sound(g)
    assert g.certificate.certified
    assert g.loss == pytest.approx(case["loss"], abs=1e-9)
    np.testing.assert_allclose(g.gram, case["gram"], atol=1e-5)
    assert g.unique


def test_supcon_items_are_solved_as_classes():
    labels = np.repeat([0, 1, 2], [60, 20, 20])[np.random.default_rng(0).permutation(100)]
    g = best_geometry(log_weights=np.where(labels[:, None] == labels, 0.0, -np.inf), temperature=1.0)
    assert g.report.groups == 3
    assert g.loss == pytest.approx(SUPCON[0]["loss"], abs=1e-9)
    expected = np.array(SUPCON[0]["gram"])[labels][:, labels]
    np.testing.assert_allclose(g.gram, expected, atol=1e-4)
    assert_sound(g)


@pytest.mark.parametrize("case", REALIZABILITY, ids=lambda c: c["name"])
def test_losses_of_the_reference_table(case):
    with np.errstate(divide="ignore"):
        L = np.log(np.array(case["weights"], dtype=float))
    g = best_geometry(
        log_weights=L,
        metric=case["metric"],
        temperature=case["temperature"],
        self_pairs=case["self_pairs"],
        dimension=case["dimension"],
        tolerance=1e-10,
    )
    assert_sound(g)
    assert g.loss == pytest.approx(case["best_loss"], abs=1e-9)
    assert g.entropy_bound == pytest.approx(case["entropy_bound"], abs=2e-10)
    assert g.entropy_gap == pytest.approx(case["gap"], abs=3e-9)
    if case["dimension"] is None:
        assert g.certificate.certified


COUNTS = [1, 2, 3, 1, 2, 1]


@pytest.mark.parametrize(
    ("metric", "self_pairs", "counts"),
    [
        ("cosine", "included", None),
        ("cosine", "included", COUNTS),
        ("cosine", "excluded", None),
        ("cosine", "excluded", COUNTS),
        ("euclidean", "included", None),
        ("euclidean", "included", COUNTS),
        ("euclidean", "excluded", None),
    ],
)
def test_conic_solver_agrees(metric, self_pairs, counts):
    options = {"metric": metric, "self_pairs": self_pairs, "temperature": 0.8, "counts": counts}
    L = random_weights(6, seed=11)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        reference = solve_weighted_reference(L, tol_gap_abs=1e-9, tol_gap_rel=1e-9, **options)
    g = best_geometry(log_weights=L, tolerance=1e-10, **options)
    if counts and not g.certificate.certified:
        # Items of one row would rather separate; the reference is limited to rows as well.
        assert g.loss == pytest.approx(reference.loss, abs=1e-7)
        return
    assert g.certificate.certified
    assert g.loss <= reference.loss + 1e-12
    assert g.loss == pytest.approx(reference.loss, abs=1e-7)
    assert reference.loss == pytest.approx(reference.reported, abs=1e-6)


def test_conic_solver_agrees_with_zero_weights():
    L = random_weights(7, seed=4)
    L[L < -0.3] = -np.inf
    np.fill_diagonal(L, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        reference = solve_weighted_reference(L, temperature=0.5)
    g = best_geometry(log_weights=L, temperature=0.5)
    assert g.certificate.certified
    assert g.loss == pytest.approx(reference.loss, abs=1e-6)


def test_counts_are_refused_where_equal_items_separate():
    with pytest.raises(InvalidInput) as error:
        best_geometry(log_weights=np.zeros((2, 2)), counts=[2, 1], metric="euclidean", self_pairs="excluded")
    assert error.value.field == ("counts",)


@pytest.mark.parametrize("self_pairs", ["included", "excluded"])
@pytest.mark.parametrize("counts", [[5] * 4, [40] * 10])
def test_balanced_supcon_is_a_simplex(counts, self_pairs):
    C = len(counts)
    g = best_geometry(log_weights=supcon(C), counts=counts, temperature=0.2, self_pairs=self_pairs)
    np.testing.assert_allclose(g.gram, (C * np.eye(C) - 1) / (C - 1), atol=1e-6)
    assert g.rank == C - 1


@pytest.mark.parametrize("counts", [[60, 20, 20], [50, 30, 20], [200, 50, 20, 5, 5]])
@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_supcon_with_self_pairs_is_decoupled_unsupervised_infonce(counts, temperature):
    """[P1]'s risk with infinitely many negatives and α = 0: the same optimum, the loss less log n (B4)."""
    groups = group_classes(proportions_from_counts(counts))
    loss = InfoNCE(negatives=math.inf, reduction="mean", temperature=temperature, alpha=0.0)
    other = minimize_risk(groups, "unsupervised", loss, tolerance=1e-9)
    g = best_geometry(
        log_weights=supcon(len(counts)), counts=counts, temperature=temperature, tolerance=1e-11
    )
    assert g.loss - np.log(sum(counts)) == pytest.approx(other.risk, abs=1e-7)
    index = groups.index
    for c, k in zip(*np.triu_indices(len(counts), 1), strict=True):
        assert g.gram[c, k] == pytest.approx(other.gram[index[c], index[k]], abs=1e-3)


def test_separating_rows_are_reported():
    L = np.array([[-5.0, 0.0], [0.0, -5.0]])
    g = best_geometry(log_weights=L, counts=[2, 1], temperature=0.5)
    assert not g.certificate.certified
    assert any("would rather not share a point" in warning for warning in g.warnings)
    items = best_geometry(log_weights=L[[0, 0, 1]][:, [0, 0, 1]], temperature=0.5)
    assert items.certificate.certified
    assert items.loss < g.loss - 1e-4


@pytest.mark.parametrize("self_pairs", ["included", "excluded"])
def test_nearly_realizable_weights_are_certified(self_pairs):
    """y-Aware with scalar labels misses the bound by 1e-4: strict complementarity almost fails."""
    y = np.random.default_rng(0).random(40)
    L = -((y[:, None] - y) ** 2) / (2 * 0.1**2)
    g = best_geometry(log_weights=L, temperature=0.1, self_pairs=self_pairs)
    assert g.certificate.certified
    assert 1e-6 < g.entropy_gap < 1e-3
    assert_sound(g)


def test_imbalanced_supcon_brings_minorities_closer():
    g = best_geometry(log_weights=supcon(4), counts=[100, 30, 5, 2], temperature=0.5)
    off = g.gram[np.triu_indices(4, 1)]
    assert np.ptp(off) > 0.1
    assert g.gram[2, 3] == off.max()


@pytest.mark.parametrize("counts", [[60, 20, 20], [50, 30, 15, 5]])
def test_low_temperature_expansion_of_supcon(counts):
    """G_ck = -1/(C-1) + T [mean log(n_a+n_b) - log(n_c+n_k)] + O(T²) (B4)."""
    n = np.array(counts, dtype=float)
    upper = np.triu_indices(len(n), 1)
    logs = np.log(n[:, None] + n)[upper]
    slope = logs.mean() - logs
    errors = []
    for T in (0.04, 0.02):
        g = best_geometry(log_weights=supcon(len(n)), counts=counts, temperature=T, tolerance=1e-13)
        errors.append(np.abs(g.gram[upper] + 1 / (len(n) - 1) - T * slope).max())
    assert errors[0] < 2.0 * 0.04**2
    assert errors[1] < 0.3 * errors[0]


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_realizable_weights_recover_their_embedding(metric):
    """At the bound s_ij = log w_ij + c_i ([P2]), and the geometry is the one the weights came from."""
    T = 0.3
    Y = np.random.default_rng(5).standard_normal((12, 3))
    if metric == "cosine":
        Y /= np.linalg.norm(Y, axis=1)[:, None]
        S = Y @ Y.T / T
    else:
        S = -((Y[:, None] - Y) ** 2).sum(axis=2) / T
    offsets = np.linspace(-50, 50, 12)
    g = best_geometry(log_weights=S + offsets[:, None], metric=metric, temperature=T, tolerance=1e-13)
    assert_sound(g)
    assert g.entropy_gap <= 1e-12
    assert g.unique
    similarity = g.gram / T if g.squared_distances is None else -g.squared_distances / T
    difference = similarity - S
    np.testing.assert_allclose(difference - difference[:, :1], 0.0, atol=1e-4)


def test_soft_supcon_angle_does_not_depend_on_class_sizes():
    epsilon, T = 0.2, 0.4
    L = np.full((4, 4), np.log(epsilon))
    np.fill_diagonal(L, 0.0)
    for counts in ([3, 3, 3, 3], [20, 5, 1, 2]):
        g = best_geometry(log_weights=L, counts=counts, temperature=T)
        off = g.gram[np.triu_indices(4, 1)]
        np.testing.assert_allclose(off, 1 + T * np.log(epsilon), atol=1e-4)
        assert g.entropy_gap < 1e-9


def test_the_largest_temperature_of_soft_supcon():
    """Attainable iff T log(1/ε) ≤ C/(C-1); the simplex at equality (B4)."""
    C, T = 5, 0.3
    edge = np.exp(-C / ((C - 1) * T))
    for factor, attained in ((1.02, True), (0.98, False)):
        L = np.full((C, C), np.log(edge * factor))
        np.fill_diagonal(L, 0.0)
        g = best_geometry(log_weights=L, counts=[4] * C, temperature=T)
        assert (g.entropy_gap < 1e-9) == attained


def test_anchors_without_positives_are_skipped():
    # labels [0, 1, 1, 3]: two anchors of four have a positive.
    labels = np.array([0, 1, 1, 3])
    L = np.where(labels[:, None] == labels, 0.0, -np.inf)
    g = best_geometry(log_weights=L, self_pairs="excluded", temperature=0.8)
    assert_sound(g)
    assert (g.anchors, g.anchors_used) == (4, 2)
    assert any("no positive" in warning for warning in g.warnings)
    # The pair meets at one point, the singletons anywhere opposite: log(1 + 2 e^{-2/T}).
    assert g.loss == pytest.approx(np.log1p(2 * np.exp(-2 / 0.8)), abs=1e-8)
    assert not g.unique


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("self_pairs", ["included", "excluded"])
@pytest.mark.parametrize("temperature", [0.01, 10.0])
@pytest.mark.parametrize(
    "name", ["one", "two", "constant", "identity", "steep", "alternating", "one-sided", "sparse"]
)
def test_edge_cases_give_finite_answers(name, metric, self_pairs, temperature):
    none = -np.inf
    L = {
        "one": np.zeros((1, 1)),
        "two": np.array([[0.0, 1.0], [2.0, 0.0]]),
        "constant": np.full((5, 5), 3.0),
        "identity": np.where(np.eye(4) > 0, 0.0, none),
        "steep": -1e4 * np.random.default_rng(0).random((7, 7)),
        "alternating": np.array([[0, none, 0, none], [none, 0, none, 0]] * 2, dtype=float),
        "one-sided": np.array([[0, 0, none], [none, 0, 0], [none, none, 0]], dtype=float),
        "sparse": np.where(np.abs(np.subtract.outer(range(6), range(6))) <= 1, 0.0, none),
    }[name]
    if self_pairs == "excluded" and name in ("one", "identity"):
        with pytest.raises(InvalidInput):
            best_geometry(log_weights=L, metric=metric, self_pairs=self_pairs, temperature=temperature)
        return
    g = best_geometry(log_weights=L, metric=metric, self_pairs=self_pairs, temperature=temperature)
    assert_sound(g)
    # A loss that is zero, or nearly, is met to rounding, but not to 1e-20.
    assert g.certificate.certified or g.certificate.gap < 1e-12 > g.loss, g.certificate


def test_disconnected_weights_are_approached():
    L = np.full((5, 5), -np.inf)
    L[:3, :3] = random_weights(3, seed=1)
    L[3:, 3:] = 0.0
    g = best_geometry(log_weights=L, metric="euclidean", temperature=0.5)
    assert not g.attained
    assert not g.unique
    block = best_geometry(log_weights=L[:3, :3], metric="euclidean", temperature=0.5)
    assert g.loss == pytest.approx(0.6 * block.loss + 0.4 * np.log(2), abs=1e-8)
    assert_sound(g)
    assert any("approached" in warning for warning in g.warnings)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_fewer_dimensions(metric, dimension):
    L = 3 * random_weights(12, seed=2)
    free = best_geometry(log_weights=L, metric=metric, temperature=0.3)
    g = best_geometry(log_weights=L, metric=metric, temperature=0.3, dimension=dimension)
    assert_sound(g)
    assert g.dimension == dimension < free.rank
    assert g.loss > free.loss + 1e-6
    assert not g.certificate.certified
    assert g.certificate.lower_bound == pytest.approx(free.loss, abs=1e-7)
    assert any("not convex" in warning for warning in g.warnings)


def test_signs_on_a_line_are_the_best_of_all():
    L = random_weights(9, seed=6)
    g = best_geometry(log_weights=L, temperature=0.5, dimension=1)
    losses = []
    for bits in range(2**8):
        z = np.array([1.0] + [1.0 if bits >> k & 1 else -1.0 for k in range(8)])
        S = np.outer(z, z) / 0.5
        p = np.exp(L) / np.exp(L).sum(axis=1, keepdims=True)
        losses.append(np.mean(np.log(np.exp(S).sum(axis=1)) - (p * S).sum(axis=1)))
    assert g.loss == pytest.approx(min(losses), abs=1e-12)


def test_more_dimensions_than_needed_are_zero():
    g = best_geometry(log_weights=random_weights(5, seed=2), dimension=9, temperature=0.5)
    assert g.embedding.shape == (5, 9)
    assert g.rank < 9
    assert not g.embedding[:, g.rank :].any()


def test_excluded_simplex_family_is_not_unique():
    """Constant weights, self pairs excluded: every simplex from collapse to 'all apart' is optimal."""
    g = best_geometry(log_weights=np.zeros((4, 4)), self_pairs="excluded", temperature=0.5)
    assert g.certificate.certified
    assert not g.unique


def test_time_limit_returns_the_best_so_far():
    y = np.random.default_rng(0).random(150)
    L = -((y[:, None] - y) ** 2) / (2 * 0.1**2)
    g = best_geometry(log_weights=L, temperature=0.1, tolerance=1e-12, time_limit=1e-3)
    assert_sound(g)
    assert not g.certificate.certified
    assert any("time limit" in warning for warning in g.warnings)
    assert g.certificate.gap <= g.entropy_gap


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"dimension": 0}, ("dimension",)),
        ({"tolerance": 0.0}, ("tolerance",)),
        ({"time_limit": -1.0}, ("time_limit",)),
    ],
)
def test_bad_arguments_are_named(arguments, field):
    with pytest.raises(InvalidInput) as error:
        best_geometry(log_weights=np.zeros((2, 2)), **arguments)
    assert error.value.field == field


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), metric=st.sampled_from(["cosine", "euclidean"]))
def test_order_and_row_scale_do_not_matter(seed, metric):
    rng = np.random.default_rng(seed)
    L = random_weights(6, seed)
    order = rng.permutation(6)
    a = best_geometry(log_weights=L, metric=metric, temperature=0.5)
    b = best_geometry(
        log_weights=(L + rng.standard_normal((6, 1)) * 30)[order][:, order], metric=metric, temperature=0.5
    )
    assert a.certificate.certified
    assert b.certificate.certified
    assert a.loss == pytest.approx(b.loss, rel=2e-8)


@pytest.mark.parametrize("counts", [None, [2, 1, 3]])
def test_an_item_without_weights_is_placed_apart(counts):
    L = np.array([[0.0, -1.0, -np.inf], [-1.0, 0.0, -np.inf], [-np.inf, -np.inf, -np.inf]])
    g = best_geometry(log_weights=L, metric="euclidean", temperature=0.5, counts=counts)
    assert_sound(g)
    assert g.anchors_used == (2 if counts is None else 3)
    assert g.entropy_gap == pytest.approx(0, abs=1e-12)
    assert g.certificate.certified
    assert g.squared_distances[0, 1] == pytest.approx(0.5)
    assert g.squared_distances[:2, 2].min() >= 0.5 * 75


def test_signs_that_no_flip_improves_are_the_ones_returned():
    L = np.log([[2.0, 1e-300], [2.0, 1.0]])
    L[0, 1] = -np.inf
    g = best_geometry(log_weights=L, temperature=1.0, dimension=1)
    assert_sound(g)
    np.testing.assert_array_equal(g.gram, np.ones((2, 2)))
    own = math.log(2) / 2 + (math.log(2) - g.entropy_bound * 2) / 2  # all cosines equal: q is uniform
    assert g.entropy_gap == pytest.approx(own, abs=1e-12)


def test_weights_logarithms_and_named_weightings_are_told_apart():
    W = np.array([[1.0, 0.8, 0.3], [0.8, 1.0, 0.3], [0.3, 0.3, 1.0]])
    by_weights, by_logs = (
        best_geometry(W, temperature=0.5),
        best_geometry(log_weights=np.log(W), temperature=0.5),
    )
    np.testing.assert_allclose(by_weights.gram, by_logs.gram, atol=1e-12)
    np.testing.assert_allclose(by_weights.gram, 1 + 0.5 * np.log(W), atol=1e-6)
    named = named_weighting("supcon", class_counts=[50, 5, 2])
    with_counts = best_geometry(log_weights=named.log_weights.values, counts=named.counts, temperature=0.5)
    np.testing.assert_allclose(best_geometry(named, temperature=0.5).gram, with_counts.gram, atol=1e-12)
    assert with_counts.gram[1, 2] > with_counts.gram[0, 1] + 0.1


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({}, ("weights",)),
        ({"weights": np.eye(2), "log_weights": np.zeros((2, 2))}, ("weights",)),
        ({"weights": -np.eye(2)}, ("weights", 0, 0)),
        ({"weights": named_weighting("supcon", class_counts=[2, 1]), "counts": [2, 1]}, ("counts",)),
    ],
)
def test_one_source_of_weights_is_needed(arguments, field):
    with pytest.raises(InvalidInput) as error:
        best_geometry(**arguments)
    assert error.value.field == field


def test_multipliers_that_underflow():
    L = [[802.0510317726499, 133.1046311287607], [133.10694896679357, 802.0604465866795]]
    g = best_geometry(log_weights=L, temperature=0.0012467829126338265)
    assert_sound(g)
    assert g.loss <= 1e-280
    assert g.certificate.certified
