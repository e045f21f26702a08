"""P2: X-CLR with similarities of label texts realizes cos z = 1 - r (1 - cos y), r = T/T_w, while it can."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from anglewise import Verdict, named_weighting, realizability
from examples.reproductions.experiment import Experiment, free, network, of_encoder, rows, worst
from examples.reproductions.presets import Preset
from examples.reproductions.running import Outcome, Training, off_diagonal
from examples.reproductions.tables import Cell, Result

FIXTURE = Path(__file__).parent.parent / "data" / "label_similarities.json"
TEMPERATURE = 0.1
RATIOS = (0.5, 1.0, 4.0)
EACH = 20
EXACT = 1e-3
CLOSE = 0.05
"""Cosines of a trained network this close to the prediction count as equal."""


def trainings(preset: Preset) -> list[Training]:
    """Ten classes whose names a sentence encoder compared; all samples in one batch."""
    classes = len(similarities())
    images = [max(2, preset.largest // 4)] * classes
    planned = []
    for ratio in RATIOS:
        cells, loss = (ratio, verdict(ratio).verdict), _loss(ratio)
        planned += free(preset, (*cells, "free", "exact"), [EACH] * classes, loss, dimension=12)
        for encoder, steps in _networks(preset, ratio):
            more = {"dimension": 12, "batch_size": sum(images), "steps": steps}
            planned += network(preset, (*cells, encoder, steps), encoder, images, loss, **more)
    return planned


def _networks(preset: Preset, ratio: float) -> list[tuple[str, int]]:
    """Encoders and their steps: ten classes need more of them than three."""
    if ratio < 1:
        return []
    mlp = [("mlp", preset.steps), ("mlp", preset.longer)]
    cnn = [("cnn", preset.longer), ("cnn", 2 * preset.longer)]
    return [*mlp, *cnn] if ratio == 1 else mlp


def result(preset: Preset, outcomes: Sequence[Outcome]) -> Result:
    exact, trained = (of_encoder(outcomes, networks=networks) for networks in (False, True))
    formula = max(_to_formula(outcome) for outcome in exact if _ratio(outcome) <= 1)
    longest = _longest(trained)
    far = worst([outcome for outcome in longest if _ratio(outcome) <= 1])
    near = max((_where_positive(outcome) for outcome in longest), default=0.0)
    met = formula < EXACT and worst(exact) < EXACT and far < CLOSE and near < CLOSE
    largest = verdict(1.0).largest_temperature
    assert isinstance(largest, float)
    return Result(
        title="X-CLR with similarities of label texts [P2]",
        claim="for r = T/T_w at most 1 the weights are realized by cos z = 1 - r (1 - cos y), with gap 0; "
        "for larger r only while the labels allow it.",
        head=(
            "r",
            "verdict",
            "encoder",
            "steps",
            "seeds",
            "largest difference to 1 - r (1 - cos y)",
            "to the certified best geometry",
            "where its cosines are positive",
            "entropic gap",
            "NC1",
        ),
        rows=rows(outcomes, _measured),
        finding=f"names of the ten digits: free features come within {formula:.1e} of the formula for r up "
        f"to 1. These similarities are realizable up to r = {largest / TEMPERATURE:.3f}; for "
        f"r = {RATIOS[-1]:g} the formula asks for cosines below -1, and training finds the certified best "
        f"geometry instead, within {worst(exact):.1e}. {_of_networks(preset, longest)}",
        holds=met,
    )


def similarities() -> npt.NDArray[np.float64]:
    """(10, 10) cosines between the names of the digits."""
    return np.array(json.loads(FIXTURE.read_text(encoding="utf-8"))["digits"]["cosines"])


@cache
def verdict(ratio: float) -> Verdict:
    """Whether the weights of this r are realizable."""
    similar = similarities()
    fields = {"targets": vectors(similar), "label_temperature": TEMPERATURE / ratio}
    weights = named_weighting("x_clr", class_counts=[1] * len(similar), **fields)
    return realizability(weights, metric="cosine", temperature=TEMPERATURE, self_pairs="included")


def vectors(gram: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Unit vectors with these inner products."""
    values, columns = np.linalg.eigh(gram)
    found = columns * np.sqrt(np.maximum(values, 0.0))
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


def _loss(ratio: float) -> dict[str, Any]:
    return {
        "name": "x_clr",
        "temperature": TEMPERATURE,
        "label_temperature": TEMPERATURE / ratio,
        "targets": vectors(similarities()).tolist(),
        "self_pairs": "included",
    }


def _ratio(outcome: Outcome) -> float:
    return float(outcome.training.cells[0])


def _longest(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """With most steps of each ratio and encoder, from the seed that is furthest from the prediction."""
    most = {outcome.training.cells[:3]: outcome.training.cells for outcome in outcomes}  # steps grow
    of_most = [outcome for outcome in outcomes if outcome.training.cells in most.values()]
    found = {outcome.training.cells: outcome for outcome in sorted(of_most, key=lambda each: each.difference)}
    return [found[cells] for cells in most.values()]


def _where_positive(outcome: Outcome) -> float:
    """Largest difference to the certified geometry where its cosines are positive."""
    predicted = off_diagonal(outcome.predicted)
    differences = np.abs(off_diagonal(outcome.measured) - predicted)
    return float(differences[predicted > 0].max(initial=0.0))


def _to_formula(outcome: Outcome) -> float:
    expected = 1 - _ratio(outcome) * (1 - similarities())
    return float(np.abs(off_diagonal(outcome.measured) - off_diagonal(expected)).max())


def _measured(outcome: Outcome) -> tuple[Cell, ...]:
    gap, nc1 = outcome.metric("entropic_gap"), outcome.metric("nc1")
    return _to_formula(outcome), outcome.difference, _where_positive(outcome), gap, nc1


def _of_networks(preset: Preset, longest: Sequence[Outcome]) -> str:
    """What networks reached with the most steps, and why not where they did not."""
    told = [f"Networks on images of {preset.images}:"]
    for outcome in longest:
        r, _, encoder, steps = outcome.training.cells
        met = "within" if outcome.difference < CLOSE else "NOT within"
        told.append(
            f"{encoder} at r = {r:g} after {steps} steps {met} {CLOSE} of the certified geometry "
            f"({outcome.difference:.1e}; {_where_positive(outcome):.1e} where its cosines are positive);"
        )
    if worst(longest) >= CLOSE:
        told.append(
            "where not, the loss hardly sees what differs: a pair weighs exp((cos - 1)/T) in it, less than "
            f"{np.exp(-1 / TEMPERATURE):.0e} where cosines are negative;"
        )
    return " ".join(told).rstrip(";") + "."


EXPERIMENT = Experiment(trainings, result)
