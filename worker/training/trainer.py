"""The training run: data, prediction, loop, evaluations, checkpoints, result.

    summary = train(spec, context)

Everything random at step s depends on (seed, s) alone, and a checkpoint holds the parameters, the optimizer
and the step: a resumed run gives the numbers of an uninterrupted one, bit for bit on the CPU.
"""

from __future__ import annotations

import io
import time
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anglewise.version import __version__
from jobs.training_spec import TrainingSpec
from worker.training import checkpoint
from worker.training.batches import Embedder
from worker.training.context import Context, Diverged
from worker.training.data import Embeddings, IntArray, TrainingData, evenly, load_data
from worker.training.encoders import build_encoder
from worker.training.evaluation import evaluate, report
from worker.training.machine import deterministic, few_threads
from worker.training.objectives import build_objective
from worker.training.optimizers import build_optimizer, rate
from worker.training.plan import Plan, make_plan
from worker.training.prediction import Prediction, predict
from worker.training.report import report_files

Values = dict[str, float | None]

MAX_EVALUATED = 10_000
"""Samples of an evaluation, the same share of every class."""


def train(spec: TrainingSpec, context: Context) -> dict[str, Any]:
    """Train as the spec says; the summary, plain JSON.

    Raises:
        InvalidInput: the spec or its data cannot be used.
        Diverged: the loss became infinite or NaN.
        Stopped: the context asked for it; on shutdown after a checkpoint.
    """
    started = time.monotonic()
    spec.check()
    data = load_data(spec, context)
    plan = make_plan(spec, list(data.counts))
    prediction = predict(spec, plan, data.counts)
    with deterministic(plan), few_threads(data, plan):
        run = Run(spec, data, plan, prediction, context)
        run.resume()
        while run.step < plan.steps and not run.finished:
            run.stop_if_asked()
            run.advance()
            context.progress(run.step, plan.steps)
            if run.due(plan.evaluate_every):
                run.evaluate()
            if run.due(plan.checkpoint_every):
                run.save()
        return run.finish(time.monotonic() - started)


