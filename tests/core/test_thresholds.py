import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from anglewise.collapsed_gradients import collapsed_gradients, log_expected_reciprocal
from anglewise.errors import InvalidInput
from anglewise.losses import Exponential, InfoNCE, Logistic, Loss, SquaredHinge, Triplet
from anglewise.sampling import Sampling
from anglewise.thresholds import collapse_margin, collapse_threshold, sufficient_threshold

REFERENCE = json.loads((Path(__file__).parent.parent / "data" / "minority_collapse.json").read_text())
SAMPLINGS: tuple[Sampling, ...] = ("supervised", "unsupervised")


def infonce(**fields: object) -> InfoNCE:
    return InfoNCE(**{"temperature": 1.0, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("row", REFERENCE, ids=lambda r: f"{r['sampling']}-{r['classes']}-{r['negatives']}")
def test_reference_thresholds(row: dict[str, object]) -> None:
    loss = infonce(**{name: row[name] for name in ("negatives", "temperature", "alpha", "reduction")})
    found = collapse_threshold(row["classes"], row["sampling"], loss)  # type: ignore[arg-type]
    assert found.exact_threshold == pytest.approx(row["exact_threshold"], abs=1e-7)


@pytest.mark.parametrize(
    ("sampling", "loss", "value"),
    [
        ("unsupervised", infonce(negatives=1), (1 + math.e**2) / (3 + math.e**2)),
        ("unsupervised", infonce(negatives=10**9), 0.92402),
        ("unsupervised", infonce(negatives=math.inf), 0.90020),
        ("supervised", infonce(negatives=math.inf), 0.75107),
    ],
)
def test_published_digits_with_three_classes(sampling: Sampling, loss: Loss, value: float) -> None:
    assert collapse_threshold(3, sampling, loss).exact_threshold == pytest.approx(value, abs=5e-6)


def test_unsupervised_threshold_does_not_depend_on_the_number_of_classes() -> None:
    found = [collapse_threshold(C, "unsupervised", infonce()).exact_threshold for C in (3, 10, 20_000)]
    assert np.ptp(np.array(found, dtype=float)) < 1e-12


@pytest.mark.parametrize("draws", [0, 1, 7, 255, 10**4])
@pytest.mark.parametrize("temperature", [0.05, 0.3, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 1e6])
def test_expected_reciprocal_equals_the_binomial_sum(draws: int, temperature: float, alpha: float) -> None:
    x = math.exp(-2 / temperature)
    d0, d1 = alpha + x * (1 + draws), 1 - x
    r = np.array([1e-12, 1e-4, 0.3, 0.9, 1 - 1e-6])
    drawn = np.arange(draws + 1)
    expected = np.array([(binom.pmf(drawn, draws, p) / (d0 + d1 * drawn)).sum() for p in r])
    found = log_expected_reciprocal(math.log(d0), math.log(d1), draws, np.log(r), np.log1p(-r))
    np.testing.assert_allclose(np.exp(found), expected, rtol=2e-12)


def test_expected_reciprocal_with_a_billion_draws() -> None:
    draws, r, d0, d1 = 10**9 - 1, 1e-6, 0.5, 0.9
    drawn = np.arange(0, 3000)  # mean 1000, standard deviation 32
    expected = (binom.pmf(drawn, draws, r) / (d0 + d1 * drawn)).sum()
    log_r, log_q = np.array([math.log(r)]), np.array([math.log1p(-r)])
    found = log_expected_reciprocal(math.log(d0), math.log(d1), draws, log_r, log_q)
    assert math.exp(found[0]) == pytest.approx(expected, rel=1e-11)


def slope(loss: Loss, t: np.ndarray) -> float:
    """∂ψ/∂t_1 written as in the table of losses."""
    T = getattr(loss, "temperature", 1.0)
    match loss:
        case InfoNCE():
            beta = loss.beta / (len(t) if loss.reduction == "mean" else 1)
            return float(beta * np.exp(t[0] / T) / T / (loss.alpha + beta * np.exp(t / T).sum()))
        case Exponential():
            return float(np.exp(t[0] / T) / T)
        case Logistic():
            return float(1 / (1 + np.exp(-(t[0] + loss.margin) / T)) / T)
        case SquaredHinge():
            return float(2 * max(0.0, t[0] + loss.margin))
        case Triplet():
            return float(t[0] + loss.margin > 0)
    raise AssertionError


def smallest_dual_eigenvalue(proportion: float, classes: int, sampling: Sampling, loss: Loss) -> float:
    """λ_min(G - Diag(GA)) at the collapsed point, over all classes, by enumerating the negatives."""
    lam = np.array([proportion] + [(1 - proportion) / (classes - 1)] * (classes - 1))
    u = np.array([1.0] + [-1.0] * (classes - 1))
    A, G = np.outer(u, u), np.zeros((classes, classes))
    for i in range(classes):
        p = lam.copy()
        if sampling == "supervised":
            p[i] = 0.0
            p /= p.sum()
        for drawn in itertools.product(np.flatnonzero(p), repeat=int(loss.negatives)):
            t = A[i, list(drawn)] - 1
            if drawn[0] != i:
                G[i, drawn[0]] += lam[i] * np.prod(p[list(drawn)]) * slope(loss, t)
    G = (G + G.T) / 2
    return float(np.linalg.eigvalsh(G - np.diag((G @ A).diagonal())).min() / np.abs(G).max())


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(
    "loss",
    [
        infonce(negatives=3),
        infonce(negatives=3, alpha=0.0, temperature=0.5),
        infonce(negatives=2, alpha=0.3, beta=4.0, reduction="mean", temperature=2.0),
        Logistic(negatives=2, temperature=0.7, margin=0.4),
        Exponential(negatives=2, temperature=0.9, reduction="mean"),
        SquaredHinge(negatives=2, margin=3.0),
        Triplet(negatives=2, margin=2.5),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_the_enumerated_dual_changes_sign_at_the_threshold(sampling: Sampling, loss: Loss) -> None:
    threshold = collapse_threshold(4, sampling, loss).exact_threshold
    assert threshold is not None
    assert smallest_dual_eigenvalue(threshold + 1e-6, 4, sampling, loss) > -1e-12
    assert smallest_dual_eigenvalue(threshold - 1e-6, 4, sampling, loss) < -1e-8


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("temperature", [1e-3, 0.01, 0.05])
def test_low_temperature_keeps_the_distance_to_one(sampling: Sampling, temperature: float) -> None:
    """k = 1 without supervision: l/(1-l) = E3/E1 = (1 + e^{2/T})/2, far above 1e16."""
    found = collapse_threshold(5, sampling, infonce(negatives=1, temperature=temperature))
    assert found.log10_one_minus_threshold is not None
    if sampling == "unsupervised":
        odds = np.logaddexp(0.0, 2 / temperature) - math.log(2)
        assert found.log10_one_minus_threshold * math.log(10) == pytest.approx(-odds, rel=1e-13, abs=1e-12)
    if temperature > 0.005:
        assert found.imbalance_ratio is not None
        assert found.one_minus_threshold == pytest.approx(4 / (4 + found.imbalance_ratio), rel=1e-12)


def test_an_imbalance_ratio_beyond_double_precision_is_none_with_a_reason() -> None:
    found = collapse_threshold(5, "unsupervised", infonce(negatives=1, temperature=1e-3))
    assert found.imbalance_ratio is None
    assert found.reason is not None
    assert found.one_minus_threshold == 0.0
    assert found.log10_one_minus_threshold == pytest.approx(-868.288, abs=1e-3)


def test_the_margin_may_dip_but_changes_sign_once() -> None:
    """Unsupervised, k = 5, α = 0, T = 0.1: not monotone, so the whole interval is searched."""
    loss = infonce(negatives=5, alpha=0.0, temperature=0.1)
    grid = np.linspace(math.log(2), -30, 20_000)
    margin = collapse_margin(loss, "unsupervised", 3, grid)
    assert np.diff(margin).min() < 0 < np.diff(margin).max()
    assert np.count_nonzero(np.diff(margin >= 0)) == 1
    assert not collapse_threshold(3, "unsupervised", loss).also_below


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_published_thresholds_are_sufficient_for_any_classes_and_negatives(sampling: Sampling) -> None:
    sufficient = sufficient_threshold(sampling, infonce())
    assert round(sufficient or 0, 4) == (0.9438 if sampling == "supervised" else 0.9292)
    sweep = itertools.product((3, 10, 1000), (1, 2, 16, 256, 10**6, math.inf), (0.0, 1.0, 100.0))
    for classes, k, alpha in sweep:
        found = collapse_threshold(classes, sampling, infonce(negatives=k, alpha=alpha))
        assert found.sufficient_threshold == sufficient
        assert found.exact_threshold is not None
        assert found.exact_threshold < found.sufficient_threshold  # type: ignore[operator]


def test_the_sufficient_threshold_solves_its_equation_and_belongs_to_temperature_one() -> None:
    root = sufficient_threshold("unsupervised", infonce())
    assert root is not None
    assert root * (math.exp(-2) + root * math.exp(-4)) == pytest.approx(2 * (1 - root), abs=1e-15)
    assert sufficient_threshold("unsupervised", infonce(temperature=0.5)) is None
    assert sufficient_threshold("unsupervised", Logistic(temperature=1.0)) is None


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_nine_tenths_of_three_classes_collapse_in_the_mean_form_of_256(sampling: Sampling) -> None:
    found = collapse_threshold(3, sampling, infonce(negatives=256, reduction="mean"))
    assert found.exact_threshold is not None
    assert found.exact_threshold < 0.9


@pytest.mark.parametrize("margin", [0.5, 2.0])
def test_a_loss_that_ignores_opposite_classes_never_collapses(margin: float) -> None:
    found = collapse_threshold(4, "supervised", SquaredHinge(margin=margin))
    assert found.exact_threshold is None
    assert "never" in (found.reason or "")


@pytest.mark.parametrize("loss", [SquaredHinge(margin=0.0), Triplet(margin=-1.0)])
def test_a_loss_that_is_zero_has_no_threshold(loss: Loss) -> None:
    found = collapse_threshold(4, "supervised", loss)
    assert found.exact_threshold is None
    assert "every proportion" in (found.reason or "")


def test_triplet_with_a_large_margin_collapses_at_one_half() -> None:
    assert collapse_threshold(7, "unsupervised", Triplet(margin=3.0)).exact_threshold == pytest.approx(0.5)


def test_logistic_equals_infonce_with_one_negative() -> None:
    logistic = collapse_threshold(6, "supervised", Logistic(negatives=9, temperature=0.4, margin=0.3))
    twin = infonce(negatives=1, temperature=0.4, beta=math.exp(0.3 / 0.4))
    assert logistic.exact_threshold == pytest.approx(
        collapse_threshold(6, "supervised", twin).exact_threshold
    )


def test_gradients_stay_finite_over_the_whole_domain() -> None:
    log_odds = np.linspace(math.log(19_999), -50, 40)
    extremes = itertools.product((1, 10**9, math.inf), (1e-3, 1e4), (0.0, 1e12), (1e-12, 1e12), SAMPLINGS)
    for k, T, alpha, beta, sampling in extremes:
        loss = infonce(negatives=k, temperature=T, alpha=alpha, beta=beta)
        e = collapsed_gradients(loss, sampling, 19_999, log_odds)
        assert np.isfinite([e.across_majority, e.across_minority, e.within]).all()
        found = collapse_threshold(20_000, sampling, loss)
        assert found.log10_one_minus_threshold is not None
        assert -1e4 < found.log10_one_minus_threshold < 0


@pytest.mark.parametrize(
    ("classes", "loss", "field"),
    [
        (2, InfoNCE(), ("classes",)),
        (20_001, InfoNCE(), ("classes",)),
        (True, InfoNCE(), ("classes",)),
        (10, InfoNCE(hardness=1.0), ("loss", "hardness")),
    ],
)
def test_bad_input_names_its_field(classes: int, loss: Loss, field: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput) as caught:
        collapse_threshold(classes, "supervised", loss)
    assert caught.value.field == field
