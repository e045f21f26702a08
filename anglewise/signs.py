"""The optimal geometry on a line: every class mean is +1 or -1.

With cosines ±1 a negative of an anchor is either on its side (t = 0, probability q) or across (t = -2), so
the risk of an anchor is a function of q alone and classes of equal proportion are interchangeable: a
pattern is the number of classes of every group on the positive side. Few patterns are all tried, which
proves the minimum; many are searched by moving one class at a time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from anglewise.losses import InfoNCE, Loss
from anglewise.sampling import FloatArray, Groups, IntArray, Sampling, group_classes
from anglewise.tilted import expected_loss

MAX_PATTERNS = 2**15
MAX_INTEGRALS = 200_000
"""Rows of the quadrature that an exhaustive search may cost; closed forms may cost 25 times as many."""

MAX_SWEEPS = 500
TABLE_SIZE = 2001
SHORT_LIST = 8


@dataclass(frozen=True)
class SignMinimum:
    """signs (C,) in ±1, their risk, and whether every pattern was compared."""

    signs: FloatArray
    risk: float
    exact: bool


def minimize_signs(
    proportions: FloatArray,
    sampling: Sampling,
    loss: Loss,
    *,
    seed: int = 0,
    restarts: int = 8,
    deadline: float | None = None,
) -> SignMinimum:
    """The best geometry in dimension one.

    Args:
        proportions: (C,).
        restarts: random starts of the local search, used only when there are too many patterns.
        deadline: ``time.monotonic()`` at which the local search stops.
    """
    groups = group_classes(proportions)
    problem = _SignProblem(groups, sampling, loss)
    total = math.prod(int(n) + 1 for n in groups.sizes)
    half = (total + 1) // 2  # the complement of a pattern has the same risk
    if half <= MAX_PATTERNS and half * problem.rows_per_pattern <= problem.affordable_rows:
        patterns = _patterns(groups, half)
        risks = problem.risks(patterns)
        best = int(np.argmin(risks))
        return SignMinimum(_signs(groups, patterns[best]), float(risks[best]), exact=True)
    pattern, risk = _search(problem, seed, restarts, deadline)
    return SignMinimum(_signs(groups, pattern), risk, exact=False)


class _SignProblem:
    def __init__(self, groups: Groups, sampling: Sampling, loss: Loss) -> None:
        self.groups, self.sampling, self.loss = groups, sampling, loss
        integral = isinstance(loss, InfoNCE) and 1 < loss.negatives < math.inf
        self.affordable_rows = MAX_INTEGRALS * (1 if integral else 25)
        self.rows_per_pattern = 2 if sampling == "unsupervised" else 2 * len(groups)

    def estimates(self, patterns: IntArray) -> FloatArray:
        """`risks` with E ψ interpolated between laws, to choose among many candidates."""
        return self._risks(patterns, lambda q: np.interp(q, *self._table))

    def risks(self, patterns: IntArray) -> FloatArray:
        """(N,) risks of (N, G) numbers of positive classes."""
        return self._risks(patterns, self._expected)

    def _risks(self, patterns: IntArray, expected: Callable[[FloatArray], FloatArray]) -> FloatArray:
        lam, n = self.groups.proportions, self.groups.sizes
        positive, negative = patterns @ lam, (n - patterns) @ lam
        if self.sampling == "unsupervised":
            mine, other = np.stack([positive, negative], axis=1), np.stack([negative, positive], axis=1)
            return np.asarray((mine * expected(self._same_side(mine, other))).sum(axis=1), dtype=np.float64)
        others = np.tile(lam[:, None], (1, len(lam))) * (1 - np.eye(len(lam)))
        total = np.zeros(len(patterns))
        for count, across in ((patterns, negative), (n - patterns, positive)):
            # Mass on the anchor's side without the anchor, summed so that a dominant class does not cancel.
            same = count @ others + np.maximum(count - 1, 0) * lam
            risk = expected(self._same_side(same, np.broadcast_to(across[:, None], same.shape)))
            total += (np.where(count > 0, risk, 0.0) * count) @ lam
        return total

    def _same_side(self, same: FloatArray, across: FloatArray) -> FloatArray:
        """Probability that a negative is on the anchor's side, by the proportions there and across."""
        weight = same + across * math.exp(-2 * self.loss.hardness)
        return np.where(weight > 0, same / np.where(weight > 0, weight, 1.0), 0.0)

    def _expected(self, q: FloatArray) -> FloatArray:
        """E ψ of anchors whose negatives are on their side with probability q."""
        distinct, where = np.unique(q, return_inverse=True)
        t = np.tile([0.0, -2.0], (len(distinct), 1))
        value, _, _ = expected_loss(self.loss, t, np.stack([distinct, 1.0 - distinct], axis=1))
        return np.asarray(value[where].reshape(q.shape), dtype=np.float64)

    @cached_property
    def _table(self) -> tuple[FloatArray, FloatArray]:
        q = np.sin(np.linspace(0.0, np.pi / 2, TABLE_SIZE)) ** 2  # dense at both ends, where E ψ bends
        return q, self._expected(q)


