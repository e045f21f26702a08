"""Started by torch's launcher: takes part in the runs of `test_processes`.  ``shared_runs.py FOLDER``"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from memory_context import MemoryContext

from jobs.training_spec import TrainingSpec
from worker.training.context import Stopped
from worker.training.processes import Processes, joined, leave, of_torchrun
from worker.training.trainer import follow, train

CLOUDS = {"generator": {"classes": 4, "samples_per_class": 20, "dimension": 6}}
DIGITS = {"builtin": "digits", "class_counts": [13] * 10}
MLP = {"name": "mlp", "hidden": [16]}
COMMON = {"steps": 6, "evaluate_every": 2, "precision": "float64"}
RUNS: dict[str, dict[str, Any]] = {
    "drawn": {"data": CLOUDS, "encoder": MLP, "loss": {"temperature": 0.5, "negatives": 5}, "batch_size": 33},
    "supcon": {"data": CLOUDS, "encoder": MLP, "loss": {"name": "supcon"}, "batch_size": 21, "chunk_size": 4},
    "views": {
        "data": DIGITS,
        "encoder": {"name": "mlp", "hidden": [8]},
        "loss": {"temperature": 0.5, "negatives": "infinite"},
        "positives": "views",
        "accumulate": 2,
        "batch_size": 31,
    },
    "free": {"data": CLOUDS, "objective": "sampled", "loss": {"name": "supcon"}, "batch_size": 40},
    "convolutions": {
        "data": DIGITS,
        "encoder": {"name": "cnn", "channels": [2, 4], "head": [8]},
        "loss": {"temperature": 0.5, "negatives": 3},
        "batch_size": 40,
    },
}
STOP_AFTER = 3


def spec_of(name: str) -> TrainingSpec:
    return TrainingSpec.model_validate({**COMMON, **RUNS[name]})


def outcome(context: MemoryContext, summary: dict[str, Any]) -> dict[str, Any]:
    embeddings = np.frombuffer(context.artifacts["embeddings.npy"][0][128:], dtype=np.float64)
    return {"series": context.series, "embeddings": embeddings.tolist(), "processes": summary["processes"]}


def shared(spec: TrainingSpec, context: MemoryContext, processes: Processes) -> dict[str, Any] | None:
    """The outcome in the first process."""
    if not processes.first:
        follow(spec, context, processes)
        return None
    try:
        return outcome(context, train(spec, context, processes))
    except Stopped:
        return {"steps": context.checkpoint[0] if context.checkpoint else None}


def main(folder: Path) -> None:
    launched = of_torchrun()
    assert launched is not None
    with joined(launched) as processes:
        for name in RUNS:
            spec = spec_of(name)
            whole = shared(spec, MemoryContext(), processes)
            first = MemoryContext(stop_after=STOP_AFTER)
            stopped = shared(spec, first, processes)
            resumed = shared(spec, MemoryContext(checkpoint=first.checkpoint), processes)
            if processes.first:
                found = {"whole": whole, "stopped": stopped, "resumed": resumed}
                (folder / f"{name}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    leave(0)
