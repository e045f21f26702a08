"""P2: SupCon bends under imbalance; Soft SupCon with the right epsilon is the simplex for any class sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence

from examples.reproductions.experiment import Experiment, free, network, of_encoder, rows, shares, worst
from examples.reproductions.presets import Preset
from examples.reproductions.running import Outcome, Training, off_diagonal
from examples.reproductions.tables import Cell, Result

COUNTS = [300, 120, 50, 20]
TEMPERATURE = 0.5
EPSILON = math.exp(-len(COUNTS) / ((len(COUNTS) - 1) * TEMPERATURE))
LOSSES = ({"name": "supcon"}, {"name": "soft_supcon", "epsilon": EPSILON})
BENT, EQUAL = 0.05, 1e-3
"""The claim is met if SupCon's cosines spread more than the first, those of Soft SupCon less than the second.

Only free features are held to these."""
CLOSE = 0.05
"""Cosines of a trained network this close to the prediction count as equal."""


def trainings(preset: Preset) -> list[Training]:
    """Free features and networks on real images, all samples in one batch."""
    images = shares(preset.largest, COUNTS)
    planned = []
    for named in LOSSES:
        name = str(named["name"])
        loss = {**named, "temperature": TEMPERATURE, "self_pairs": "included"}
        planned += free(preset, (name, "free"), COUNTS, loss)
        for encoder in ("mlp", "cnn"):
            planned += network(preset, (name, encoder), encoder, images, loss, batch_size=sum(images))
    return planned


def result(preset: Preset, outcomes: Sequence[Outcome]) -> Result:
    exact = of_encoder(outcomes, networks=False)
    bent = min(_spread(outcome) for outcome in exact if outcome.training.cells[0] == "supcon")
    equal = max(_spread(outcome) for outcome in exact if outcome.training.cells[0] == "soft_supcon")
    far = worst(of_encoder(outcomes, networks=True))
    met = bent > BENT and equal < EQUAL and far < CLOSE
    return Result(
        title="SupCon and Soft SupCon under imbalance [P2]",
        claim="SupCon's optimum depends on the class sizes; Soft SupCon with ε = exp(-C/((C-1)T)) is "
        "realized by the simplex for any sizes, with entropic gap 0.",
        head=(
            "loss",
            "encoder",
            "seeds",
            "smallest cosine",
            "largest cosine",
            "predicted",
            "largest difference",
            "entropic gap",
        ),
        rows=rows(outcomes, _measured),
        finding=f"free features, counts {COUNTS}, temperature {TEMPERATURE}: cosines of SupCon spread over "
        f"{bent:.3f}, those of Soft SupCon over {equal:.1e} around -1/{len(COUNTS) - 1}. Networks on "
        f"{', '.join(map(str, shares(preset.largest, COUNTS)))} images of {preset.images} come within "
        f"{far:.1e} of the optimum{'' if far < CLOSE else f', NOT within {CLOSE}'}.",
        holds=met,
    )


def _spread(outcome: Outcome) -> float:
    cosines = off_diagonal(outcome.measured)
    return float(cosines.max() - cosines.min())


def _measured(outcome: Outcome) -> tuple[Cell, ...]:
    measured, predicted = off_diagonal(outcome.measured), off_diagonal(outcome.predicted)
    return (
        float(measured.min()),
        float(measured.max()),
        f"{predicted.min():.4f} … {predicted.max():.4f}",
        outcome.difference,
        outcome.metric("entropic_gap"),
    )


EXPERIMENT = Experiment(trainings, result)
