"""Encoded answers kept in memory, the least recently used dropped first."""

from __future__ import annotations

from collections import OrderedDict

MAX_SHARE = 4
"""An answer larger than this part of the cache is not kept."""


class AnswerCache:
    """Answers by key, at most ``capacity`` bytes in all."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0
        self._answers: OrderedDict[bytes, bytes] = OrderedDict()

    def get(self, key: bytes) -> bytes | None:
        answer = self._answers.get(key)
        if answer is not None:
            self._answers.move_to_end(key)
        return answer

    def put(self, key: bytes, answer: bytes) -> None:
        if len(answer) * MAX_SHARE > self._capacity:
            return
        self._size += len(answer) - len(self._answers.pop(key, b""))
        self._answers[key] = answer
        while self._size > self._capacity:
            _, dropped = self._answers.popitem(last=False)
            self._size -= len(dropped)
