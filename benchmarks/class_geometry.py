"""Class-level optima: against one exact evaluation of risk and gradient, and against cvxpy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from anglewise import InfoNCE, optimal_geometry
from anglewise.reference import solve_reference
from anglewise.risk import Risk
from anglewise.sampling import Groups, Sampling, group_classes, proportions_from_counts
from anglewise.solve import minimize_risk
from benchmarks.table import Row, in_turns
from examples.real_counts import SAMPLINGS, data_sets


def rows() -> Iterator[Row]:
    sets = data_sets()
    imagenet, cifar = _groups(sets["imagenet_lt"]), _groups(sets["cifar100_lt"])
    distinct = group_classes(_normalized(np.geomspace(1000, 1, 1000)))
    for temperature in (0.1, 1.0):
        for sampling in SAMPLINGS:
            setting = f"{sampling}, T={temperature:g}"
            yield _against_evaluation(f"ImageNet-LT, {setting}", imagenet, sampling, temperature, 10, 1.0)
    for sampling in SAMPLINGS:
        yield _against_evaluation(f"1,000 distinct, {sampling}, T=0.1", distinct, sampling, 0.1, 10, 10.0)
        yield _against_evaluation(f"CIFAR-100-LT, {sampling}, T=0.1", cifar, sampling, 0.1, None, 0.05)
    yield _against_evaluation("8,142 classes, 300 distinct", _many_classes(), "supervised", 0.1, None, 4.0)
    yield from _against_cvxpy()


def _normalized(counts: np.ndarray) -> np.ndarray:
    return np.asarray(counts / counts.sum(), dtype=np.float64)


def _groups(counts: list[int]) -> Groups:
    return group_classes(proportions_from_counts(counts))


def _many_classes() -> Groups:
    """8,142 classes with 300 distinct counts between 2 and 1,000, as in natural species counts."""
    levels = np.unique(np.geomspace(2, 1000, 420).astype(int))
    levels = levels[np.linspace(0, len(levels) - 1, 300).astype(int)]
    return _groups(np.random.default_rng(0).permutation(np.resize(levels, 8142)).tolist())


def _against_evaluation(
    what: str, groups: Groups, sampling: Sampling, temperature: float, ratio_bar: int | None, bar: float
) -> Row:
    loss = InfoNCE(negatives=256, temperature=temperature)
    risk = Risk(groups, sampling, loss)
    solution = minimize_risk(groups, sampling, loss, tolerance=1e-8)
    solve, evaluation = in_turns(
        [
            lambda: minimize_risk(groups, sampling, loss, tolerance=1e-8),
            lambda: risk.value_and_gradient(solution.gram),
        ],
        rounds=5 if len(groups) < 900 else 3,
    )
    gap, ratio = solution.certificate.relative_gap, solve / evaluation
    bars = [f"gap <= 1e-8, under {bar:g} s", f"{ratio_bar} x one evaluation" if ratio_bar else ""]
    return Row(
        what=what,
        bar=", ".join(filter(None, bars)),
        measured=f"{solve:.3f} s = {ratio:.1f} x one evaluation, gap {gap:.0e}",
        met=gap <= 1e-8 and solve < bar and (ratio_bar is None or ratio <= ratio_bar),
    )


def _against_cvxpy() -> Iterator[Row]:
    groups = _groups([50, 30, 20])
    loss = InfoNCE(negatives=16, temperature=0.1)
    for backend in ("CLARABEL", "SCS"):
        ask = partial(solve_reference, groups, "supervised", loss, backend=backend)
        answer = partial(optimal_geometry, [50, 30, 20], sampling="supervised", loss=loss)
        fast, slow = in_turns([answer, ask], rounds=3)
        ours, reference = answer().risk, ask().risk
        difference = abs(reference - ours) / abs(ours)
        yield Row(
            what=f"C=3, k=16 against cvxpy with {backend.title()}",
            bar=">= 1,000 x faster, same optimum to 1e-6",
            measured=f"{slow / fast:,.0f} x faster ({1e3 * fast:.2f} ms), risks differ by {difference:.0e}",
            met=slow / fast >= 1000 and difference <= 1e-6,
        )
