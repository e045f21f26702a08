"""The training spec with every default filled in for the data at hand."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from anglewise.errors import InvalidInput
from jobs.training_encoders import CNN, ResNet
from jobs.training_losses import Drawn
from jobs.training_spec import Optimizer, Schedule, TrainingSpec
from worker.training.processes import ALONE, Processes

EVALUATIONS = {True: 50, False: 20}
"""Evaluations of an exact and of a sampled run that do not say how many they want."""
CHECKPOINTS = 10
"""Checkpoints of a run that does not say how many it wants: those of large runs are hundreds of megabytes."""
DEFAULT_STEPS = {True: 500, False: 2000}
"""Steps of an exact and of a sampled run that give neither steps nor epochs."""
MAX_ENCODED = 2 * 65_536
"""Anchors and positives of the largest batch."""
Projection = Literal["sphere", "ball", "none"]


class Stream:
    """What random numbers are for. Those of step s depend on (seed, stream, s) alone, so a resumed run
    draws what the uninterrupted one would have drawn."""

    SUBSAMPLE, INIT, ORDER, POSITIVES, NEGATIVES, VIEWS, EVALUATION = range(7)


def generator(seed: int, stream: int, *position: int) -> np.random.Generator:
    """The random numbers of one stream at one position."""
    return np.random.default_rng([seed, stream, *position])


@dataclass(frozen=True)
class Plan:
    """What the loop needs to know."""

    exact: bool
    """the expected risk itself, or batches"""
    weighted: bool
    """weighted InfoNCE, or a loss over sampled negatives"""
    dimension: int
    """d of the embeddings"""
    projection: Projection
    """the set the embeddings lie in"""
    steps: int
    """optimizer steps in all"""
    batch: int
    """anchors of one batch"""
    accumulate: int
    """batches of one step"""
    chunk: int
    """samples that a process encodes at once"""
    evaluate_every: int
    """steps between evaluations; the first and last step are evaluated too"""
    checkpoint_every: int
    """steps between checkpoints"""
    optimizer: Optimizer
    schedule: Schedule
    seed: int
    stop_gap: float | None
    """risk gap at which the run ends early"""
    dtype: torch.dtype
    """of parameters and embeddings"""
    autocast: bool
    """whether the encoder computes in bfloat16"""
    device: torch.device


def make_plan(spec: TrainingSpec, counts: list[int], processes: Processes = ALONE) -> Plan:
    """
    Args:
        counts: samples of each class in training.
        processes: those that share the run.

    Raises:
        InvalidInput: a field does not go with these counts.
    """
    spec.check_counts(counts)
    items, exact, euclidean = sum(counts), spec.exact, spec.loss.name == "euclidean"
    batch = spec.batch(items)
    if processes.size > batch:
        raise InvalidInput(("processes",), f"a batch of {batch} cannot be shared by {processes.size}")
    if isinstance(spec.encoder, (CNN, ResNet)) and spec.encoded(batch) < 2 * processes.size:
        raise InvalidInput(("batch_size",), "normalization needs two samples in each process")
    steps = spec.steps or (spec.epochs or 0) * spec.steps_per_epoch(items) or DEFAULT_STEPS[exact]
    evaluate_every = spec.evaluate_every or max(1, math.ceil(steps / EVALUATIONS[exact]))
    double = spec.precision == "float64" or (spec.precision is None and exact)
    return Plan(
        exact=exact,
        weighted=not isinstance(spec.loss, Drawn),
        dimension=spec.dimension or max(2, len(counts)),
        projection="none" if euclidean else spec.projection or "sphere",
        steps=steps,
        batch=batch,
        accumulate=spec.accumulate,
        chunk=spec.chunk_size or MAX_ENCODED,
        evaluate_every=evaluate_every,
        checkpoint_every=spec.checkpoint_every or max(evaluate_every, math.ceil(steps / CHECKPOINTS)),
        optimizer=_optimizer(spec),
        schedule=spec.schedule or Schedule(name="constant" if exact else "cosine"),
        seed=spec.seed,
        stop_gap=spec.stop_gap,
        dtype=torch.float64 if double else torch.float32,
        autocast=spec.precision == "bf16",
        device=_device(spec.device, processes),
    )


def _optimizer(spec: TrainingSpec) -> Optimizer:
    """The optimizer with its rate."""
    chosen = spec.optimizer or Optimizer(name="lbfgs" if spec.exact else "adam")
    if chosen.lr is not None:
        return chosen
    adaptive = 0.1 if spec.encoder.name == "free" else 1e-3
    rates = {"sgd": 0.1, "adam": adaptive, "adamw": adaptive, "lbfgs": 1.0}
    return chosen.model_copy(update={"lr": rates[chosen.name]})


def _device(name: str, processes: Processes) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise InvalidInput(("device",), "this worker has no CUDA device")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name, processes.local_rank) if name == "cuda" else torch.device(name)
