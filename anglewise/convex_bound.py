"""The convex program as a lower bound of the non-convex ones (A8).

A limit on the dimension only takes geometries away, and hard negatives only raise the risk of each
(`tilted`): neither gets below the minimum over all Gram matrices of the plain risk.
"""

from __future__ import annotations

import dataclasses
import math
import time

import numpy as np

from anglewise.certificate import certify, make_feasible
from anglewise.group_factor import factor_descent
from anglewise.hinge import minimize_hinge, simplex
from anglewise.losses import Loss, SquaredHinge, Triplet
from anglewise.risk import Risk
from anglewise.sampling import FloatArray, Sampling, group_classes
from anglewise.tilted import single_class_groups


def plain_risk(proportions: FloatArray, sampling: Sampling, loss: Loss) -> Risk:
    """The convex risk on all classes: the same loss without hardness."""
    plain = dataclasses.replace(loss, hardness=0.0)
    return Risk(single_class_groups(proportions), sampling, plain)


class ConvexBound:
    """The convex program without hardness and without a limit on the dimension.

    Args:
        proportions: (C,).
        gram: (C, C) its optimum, if known; solved for here otherwise.
        lower_bound: a proven lower bound of it, if known.
        deadline: ``time.monotonic()`` by half of which it should be solved.
    """

    def __init__(
        self,
        proportions: FloatArray,
        sampling: Sampling,
        loss: Loss,
        gram: FloatArray | None,
        lower_bound: float | None,
        tolerance: float,
        deadline: float | None,
    ) -> None:
        self.hard = loss.hardness > 0
        self.risk = plain_risk(proportions, sampling, loss)
        self.classes = self.risk.groups
        self.tolerance = tolerance
        self.lowest = -math.inf if lower_bound is None else lower_bound
        if gram is None:
            gram = self._solve(proportions, sampling, deadline)
        self.gram = make_feasible(self.classes, gram)
        # ψ increases in every t ≥ -2: a bound that needs no proof of optimality at all.
        apart = self.risk.value(np.full(self.gram.shape, -1.0) + 2 * np.eye(len(self.gram)))
        self.lowest = max(self.lowest, apart, self._certified_below(self.gram))

    def _solve(self, proportions: FloatArray, sampling: Sampling, deadline: float | None) -> FloatArray:
        """(C, C) the convex optimum, found on groups of equal proportions."""
        groups, loss = group_classes(proportions), self.risk.loss
        half = None if deadline is None else max((deadline - time.monotonic()) / 2, 0.0)
        if isinstance(loss, SquaredHinge | Triplet):
            solution = minimize_hinge(groups, sampling, loss, tolerance=self.tolerance, time_limit=half)
            self.lowest = max(self.lowest, solution.certificate.lower_bound)
            A = solution.gram
        else:
            problem = Risk(groups, sampling, loss)
            until = None if half is None else time.monotonic() + half
            A, _ = factor_descent(groups, problem.value_and_gradient, simplex(groups), deadline=until)
        full = A[np.ix_(groups.index, groups.index)]
        np.fill_diagonal(full, 1.0)
        return np.asarray(full, dtype=np.float64)

    def _certified_below(self, A: FloatArray) -> float:
        value, H = self.risk.value_and_gradient(A)
        return certify(self.risk, value, H, A, tolerance=self.tolerance).lower_bound

    def at(self, gram: FloatArray) -> float:
        """The best proven bound, the one from the answer itself included."""
        feasible = make_feasible(self.classes, gram)
        return max(self.lowest, self._certified_below(feasible))
