"""The training run: data, prediction, loop, evaluations, checkpoints, result.

    summary = train(spec, context)

Everything random at step s depends on (seed, s) alone, and a checkpoint holds the parameters, the optimizer
and the step: a resumed run gives the numbers of an uninterrupted one, bit for bit on the CPU.
"""

from __future__ import annotations

import io
import time
from typing import Any

import numpy as np

from jobs.training_spec import TrainingSpec
from worker.training import checkpoint
from worker.training.context import Context, Diverged, Samples, Stopped
from worker.training.data import TrainingData, load_data
from worker.training.evaluation import evaluate
from worker.training.machine import deterministic, few_threads
from worker.training.plan import Plan, make_plan
from worker.training.prediction import Prediction, predict
from worker.training.processes import ALONE, Next, Processes
from worker.training.report import report_files
from worker.training.steps import Steps
from worker.training.summary import summarize
from worker.training.trained import pack_encoder

Values = dict[str, float | None]


def train(spec: TrainingSpec, context: Context, processes: Processes = ALONE) -> dict[str, Any]:
    """Train as the spec says; the summary, plain JSON.

    Args:
        processes: this one is the first of them; the others `follow`.

    Raises:
        InvalidInput: the spec or its data cannot be used.
        Diverged: the loss became infinite or NaN.
        Stopped: the context asked for it; on shutdown after a checkpoint.
    """
    started = time.monotonic()
    spec.check()
    data = load_data(spec, context)
    plan = make_plan(spec, list(data.counts), processes)
    prediction = predict(spec, plan, data)
    with deterministic(plan), few_threads(data, plan, processes):
        run = Run(spec, data, plan, prediction, context, processes)
        run.resume()
        while run.goes_on():
            run.steps.advance()
            context.progress(run.steps.done, plan.steps)
            if run.steps.due(plan.evaluate_every):
                run.evaluate()
            if run.steps.due(plan.checkpoint_every) or run.finished:
                run.save()
        return run.finish(time.monotonic() - started)


def follow(spec: TrainingSpec, samples: Samples, processes: Processes) -> None:
    """The part of every other process in `train`: the same steps and its share of every evaluation."""
    data = load_data(spec, samples)
    plan = make_plan(spec, list(data.counts), processes)
    with deterministic(plan), few_threads(data, plan, processes):
        steps = Steps(spec, data, plan, processes)
        saved = processes.from_first(b"")
        if saved:
            steps.load(checkpoint.unpack(saved))
        else:
            steps.embeddings(steps.evaluated)
        while (word := processes.first_decides(Next.STOP)) is Next.STEP:
            steps.advance()
            if steps.due(plan.evaluate_every):
                steps.embeddings(steps.evaluated)
        if word is Next.FINISH:
            steps.embeddings(np.arange(len(data)))


class Run:
    """The state of one run between steps, as its first process has it."""

    def __init__(
        self,
        spec: TrainingSpec,
        data: TrainingData,
        plan: Plan,
        prediction: Prediction,
        context: Context,
        processes: Processes,
    ) -> None:
        self.spec, self.data, self.plan, self.prediction = spec, data, plan, prediction
        self.context, self.processes = context, processes
        self.steps = Steps(spec, data, plan, processes)
        self.last: Values = {}
        self.history: list[tuple[int, Values]] = []

    @property
    def finished(self) -> bool:
        """Whether the run may end before its last step."""
        gap, wanted = self.last.get("risk_gap"), self.plan.stop_gap
        close = gap is not None and wanted is not None and abs(gap) <= wanted  # far below: no optimum
        return close or self.steps.converged

    def goes_on(self) -> bool:
        """Whether there is another step to take; the other processes hear of it.

        Raises:
            Stopped
        """
        if self.steps.done == self.plan.steps or self.finished:
            self.processes.first_decides(Next.FINISH)
            return False
        stopping = self.context.stopping
        self.processes.first_decides(Next.STEP if stopping is None else Next.STOP)
        if stopping is None:
            return True
        if stopping == "shutdown":
            self.save()
        raise Stopped

    def evaluate(self) -> None:
        """Measure and report."""
        step = self.steps.done
        z = self.steps.embeddings(self.steps.evaluated)
        if not np.isfinite(z).all():
            raise Diverged(f"the embeddings are no longer finite after step {step}")
        measured = evaluate(z, self.data.y[self.steps.evaluated], self.plan, self.prediction)
        self.last = {**self.steps.recent(), **measured}
        self.history.append((step, self.last))
        self.context.metrics(step, self.last)

    def save(self) -> None:
        state = {**self.steps.state(), "last": self.last, "history": self.history}
        self.context.save_checkpoint(self.steps.done, checkpoint.pack(state))

    def resume(self) -> None:
        """Go on from the last checkpoint, or start with an evaluation."""
        found = self.context.load_checkpoint()
        data = b"" if found is None else found[1]
        try:
            state = checkpoint.unpack(data) if data else None
        except checkpoint.Unreadable as error:
            self.context.event(f"Starting over: {error}.")
            state, data = None, b""
        self.processes.from_first(data)
        if state is None:
            self.evaluate()
            return
        self.steps.load(state)
        self.last = state["last"]
        self.history = [(step, values) for step, values in state["history"]]
        self.context.event(f"Going on from step {self.steps.done}.")

    def finish(self, seconds: float) -> dict[str, Any]:
        """Write the artifacts; the summary."""
        z = self.steps.embeddings(np.arange(len(self.data)))
        self.context.artifact("embeddings.npy", _npy(z), "application/x-npy")
        self.context.artifact(
            "labels.npy", _npy(np.asarray(self.data.labels)[self.data.y]), "application/x-npy"
        )
        weights = pack_encoder(self.spec, self.data, self.plan, self.steps.encoder)
        self.context.artifact("checkpoint.safetensors", weights, "application/octet-stream")
        summary = {
            **summarize(self.spec, self.data, self.plan, self.prediction, self.steps, self.history, z),
            "seconds": seconds,
        }
        files = report_files(summary, self.history, angular=self.plan.projection != "none")
        for name, (content, media_type) in files.items():
            self.context.artifact(name, content, media_type)
        return summary


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
