"""How torch uses the machine during a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from worker.training.data import TrainingData
from worker.training.plan import Plan
from worker.training.processes import Processes

SMALL_TABLE = 2**20
"""Numbers up to which one thread is enough."""


@contextmanager
def deterministic(plan: Plan) -> Iterator[None]:
    """Let the same seed give the same numbers: scatters otherwise add in any order.

    Torch then also fills memory that it hands out, which costs several per cent and no operation here reads.
    """
    if plan.device.type == "cuda":  # what cuBLAS needs to add in a fixed order
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    before = torch.are_deterministic_algorithms_enabled()
    warned = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True, warn_only=plan.device.type == "cuda")
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]
        torch.use_deterministic_algorithms(before, warn_only=warned)


@contextmanager
def few_threads(data: TrainingData, plan: Plan, processes: Processes) -> Iterator[None]:
    """One thread for small tables of free features: they are too small to share; else this process's share.

    Threads that wait for each other cost a multiple of the work when other processes want the cores too.
    """
    before = torch.get_num_threads()
    numbers = len(data) * (len(data) if plan.weighted else plan.dimension)
    if data.x is None and numbers <= SMALL_TABLE:
        torch.set_num_threads(1)
    elif processes.size > 1:
        torch.set_num_threads(max(1, before // processes.size))
    try:
        yield
    finally:
        torch.set_num_threads(before)
