"""From the body of POST /jobs to what is submitted, or to a problem that names the field."""

from __future__ import annotations

import io
from typing import Any

from pydantic import BaseModel

from anglewise.errors import InvalidInput
from jobs import paths
from jobs.addresses import BadAddress, parse_url
from jobs.computations import diagnose_archive
from jobs.computations.diagnose import DiagnoseOptions
from jobs.computations.parsing import parse
from jobs.computations.registry import COMPUTATIONS
from jobs.idempotency import digest
from jobs.journal import UnknownJob
from jobs.problems import Problem, pointer
from jobs.record import JobRecord
from jobs.training_spec import TrainingSpec
from service.job_artifacts import write_embeddings
from service.job_desk import JobDesk
from service.job_intake import JobOrder
from service.job_kinds import TRAINING, DiagnoseJobRequest, DiagnoseSpec, JobRequest, Webhook

SPEC = ("spec",)


def order_from(body: bytes, desk: JobDesk) -> JobOrder:
    """Check a request as its own route would, with the limits of jobs.

    Raises:
        Problem: malformed_json, invalid_input, too_large, training_unavailable, not_finished, no_result.
        StoreUnavailable
    """
    request = parse(body, JobRequest).root
    spec: Any = request.spec.root if isinstance(request.spec, DiagnoseSpec) else request.spec
    webhook = None if request.webhook is None else _checked(request.webhook, desk)
    kind: str = request.kind
    try:
        if isinstance(spec, DiagnoseJobRequest):
            kind, stored = diagnose_archive.COMPUTATION.name, _diagnosis(spec, desk)
        else:
            _check(kind, spec, desk)
            stored = spec.model_dump_json().encode()
    except InvalidInput as error:
        raise type(error)((*SPEC, *error.field), error.message) from None
    return JobOrder(kind, stored, digest([b"POST /jobs", body]), request.name, webhook)


def _check(kind: str, spec: BaseModel, desk: JobDesk) -> None:
    if isinstance(spec, TrainingSpec):
        _require_training(desk)
        spec.check()
        _require_dataset(spec, desk)
    else:
        COMPUTATIONS[kind].check(spec, desk.settings.job_limits)


def _require_training(desk: JobDesk) -> None:
    if desk.settings.training or any(worker.training for worker in desk.workers() or ()):
        return
    raise Problem(
        "training_unavailable",
        "this service was started without training; start it without --without-training",
    )


def _require_dataset(spec: TrainingSpec, desk: JobDesk) -> None:
    dataset = spec.data.dataset
    if dataset is not None and not desk.store.names(paths.dataset(dataset)):
        raise InvalidInput(("data", "dataset"), "there is no such data set")


def _checked(webhook: Webhook, desk: JobDesk) -> str:
    settings = desk.settings
    where = pointer(("webhook", "url"))
    if settings.webhook_secret is None:
        message = "webhooks are off: the service has no secret to sign them with (ANGLEWISE_WEBHOOK_SECRET)"
        raise Problem("invalid_input", f"{where}: {message}", [(where, message)])
    try:
        parse_url(webhook.url, allow_private=settings.webhook_allow_private)
    except BadAddress as error:
        raise Problem("invalid_input", f"{where}: {error}", [(where, str(error))]) from None
    return webhook.url


def training_of(request: DiagnoseJobRequest, desk: JobDesk) -> JobRecord:
    """The training job that is named.

    Raises:
        InvalidInput: at ``("job",)``.
        StoreUnavailable
    """
    try:
        record = desk.read(request.job)
    except UnknownJob:
        raise InvalidInput(("job",), "there is no such job") from None
    if record.kind != TRAINING:
        raise InvalidInput(("job",), "only training jobs leave embeddings")
    return record


def _diagnosis(request: DiagnoseJobRequest, desk: JobDesk) -> bytes:
    """The spec of a diagnosis of what a training job left: by value, as that job may be deleted meanwhile."""
    archive = io.BytesIO()
    write_embeddings(desk.store, training_of(request, desk), archive)
    options = DiagnoseOptions(prediction=request.prediction, normalize=request.normalize)
    return options.model_dump_json().encode() + diagnose_archive.SEPARATOR + archive.getvalue()
