"""What the core raises. A numerical shortfall is never an exception: it is an answer that says so."""

from __future__ import annotations


class AnglewiseError(Exception):
    """Base of every error raised by anglewise."""


class InvalidInput(AnglewiseError, ValueError):
    """An argument is outside its domain.

    ``field`` is the path to the offending value, outermost first, in the words of the caller:
    ``("loss", "temperature")`` or ``("class_counts", 3)``.
    """

    def __init__(self, field: tuple[str | int, ...], message: str) -> None:
        super().__init__(f"{'.'.join(map(str, field))}: {message}" if field else message)
        self.field = field
        self.message = message


class TooLarge(InvalidInput):
    """The problem is valid but costs more than the chosen method, or the stated limit, allows."""


class NumericalFailure(AnglewiseError):
    """The computation broke down and there is no answer whose truth could be stated."""
