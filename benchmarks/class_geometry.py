"""Class-level optima: against one exact evaluation of risk and gradient, and against cvxpy."""

from __future__ import annotations

import importlib
import itertools
import math
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from anglewise import Geometry, InfoNCE, optimal_geometry
from anglewise.reference import solve_reference
from anglewise.risk import Risk
from anglewise.sampling import Groups, Sampling, group_classes, proportions_from_counts
from anglewise.solve import minimize_risk
from benchmarks.table import Row, in_turns, seconds
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
    """Against the program as one writes it, a term for each draw of negatives, and our own formulation."""
    counts, loss = [50, 30, 20], InfoNCE(negatives=16, temperature=0.1)
    groups = _groups(counts)
    answer = partial(optimal_geometry, counts, sampling="unsupervised", loss=loss)
    by_terms = partial(_term_by_term, groups.proportions, 16, 0.1)
    yield _against("with Clarabel, term by term", answer, partial(by_terms, "CLARABEL"), 1000, 1e-6)
    # SCS stops at its own accuracy.
    yield _against("with SCS, term by term", answer, partial(by_terms, "SCS"), 1000, 1e-5)
    vectorized = partial(solve_reference, groups, "unsupervised", loss)
    yield _against("as solver='cvxpy' writes it", answer, lambda: vectorized().risk, 1, 1e-6)


def _against(
    what: str, answer: Callable[[], Geometry], other: Callable[[], float], bar: int, accuracy: float
) -> Row:
    ours = in_turns([answer], rounds=51)[0]
    found: list[float] = []
    ratio = seconds(lambda: found.append(other())) / ours
    difference = abs(found[0] - answer().risk) / answer().risk
    return Row(
        what=f"C=3, k=16 against cvxpy {what}",
        bar=f">= {bar:,} x faster, same optimum to {accuracy:.0e}",
        measured=f"{ratio:,.0f} x faster ({1e3 * ours:.2f} ms), risks differ by {difference:.0e}",
        met=ratio >= bar and difference <= accuracy,
    )


def _term_by_term(proportions: np.ndarray, k: int, temperature: float, solver: str) -> float:
    """min S(A) in cvxpy with one log-sum-exp for each anchor and each multiset of k negatives."""
    cp: Any = importlib.import_module("cvxpy")
    C = len(proportions)
    A = cp.Variable((C, C), PSD=True)
    terms = []
    for i, draws in itertools.product(range(C), _multisets(C, k)):
        weights = [p**n / math.factorial(n) for p, n in zip(proportions, draws, strict=True)]
        probability = math.factorial(k) * math.prod(weights)
        exponents = [(A[i, j] - 1) / temperature + math.log(n) for j, n in enumerate(draws) if n]
        terms.append(proportions[i] * probability * cp.log_sum_exp(cp.hstack([0.0, *exponents])))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # cvxpy advises against long sums, and doubts SCS's answer
        problem = cp.Problem(cp.Minimize(cp.sum(cp.hstack(terms))), [cp.diag(A) == 1])
        return float(problem.solve(solver=solver))


def _multisets(C: int, k: int) -> list[tuple[int, ...]]:
    return [draws for draws in itertools.product(range(k + 1), repeat=C) if sum(draws) == k]
