"""A Parquet file as a table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from anglewise.errors import InvalidInput, TooLarge
from jobs.computations.limits import Limits
from jobs.datasets.content import MAX_SAMPLES, rows_of_block
from jobs.datasets.tables import FILE, Columns, Table, choose_columns, require_values

INDEX = re.compile(r"__index_level_\d+__")
"""Columns in which pandas keeps an index."""
MAX_ROWS = 65_536
DAMAGED = "is not a Parquet file, or it is damaged"


def open_parquet(path: Path, label: str | None, limits: Limits) -> Table:
    """
    Args:
        label: the column of labels; None: the one named "label" or "y", else the last.

    Raises:
        InvalidInput, TooLarge: what is wrong with the columns. Iterating over the blocks raises what is
            wrong with the rows.
    """
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyarrow import parquet

    try:
        file = parquet.ParquetFile(path, arrow_extensions_enabled=False)
        schema = file.schema_arrow
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise InvalidInput(FILE, DAMAGED) from None
    _require_size(file.metadata, limits)
    columns = choose_columns([name for name in schema.names if not INDEX.fullmatch(name)], label)
    dtypes = [_feature_dtype(schema.field(name)) for name in columns.feature_names]
    dtype = np.result_type(*dtypes)
    return Table(columns, dtype, _blocks(file, columns, dtype), text=False)


def _require_size(metadata: Any, limits: Limits) -> None:
    if metadata.num_rows > MAX_SAMPLES:
        raise TooLarge(FILE, f"may have at most {MAX_SAMPLES} samples")
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    if sum(group.total_byte_size for group in groups) > limits.max_upload_bytes:
        raise TooLarge(FILE, f"takes more than {limits.max_upload_bytes} bytes when decompressed")


def _feature_dtype(field: Any) -> np.dtype[Any]:
    from pyarrow import types

    if not (types.is_integer(field.type) or types.is_floating(field.type)):
        raise InvalidInput((*FILE, field.name), f"is of type {str(field.type)[:50]}; it must hold numbers")
    dtype: np.dtype[Any] = np.dtype(field.type.to_pandas_dtype())
    return dtype


def _blocks(
    file: Any, columns: Columns, dtype: np.dtype[Any]
) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[np.integer] | list[str | None]]]:
    import pyarrow as pa

    first = 0
    rows = min(MAX_ROWS, rows_of_block(dtype.itemsize * len(columns.features)))
    try:
        for batch in file.iter_batches(batch_size=rows, columns=columns.names, use_threads=False):
            x = np.empty((batch.num_rows, len(columns.features)), dtype)
            for j, name in enumerate(columns.feature_names):
                require_values(batch.column(name), name, first)
                x[:, j] = batch.column(name).to_numpy(zero_copy_only=False)
            yield x, _labels(batch.column(columns.names[columns.label]), columns, first)
            first += len(x)
    except MemoryError:
        raise
    except (pa.ArrowException, OSError):
        raise InvalidInput(FILE, DAMAGED) from None


def _labels(column: Any, columns: Columns, first: int) -> npt.NDArray[np.integer] | list[str | None]:
    from pyarrow import types

    name = columns.names[columns.label]
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    require_values(column, name, first)
    if types.is_integer(column.type):
        integers: npt.NDArray[np.integer] = column.to_numpy(zero_copy_only=False)
        return integers
    if types.is_string(column.type) or types.is_large_string(column.type):
        strings: list[str | None] = column.to_pylist()
        return strings
    raise InvalidInput((*FILE, name), f"is of type {str(column.type)[:50]}; labels are integers or strings")
