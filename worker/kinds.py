"""What a job does, by the kind of job. Nothing heavy is loaded before the first job needs it."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from anglewise.errors import TooLarge
from jobs.computations.computation import Outcome
from jobs.computations.encoding import encode
from jobs.computations.limits import Limits
from jobs.computations.parsing import parse
from jobs.computations.registry import COMPUTATIONS
from jobs.store import temporary_files
from jobs.training_spec import TrainingSpec
from worker.context import JobContext

TRAINING = "training"
MORE_KINDS = "ANGLEWISE_JOB_KINDS"
"""Environment variable: a module whose ``KINDS`` are offered too. Tests bring kinds that misbehave."""

RESULT = "result.json"
ARCHIVE = "result.npz"
PICTURE = "picture.png"


@dataclass(frozen=True)
class Kind:
    """One kind of job.

    Attributes:
        run: does the job: its spec, its context, and what it may cost.
        cooperative: whether it ends by itself when it is told to stop; others are killed at once.
        reusable: whether the process may do another job afterwards; one that took a device may not.
    """

    run: Callable[[bytes, JobContext, Limits], None]
    cooperative: bool = False
    reusable: bool = True


class UnknownKind(LookupError):
    """No worker of this version can do such a job."""


def find_kind(name: str) -> Kind:
    """
    Raises:
        UnknownKind
    """
    if name == TRAINING:
        return Kind(_train, cooperative=True, reusable=False)
    if name in COMPUTATIONS:
        return Kind(lambda spec, context, limits: _compute(name, spec, context, limits))
    kind = _more_kinds().get(name)
    if kind is None:
        raise UnknownKind(f"{name!r} is no kind of job here")
    return kind


def _more_kinds() -> Mapping[str, Kind]:
    module = os.environ.get(MORE_KINDS)
    kinds: Mapping[str, Kind] = importlib.import_module(module).KINDS if module else {}
    return kinds


def _train(spec: bytes, context: JobContext, limits: Limits) -> None:
    from worker.companions import shared_by_processes
    from worker.training.trainer import train

    parsed = parse(spec, TrainingSpec)
    with shared_by_processes(parsed, context.store_url) as processes:
        summary = train(parsed, context, processes)
    context.artifact(RESULT, encode(summary), "application/json")


def _compute(name: str, spec: bytes, context: JobContext, limits: Limits) -> None:
    """The answer is stored exactly as it would have been sent."""
    computation = COMPUTATIONS[name]

    def run() -> Outcome:
        with temporary_files():
            return computation.run(computation.parse(spec, limits), limits)

    outcome = context.patiently(run)
    context.artifact(RESULT, encode(outcome.document()), "application/json")
    if outcome.picture:
        context.artifact(PICTURE, outcome.picture, "image/png")
    _store_archive(outcome, context)


def _store_archive(outcome: Outcome, context: JobContext) -> None:
    write = outcome.archive
    if write is None:
        return

    def store() -> None:
        with temporary_files(), tempfile.TemporaryFile() as file:
            write(file)
            context.artifact_file(ARCHIVE, file, "application/x-npz")

    try:
        context.patiently(store)
    except TooLarge as error:
        context.event(f"there is no archive of the result: {error}")
