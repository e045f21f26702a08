"""Jobs, data sets and health."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import httpx2

from anglewise_client._answer import Answer
from anglewise_client._arrays import host_array, label_vector
from anglewise_client._call import ARCHIVE, ARRAY, EVENTS, JSON, Call, Upload, new_key
from anglewise_client.calls.computations import geometry_kind
from anglewise_client.calls.encoding import fields_of, file_upload, given, npz_upload
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
)
from anglewise_client.thresholds import CollapseMap, Threshold
from anglewise_client.training_summary import TrainingSummary
from anglewise_client.verdicts import Design, Realizability

RESULTS: Mapping[str, type[Answer]] = {
    "training": TrainingSummary,
    "realizability": Realizability,
    "collapse_map": CollapseMap,
    "collapse_threshold": Threshold,
    "weights": Design,
    "diagnose": Diagnosis,
}
REPORT_TYPES = f"{JSON}, text/html;q=0.9, */*;q=0.5"


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


def job_result(id: str, kind: str, full: bool = False) -> Call[Answer]:
    """What the synchronous route would have answered, or the summary of a training."""
    path = _job(id) + "/result"
    read: Callable[[httpx2.Response], Answer]
    read = chosen(geometry_kind) if kind == "optimal_geometry" else model(RESULTS.get(kind, TrainingSummary))
    types = f"{ARCHIVE}, {JSON};q=0.9" if full else f"{JSON}, {ARCHIVE};q=0.9"
    return Call("GET", path, read, accept=types, redirected=True)


def job_metrics(id: str) -> Call[JobMetrics]:
    """Series of a training."""
    return Call("GET", _job(id) + "/metrics", model(JobMetrics))


def job_embeddings(id: str) -> Call[JobEmbeddings]:
    """Embeddings that a training left, with labels where it has them."""
    path = _job(id) + "/embeddings"
    accept = f"{ARCHIVE}, {ARRAY};q=0.9, {JSON};q=0.8, */*;q=0.5"
    return Call("GET", path, _embeddings, accept=accept, redirected=True)


def job_checkpoint(id: str) -> Call[bytes]:
    """Parameters that a training left, as safetensors."""
    return Call("GET", _job(id) + "/checkpoint", content, accept="*/*", redirected=True)


def job_artifact(id: str, name: str) -> Call[bytes]:
    """Any file that a job left."""
    path = f"{_job(id)}/artifacts/{quote(name, safe='')}"
    return Call("GET", path, content, accept="*/*", redirected=True)


def job_spec(id: str) -> Call[dict[str, Any]]:
    """What was asked for, with all defaults; arrays of an uploaded file are among its fields."""
    accept = f"{JSON}, {ARCHIVE};q=0.9, {ARRAY};q=0.8"
    return Call("GET", _job(id) + "/spec", _spec, accept=accept, redirected=True)


def job_report(id: str) -> Call[Report]:
    """Report of a training."""
    return Call(
        "GET", _job(id) + "/report", _report, accept=f"{JSON}, text/html;q=0.9, */*;q=0.5", redirected=True
    )


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
    label: str | None = None,
) -> Call[Dataset]:
    """Store a data set.

    Args:
        path: an ``.npz`` with ``x`` and ``y``, a ``.csv`` or a ``.parquet`` file; streamed.
        x, y: or the samples (n, …) and their labels (n,), as arrays, tensors, or paths of two ``.npy`` files.
        name: for people; None: the name of the file.
        label: column of labels in a table; None: the one named ``label`` or ``y``, or the last.
    """
    if (path is None) == (x is None or y is None):
        raise ValueError("give a path, or x and y")
    form = given(name=name, label=label)
    # A second upload would be a second data set, so it is not repeated by itself.
    return Call(
        "POST", "/datasets", model(Dataset), files=_dataset_files(path, x, y), form=form, repeatable=False
    )


def _dataset_files(path: Any, x: Any, y: Any) -> dict[str, Upload]:
    if path is not None:
        return {"file": file_upload(path)}
    paths = [isinstance(part, str | os.PathLike) for part in (x, y)]
    if all(paths):
        return {"x": file_upload(x), "y": file_upload(y)}
    if any(paths):
        raise ValueError("give x and y both as paths or both as arrays")
    return {"file": npz_upload(x=host_array(x), y=label_vector(y, "y"))}


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


def _embeddings(response: httpx2.Response) -> JobEmbeddings:
    kind = media_type(response)
    if kind == JSON:
        return JobEmbeddings.model_validate_json(response.content)
    arrays = archive(response.content)
    if "" in arrays:
        return JobEmbeddings(embeddings=arrays[""])
    return JobEmbeddings(embeddings=arrays["embeddings"], labels=arrays.get("labels"))


def _spec(response: httpx2.Response) -> dict[str, Any]:
    if media_type(response) in (ARCHIVE, ARRAY):
        return dict(archive(response.content))
    document = response.json()
    if not isinstance(document, dict):
        raise ValueError("the answer is not an object")
    return document


def _report(response: httpx2.Response) -> Report:
    kind = media_type(response)
    if kind == JSON:
        return Report.model_validate({"media_type": kind, "document": response.json()})
    return Report(media_type=kind, text=response.text)


def _dataset_page(response: httpx2.Response) -> DatasetPage:
    """A page, or a bare list."""
    document = response.json()
    return DatasetPage.model_validate({"items": document} if isinstance(document, list) else document)
