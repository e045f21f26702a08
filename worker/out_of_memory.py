"""How the end of memory shows in Python and in torch."""

from __future__ import annotations

TEXTS = ("out of memory", "can't allocate memory", "not enough memory", "bad_alloc")
"""Torch reports it as a RuntimeError that says one of these."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error says that memory ran out, on the processor or on a GPU."""
    if isinstance(error, MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in TEXTS)
