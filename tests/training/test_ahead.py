"""What is made in the background is what was asked for."""

from __future__ import annotations

import threading

import pytest

from worker.training.ahead import Ahead


def test_values_are_those_of_their_numbers() -> None:
    made: list[int] = []

    def square(number: int) -> int:
        assert threading.current_thread() is not threading.main_thread()
        made.append(number)
        return number**2

    ahead = Ahead(square)
    assert ahead.take(3) == 9  # a run that goes on from a checkpoint
    ahead.prepare(4)
    assert ahead.take(4) == 16
    assert ahead.take(4) == 16  # an evaluation may ask again
    ahead.prepare(5)
    assert ahead.take(2) == 4
    assert ahead.take(5) == 25
    assert made == [3, 4, 5, 2]


def test_an_error_is_raised_where_its_value_is_needed() -> None:
    def fail(number: int) -> int:
        raise MemoryError(number)

    ahead = Ahead(fail)
    ahead.prepare(1)
    with pytest.raises(MemoryError):
        ahead.take(1)