class Run:
    """The state of one run between steps."""

    def __init__(
        self, spec: TrainingSpec, data: TrainingData, plan: Plan, prediction: Prediction, context: Context
    ) -> None:
        torch.manual_seed(plan.seed)
        self.spec, self.data, self.plan = spec, data, plan
        self.prediction, self.context = prediction, context
        self.encoder = build_encoder(spec, data, plan).to(plan.device)
        self.optimizer = build_optimizer(self.encoder, plan)
        self.embedder = Embedder(self.encoder, data, plan, views=spec.positives == "views")
        self.objective = build_objective(spec, self.embedder, data, plan)
        self.evaluated = evenly(data, MAX_EVALUATED)
        self.step = 0
        self.losses: list[float] = []
        self.anchors: list[int] = []
        self.last: Values = {}
        self.history: list[tuple[int, Values]] = []

    @property
    def finished(self) -> bool:
        """Whether the run may end before its last step."""
        gap, wanted = self.last.get("risk_gap"), self.plan.stop_gap
        close = gap is not None and wanted is not None and gap <= wanted
        return close or bool(getattr(self.optimizer, "converged", False))

    def due(self, every: int) -> bool:
        return self.step % every == 0 or self.step == self.plan.steps or self.finished

    def stop_if_asked(self) -> None:
        if self.context.stopping == "shutdown":
            self.save()
        self.context.check()

    def advance(self) -> None:
        """One optimizer step."""
        share = rate(self.plan.schedule, self.step, self.plan.steps)
        assert self.plan.optimizer.lr is not None
        for group in self.optimizer.param_groups:
            group["lr"] = share * self.plan.optimizer.lr
        loss: Tensor = self.optimizer.step(self._backward)  # type: ignore[assignment,arg-type]
        self.losses.append(float(loss))
        self.step += 1

    def _backward(self) -> Tensor:
        """The loss of this step, its gradient in the parameters."""
        self.optimizer.zero_grad()
        total = torch.zeros((), dtype=torch.float64)
        for part in range(self.plan.accumulate):
            loss, anchors = self.objective(self.step * self.plan.accumulate + part)
            loss = loss / self.plan.accumulate
            total += loss.detach().cpu()
            self.anchors.append(anchors)
            if not torch.isfinite(total):
                raise Diverged(f"the loss became {float(total)} in step {self.step + 1}")
            loss.backward()  # type: ignore[no-untyped-call]
        return total

    def embeddings(self, rows: IntArray) -> Embeddings:
        """(n, d) of these samples."""
        z: Embeddings = self.embedder.all(rows).numpy()
        return z

    def evaluate(self) -> None:
        """Measure and report; the loss is that of now (exact) or the mean since the last evaluation."""
        z = self.embeddings(self.evaluated)
        if not np.isfinite(z).all():
            raise Diverged(f"the embeddings are no longer finite after step {self.step}")
        measured = evaluate(z, self.data.y[self.evaluated], self.plan, self.prediction)
        anchors = float(np.mean(self.anchors)) if self.anchors else None
        self.last = {"loss": self._loss(), **measured, "anchors": anchors}
        self.losses, self.anchors = [], []
        self.history.append((self.step, self.last))
        self.context.metrics(self.step, self.last)

    def _loss(self) -> float | None:
        if self.plan.exact:
            with torch.no_grad():
                return float(self.objective(self.step).value)
        return float(np.mean(self.losses)) if self.losses else None

    def save(self) -> None:
        state = {
            "step": self.step,
            "encoder": self.encoder.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "converged": bool(getattr(self.optimizer, "converged", False)),
            "torch_random": torch.get_rng_state(),
            "losses": self.losses,
            "anchors": self.anchors,
            "last": self.last,
            "history": self.history,
        }
        self.context.save_checkpoint(self.step, checkpoint.pack(state))

    def resume(self) -> None:
        """Go on from the last checkpoint, or start with an evaluation."""
        found = self.context.load_checkpoint()
        if found is None:
            self.evaluate()
            return
        try:
            state = checkpoint.unpack(found[1])
        except checkpoint.Unreadable as error:
            self.context.event(f"Starting over: {error}.")
            self.evaluate()
            return
        self.encoder.load_state_dict(state["encoder"])
        self.optimizer.load_state_dict(state["optimizer"])
        if hasattr(self.optimizer, "converged"):
            self.optimizer.converged = state["converged"]
        torch.set_rng_state(state["torch_random"])
        self.step, self.last = state["step"], state["last"]
        self.losses, self.anchors = state["losses"], state["anchors"]
        self.history = [(step, values) for step, values in state["history"]]
        self.context.event(f"Going on from step {self.step}.")

    def finish(self, seconds: float) -> dict[str, Any]:
        """Write the artifacts; the summary."""
        z = self.embeddings(np.arange(len(self.data)))
        self.context.artifact("embeddings.npy", _npy(z), "application/x-npy")
        self.context.artifact(
            "labels.npy", _npy(np.asarray(self.data.labels)[self.data.y]), "application/x-npy"
        )
        weights = checkpoint.pack({"encoder": self.encoder.state_dict(), "step": self.step})
        self.context.artifact("checkpoint.safetensors", weights, "application/octet-stream")
        summary = {
            "steps": self.step,
            "stopped_early": self.step < self.plan.steps,
            "seconds": seconds,
            "classes": [
                {"label": label, "count": count}
                for label, count in zip(self.data.labels, self.data.counts, strict=True)
            ],
            "dimension": self.plan.dimension,
            "parameters": sum(p.numel() for p in self.encoder.parameters()),
            "metrics": self.last,
            "predicted": self.prediction.document(),
            **report(z, self.data.y, self.plan, self.prediction),
            "seed": self.plan.seed,
            "device": self.plan.device.type,
            "precision": "bf16" if self.plan.autocast else str(self.plan.dtype).removeprefix("torch."),
            "optimizer": self.plan.optimizer.model_dump(),
            "versions": {"anglewise": __version__, "torch": torch.__version__, "numpy": version("numpy")},
        }
        files = report_files(summary, self.history, angular=self.plan.projection != "none")
        for name, (content, media_type) in files.items():
            self.context.artifact(name, content, media_type)
        return summary


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
