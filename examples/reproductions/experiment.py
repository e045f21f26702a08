"""An experiment: trainings that a preset asks for, and what their outcomes say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from examples.reproductions.presets import Preset
from examples.reproductions.running import DATASET, Array, Outcome, Training, run, seeded
from examples.reproductions.tables import Cell, Result
from jobs.datasets.builtin import load_builtin


@dataclass(frozen=True)
class Experiment:
    """
    Attributes:
        trainings: in order of the rows.
        result: of their outcomes, in the same order.
    """

    trainings: Callable[[Preset], list[Training]]
    result: Callable[[Preset, Sequence[Outcome]], Result]

    def __call__(self, preset: Preset) -> Result:
        return self.result(preset, run(self.trainings(preset), preset.processes))


def free(
    preset: Preset,
    cells: tuple[str | float, ...],
    counts: Sequence[int],
    loss: Mapping[str, Any],
    **more: Any,
) -> list[Training]:
    """Free features under the exact loss of all samples."""
    spec = {"data": {"class_counts": list(counts)}, "loss": dict(loss), **more}
    return seeded(Training(cells, spec), preset.seeds)


def network(
    preset: Preset,
    cells: tuple[str | float, ...],
    encoder: str,
    counts: Sequence[int],
    loss: Mapping[str, Any],
    **more: Any,
) -> list[Training]:
    """A network on images of the first classes of the preset's data set, ``counts[c]`` of class c."""
    spec = {
        "data": {"dataset": DATASET, "class_counts": list(counts)},
        "encoder": dict(preset.encoders[encoder]),
        "loss": dict(loss),
        "optimizer": {"name": "adam", "lr": 1e-3},
        "steps": preset.steps,
        "batch_size": preset.batch_size,
        "precision": preset.precision,
    }
    images = first_classes(preset.images, len(counts))
    return seeded(Training(cells, {**spec, **more}, images), preset.network_seeds)


@cache
def first_classes(name: str, classes: int) -> tuple[Array, Array]:
    """Images and labels of the first classes of a built-in data set."""
    x, y = load_builtin(name)
    return x[y < classes], y[y < classes]


def shares(largest: int, parts: Sequence[float]) -> list[int]:
    """Class sizes with these ratios, the largest given; at least two of each class."""
    return [max(2, round(largest * part / max(parts))) for part in parts]


def rows(
    outcomes: Sequence[Outcome], measured: Callable[[Outcome], tuple[Cell, ...]]
) -> list[tuple[Cell, ...]]:
    """A row for all trainings with the same first cells: these, the seeds, and what was measured with the
    seed furthest from the prediction."""
    found = []
    for group in of_seeds(outcomes):
        furthest = max(group, key=lambda outcome: outcome.difference)
        found.append((*furthest.training.cells, _seeds(group), *measured(furthest)))
    return found


def of_seeds(outcomes: Sequence[Outcome]) -> list[list[Outcome]]:
    """Those that differ only in their seed together."""
    groups: dict[tuple[str | float, ...], list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.training.cells, []).append(outcome)
    return list(groups.values())


def _seeds(group: Sequence[Outcome]) -> str:
    return ", ".join(str(outcome.training.spec["seed"]) for outcome in group)


def of_encoder(outcomes: Sequence[Outcome], *, networks: bool) -> list[Outcome]:
    """Those of networks, or those of free features."""
    return [outcome for outcome in outcomes if ("encoder" in outcome.training.spec) == networks]


def worst(outcomes: Sequence[Outcome]) -> float:
    """Largest difference of a cosine to its prediction; 0 without outcomes."""
    return max((outcome.difference for outcome in outcomes), default=0.0)
