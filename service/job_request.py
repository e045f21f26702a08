"""The body of POST /jobs, checked as far as that needs nothing but the body and the limits."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from anglewise.errors import InvalidInput
from jobs.computations.limits import Limits
from jobs.computations.parsing import parse
from jobs.computations.registry import COMPUTATIONS
from jobs.training_spec import TrainingSpec
from service.job_kinds import DiagnoseJobRequest, DiagnoseSpec, JobRequest

NAME = "job_request"
"""Under which solver processes know this check."""
SEPARATOR = b"\n"


class CheckedRequest(BaseModel):
    """A valid request.

    Attributes:
        spec: with all defaults, as JSON.
        dataset: id of the stored data set that a training is to use.
        source: id of the training job whose embeddings a diagnosis is to use.
    """

    model_config = ConfigDict(frozen=True)

    kind: str
    name: str | None
    webhook: str | None
    spec: bytes = b""
    dataset: str | None = None
    source: str | None = None

    def pack(self) -> bytes:
        """As bytes, from process to process."""
        return self.model_dump_json(exclude={"spec"}).encode() + SEPARATOR + self.spec


def unpack(packed: bytes) -> CheckedRequest:
    """The other way round."""
    head, _, spec = packed.partition(SEPARATOR)
    return CheckedRequest.model_validate_json(head).model_copy(update={"spec": spec})


def check_request(body: bytes, limits: Limits) -> CheckedRequest:
    """
    Raises:
        Problem: malformed_json or invalid_input.
        InvalidInput: at a field below ``("spec",)``.
    """
    request = parse(body, JobRequest).root
    spec: Any = request.spec.root if isinstance(request.spec, DiagnoseSpec) else request.spec
    try:
        if isinstance(spec, TrainingSpec):
            spec.check()
        elif not isinstance(spec, DiagnoseJobRequest):
            COMPUTATIONS[request.kind].check(spec, limits)
    except InvalidInput as error:
        raise below_spec(error) from None
    return CheckedRequest(
        kind=request.kind,
        spec=spec.model_dump_json().encode(),
        name=request.name,
        webhook=None if request.webhook is None else request.webhook.url,
        dataset=spec.data.dataset if isinstance(spec, TrainingSpec) else None,
        source=spec.job if isinstance(spec, DiagnoseJobRequest) else None,
    )


def below_spec(error: InvalidInput) -> InvalidInput:
    """The same error in the words of the request around the spec."""
    return type(error)(("spec", *error.field), error.message)
