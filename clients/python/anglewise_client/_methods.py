"""Methods of the clients made from the pure functions of `anglewise_client.calls`.

An endpoint is written once, as a function from typed arguments to a `Call`.  `method` turns it into a method
that sends the call and waits, `async_method` into one that returns an awaitable; both keep its signature and
docstring.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

from anglewise_client._call import Call

P = ParamSpec("P")
T = TypeVar("T")


class Sender(Protocol):
    def send(self, call: Call[T]) -> T: ...


class AsyncSender(Protocol):
    async def send(self, call: Call[T]) -> T: ...


class method(Generic[P, T]):  # noqa: N801 (used like a decorator)
    """A method that sends what ``build`` makes of its arguments."""

    def __init__(self, build: Callable[P, Call[T]]) -> None:
        self.build = build
        self.__doc__ = build.__doc__

    def __get__(self, sender: Sender, owner: object = None) -> Callable[P, T]:
        def send(*args: P.args, **kwargs: P.kwargs) -> T:
            return sender.send(self.build(*args, **kwargs))

        return named(send, self.build)


class async_method(Generic[P, T]):  # noqa: N801 (used like a decorator)
    """A coroutine method that sends what ``build`` makes of its arguments."""

    def __init__(self, build: Callable[P, Call[T]]) -> None:
        self.build = build
        self.__doc__ = build.__doc__

    def __get__(self, sender: AsyncSender, owner: object = None) -> Callable[P, Coroutine[Any, Any, T]]:
        async def send(*args: P.args, **kwargs: P.kwargs) -> T:
            return await sender.send(self.build(*args, **kwargs))

        return named(send, self.build)


F = TypeVar("F", bound=Callable[..., Any])


def named(function: F, build: Callable[..., Call[Any]], result: str | None = None) -> F:
    """Give a sending function the name, docstring and signature of what builds its call."""
    functools.update_wrapper(function, build)
    del function.__wrapped__  # type: ignore[attr-defined]
    signature = inspect.signature(build)
    inner = str(signature.return_annotation).removeprefix("Call[").removesuffix("]")
    function.__signature__ = signature.replace(return_annotation=result or inner)  # type: ignore[attr-defined]
    return function
