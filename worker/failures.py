"""Why a job failed, from the exception that ended it."""

from __future__ import annotations

import logging

from anglewise.errors import InvalidInput, NumericalFailure
from jobs.problems import Problem, pointer
from jobs.states import Reason, ReasonCode
from worker.kinds import UnknownKind
from worker.out_of_memory import is_out_of_memory
from worker.training.context import TrainingError

logger = logging.getLogger("anglewise.worker")

MAX_TEXT = 1000


def reason_for(error: Exception) -> Reason:
    """Anything unforeseen is logged, and its text stays in the log."""
    if is_out_of_memory(error):
        return _reason(ReasonCode.OUT_OF_MEMORY, "it needed more memory than it may use")
    if isinstance(error, TrainingError):
        return _reason(ReasonCode(error.code), str(error))
    if isinstance(error, NumericalFailure):
        return _reason(ReasonCode.NUMERICAL_FAILURE, str(error))
    if isinstance(error, UnknownKind):
        return _reason(ReasonCode.INVALID_DATA, str(error))
    if isinstance(error, InvalidInput):
        return _reason(ReasonCode.INVALID_DATA, f"{pointer(error.field) or 'the spec'}: {error.message}")
    if isinstance(error, Problem) and error.status < 500:
        code = ReasonCode.NUMERICAL_FAILURE if error.code == "numerical_failure" else ReasonCode.INVALID_DATA
        return _reason(code, error.detail)
    logger.error("unforeseen error", exc_info=error)
    kind = type(error).__name__
    return _reason(
        ReasonCode.INTERNAL, f"an unforeseen error ({kind}); the log of the worker has its details"
    )


def _reason(code: ReasonCode, message: str) -> Reason:
    return Reason(code=code, message=message[:MAX_TEXT])
