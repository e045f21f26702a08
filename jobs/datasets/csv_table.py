"""A CSV file as a table. The first row names the columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from anglewise.errors import InvalidInput
from jobs.datasets.tables import FILE, Columns, Table, choose_columns, require_values

BLOCK_BYTES = 4 * 2**20
MAX_HEADER = 2**20
DELIMITERS = ",;\t"
NUMBERED = re.compile(r"Row #(\d+): (.*)", re.DOTALL)
IN_COLUMN = re.compile(r"In CSV column #(\d+): (.*)", re.DOTALL)
UNREADABLE = "is none of .npz, .parquet, or .csv as UTF-8 text"


def open_csv(path: Path, label: str | None) -> Table:
    """
    Args:
        label: the column of labels; None: the one named "label" or "y", else the last.

    Raises:
        InvalidInput, TooLarge: what is wrong with the columns. Iterating over the blocks raises what is
            wrong with the rows.
    """
    header = _header(path)
    delimiter = max(DELIMITERS, key=header.count)
    try:
        names = [name.strip() for name in next(csv.reader([header], delimiter=delimiter, strict=True), [])]
    except csv.Error as error:
        raise InvalidInput(FILE, f"its first row is damaged: {error}") from None
    if not names or all(_is_number(name) for name in names):
        raise InvalidInput(FILE, "its first row must name the columns, and holds only numbers")
    columns = choose_columns(names, label)
    return Table(columns, np.dtype(np.float64), _blocks(path, delimiter, columns), text=True)


def _header(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(MAX_HEADER)
    line = re.split(rb"[\r\n]", start, maxsplit=1)[0]
    if len(line) == MAX_HEADER:
        raise InvalidInput(FILE, f"its first row is longer than {MAX_HEADER} bytes")
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput(FILE, UNREADABLE) from None
    if "\0" in text:
        raise InvalidInput(FILE, UNREADABLE)
    return text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _blocks(
    path: Path, delimiter: str, columns: Columns
) -> Iterator[tuple[npt.NDArray[Any], list[str | None]]]:
    import pyarrow as pa  # type: ignore[import-untyped]

    first = 0
    try:
        for batch in _reader(path, delimiter, columns):
            x = np.empty((batch.num_rows, len(columns.features)))
            for j, i in enumerate(columns.features):
                require_values(batch.column(i), columns.names[i], first)
                x[:, j] = batch.column(i).to_numpy(zero_copy_only=False)
            labels = [text.strip() for text in batch.column(columns.label).to_pylist()]
            yield x, labels
            first += len(x)
    except MemoryError:
        raise
    except pa.ArrowException as error:
        raise _refused(str(error), columns) from None


def _reader(path: Path, delimiter: str, columns: Columns) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    keys = [str(i) for i in range(len(columns.names))]
    types = dict.fromkeys(keys, pa.float64()) | {keys[columns.label]: pa.string()}
    return arrow_csv.open_csv(
        str(path),
        # One thread: only then do errors tell the row.
        arrow_csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES, column_names=keys, skip_rows=1),
        arrow_csv.ParseOptions(delimiter=delimiter),
        arrow_csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=False),
    )


def _refused(message: str, columns: Columns) -> InvalidInput:
    """What pyarrow says about a file, with the name of the column and the row as an editor counts it."""
    where = ""
    if match := IN_COLUMN.match(message):
        where, message = f"column {columns.names[int(match[1])]!r}: ", match[2]
    message = message.removeprefix("CSV parse error: ")
    if match := NUMBERED.match(message):
        where, message = f"row {match[1]}, {where}", match[2]
    if "straddling" in message:
        message = f"a row is longer than {BLOCK_BYTES} bytes"
    message = message.replace("CSV conversion error to double: ", "").replace("CSV conversion error to ", "")
    return InvalidInput(FILE, where + message)
