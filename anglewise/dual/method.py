"""The outer loop: surrogate at A, its minimizer, exact risk there, until the certificate is small.

Two or three exact evaluations are typical. When the exact risk rises and the gap does not fall, the step is
shortened; convex combinations stay feasible.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from anglewise.certificate import (
    dual_on_groups,
    dual_weights,
    make_feasible,
    relative,
    weighted_gap,
)
from anglewise.dual.coarse import COARSE_TOLERANCE, MIN_GROUPS, Start, interpolated_start
from anglewise.dual.partition import Partition, one_unit_per_group
from anglewise.dual.staircase import Stair, minimize_surrogate
from anglewise.dual.surrogate import Surrogate, temperature
from anglewise.risk import Risk, RiskEvaluation
from anglewise.sampling import FloatArray

MAX_ROUNDS = 60
MAX_STALLED = 5
MAX_BREAKDOWNS = 3
SHORTENING = 0.4
NEARLY = 0.1
POLISHED = 1e-13
NEARLY_ONE = 0.999
POLISHED_GROUPS = 64
START_ACCURACY = 1e-6
BREAKDOWNS = (np.linalg.LinAlgError, ArithmeticError, ValueError)
LEAST_CURVATURE_RATIO = 0.01


@dataclass
class Iterate:
    """A feasible Gram matrix, its exact risk and gradient, and the scaled certificate's gap."""

    A: FloatArray
    at: RiskEvaluation
    gap: float
    y: FloatArray


@dataclass
class DualAnswer:
    """The best point found, the rounds it took, and the columns of the dual there."""

    best: Iterate
    rounds: int
    columns: int


def simplex(groups_sizes: FloatArray, classes: int) -> FloatArray:
    """The ETF's group Gram matrix."""
    G = len(groups_sizes)
    A = np.full((G, G), -1.0 / (classes - 1))
    single = np.flatnonzero(groups_sizes == 1)
    A[single, single] = 1.0
    return A


def look(risk: Risk, A: FloatArray, tolerance: float) -> Iterate:
    """The exact risk and the scaled gap at a feasible A."""
    at = risk.evaluate(A)
    Z, inside, y = dual_on_groups(risk.groups, at.gradient, A)
    w = dual_weights(y)
    gap, _ = weighted_gap(risk.groups, Z, inside, np.sqrt(w))
    if tolerance < relative(risk, at.risk, gap) < NEARLY:
        gap = min(gap, weighted_gap(risk.groups, Z, inside, w)[0])
    return Iterate(A, at, gap, y)


def solve_dual(risk: Risk, *, tolerance: float, deadline: float) -> DualAnswer:
    """Minimizes S over the elliptope to a relative gap of ``tolerance`` where it can.

    ``deadline`` is in `time.monotonic` seconds; the best point so far is returned then.
    """
    search = _Search(risk, tolerance, deadline)
    if len(risk.groups) >= MIN_GROUPS:
        start = interpolated_start(risk, lambda small: _simple_answer(small, deadline))
        if start is not None:
            search.begin_at(start)
    return search.run()


def _simple_answer(risk: Risk, deadline: float) -> Start | None:
    """The answer of a pooled problem, if its dual has one column and no merged classes."""
    search = _Search(risk, COARSE_TOLERANCE, deadline)
    search.polish = False
    answer = search.run()
    if search.Y is None or search.Y.shape[1] > 1 or search.partition.any_merged:
        return None
    return Start(answer.best.A, search.Y, search.stretch)


def _nearly_merged(A: FloatArray) -> bool:
    """Whether two different groups are close to a common direction, or a group to one direction."""
    return bool((A > NEARLY_ONE).sum() > (np.diag(A) == 1).sum())


