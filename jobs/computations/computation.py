"""What a computation is: the same description serves the route, the solver process and the OpenAPI."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from pydantic import BaseModel

from jobs.computations.limits import Limits
from jobs.computations.parsing import parse


@dataclass(frozen=True)
class Outcome:
    """A finished computation, not yet encoded.

    Attributes:
        document: builds the JSON answer; arrays may stay numpy arrays.
        archive: writes the answer as an .npz archive, where that is offered.
        picture: a PNG image that belongs to the answer, where there is one.
        final: whether the same request would always get this answer. An answer cut short by its time
            limit is not final, and is not cached.
    """

    document: Callable[[], Mapping[str, Any]]
    archive: Callable[[BinaryIO], None] | None = None
    picture: bytes = b""
    final: bool = True


def _accept(request: Any, limits: Limits) -> None:
    """No checks beyond the schema."""


@dataclass(frozen=True)
class Computation:
    """One kind of computation.

    Attributes:
        name: word for logs, cache keys and operation ids.
        request: model of the body.
        answer: model that documents the answer.
        run: computes, in a solver process; raises what the core raises.
        check: refuses what the schema cannot express, cheaply: it also runs in the process of the API.
        offers_archive: whether ``Outcome.archive`` is there.
        shared: whether equal requests share one computation and later ones get its answer from memory.
        warm_up: bodies computed when a solver process starts, so that compiled code is loaded before
            the first request.
    """

    name: str
    request: type[BaseModel]
    answer: type[BaseModel]
    run: Callable[[Any, Limits], Outcome]
    check: Callable[[Any, Limits], None] = _accept
    offers_archive: bool = False
    shared: bool = True
    warm_up: tuple[dict[str, Any], ...] = field(default=())

    def parse(self, body: bytes, limits: Limits) -> BaseModel:
        """The validated request.

        Raises:
            Problem: the body is not what ``request`` says.
            InvalidInput: ``check`` refuses it.
        """
        request = parse(body, self.request)
        self.check(request, limits)
        return request

    def canonical(self, body: bytes, limits: Limits) -> bytes:
        """The request with all defaults filled in: equal requests become equal bytes.

        Raises:
            Problem, InvalidInput: as `parse`.
        """
        return self.parse(body, limits).model_dump_json().encode()