def _patterns(groups: Groups, count: int) -> IntArray:
    """(count, G) the first patterns in mixed radix n_g + 1."""
    radix = groups.sizes + 1
    columns = []
    rest = np.arange(count, dtype=np.int64)
    for base in radix[::-1]:
        columns.append(rest % base)
        rest = rest // base
    return np.stack(columns[::-1], axis=1)


def _signs(groups: Groups, pattern: IntArray) -> FloatArray:
    """(C,) the first p_g classes of every group positive."""
    rank = np.empty(groups.classes, dtype=np.int64)
    for g in range(len(groups)):
        members = np.flatnonzero(groups.index == g)
        rank[members] = np.arange(len(members))
    return np.where(rank < pattern[groups.index], 1.0, -1.0)


def _starts(groups: Groups, seed: int, restarts: int) -> list[IntArray]:
    """The largest class alone; largest first to the lighter side; random halves."""
    alone = np.zeros(len(groups), dtype=np.int64)
    alone[0] = 1
    balanced = np.zeros(len(groups), dtype=np.int64)
    masses = [0.0, 0.0]
    for g, (lam, n) in enumerate(zip(groups.proportions, groups.sizes, strict=True)):
        for _ in range(int(n)):
            side = int(masses[1] < masses[0])
            masses[side] += float(lam)
            balanced[g] += side
    rng = np.random.default_rng(seed)
    return [alone, balanced, *(rng.binomial(groups.sizes, 0.5) for _ in range(restarts))]


def _neighbors(pattern: IntArray, sizes: IntArray) -> IntArray:
    """Patterns one class away."""
    G = len(pattern)
    up = pattern[None, :] + np.eye(G, dtype=np.int64)[pattern < sizes]
    down = pattern[None, :] - np.eye(G, dtype=np.int64)[pattern > 0]
    return np.concatenate([up, down])


def _search(
    problem: _SignProblem, seed: int, restarts: int, deadline: float | None
) -> tuple[IntArray, float]:
    """Steepest descent by single moves from every start."""
    best: tuple[IntArray, float] | None = None
    for pattern in _starts(problem.groups, seed, restarts):
        current, risk = pattern, float(problem.risks(pattern[None, :])[0])
        for _ in range(MAX_SWEEPS):
            if best is not None and deadline is not None and time.monotonic() > deadline:
                break
            candidates = _neighbors(current, problem.groups.sizes)
            candidates = candidates[np.argsort(problem.estimates(candidates))[:SHORT_LIST]]
            risks = problem.risks(candidates)
            chosen = int(np.argmin(risks))
            if not risks[chosen] < risk:
                break
            current, risk = candidates[chosen], float(risks[chosen])
        if best is None or risk < best[1]:
            best = (current, risk)
    assert best is not None
    return best
