"""P1: the measured Gram matrix of three imbalanced classes is the certified optimum."""

from __future__ import annotations

from collections.abc import Sequence

from examples.reproductions.experiment import Experiment, free, network, of_encoder, rows, shares, worst
from examples.reproductions.presets import Preset
from examples.reproductions.running import Outcome, Training, off_diagonal
from examples.reproductions.tables import Cell, Result

MILD = [5, 3, 2]
LOSS = {"name": "infonce", "negatives": 16, "temperature": 0.5}
EXACT = 1e-3
CLOSE = 0.05
"""Cosines of a trained network this close to the prediction count as equal."""


def trainings(preset: Preset) -> list[Training]:
    """Free features under the exact risk; networks on real images with sampled negatives."""
    planned = []
    for sampling in ("supervised", "unsupervised"):
        loss = {**LOSS, "sampling": sampling}
        planned += free(preset, ("free", sampling), shares(500, MILD), loss)
        for encoder in ("mlp", "resnet18"):
            counts = shares(preset.largest, MILD)
            planned += network(preset, (encoder, sampling), encoder, counts, loss)
    return planned


def result(preset: Preset, outcomes: Sequence[Outcome]) -> Result:
    exact, trained = (worst(of_encoder(outcomes, networks=networks)) for networks in (False, True))
    met = exact < EXACT and trained < CLOSE
    return Result(
        title="Three classes, mild imbalance [P1]",
        claim="class means converge to the unique optimal Gram matrix; features of a class become one point.",
        head=(
            "encoder",
            "sampling",
            "seeds",
            "measured cosines",
            "optimal cosines",
            "largest difference",
            "NC1",
        ),
        rows=rows(outcomes, _measured),
        finding=f"free features (500, 300 and 200 samples) reach the optimum to {exact:.1e} in every cosine; "
        f"networks on {', '.join(map(str, shares(preset.largest, MILD)))} images of {preset.images}, "
        f"with sampled negatives, to {trained:.1e}: the claim is "
        f"{'' if met else 'NOT '}met (below {EXACT} and {CLOSE}).",
        holds=met,
    )


def _measured(outcome: Outcome) -> tuple[Cell, ...]:
    measured, optimal = (
        ", ".join(f"{value:.3f}" for value in off_diagonal(gram))
        for gram in (outcome.measured, outcome.predicted)
    )
    return measured, optimal, outcome.difference, outcome.metric("nc1")


EXPERIMENT = Experiment(trainings, result)
