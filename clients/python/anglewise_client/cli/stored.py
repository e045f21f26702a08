"""Commands for jobs and data sets."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from anglewise_client.cli import options as opt
from anglewise_client.cli.compute import _session, parse_object
from anglewise_client.cli.session import Session, Wanted, facts_table, print_json, rows_table
from anglewise_client.job_models import JobRecord
from anglewise_client.jobs import Job

jobs = typer.Typer(no_args_is_help=True, help="Long computations and trainings.")
datasets = typer.Typer(no_args_is_help=True, help="Data that the service keeps for trainings.")

JobId = Annotated[str, typer.Argument(metavar="JOB", help="Id of the job.")]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it has ended, with a progress bar.")]
Timeout = Annotated[float | None, typer.Option("--timeout", help="Seconds to wait at most.")]
Name = Annotated[str | None, typer.Option("--name", help="For people.")]
Key = Annotated[str | None, typer.Option("--idempotency-key", help="Submitting twice gives one job.")]


@jobs.command("submit")
def submit(
    ctx: typer.Context,
    kind: Annotated[str, typer.Argument(help="training, optimal_geometry, realizability, …")],
    spec: Annotated[str, typer.Argument(help="JSON, or @FILE.")],
    name: Name = None,
    key: Key = None,
    wait: Wait = False,
    timeout: Timeout = None,
    as_json: opt.AsJson = False,
) -> None:
    """Start any job from its JSON."""
    session = _session(ctx)
    with session.client() as client:
        body = parse_object(spec, "SPEC")
        job = client.jobs.submit(kind=kind, spec=body, name=name, idempotency_key=key)
        _follow(session, job, wait, timeout, as_json)


@jobs.command("train")
def train(
    ctx: typer.Context,
    data: Annotated[str | None, typer.Option("--data", help="digits, mnist5k, or ds_…")] = None,
    counts: Annotated[str | None, typer.Option("--class-counts", help="500,50,5: samples to keep.")] = None,
    encoder: Annotated[
        str | None, typer.Option("--encoder", help="free, linear, mlp, cnn, resnet18, …")
    ] = None,
    loss: Annotated[str | None, typer.Option("--loss", help="Name of the loss.")] = None,
    temperature: opt.Temperature = None,
    steps: Annotated[int | None, typer.Option("--steps")] = None,
    epochs: Annotated[int | None, typer.Option("--epochs")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size")] = None,
    seed: Annotated[int | None, typer.Option("--seed")] = None,
    more: Annotated[str | None, typer.Option("--more", help="Other fields: JSON, or @FILE.")] = None,
    name: Name = None,
    key: Key = None,
    wait: Wait = False,
    timeout: Timeout = None,
    as_json: opt.AsJson = False,
) -> None:
    """Start a training, to see whether it gets where the theory says."""
    session = _session(ctx)
    fields = {} if more is None else parse_object(more, "--more")
    given = {"name": loss, "temperature": temperature}
    chosen = {field: value for field, value in given.items() if value is not None}
    with session.client() as client:
        job = client.jobs.train(
            data=data,
            class_counts=None if counts is None else _numbers(counts),
            encoder=encoder,
            loss=chosen or None,
            steps=steps,
            epochs=epochs,
            batch_size=batch_size,
            seed=seed,
            name=name,
            idempotency_key=key,
            **fields,
        )
        _follow(session, job, wait, timeout, as_json)


@jobs.command("list")
def list_jobs(
    ctx: typer.Context,
    state: Annotated[str | None, typer.Option("--state")] = None,
    kind: Annotated[str | None, typer.Option("--kind")] = None,
    limit: Annotated[int, typer.Option("--limit")] = 20,
    as_json: opt.AsJson = False,
) -> None:
    """Jobs, newest first."""
    session = _session(ctx)
    with session.client() as client:
        page = client.jobs.list(limit=limit, state=state, kind=kind)
    rows = [(r.id, r.kind, r.name or "", str(r.state), _steps(r), _time(r)) for r in page.items]
    Wanted(as_json).deliver(
        session, page, rows_table(["id", "kind", "name", "state", "step", "created"], rows)
    )


@jobs.command("show")
def show_job(ctx: typer.Context, id: JobId, as_json: opt.AsJson = False) -> None:
    """One job."""
    session = _session(ctx)
    with session.client() as client:
        record = client.jobs.get(id).record
    Wanted(as_json).deliver(session, record, facts_table(record, created=_time(record)))


@jobs.command("wait")
def wait_job(ctx: typer.Context, id: JobId, timeout: Timeout = None, as_json: opt.AsJson = False) -> None:
    """Wait for a job; the exit status is 4 if it fails, 5 if the time is up."""
    session = _session(ctx)
    with session.client() as client:
        _follow(session, client.jobs.get(id), True, timeout, as_json)


@jobs.command("events")
def events(
    ctx: typer.Context,
    id: JobId,
    after: Annotated[str | None, typer.Option("--after", help="Id of the last event known.")] = None,
) -> None:
    """What happens to a job, a JSON object a line, until it has ended."""
    with _session(ctx).client() as client:
        for event in client.jobs.get(id).events(after):
            print_json({"id": event.id, "type": event.type, "data": event.data})
            sys.stdout.flush()


@jobs.command("metrics")
def metrics(ctx: typer.Context, id: JobId, as_json: opt.AsJson = False, plot: opt.PlotTo = None) -> None:
    """What a training has logged."""
    session = _session(ctx)
    with session.client() as client:
        answer = client.jobs.get(id).metrics()
    Wanted(as_json, plot).deliver(session, answer, facts_table(answer, title="latest values"))


@jobs.command("result")
def result(
    ctx: typer.Context,
    id: JobId,
    as_json: opt.AsJson = False,
    plot: opt.PlotTo = None,
    save: opt.SaveTo = None,
) -> None:
    """What a job computed."""
    wanted, session = Wanted(as_json, plot, save), _session(ctx)
    with session.client() as client:
        answer = client.jobs.get(id).result()
    wanted.deliver(session, answer, facts_table(answer))


@jobs.command("embeddings")
def embeddings(
    ctx: typer.Context,
    id: JobId,
    path: Annotated[Path, typer.Argument(help="An .npz file to write.")],
) -> None:
    """Embeddings that a training left, as an .npz file."""
    session = _session(ctx)
    with session.client() as client:
        answer = client.jobs.get(id).embeddings()
    session.note(f"saved to {answer.write_npz(path)}")


@jobs.command("cancel")
def cancel(ctx: typer.Context, id: JobId, as_json: opt.AsJson = False) -> None:
    """Ask to stop a job."""
    session = _session(ctx)
    with session.client() as client:
        record = client.jobs.get(id).cancel()
    Wanted(as_json).deliver(session, record, facts_table(record))


@jobs.command("delete")
def delete(ctx: typer.Context, id: JobId) -> None:
    """Remove a job that has ended, and its results."""
    with _session(ctx).client() as client:
        client.jobs.get(id).delete()


@datasets.command("list")
def list_datasets(ctx: typer.Context, as_json: opt.AsJson = False) -> None:
    """Data sets that the service keeps."""
    session = _session(ctx)
    with session.client() as client:
        page = client.datasets.list()
    rows = [(d.id, d.name or "", str(d.samples), str(d.shape), str(len(d.classes))) for d in page.items]
    Wanted(as_json).deliver(session, page, rows_table(["id", "name", "samples", "shape", "classes"], rows))


@datasets.command("add")
def add(
    ctx: typer.Context,
    path: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help=".npz with x, y; .csv; .parquet")],
    name: Name = None,
    label: Annotated[str | None, typer.Option("--label", help="Column of labels in a table.")] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Store a data set."""
    session = _session(ctx)
    with session.client() as client:
        stored = client.datasets.create(path=path, name=name, label=label)
    Wanted(as_json).deliver(session, stored, facts_table(stored))