class _Search:
    def __init__(self, risk: Risk, tolerance: float, deadline: float) -> None:
        self.risk, self.tolerance, self.deadline = risk, tolerance, deadline
        G = len(risk.groups)
        self.T = temperature(risk)
        self.tabu = np.zeros((G, G), dtype=np.bool_)
        self.pairs = risk.groups.sizes[:, None] * risk.law.neighbors
        self._restart()
        self.anchor: Iterate | None = None
        self.polish = len(risk.groups) <= POLISHED_GROUPS
        self.stalled = self.breakdowns = 0

    def _restart(self) -> None:
        self.partition: Partition = one_unit_per_group(self.risk.groups)
        self.Y: FloatArray | None = None
        self.v = np.zeros(len(self.risk.groups))
        self.stretch = 1.0

    def begin_at(self, start: Start) -> None:
        """Starts from an interpolated point, which is not feasible: it only anchors the first model."""
        self.Y, self.stretch = start.Y, start.stretch
        at = self.risk.evaluate(start.gram)
        scale = 1.0 / relative(self.risk, at.risk, 1.0)
        self.anchor = Iterate(start.gram, at, START_ACCURACY * scale, np.empty(0))

    def run(self) -> DualAnswer:
        groups = self.risk.groups
        rounds, columns = 0, 1
        now = None if self.anchor is None else self._from_anchor(self.anchor)
        if now is None:
            now = look(self.risk, simplex(groups.sizes.astype(np.float64), groups.classes), self.tolerance)
        else:
            rounds = 1
        best = now
        while rounds < MAX_ROUNDS and not self._finished(best):
            rounds += 1
            try:
                stair = self._minimize(now)
            except BREAKDOWNS:
                self._restart()
                self.breakdowns += 1
                self.stalled += 2
                now = best
                if self.breakdowns > MAX_BREAKDOWNS:
                    break
                continue
            before = now
            now = self._globalized(before, stair)
            columns = stair.Y.shape[1]
            self.stalled = 0 if now.gap < 0.7 * best.gap and self.tolerance > POLISHED else self.stalled + 1
            if now.gap < best.gap:
                best = now
            self._match_curvature(before, now)
        return DualAnswer(best, rounds, columns)

    def _from_anchor(self, anchor: Iterate) -> Iterate | None:
        try:
            return look(self.risk, self._minimize(anchor).gram, self.tolerance)
        except BREAKDOWNS:
            self._restart()
            return None

    def _finished(self, best: Iterate) -> bool:
        gap = relative(self.risk, best.at.risk, best.gap)
        if self.polish and POLISHED < gap <= self.tolerance and _nearly_merged(best.A):
            # Where classes merge, A is only as accurate as the square root of the gap: one more round.
            self.polish, self.stalled = False, MAX_STALLED - 1
            self.tolerance = POLISHED
            return False
        return gap <= self.tolerance or self.stalled >= MAX_STALLED or time.monotonic() > self.deadline

    def _minimize(self, now: Iterate) -> Stair:
        if self.Y is None:
            size = np.maximum(-now.y, 1e-12 * float(np.abs(now.y).max()))
            self.Y = np.sqrt(size)[:, None]
        scale = now.gap / max(relative(self.risk, now.at.risk, now.gap), 1e-300)
        wanted = max(0.1 * self.tolerance * scale, 1e-3 * now.gap)
        self.model = Surrogate(self.risk, now.at, now.A, self.stretch)
        stair = minimize_surrogate(
            self.model, self.partition, self.Y,
            np.zeros(len(self.risk.groups)), self.tabu, wanted, self.deadline,
        )  # fmt: skip
        self.partition, self.Y = stair.partition, stair.Y
        return stair

    def _globalized(self, before: Iterate, stair: Stair) -> Iterate:
        A = stair.gram
        now = look(self.risk, A, self.tolerance)
        for _ in range(6):
            slack = 1e-12 * max(abs(before.at.risk), 1e-3 * before.gap)
            if now.at.risk <= before.at.risk + slack or now.gap < 0.9 * before.gap:
                break
            A = before.A + SHORTENING * (A - before.A)
            now = look(self.risk, A, self.tolerance)
            self.stretch = 1.0
        return now

    def _match_curvature(self, before: Iterate, now: Iterate) -> None:
        """T_s from the exact curvature over the model's along the last step."""
        step = now.A - before.A
        largest = float(np.abs(step).max())
        if not 1e-9 < largest < self.T:
            return
        weighted = self.pairs * step
        exact = float((weighted * (now.at.gradient - before.at.gradient)).sum())
        modeled = float((weighted * (self.model.gradient(now.A, self.T) - before.at.gradient)).sum())
        if modeled > 0:
            self.stretch = 1.0 / min(1.0, max(LEAST_CURVATURE_RATIO, exact / modeled))


__all__ = ["DualAnswer", "Iterate", "make_feasible", "simplex", "solve_dual"]
