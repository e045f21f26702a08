"""L-BFGS for free features: one optimizer step is one accepted line search.

`torch.optim.LBFGS` compares sᵀy with an absolute 1e-10 and stops for good after a failed search; the risks
here are as small as 1e-17 and their features lose length freely, so every test below is relative, features
return to their set after each step, and a failed search forgets the memory instead of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Closure = Callable[[], Tensor]

FIRST_MOVE = 0.1
"""The first step of an empty memory moves no feature by more than this."""
ARMIJO = 1e-4
MIN_HISTORY, MAX_HISTORY = 5, 20
REMEMBERED = 2**23
"""Numbers of all s, or all y, together: they are part of every checkpoint."""
SHRINKS = 30
ROUNDING = 1e-13
"""Relative changes of the loss below this are rounding; the slope decides there."""
FLAT_STEPS = 20
"""After so many steps in a row that change the loss by rounding alone the run has converged."""


class LBFGS(torch.optim.Optimizer):
    """Limited-memory BFGS on one parameter, an (n, d) table.

    Args:
        table: the parameter; its gradient is that of the closure's loss.
        retract: moves the table, in place, to where the loss is the same and the features are in their set.
        history: pairs (s, y) remembered; None: 20, fewer for large tables.
    """

    def __init__(
        self, table: torch.nn.Parameter, retract: Callable[[], None], history: int | None = None
    ) -> None:
        super().__init__([table], {"lr": 1.0})
        self.table, self.retract = table, retract
        self.history = history or min(MAX_HISTORY, max(MIN_HISTORY, REMEMBERED // table.numel()))
        self.converged = False

    @torch.no_grad()
    def step(self, closure: Closure) -> Tensor:  # type: ignore[override]
        """One line search; the loss before it. Sets ``converged`` when no step makes progress."""
        state, table = self.state[self.table], self.table
        if "value" not in state:
            state["value"], state["gradient"] = self._evaluate(closure)
            state["s"] = table.new_zeros((0, table.numel()))
            state["y"] = table.new_zeros((0, table.numel()))
            state["flat"] = 0
        before: float = state["value"]
        self.converged = False
        while not self._search(closure, state):
            if len(state["s"]) == 0:
                self.converged = True
                break
            state["s"], state["y"] = state["s"][:0], state["y"][:0]
        flat = abs(before - state["value"]) <= ROUNDING * abs(before)
        state["flat"] = state["flat"] + 1 if flat else 0
        self.converged = self.converged or state["flat"] >= FLAT_STEPS
        return torch.tensor(before, dtype=torch.float64)

    def _evaluate(self, closure: Closure) -> tuple[float, Tensor]:
        """The value is no tensor: one would be loaded again in the precision of the table."""
        with torch.enable_grad():
            value = float(closure())
        assert self.table.grad is not None
        return value, self.table.grad.detach().clone()

    def _search(self, closure: Closure, state: dict[str, Any]) -> bool:
        """Backtrack along the quasi-Newton direction; False, and the table unmoved, if nothing is better."""
        start, value, gradient = self.table.clone(), state["value"], state["gradient"]
        direction = self._direction(state)
        slope = float(torch.sum(direction * gradient))
        t = 1.0
        for _ in range(SHRINKS):
            if not slope < 0:
                break
            self.table.copy_(start + t * direction)
            self.retract()
            new_value, new_gradient = self._evaluate(closure)
            ahead = abs(float((new_gradient * direction).sum()))
            flat = abs(new_value - value) <= ROUNDING * abs(value) and ahead < -0.9 * slope
            if new_value <= value + ARMIJO * t * slope or flat:
                self._remember(state, self.table - start, new_gradient - gradient)
                state["value"], state["gradient"] = new_value, new_gradient
                return True
            t *= _shrink(value, new_value, t * slope)
        self.table.copy_(start)
        return False

    def _direction(self, state: dict[str, Any]) -> Tensor:
        """-H g by the two-loop recursion; along -g with an empty memory."""
        gradient: Tensor = state["gradient"]
        s, y = state["s"], state["y"]
        if len(s) == 0:
            largest = torch.linalg.vector_norm(gradient, dim=1).max()
            scale: Tensor = FIRST_MOVE / largest.clamp(min=torch.finfo(gradient.dtype).tiny)
            return -gradient * scale
        q = gradient.reshape(-1).clone()
        products = (s * y).sum(1)
        shares = torch.zeros_like(products)
        for i in reversed(range(len(s))):
            shares[i] = s[i] @ q / products[i]
            q -= shares[i] * y[i]
        q *= products[-1] / (y[-1] @ y[-1])
        for i in range(len(s)):
            q += (shares[i] - y[i] @ q / products[i]) * s[i]
        return -q.reshape(gradient.shape)

    def _remember(self, state: dict[str, Any], s: Tensor, y: Tensor) -> None:
        """Keep a pair along which the gradient grows; others would make H indefinite."""
        s, y = s.reshape(1, -1), y.reshape(1, -1)
        if (s * y).sum() > 1e-10 * torch.linalg.vector_norm(s) * torch.linalg.vector_norm(y):
            state["s"] = torch.cat([state["s"], s])[-self.history :]
            state["y"] = torch.cat([state["y"], y])[-self.history :]


def _shrink(value: float, new_value: float, slope: float) -> float:
    """The minimum of the parabola through both values with this slope, within [0.1, 0.5] of the step."""
    bend = new_value - value - slope
    return min(0.5, max(0.1, -slope / (2 * bend))) if bend > 0 else 0.5
