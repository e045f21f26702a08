"""P1: minority classes collapse into one point where the majority exceeds the exact threshold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anglewise import InfoNCE, collapse_threshold
from anglewise.sampling import Sampling
from examples.reproductions.experiment import Experiment, free, rows, worst
from examples.reproductions.presets import Preset
from examples.reproductions.running import Outcome, Training
from examples.reproductions.tables import Cell, Result

SAMPLES = 400
PAPER = 0.9
"""The majority's proportion at which the paper shows collapse."""
NEGATIVES: tuple[Any, ...] = (1, 16, "infinite")
SWEPT = 16
SAMPLINGS: tuple[Sampling, ...] = ("supervised", "unsupervised")
MERGED = 1e-4
"""Two measured class means with 1 - cosine below count as one."""
EXACT = 1e-3


def trainings(preset: Preset) -> list[Training]:
    """Free features: a grid around the exact threshold, and 0.9 with few and many negatives."""
    planned = []
    for sampling in SAMPLINGS:
        exact, step = threshold(sampling, SWEPT), preset.sweep_step
        middle = round(exact / step)
        around = range(middle - preset.sweep_around, middle + preset.sweep_around + 1)
        grid = [round(step * k, 6) for k in around if step * k < 0.999]
        wanted = [(SWEPT, share) for share in grid]
        wanted += [(k, PAPER) for k in NEGATIVES if (k, PAPER) not in wanted]
        for k, share in wanted:
            cells = (sampling, str(k), exact if k == SWEPT else threshold(sampling, k), share)
            planned += free(preset, cells, counts(share), loss(sampling, k), evaluate_every=500)
    return planned


def result(preset: Preset, outcomes: Sequence[Outcome]) -> Result:
    table = rows(outcomes, minorities)
    within = [_crossing(table, sampling, preset.sweep_step) for sampling in SAMPLINGS]
    largest = worst(outcomes)
    met = all(within) and largest < EXACT
    at_paper = [row for row in table if row[3] == PAPER]
    return Result(
        title="Minority collapse and its exact threshold [P1]",
        claim=f"with one majority, minorities merge into one point from a threshold of its proportion on; "
        f"shown at {PAPER}.",
        head=(
            "sampling",
            "negatives",
            "exact threshold",
            "majority's proportion",
            "seeds",
            "1 - cosine of the minorities, predicted",
            "measured",
        ),
        rows=table,
        finding=f"free features, two minorities beside one majority, temperature 1 (with infinitely many "
        f"negatives, their mean): the measured crossing (1 - cosine below {MERGED}) is "
        f"{'' if all(within) else 'NOT '}within one grid step ({preset.sweep_step}) of the exact threshold "
        f"for both samplings, and every cosine within {largest:.1e} of the certified optimum (met below "
        f"{EXACT}). At {PAPER} itself, {'; '.join(map(_said, at_paper))}.",
        holds=met,
    )


def threshold(sampling: Sampling, negatives: Any, classes: int = 3) -> float:
    """The majority's proportion from which on minorities are one point in the optimum."""
    infinite = negatives == "infinite"
    core = InfoNCE(
        negatives=float("inf") if infinite else negatives,
        temperature=1.0,
        reduction="mean" if infinite else "sum",
    )
    exact = collapse_threshold(classes, sampling=sampling, loss=core).exact_threshold
    assert exact is not None
    return exact


def loss(sampling: str, negatives: Any) -> dict[str, Any]:
    reduction = "mean" if negatives == "infinite" else "sum"
    return {
        "name": "infonce",
        "negatives": negatives,
        "temperature": 1.0,
        "sampling": sampling,
        "reduction": reduction,
    }


def counts(share: float, samples: int = SAMPLES) -> list[int]:
    """One majority of this proportion and two equal minorities."""
    minority = max(1, round((1 - share) * samples / 2))
    return [round(2 * minority * share / (1 - share)), minority, minority]


def minorities(outcome: Outcome) -> tuple[Cell, ...]:
    """1 - cosine of the two minorities, predicted and measured."""
    return float(max(0.0, 1 - outcome.predicted[1, 2])), float(max(0.0, 1 - outcome.measured[1, 2]))


def _crossing(table: Sequence[Sequence[Cell]], sampling: str, step: float) -> bool:
    """Whether measured minorities merge within one step of the threshold."""
    swept = [row for row in table if row[:2] == (sampling, str(SWEPT))]
    merged = [float(row[3]) for row in swept if float(row[6]) < MERGED]
    return bool(merged) and abs(min(merged) - float(swept[0][2])) <= step


def _said(row: Sequence[Cell]) -> str:
    apart = "are one point" if float(row[6]) < MERGED else f"stay apart, at cosine {1 - float(row[6]):.4f}"
    return f"{row[0]} with negatives {row[1]}: threshold {float(row[2]):.4f}, minorities {apart}"


EXPERIMENT = Experiment(trainings, result)
