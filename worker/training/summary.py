"""The summary of a finished run: plain JSON."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import torch

from anglewise.version import __version__
from jobs.training_spec import TrainingSpec
from worker.training.data import Embeddings, TrainingData
from worker.training.evaluation import History, report
from worker.training.plan import Plan
from worker.training.prediction import Prediction, inline
from worker.training.reasons import furthest_pairs, reasons, told
from worker.training.steps import Steps


def summarize(
    spec: TrainingSpec,
    data: TrainingData,
    plan: Plan,
    prediction: Prediction,
    steps: Steps,
    history: History,
    embeddings: Embeddings,
) -> dict[str, Any]:
    """
    Args:
        history: every evaluation, the last one at the end.
        embeddings: (n, d) of all samples, at the end.
    """
    gram, verdict, classes = report(embeddings, data, plan, prediction)
    pairs = furthest_pairs(gram, prediction.gram) if plan.projection != "none" else []
    return {
        "verdict": verdict,
        "reasons": reasons(data, plan, prediction, history, pairs),
        "steps": steps.done,
        "stopped_early": steps.done < plan.steps,
        "classes": classes,
        "dimension": plan.dimension,
        "parameters": sum(p.numel() for p in steps.encoder.parameters()),
        "metrics": history[-1][1],
        "predicted": prediction.document(),
        "measured_gram": inline(gram),
        "furthest_pairs": told(pairs, data.labels),
        "seed": plan.seed,
        "device": plan.device.type,
        "processes": steps.processes.size,
        "precision": "bf16" if plan.autocast else str(plan.dtype).removeprefix("torch."),
        "optimizer": plan.optimizer.model_dump(),
        "spec": spec.model_dump(mode="json"),
        "versions": {"anglewise": __version__, "torch": torch.__version__, "numpy": version("numpy")},
    }
