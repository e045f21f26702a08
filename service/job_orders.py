"""From a checked request to what is submitted: everything that depends on the rest of the world."""

from __future__ import annotations

import io

from anglewise.errors import InvalidInput
from jobs import paths
from jobs.addresses import BadAddress, parse_url
from jobs.computations import diagnose_archive
from jobs.computations.diagnose import DiagnoseOptions
from jobs.idempotency import digest
from jobs.journal import UnknownJob
from jobs.problems import Problem, pointer
from jobs.record import JobRecord
from service.job_artifacts import write_embeddings
from service.job_desk import JobDesk
from service.job_intake import JobOrder
from service.job_kinds import TRAINING, DiagnoseJobRequest
from service.job_request import CheckedRequest, below_spec


def order_from(request: CheckedRequest, body: bytes, desk: JobDesk) -> JobOrder:
    """What to submit. ``body`` is the request as it came.

    Raises:
        Problem: invalid_input, training_unavailable, not_finished, no_result.
        InvalidInput: at a field below ``("spec",)``.
        StoreUnavailable
    """
    if request.webhook is not None:
        _check_webhook(request.webhook, desk)
    if request.kind == TRAINING:
        _require_training(desk)
    kind, spec = request.kind, request.spec
    try:
        _require_dataset(request.dataset, desk)
        if request.source is not None:
            named = DiagnoseJobRequest.model_validate_json(spec)
            kind, spec = diagnose_archive.COMPUTATION.name, _diagnosis(named, desk)
    except InvalidInput as error:
        raise below_spec(error) from None
    return JobOrder(kind, spec, digest([b"POST /jobs", body]), request.name, request.webhook)


def _require_training(desk: JobDesk) -> None:
    if desk.settings.training or any(worker.training for worker in desk.workers() or ()):
        return
    raise Problem(
        "training_unavailable",
        "this service was started without training; start it without --without-training",
    )


def _require_dataset(dataset: str | None, desk: JobDesk) -> None:
    if dataset is not None and not desk.store.names(paths.dataset(dataset)):
        raise InvalidInput(("data", "dataset"), "there is no such data set")


def _check_webhook(url: str, desk: JobDesk) -> None:
    settings, where = desk.settings, pointer(("webhook", "url"))
    if settings.webhook_secret is None:
        message = "webhooks are off: the service has no secret to sign them with (ANGLEWISE_WEBHOOK_SECRET)"
        raise Problem("invalid_input", f"{where}: {message}", [(where, message)])
    try:
        parse_url(url, allow_private=settings.webhook_allow_private)
    except BadAddress as error:
        raise Problem("invalid_input", f"{where}: {error}", [(where, str(error))]) from None


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
