"""Values that depend on a number alone, made in the background for the number that comes next."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """Calls ``make`` for each number, one at a time, in a thread of its own.

    Drawing a batch would lengthen the steps of small networks by several per cent, and a GPU would wait.
    """

    def __init__(self, make: Callable[[int], T]) -> None:
        self._make = make
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._next: tuple[int, Future[T]] | None = None

    def take(self, number: int) -> T:
        """``make(number)``, which may be there already."""
        if self._next is None or self._next[0] != number:
            return self._thread.submit(self._make, number).result()
        return self._next[1].result()

    def prepare(self, number: int) -> None:
        """Begin with ``make(number)``; best before something long that leaves the interpreter."""
        self._next = number, self._thread.submit(self._make, number)
