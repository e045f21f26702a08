"""Labels become class numbers, in blocks, whatever their number."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from anglewise.errors import InvalidInput, TooLarge

Field = tuple[str | int, ...]
IntArray = npt.NDArray[np.int32]

MAX_LENGTH = 200
"""Characters of a label."""
INTEGER = re.compile(r"-?(0|[1-9]\d{0,17})")
LONG_INTEGER = re.compile(r"-?[1-9]\d{18,}")
ZERO_PADDED = re.compile(r"[+-]?0\d")
MAX_WHOLE_FLOAT = 2.0**53


class LabelCodes:
    """Collects labels; classes are numbered as they come, and in order of the sorted labels at the end."""

    def __init__(self, max_classes: int, field: Field, cell: Callable[[int], Field]) -> None:
        """
        Args:
            field: where the labels are, for messages.
            cell: where the label of one sample is.
        """
        self._max_classes = max_classes
        self._field = field
        self._cell = cell
        self._codes: dict[int | str, int] = {}
        self._blocks: list[IntArray] = []
        self._samples = 0

    def add_integers(self, labels: npt.NDArray[np.integer]) -> None:
        """
        Raises:
            InvalidInput: a label does not fit into 64 bits.
            TooLarge: there are too many classes.
        """
        if labels.dtype.kind == "u" and labels.dtype.itemsize == 8:
            huge = np.flatnonzero(labels > np.iinfo(np.int64).max)
            if len(huge):
                raise InvalidInput(self._at(int(huge[0])), "must be an integer of at most 64 bits")
        values, inverse = np.unique(labels, return_inverse=True)
        codes = [self._code(int(value)) for value in values]
        self._append(np.array(codes, dtype=np.int32)[inverse])

    def add_strings(self, labels: Sequence[str | None]) -> None:
        """
        Raises:
            InvalidInput: a label is missing, empty or too long.
            TooLarge: there are too many classes.
        """
        codes = np.empty(len(labels), dtype=np.int32)
        for i, label in enumerate(labels):
            code = None if label is None else self._codes.get(label)
            codes[i] = self._new(label, i) if code is None else code
        self._append(codes)

    def finish(self, *, numbers_as_text: bool = False) -> tuple[list[int] | list[str], IntArray]:
        """The sorted labels (C), and the class of each sample (n).

        Args:
            numbers_as_text: whether integers were given as strings, as in a CSV file.

        Raises:
            InvalidInput: such labels are numbers, but no integers.
        """
        labels = list(self._codes)
        values = labels
        integers = as_integers([str(label) for label in labels], self._field) if numbers_as_text else None
        if integers:
            values = list(integers)
        ordered = sorted(set(values))
        rank = {value: i for i, value in enumerate(ordered)}
        ranks = np.array([rank[value] for value in values], dtype=np.int32)
        codes = np.concatenate(self._blocks) if self._blocks else np.zeros(0, np.int32)
        return ordered, ranks[codes]  # type: ignore[return-value]

    def _append(self, codes: IntArray) -> None:
        self._blocks.append(codes)
        self._samples += len(codes)

    def _new(self, label: str | None, i: int) -> int:
        if not label:
            raise InvalidInput(self._at(i), "has no label")
        if len(label) > MAX_LENGTH:
            raise InvalidInput(
                self._at(i), f"is a label of {len(label)} characters; {MAX_LENGTH} are allowed"
            )
        return self._code(label)

    def _code(self, label: int | str) -> int:
        code = self._codes.setdefault(label, len(self._codes))
        if code >= self._max_classes:
            raise TooLarge(self._field, f"may be of at most {self._max_classes} classes")
        return code

    def _at(self, i: int) -> Field:
        return self._cell(self._samples + i)


def as_integers(labels: list[str], field: Field) -> list[int] | None:
    """The labels as integers if all are numbers; None if they are words.

    >>> as_integers(["3", "-1", "2.0"], ()), as_integers(["3", "b"], ()), as_integers(["007", "8"], ())
    ([3, -1, 2], None, None)

    Raises:
        InvalidInput: they are numbers, but some are no integers.
    """
    if any(ZERO_PADDED.match(label) for label in labels):
        return None
    try:
        values = [float(label) for label in labels]
    except ValueError:
        return None
    if not any(map(math.isfinite, values)):
        return None
    for label, value in zip(labels, values, strict=True):
        if LONG_INTEGER.fullmatch(label):
            raise InvalidInput(field, f"{label[:30]} is longer than the 18 digits that integers may have")
        if not INTEGER.fullmatch(label) and not (value.is_integer() and abs(value) <= MAX_WHOLE_FLOAT):
            raise InvalidInput(field, f"{label[:30]} is a number, but no integer; is this the label column?")
    return [
        int(label) if INTEGER.fullmatch(label) else int(value)
        for label, value in zip(labels, values, strict=True)
    ]
