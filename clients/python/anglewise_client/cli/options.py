"""Options that several commands take."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer


class Sampling(StrEnum):
    supervised = "supervised"
    unsupervised = "unsupervised"


class LossName(StrEnum):
    infonce = "infonce"
    logistic = "logistic"
    exponential = "exponential"
    squared_hinge = "squared_hinge"
    triplet = "triplet"


class Reduction(StrEnum):
    sum = "sum"
    mean = "mean"


class Metric(StrEnum):
    cosine = "cosine"
    euclidean = "euclidean"


class SelfPairs(StrEnum):
    included = "included"
    excluded = "excluded"


class Meaning(StrEnum):
    auto = "auto"
    labels = "labels"
    counts = "counts"


def negatives(text: str) -> int | str:
    """A number of negatives, or "infinite"."""
    if text in ("infinite", "inf"):
        return "infinite"
    if not text.isdecimal() or int(text) < 1:
        raise typer.BadParameter("must be a positive number or 'infinite'")
    return int(text)


AsJson = Annotated[bool, typer.Option("--json", help="Print the whole answer as JSON.")]
PlotTo = Annotated[Path | None, typer.Option("--plot", help="Draw it to this file (.png, .svg, .pdf).")]
SaveTo = Annotated[Path | None, typer.Option("--save", help="Keep the answer in this file (.json, .npz).")]
CountsGiven = Annotated[
    list[str],
    typer.Argument(
        metavar="COUNTS|FILE|FOLDER",
        help="Samples of each class; or a .csv, .npy, .npz or text file of labels; or a folder of folders.",
    ),
]
Column = Annotated[str | None, typer.Option("--column", help="Column of a table, by name or number.")]
MeaningOf = Annotated[Meaning, typer.Option("--as", help="Whether a file holds labels or counts.")]
SamplingOf = Annotated[
    Sampling, typer.Option("--sampling", help="Negatives from other classes, or from all data.")
]
Loss = Annotated[LossName, typer.Option("--loss", help="Name of the loss.")]
Temperature = Annotated[float | None, typer.Option("--temperature", "-T", help="Default: 0.1.")]
Negatives = Annotated[
    Any,
    typer.Option("--negatives", "-k", parser=negatives, metavar="K", help="Default: 256; or 'infinite'."),
]
Alpha = Annotated[float | None, typer.Option("--alpha", help="Of InfoNCE; default: 1.")]
Beta = Annotated[float | None, typer.Option("--beta", help="Of InfoNCE; default: 1.")]
ReductionOf = Annotated[Reduction | None, typer.Option("--reduction", help="Over the negatives.")]
Margin = Annotated[float | None, typer.Option("--margin", help="Of logistic, squared_hinge and triplet.")]
Dimension = Annotated[int | None, typer.Option("--dimension", "-d", help="Default: as needed.")]
MetricOf = Annotated[Metric, typer.Option("--metric", help="Of the embedding.")]
SelfPairsOf = Annotated[SelfPairs, typer.Option("--self-pairs", help="Whether anchors meet themselves.")]


def loss_fields(
    name: LossName,
    temperature: float | None,
    negatives: int | str | None,
    alpha: float | None,
    beta: float | None,
    reduction: Reduction | None,
    margin: float | None,
) -> dict[str, Any]:
    """The loss as a request has it; fields of other losses are for the service to refuse."""
    fields = {
        "name": name.value,
        "temperature": temperature,
        "negatives": negatives,
        "alpha": alpha,
        "beta": beta,
        "reduction": None if reduction is None else reduction.value,
        "margin": margin,
    }
    return {field: value for field, value in fields.items() if value is not None}