@datasets.command("show")
def show_dataset(ctx: typer.Context, id: str, as_json: opt.AsJson = False) -> None:
    """One data set, and its class counts."""
    session = _session(ctx)
    with session.client() as client:
        stored = client.datasets.get(id)
    rows = [(label, str(count)) for label, count in stored.classes.items()]
    Wanted(as_json).deliver(session, stored, facts_table(stored), rows_table(["class", "samples"], rows))


@datasets.command("delete")
def delete_dataset(ctx: typer.Context, id: str) -> None:
    """Remove a data set."""
    with _session(ctx).client() as client:
        client.datasets.delete(id)


def _follow(session: Session, job: Job, wait: bool, timeout: float | None, as_json: bool) -> None:
    if wait:
        session.note(f"waiting for {job.id}")
        try:
            job.wait(progress=not as_json, timeout=timeout)
        except KeyboardInterrupt:
            session.note(f"the job goes on; anglewise jobs wait {job.id}")
            raise
    if as_json:
        print_json(json.loads(job.record.model_dump_json()))
        return
    session.out.print(facts_table(job.record))


def _numbers(text: str) -> list[int]:
    words: list[Any] = text.split(",")
    if not all(word.strip().isdecimal() for word in words):
        raise typer.BadParameter(f"{text!r} is not a list of numbers", param_hint="--class-counts")
    return [int(word) for word in words]


def _steps(record: JobRecord) -> str:
    steps = record.progress
    return "" if steps is None or steps.step is None else f"{steps.step}/{steps.total or '?'}"


def _time(record: JobRecord) -> str:
    return "" if record.created_at is None else record.created_at.isoformat(" ", "seconds")
