"""Jobs, data sets and health."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import httpx2
from pydantic import BaseModel

from anglewise_client._answer import Answer
from anglewise_client._arrays import host_array, label_vector
from anglewise_client._call import ARCHIVE, ARRAY, EVENTS, JSON, Call, Upload, new_key
from anglewise_client.calls.computations import geometry_kind
from anglewise_client.calls.encoding import fields_of, given, npz_upload
from anglewise_client.calls.reading import archive, chosen, content, media_type, model, nothing
from anglewise_client.diagnosis import Diagnosis
from anglewise_client.job_models import (
    Dataset,
    DatasetPage,
    Health,
    JobEmbeddings,
    JobKind,
    JobMetrics,
    JobPage,
    JobRecord,
    Readiness,
    Report,
    State,
    TrainingSummary,
)
from anglewise_client.thresholds import CollapseMap, Threshold
from anglewise_client.verdicts import Design, Realizability

RESULTS: Mapping[str, type[Answer]] = {
    "training": TrainingSummary,
    "realizability": Realizability,
    "collapse_map": CollapseMap,
    "collapse_threshold": Threshold,
    "weights": Design,
    "diagnose": Diagnosis,
}
TYPES = {".npz": ARCHIVE, ".npy": ARRAY, ".csv": "text/csv", ".parquet": "application/vnd.apache.parquet"}


def submit(
    *,
    kind: JobKind | str,
    spec: Mapping[str, Any],
    name: str | None = None,
    webhook: str | None = None,
    idempotency_key: str | None = None,
) -> Call[JobRecord]:
    """Start a job.

    Args:
        kind: ``"training"`` or the name of a computation.
        spec: what the synchronous route takes as its body, or the training.
        name: for people.
        webhook: public address to be told the end.
        idempotency_key: the same key and spec give the same job however often they are sent; None: a new
            key, kept over all retries of this call.
    """
    hook = None if webhook is None else {"url": webhook}
    body = given(kind=kind, spec=fields_of(spec), name=name, webhook=hook)
    headers = {"Idempotency-Key": idempotency_key or new_key()}
    return Call("POST", "/jobs", model(JobRecord), body=body, headers=headers)


def train(
    *,
    data: Mapping[str, Any] | str | None = None,
    class_counts: Any = None,
    encoder: Mapping[str, Any] | str | None = None,
    loss: BaseModel | Mapping[str, Any] | None = None,
    dimension: int | None = None,
    optimizer: Mapping[str, Any] | str | None = None,
    schedule: Mapping[str, Any] | str | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    evaluate_every: int | None = None,
    precision: Literal["float32", "float64", "bf16"] | None = None,
    device: Literal["auto", "cpu", "cuda"] | None = None,
    name: str | None = None,
    webhook: str | None = None,
    idempotency_key: str | None = None,
    **more: Any,
) -> Call[JobRecord]:
    """Start a training.

    Args:
        data: id of a data set (``"ds_…"``), name of a built-in one (``"digits"``, ``"mnist5k"``), or a
            dictionary such as ``{"generator": {"classes": 5}}``; None: free features need only counts.
        class_counts: samples to keep of each class, which gives the imbalance.
        encoder: ``"free"``, ``"linear"``, ``"mlp"``, ``"cnn"``, ``"resnet18"``, ``"resnet50"``, or a
            dictionary with that ``name`` and its settings.
        loss: such as ``InfoNCE(temperature=0.5)`` or ``{"name": "supcon", "temperature": 0.1}``.
        dimension: of the embeddings.
        optimizer, schedule: a name, or a dictionary with ``name`` and settings.
        more: any other field of the training.
        name, webhook, idempotency_key: as for `submit`.
    """
    spec = given(
        data=_data(data, class_counts),
        encoder=_named(encoder),
        loss=loss,
        dimension=dimension,
        optimizer=_named(optimizer),
        schedule=_named(schedule),
        steps=steps,
        epochs=epochs,
        batch_size=batch_size,
        seed=seed,
        evaluate_every=evaluate_every,
        precision=precision,
        device=device,
    )
    return submit(
        kind="training", spec=spec | more, name=name, webhook=webhook, idempotency_key=idempotency_key
    )


def list_jobs(
    *,
    limit: int | None = None,
    cursor: str | None = None,
    state: State | str | None = None,
    kind: JobKind | str | None = None,
) -> Call[JobPage]:
    """A page of jobs, newest first.

    Args:
        limit: at most so many.
        cursor: ``next_cursor`` of the page before.
        state, kind: only these.
    """
    query = given(limit=limit, cursor=cursor, state=None if state is None else str(state), kind=kind)
    return Call("GET", "/jobs", model(JobPage), query=query)


def get_job(id: str) -> Call[JobRecord]:
    """One job."""
    return Call("GET", _job(id), model(JobRecord))


def cancel_job(id: str) -> Call[JobRecord]:
    """Ask to stop a job; doing so twice does no harm."""
    return Call("POST", _job(id) + "/cancel", model(JobRecord))


def delete_job(id: str) -> Call[None]:
    """Remove a job that has ended, and its results."""
    return Call("DELETE", _job(id), nothing)


def job_result(id: str, kind: str) -> Call[Answer]:
    """What the synchronous route would have answered, or the summary of a training."""
    path = _job(id) + "/result"
    read: Callable[[httpx2.Response], Answer]
    read = chosen(geometry_kind) if kind == "optimal_geometry" else model(RESULTS.get(kind, TrainingSummary))
    return Call("GET", path, read, accept=f"{JSON}, {ARCHIVE};q=0.9")


def job_metrics(id: str) -> Call[JobMetrics]:
    """Series of a training."""
    return Call("GET", _job(id) + "/metrics", model(JobMetrics))


def job_embeddings(id: str) -> Call[JobEmbeddings]:
    """Embeddings that a training left, with labels where it has them."""
    path = _job(id) + "/embeddings"
    return Call("GET", path, _embeddings, accept=f"{ARCHIVE}, {ARRAY};q=0.9, {JSON};q=0.8, */*;q=0.5")


def job_checkpoint(id: str) -> Call[bytes]:
    """Parameters that a training left, as safetensors."""
    return Call("GET", _job(id) + "/checkpoint", content, accept="*/*")


def job_report(id: str) -> Call[Report]:
    """Report of a training."""
    return Call("GET", _job(id) + "/report", _report, accept=f"{JSON}, text/html;q=0.9, */*;q=0.5")


def job_events(id: str, after: str | None = None) -> Call[None]:
    """The stream of events after the one named."""
    headers = {} if after is None else {"Last-Event-ID": after}
    return Call("GET", _job(id) + "/events", nothing, headers=headers, accept=EVENTS)


def create_dataset(
    *,
    path: str | os.PathLike[str] | None = None,
    x: Any = None,
    y: Any = None,
    name: str | None = None,
) -> Call[Dataset]:
    """Store a data set.

    Args:
        path: an ``.npz`` with ``x`` and ``y``, a ``.csv`` or a ``.parquet`` file; streamed.
        x, y: or the samples (n, …) and their labels (n,), as arrays or tensors.
        name: for people; None: the name of the file.
    """
    if (path is None) == (x is None or y is None):
        raise ValueError("give a path, or x and y")
    if path is None:
        upload = npz_upload(x=host_array(x), y=label_vector(y, "y"))
    else:
        source = Path(path)
        media_type = TYPES.get(source.suffix.lower(), "application/octet-stream")
        upload = Upload(source.name, lambda: source.open("rb"), media_type)
    form = {} if name is None else {"name": name}
    # A second upload would be a second data set, so it is not repeated by itself.
    return Call("POST", "/datasets", model(Dataset), files={"file": upload}, form=form, repeatable=False)


def list_datasets(*, limit: int | None = None, cursor: str | None = None) -> Call[DatasetPage]:
    """Data sets that the service keeps."""
    return Call("GET", "/datasets", _dataset_page, query=given(limit=limit, cursor=cursor))


def get_dataset(id: str) -> Call[Dataset]:
    """One data set."""
    return Call("GET", "/datasets/" + quote(id, safe=""), model(Dataset))


def delete_dataset(id: str) -> Call[None]:
    """Remove a data set."""
    return Call("DELETE", "/datasets/" + quote(id, safe=""), nothing)


def health() -> Call[Readiness]:
    """Whether the service can compute."""
    return Call("GET", "/health/ready", model(Readiness))


def live() -> Call[Health]:
    """Whether the service is alive."""
    return Call("GET", "/health/live", model(Health))


def _job(id: str) -> str:
    return "/jobs/" + quote(id, safe="")


def _named(value: Mapping[str, Any] | str | None) -> Any:
    return {"name": value} if isinstance(value, str) else value


def _data(data: Mapping[str, Any] | str | None, class_counts: Any) -> dict[str, Any]:
    if isinstance(data, str):
        source: dict[str, Any] = {"dataset" if data.startswith("ds_") else "builtin": data}
    else:
        source = dict(data or {})
    if class_counts is not None:
        source["class_counts"] = host_array(class_counts).tolist()
    return source


def _embeddings(response: httpx2.Response) -> JobEmbeddings:
    kind = media_type(response)
    if kind == JSON:
        return JobEmbeddings.model_validate_json(response.content)
    arrays = archive(response.content)
    if "" in arrays:
        return JobEmbeddings(embeddings=arrays[""])
    return JobEmbeddings(embeddings=arrays["embeddings"], labels=arrays.get("labels"))


def _report(response: httpx2.Response) -> Report:
    kind = media_type(response)
    if kind == JSON:
        return Report.model_validate({"media_type": kind, "document": response.json()})
    return Report(media_type=kind, text=response.text)


def _dataset_page(response: httpx2.Response) -> DatasetPage:
    """A page, or a bare list."""
    document = response.json()
    return DatasetPage.model_validate({"items": document} if isinstance(document, list) else document)
