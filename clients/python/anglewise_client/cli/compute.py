"""Commands for the computations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.table import Table

from anglewise_client.cli import options as opt
from anglewise_client.cli.counts import BadCounts, Counted, read_counts
from anglewise_client.cli.matrices import read_embeddings, read_matrix
from anglewise_client.cli.session import MAX_ROWS, Session, Wanted, facts_table, rows_table
from anglewise_client.diagnosis import Diagnosis
from anglewise_client.geometry import Geometry
from anglewise_client.thresholds import CollapseMap

WeightsFile = Annotated[Path, typer.Argument(metavar="MATRIX", help="n × n numbers: .npy, or text.")]
AXES = ("majority_proportion", "negatives", "temperature", "alpha", "classes")


def geometry(
    ctx: typer.Context,
    counts: opt.CountsGiven,
    column: opt.Column = None,
    meaning: opt.MeaningOf = opt.Meaning.auto,
    sampling: opt.SamplingOf = opt.Sampling.supervised,
    loss: opt.Loss = opt.LossName.infonce,
    temperature: opt.Temperature = None,
    negatives: opt.Negatives = None,
    alpha: opt.Alpha = None,
    beta: opt.Beta = None,
    reduction: opt.ReductionOf = None,
    margin: opt.Margin = None,
    dimension: opt.Dimension = None,
    nonnegative: Annotated[bool, typer.Option("--nonnegative", help="Features after a ReLU.")] = False,
    as_json: opt.AsJson = False,
    plot: opt.PlotTo = None,
    save: opt.SaveTo = None,
) -> None:
    """The angles between classes that a loss converges to, with a proof."""
    wanted, session = Wanted(as_json, plot, save), _session(ctx)
    counted = count(session, counts, column, meaning)
    fields = opt.loss_fields(loss, temperature, negatives, alpha, beta, reduction, margin)
    with session.client() as client:
        answer = client.optimal_geometry(
            class_counts=list(counted.counts),
            sampling=sampling.value,
            loss=fields,
            dimension=dimension,
            nonnegative=nonnegative or None,
        )
    for warning in answer.warnings:
        session.note(f"warning: {warning}")
    wanted.deliver(session, answer, _class_table(answer, counted), facts_table(answer))


def threshold(
    ctx: typer.Context,
    classes: Annotated[int, typer.Argument(help="One majority and CLASSES - 1 equal minorities.")],
    sampling: opt.SamplingOf = opt.Sampling.supervised,
    loss: opt.Loss = opt.LossName.infonce,
    temperature: opt.Temperature = None,
    negatives: opt.Negatives = None,
    alpha: opt.Alpha = None,
    beta: opt.Beta = None,
    reduction: opt.ReductionOf = None,
    margin: opt.Margin = None,
    as_json: opt.AsJson = False,
    save: opt.SaveTo = None,
) -> None:
    """The majority proportion from which on equal minorities merge into one point."""
    wanted, session = Wanted(as_json, None, save), _session(ctx)
    fields = opt.loss_fields(loss, temperature, negatives, alpha, beta, reduction, margin)
    with session.client() as client:
        answer = client.collapse_threshold(classes=classes, sampling=sampling.value, loss=fields)
    wanted.deliver(session, answer, facts_table(answer))


def collapse_map(
    ctx: typer.Context,
    x: Annotated[str, typer.Option("--x", metavar="NAME=VALUES", help="temperature=0.1,0.5,1 or 0.1:1:10")],
    y: Annotated[str, typer.Option("--y", metavar="NAME=VALUES", help="One of " + ", ".join(AXES) + ".")],
    classes: Annotated[int | None, typer.Option("--classes", "-C")] = None,
    majority_proportion: Annotated[float | None, typer.Option("--majority-proportion")] = None,
    quantity: Annotated[
        str, typer.Option(help="largest_cosine, exact_threshold or smallest_angle_degrees")
    ] = "largest_cosine",
    sampling: opt.SamplingOf = opt.Sampling.supervised,
    loss: opt.Loss = opt.LossName.infonce,
    temperature: opt.Temperature = None,
    negatives: opt.Negatives = None,
    alpha: opt.Alpha = None,
    reduction: opt.ReductionOf = None,
    as_json: opt.AsJson = False,
    plot: opt.PlotTo = None,
    save: opt.SaveTo = None,
) -> None:
    """How collapse depends on two parameters."""
    wanted, session = Wanted(as_json, plot, save), _session(ctx)
    fields = opt.loss_fields(loss, temperature, negatives, alpha, None, reduction, None)
    request: dict[str, Any] = {"x": axis(x), "y": axis(y), "quantity": quantity, "classes": classes}
    with session.client() as client:
        answer = client.collapse_map(
            **request, majority_proportion=majority_proportion, sampling=sampling.value, loss=fields
        )
    wanted.deliver(session, answer, _map_table(answer))


def realizability(
    ctx: typer.Context,
    matrix: WeightsFile,
    log: Annotated[bool, typer.Option("--log", help="The numbers are logarithms of weights.")] = False,
    metric: opt.MetricOf = opt.Metric.cosine,
    temperature: opt.Temperature = None,
    self_pairs: opt.SelfPairsOf = opt.SelfPairs.included,
    dimension: opt.Dimension = None,
    best: Annotated[bool, typer.Option("--best", help="Also the best geometry there is.")] = False,
    as_json: opt.AsJson = False,
    plot: opt.PlotTo = None,
    save: opt.SaveTo = None,
) -> None:
    """Whether any embedding can have these similarity weights, with a proof either way."""
    wanted, session = Wanted(as_json, plot, save), _session(ctx)
    values = read_matrix(matrix)
    arguments: dict[str, Any] = {"log_weights" if log else "weights": values, "temperature": temperature}
    arguments |= {"metric": metric.value, "self_pairs": self_pairs.value, "dimension": dimension}
    with session.client() as client:
        if best:
            found = client.best_geometry(**arguments)
            wanted.deliver(session, found, facts_table(found))
            return
        answer = client.realizability(**arguments)
    wanted.deliver(session, answer, facts_table(answer))


def weights(
    ctx: typer.Context,
    counts: Annotated[
        list[str] | None, typer.Argument(metavar="COUNTS|FILE|FOLDER", help="Classes of a simplex.")
    ] = None,
    gram: Annotated[Path | None, typer.Option("--gram", help="Or any n × n inner products.")] = None,
    distances: Annotated[Path | None, typer.Option("--squared-distances", help="Or these.")] = None,
    column: opt.Column = None,
    meaning: opt.MeaningOf = opt.Meaning.auto,
    metric: opt.MetricOf = opt.Metric.cosine,
    temperature: opt.Temperature = None,
    self_pairs: opt.SelfPairsOf = opt.SelfPairs.included,
    as_json: opt.AsJson = False,
    plot: opt.PlotTo = None,
    save: opt.SaveTo = None,
) -> None:
    """The weights whose optimum is the geometry you want: a simplex over classes, or any other."""
    wanted, session = Wanted(as_json, plot, save), _session(ctx)
    if sum(map(bool, (counts, gram, distances))) != 1:
        raise typer.BadParameter("give class counts, --gram or --squared-distances")
    counted = count(session, counts, column, meaning) if counts else None
    with session.client() as client:
        answer = client.weights(
            gram=read_matrix(gram) if gram else None,
            squared_distances=read_matrix(distances) if distances else None,
            simplex_class_counts=None if counted is None else list(counted.counts),
            metric=metric.value,
            temperature=temperature,
            self_pairs=self_pairs.value,
        )
    wanted.deliver(session, answer, facts_table(answer))


def diagnose(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(help=".npz with embeddings and labels; or .npy with --labels.")],
    labels: Annotated[Path | None, typer.Option("--labels", help="File of labels.")] = None,
    prediction: Annotated[
        str | None, typer.Option("--prediction", help="JSON body of /optimal-geometry without counts.")
    ] = None,
    sampling: opt.SamplingOf = opt.Sampling.supervised,
    loss: opt.Loss = opt.LossName.infonce,
    temperature: opt.Temperature = None,
    negatives: opt.Negatives = None,
    alpha: opt.Alpha = None,
    measure_only: Annotated[bool, typer.Option("--measure-only", help="Predict nothing.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Do not divide embeddings by their norm.")] = False,
    as_json: opt.AsJson = False,
    plot: opt.PlotTo = None,
    save: opt.SaveTo = None,
) -> None:
    """How far trained embeddings are from the optimum for their class counts."""
    wanted, session = Wanted(as_json, plot, save), _session(ctx)
    fields = opt.loss_fields(loss, temperature, negatives, alpha, None, None, None)
    predicted: Any = {"sampling": sampling.value, "loss": fields}
    if prediction is not None:
        predicted = parse_object(prediction, "--prediction")
    embeddings, found = read_embeddings(file, labels)
    with session.client() as client:
        answer = client.diagnose(
            embeddings=embeddings,
            labels=found,
            prediction=None if measure_only else predicted,
            normalize=False if raw else None,
        )
    for warning in answer.warnings:
        session.note(f"warning: {warning}")
    wanted.deliver(session, answer, _report_table(answer), facts_table(answer))


def count(session: Session, given: list[str], column: str | None, meaning: opt.Meaning) -> Counted:
    """Class counts from arguments; says what was read from files."""
    try:
        counted = read_counts(given, column, meaning.value)
    except BadCounts as error:
        raise typer.BadParameter(str(error)) from None
    if counted.source != "the arguments":
        session.note(f"read {counted.source}")
    return counted


def axis(text: str) -> dict[str, Any]:
    """An axis of a map.

    >>> axis("negatives=1,infinite")
    {'name': 'negatives', 'values': [1, 'infinite']}
    >>> axis("temperature=0.1:0.3:3")["values"][0]
    0.1
    """
    name, _, values = text.partition("=")
    if name not in AXES or not values:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUES with a name among {', '.join(AXES)}")
    try:
        if ":" in values:
            start, stop, steps = values.split(":")
            numbers: list[Any] = np.linspace(float(start), float(stop), int(steps)).tolist()
        else:
            words = values.split(",")
            numbers = ["infinite" if word in ("infinite", "inf") else float(word) for word in words]
    except ValueError:
        raise typer.BadParameter(f"{values!r} is neither a list a,b,c nor a range start:stop:steps") from None
    # Numbers of classes and of negatives have to be integers.
    return {"name": name, "values": [int(v) if v != "infinite" and v == int(v) else v for v in numbers]}


def parse_object(text: str, option: str) -> dict[str, Any]:
    """A JSON object from an option, or from a file named with @."""
    try:
        given = Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text
        document = json.loads(given)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"not JSON: {error}", param_hint=option) from None
    if not isinstance(document, dict):
        raise typer.BadParameter("must be a JSON object", param_hint=option)
    return document


def _session(ctx: typer.Context) -> Session:
    assert isinstance(ctx.obj, Session)
    return ctx.obj


def _class_table(answer: Geometry, counted: Counted) -> Table:
    shown = answer.cosine_rows(0, MAX_ROWS).copy()
    np.fill_diagonal(shown, -np.inf)
    nearest = shown.argmax(axis=1)
    largest = np.clip(shown.max(axis=1), -1.0, 1.0)
    rows = [
        (str(label), str(n), str(counted.labels[j]), f"{c:.4f}", f"{np.degrees(np.arccos(c)):.2f}")
        for label, n, j, c in zip(counted.labels, counted.counts, nearest, largest, strict=False)
    ]
    header = ["class", "samples", "nearest class", "cosine", "degrees"]
    return rows_table(header, rows, left_out=answer.classes - len(rows))


def _map_table(answer: CollapseMap) -> Table:
    header = [f"{answer.y.name} \\ {answer.x.name}", *(str(value) for value in answer.x.values)]
    rows = [
        [str(value), *(f"{cell:.5g}" for cell in row)]
        for value, row in zip(answer.y.values, answer.values, strict=True)
    ]
    return rows_table(header, rows, title=answer.quantity.replace("_", " "))


def _report_table(answer: Diagnosis) -> Table:
    rows = [
        [
            *(str(c.label), str(c.count), c.norm, c.within_variance),
            *(c.cosine_to_predicted, str(c.nearest), c.nearest_cosine),
        ]
        for c in answer.classes
    ]
    header = ["class", "samples", "norm", "variance", "to predicted", "nearest", "cosine"]
    return rows_table(header, rows)
