"""Samples and labels as a table: one column of labels, the others numbers; CSV or Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from anglewise.errors import InvalidInput, TooLarge
from jobs.computations.limits import Limits
from jobs.datasets.content import SampleFile, X, finish_content
from jobs.datasets.labels import Field, LabelCodes
from jobs.datasets.record import DatasetContent

FILE: Field = ("file",)
LABEL: Field = ("label",)
LABEL_NAMES = ("label", "y")
MAX_COLUMNS = 65_536
SHOWN_NAMES = 10


@dataclass(frozen=True)
class Columns:
    """Of a table: all names in order, and which one holds the labels."""

    names: list[str]
    label: int

    @property
    def features(self) -> list[int]:
        return [i for i in range(len(self.names)) if i != self.label]

    @property
    def feature_names(self) -> list[str]:
        return [self.names[i] for i in self.features]


@dataclass(frozen=True)
class Table:
    """A table that is read block by block.

    Attributes:
        blocks: pairs of samples (k, d) and labels: an integer array (k,) or a list of strings.
        text: whether integers among the labels come as strings.
    """

    columns: Columns
    dtype: np.dtype[Any]
    blocks: Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.integer] | list[str | None]]]
    text: bool


def choose_columns(names: list[str], label: str | None) -> Columns:
    """
    Raises:
        InvalidInput: a name is missing or there twice, or no column has the name ``label``.
        TooLarge: there are too many.
    """
    if len(names) > MAX_COLUMNS:
        raise TooLarge(FILE, f"may have at most {MAX_COLUMNS} columns")
    for i, name in enumerate(names):
        if not name:
            raise InvalidInput(
                FILE, f"column {i + 1} has no name; leave an index out (index=False in pandas)"
            )
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise InvalidInput(FILE, f"has more than one column named {twice!r}")
    if label is None:
        label = next((name for name in LABEL_NAMES if name in names), names[-1] if names else None)
    if label is None or label not in names:
        shown = ", ".join(map(repr, names[:SHOWN_NAMES])) + (", …" if len(names) > SHOWN_NAMES else "")
        raise InvalidInput(LABEL, f"there is no column {label!r}; there are {shown}")
    if len(names) < 2:
        raise InvalidInput(
            FILE, f"has only the column {names[0]!r}: it needs one of labels and one of numbers"
        )
    return Columns(names, names.index(label))


def store_table(table: Table, folder: Path, limits: Limits) -> DatasetContent:
    """Check a table and write it to ``folder``.

    Raises:
        InvalidInput: at ``("file", sample, column)``.
        TooLarge
    """
    names = table.columns.feature_names

    def cell(index: tuple[int, ...]) -> Field:
        return (*FILE, index[0], names[index[1]]) if index else FILE

    label = table.columns.names[table.columns.label]
    codes = LabelCodes(limits.max_classes, (*FILE, label), lambda i: (*FILE, i, label))
    samples = SampleFile(folder / X, (len(names),), table.dtype, limits, cell)
    try:
        for x, y in table.blocks:
            samples.add(x)
            if isinstance(y, list):
                codes.add_strings(y)
            else:
                codes.add_integers(y)
        labels, numbers = codes.finish(numbers_as_text=table.text)
        return finish_content(samples, labels, numbers, folder)
    finally:
        samples.close()


def require_values(column: Any, name: str, first: int) -> None:
    """Refuse a column of pyarrow with empty cells; ``first`` is the number of its first sample.

    Raises:
        InvalidInput
    """
    if column.null_count:
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise InvalidInput((*FILE, first + row, name), "is empty")
