"""Everything that can go wrong, in one tree.

AnglewiseError
 +-- ServiceError              the service answered with a problem (RFC 9457)
 |    +-- InvalidRequest       other 4xx: the request has to change; `errors` names the fields
 |    |    +-- TooLarge        413, and 422 `too_large`: send it as a job
 |    |    `-- NumericalFailure  422 `numerical_failure`: the computation broke down
 |    +-- Unauthorized         401, 403: the API key
 |    +-- NotFound             404
 |    +-- Conflict             409: for instance the result of a job that has not succeeded
 |    +-- RateLimited          429: see `retry_after`
 |    `-- ServiceFailed        408, 5xx: busy, out of time, broken
 |         `-- DeadlineMet     503 `deadline`: send it as a job
 +-- NoService                 nothing answers at this address
 |    `-- RequestTimeout       it was reached, and did not answer in time
 +-- UnexpectedAnswer          an answer, but not one of this service
 `-- JobError
      +-- JobFailed            the job ended as failed; `reason` says why
      |    `-- JobCancelled    or as cancelled
      `-- WaitTimeout          the job goes on; the patience of `wait` ended (also a TimeoutError)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anglewise_client.job_models import JobRecord
    from anglewise_client.problem import FieldError, ProblemDocument


class AnglewiseError(Exception):
    """Base of all errors of this package."""


class ServiceError(AnglewiseError):
    """The service answered with a problem.

    Attributes:
        problem: the whole document.
        status: HTTP status.
        code: stable word for programs, such as ``"invalid_input"``.
        errors: the fields that are wrong, each with a JSON ``pointer`` and a ``message``.
        request_id: names this request in the log of the service.
        retry_after: seconds the service asks to wait, if it does.
    """

    def __init__(self, problem: ProblemDocument, retry_after: float | None = None) -> None:
        self.problem = problem
        self.status = problem.status
        self.code = problem.code
        self.errors: list[FieldError] = problem.errors
        self.request_id = problem.request_id
        self.retry_after = retry_after
        super().__init__(_sentence(problem))


class InvalidRequest(ServiceError):
    """The request has to change before it can be answered."""


class TooLarge(InvalidRequest):
    """The request or the problem is too large to answer at once; a job may do it."""


class NumericalFailure(InvalidRequest):
    """The computation broke down on these numbers."""


class Unauthorized(ServiceError):
    """The API key is missing or wrong."""


class NotFound(ServiceError):
    """There is nothing with this name or id."""


class Conflict(ServiceError):
    """Not in the present state."""


class RateLimited(ServiceError):
    """Too many requests."""


class ServiceFailed(ServiceError):
    """The service could not answer this time."""


class DeadlineMet(ServiceFailed):
    """The computation took longer than a synchronous request may; send it as a job."""


class NoService(AnglewiseError):
    """Nothing answers at this address."""


class RequestTimeout(NoService):
    """No answer in time."""


class UnexpectedAnswer(AnglewiseError):
    """The answer does not look like one of this service, or of a version that this client knows."""


class JobError(AnglewiseError):
    """About one job.

    Attributes:
        job: the record as last seen.
    """

    def __init__(self, job: JobRecord, message: str) -> None:
        self.job = job
        super().__init__(message)


class JobFailed(JobError):
    """The job ended without a result.

    Attributes:
        reason: ``code`` and ``message``, or None.
    """

    def __init__(self, job: JobRecord) -> None:
        self.reason = job.reason
        why = f": {job.reason.message} ({job.reason.code})" if job.reason else ""
        super().__init__(job, f"job {job.id} {job.state}{why}")


class JobCancelled(JobFailed):
    """The job was cancelled."""


class WaitTimeout(JobError, TimeoutError):
    """The job has not ended in the given time; it goes on."""


BY_STATUS: Mapping[int, type[ServiceError]] = {
    401: Unauthorized,
    403: Unauthorized,
    404: NotFound,
    408: ServiceFailed,
    409: Conflict,
    413: TooLarge,
    429: RateLimited,
}
BY_CODE: Mapping[str, type[ServiceError]] = {
    "too_large": TooLarge,
    "numerical_failure": NumericalFailure,
    "deadline": DeadlineMet,
}


def error_class(status: int, code: str) -> type[ServiceError]:
    """Which leaf of the tree a problem becomes."""
    fallback: Any = InvalidRequest if status < 500 else ServiceFailed
    return BY_CODE.get(code) or BY_STATUS.get(status) or fallback


def _sentence(problem: ProblemDocument) -> str:
    first = problem.errors[0] if problem.errors else None
    detail = problem.detail or problem.title
    where = f" (at {first.pointer})" if first and first.pointer and first.pointer not in detail else ""
    return f"{problem.status} {problem.code}: {detail}{where}"
