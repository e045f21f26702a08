"""The parameters of a run and how a step changes them: what every process of it has."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from jobs.training_spec import TrainingSpec
from worker.training.batches import Embedder
from worker.training.context import Diverged, TrainingError
from worker.training.data import Embeddings, IntArray, TrainingData, evenly
from worker.training.encoders import build_encoder
from worker.training.objectives import build_objective
from worker.training.optimizers import build_optimizer, rate
from worker.training.plan import Plan
from worker.training.processes import Processes

MAX_EVALUATED = 10_000
"""Samples of an evaluation, the same share of every class."""


class Steps:
    """Everything random in step s depends on (seed, s) alone, so any process can take it.

    Attributes:
        evaluated: samples of an evaluation.
        done: how many steps were taken.
    """

    def __init__(self, spec: TrainingSpec, data: TrainingData, plan: Plan, processes: Processes) -> None:
        torch.manual_seed(plan.seed)
        self.plan, self.processes = plan, processes
        self.encoder = build_encoder(spec, data, plan).to(plan.device)
        self.optimizer = build_optimizer(self.encoder, plan)
        views = spec.positives == "views"
        self.embedder = Embedder(self.encoder, data, plan, processes, views=views)
        self.objective = build_objective(spec, self.embedder, data, plan)
        self.evaluated = evenly(data, MAX_EVALUATED)
        self.done = 0
        self._losses: list[float] = []
        self._anchors: list[float] = []
        self._counted = 0.0

    @property
    def converged(self) -> bool:
        """Whether the optimizer has found that nothing is left to do."""
        return bool(getattr(self.optimizer, "converged", False))

    def due(self, every: int) -> bool:
        """Whether this is one of every so many steps, or the last one."""
        return self.done % every == 0 or self.done == self.plan.steps or self.converged

    def embeddings(self, rows: IntArray) -> Embeddings:
        """(n, d) of these samples; all processes take part."""
        z: Embeddings = self.embedder.all(rows).numpy()
        return z

    def advance(self) -> None:
        """One optimizer step.

        Raises:
            Diverged: the loss is no longer finite; the parameters are as before.
        """
        share = rate(self.plan.schedule, self.done, self.plan.steps)
        assert self.plan.optimizer.lr is not None
        for group in self.optimizer.param_groups:
            group["lr"] = share * self.plan.optimizer.lr
        loss: Tensor = self.optimizer.step(self._backward)  # type: ignore[assignment,arg-type]
        self._losses.append(float(loss))
        self._anchors.append(self._counted)
        self.done += 1

    def _backward(self) -> Tensor:
        """The loss of this step, its gradient in the parameters."""
        self.optimizer.zero_grad()
        total, counted, parts = 0.0, 0, self.plan.accumulate
        for part in range(parts):
            loss, anchors = self.objective(self.done * parts + part)
            if parts > 1:
                loss = loss / parts
            total += float(loss.detach())
            if not math.isfinite(total):
                raise Diverged(f"the loss became {total} in step {self.done + 1}")
            counted += anchors
            loss.backward()  # type: ignore[no-untyped-call]
        self._counted = counted / parts
        self.processes.add_gradients(self.encoder.parameters())
        return torch.tensor(total, dtype=torch.float64)

    def recent(self) -> dict[str, float | None]:
        """The loss, of now (exact) or the mean over anchors since the last call, and how many a batch had."""
        counted = sum(self._anchors)
        loss = float(np.dot(self._losses, self._anchors)) / counted if counted else None
        anchors = float(np.mean(self._anchors)) if self._anchors else None
        self._losses, self._anchors = [], []
        if self.plan.exact:
            with torch.no_grad():
                loss = float(self.objective(self.done).value)
        return {"loss": loss, "anchors": anchors}

    def state(self) -> dict[str, Any]:
        """What `load` needs to go on with the same numbers."""
        return {
            "step": self.done,
            "encoder": self.encoder.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "converged": self.converged,
            "torch_random": torch.get_rng_state(),
            "losses": self._losses,
            "anchors": self._anchors,
        }

    def load(self, state: dict[str, Any]) -> None:
        """
        Raises:
            TrainingError: it is the state of another run.
        """
        try:
            self._load(state)
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise TrainingError("the checkpoint is that of another run") from error

    def _load(self, state: dict[str, Any]) -> None:
        self.encoder.load_state_dict(state["encoder"])
        self.optimizer.load_state_dict(state["optimizer"])
        if hasattr(self.optimizer, "converged"):
            self.optimizer.converged = state["converged"]
        torch.set_rng_state(state["torch_random"])
        self.done = state["step"]
        self._losses, self._anchors = state["losses"], state["anchors"]
