"""``python -m worker.training SPEC FOLDER [--data FILE]``: one training, without a service.

Started by torch's launcher (``torchrun --nproc-per-node 2 -m worker.training …``) its processes, on one
machine or several, share the run. Started again with the same folder it goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from anglewise.errors import InvalidInput
from jobs.computations.encoding import encode
from jobs.computations.parsing import parse_json, validate
from jobs.problems import Problem, pointer
from jobs.training_spec import TrainingSpec
from worker.training.context import Stopped, TrainingError
from worker.training.folder import FolderContext
from worker.training.processes import ALONE, PeerLost, Processes, joined, leave, of_torchrun
from worker.training.samples_file import read_samples
from worker.training.trainer import follow, train

STOPPED = 75
"""The exit status after a signal: there is more to do."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m worker.training", description=__doc__)
    parser.add_argument(
        "spec", type=Path, metavar="SPEC", help="JSON file: the spec of a job of kind training"
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="for the result, made if it is not there")
    parser.add_argument("--data", type=Path, metavar="FILE", help="samples x and labels y: .npz, or a table")
    options = parser.parse_args(arguments)
    launched = of_torchrun()
    try:
        name, samples = (None, None) if options.data is None else read_samples(options.data)
        spec = _spec(options.spec, name, launched or ALONE)
        with nullcontext(ALONE) if launched is None else joined(launched) as processes:
            context = FolderContext(options.folder, samples)
            with context.held_for(spec) if processes.first else nullcontext():
                return _train(spec, context, options.folder, processes)
    except (OSError, Problem, InvalidInput, TrainingError, PeerLost) as error:
        print(_words(error), file=sys.stderr)
        return 2


def _train(spec: TrainingSpec, context: FolderContext, folder: Path, processes: Processes) -> int:
    def stop(number: int, frame: Any) -> None:
        context.stopping = "shutdown"

    signal.signal(signal.SIGTERM, stop)  # the first process then tells the others
    signal.signal(signal.SIGINT, stop)
    if not processes.first:
        follow(spec, context, processes)
        return 0
    try:
        summary = train(spec, context, processes)
    except Stopped:
        print(f"stopped; the same command goes on from {folder / 'resume.safetensors'}", file=sys.stderr)
        return STOPPED
    context.artifact("result.json", encode(summary), "application/json")
    print(summary["verdict"], *summary["reasons"], sep="\n")
    return 0


def _spec(path: Path, samples: str | None, processes: Processes) -> TrainingSpec:
    document = parse_json(path.read_bytes())
    if (
        samples is not None
        and isinstance(document, dict)
        and isinstance(document.setdefault("data", {}), dict)
    ):
        document["data"]["dataset"] = samples
    spec = validate(document, TrainingSpec)
    if spec.data.dataset is not None and samples is None:
        raise InvalidInput(("data", "dataset"), "a run without a service reads its samples from --data")
    wanted = spec.processes or processes.size
    spec = spec.model_copy(update={"processes": processes.size})
    if wanted != processes.size:
        raise InvalidInput(("processes",), f"torch's launcher started {processes.size}")
    spec.check()
    return spec


def _words(error: Exception) -> str:
    if isinstance(error, InvalidInput):
        return f"{pointer(error.field) or 'the spec'}: {error.message}"
    if isinstance(error, Problem):
        return "; ".join(f"{where or 'the spec'}: {what}" for where, what in error.errors) or error.detail
    return str(error)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
