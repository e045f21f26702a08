"""P1: with sampled negatives, free features approach the optimum of the exact risk as steps go by."""

from __future__ import annotations

from collections.abc import Sequence

from examples.reproductions.experiment import Experiment, of_seeds, rows
from examples.reproductions.presets import Preset
from examples.reproductions.running import Outcome, Training, seeded
from examples.reproductions.tables import Result

COUNTS = [200, 100, 50]
LOSS = {"name": "infonce", "negatives": 16, "temperature": 0.5}
FALL = 100
"""The claim is met if the risk gap falls by this factor from the fewest steps to the most."""
SAMPLINGS = ("supervised", "unsupervised")


def trainings(preset: Preset) -> list[Training]:
    """All samples in one batch, new negatives in each step, a rate that falls to zero."""
    planned = []
    for sampling in SAMPLINGS:
        for steps in preset.sampled_steps:
            spec = {"data": {"class_counts": COUNTS}, "loss": {**LOSS, "sampling": sampling}}
            spec |= {"objective": "sampled", "batch_size": sum(COUNTS), "steps": steps}
            planned += seeded(Training((sampling, steps), {**spec, "evaluate_every": steps}), preset.seeds)
    return planned


def result(preset: Preset, outcomes: Sequence[Outcome]) -> Result:
    gaps = {
        group[0].training.cells: max(outcome.metric("risk_gap") for outcome in group)
        for group in of_seeds(outcomes)
    }
    few, many = preset.sampled_steps[0], preset.sampled_steps[-1]
    falls = [
        f"from {gaps[sampling, few]:.1e} to {gaps[sampling, many]:.1e} ({sampling})" for sampling in SAMPLINGS
    ]
    met = all(gaps[sampling, many] < gaps[sampling, few] / FALL for sampling in SAMPLINGS)
    return Result(
        title="Sampled negatives approach the exact optimum [P1]",
        claim="the optimum of the expected risk is what training with sampled negatives converges to.",
        head=("sampling", "steps", "seeds", "largest difference of a cosine", "risk gap"),
        rows=rows(outcomes, lambda outcome: (outcome.difference, outcome.metric("risk_gap"))),
        finding=f"counts {COUNTS}: the largest risk gap of the seeds falls {' and '.join(falls)}"
        f"{'' if met else f', NOT by the factor {FALL} that would meet the claim'}; what is left is the "
        "noise of the draws.",
        holds=met,
    )


EXPERIMENT = Experiment(trainings, result)
