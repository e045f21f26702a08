"""Class counts from what people have: numbers, label files, tables, arrays, folders of images."""

from __future__ import annotations

import codecs
import csv
import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np

from anglewise_client._arrays import stored_arrays
from anglewise_client.cli.columns import plain_column

Meaning = Literal["auto", "labels", "counts"]
Label = int | str

LABEL_COLUMNS = ("label", "labels", "class", "target", "y", "category", "dx")
COUNT_COLUMNS = ("count", "counts", "n", "samples")
LABEL_ARRAYS = ("labels", "y", "targets")


class BadCounts(ValueError):
    """There are no class counts in what was given."""


@dataclass(frozen=True)
class Counted:
    """Counts of classes.

    Attributes:
        labels: of the classes; sorted when they were counted, else in the order given.
        counts: samples of each.
        source: what was read, in words.
    """

    labels: Sequence[Label]
    counts: Sequence[int]
    source: str


def read_counts(given: Sequence[str], column: str | None = None, meaning: Meaning = "auto") -> Counted:
    """Counts from the arguments of a command.

    Args:
        given: numbers (also ``5000,50``), or one path (``-``: standard input).
        column: of a table, by name or 0-based number.
        meaning: whether the values are labels to be counted or counts themselves; auto: counts if no value
            comes twice, or if the column is called "count".

    Raises:
        BadCounts: nothing usable was given.
    """
    words = [word for argument in given for word in argument.split(",") if word]
    if words and all(word.lstrip("-").isdecimal() for word in words):
        return _checked(Counted(range(len(words)), [int(word) for word in words], "the arguments"))
    if len(given) != 1:
        raise BadCounts("give the number of samples of each class, or one file or folder to count in")
    path = Path(given[0])
    if path.is_dir():
        return _checked(_folder(path))
    if given[0] != "-" and not path.is_file():
        raise BadCounts(f"{given[0]!r} is neither a number nor a file or folder")
    suffix = path.suffix.lower()
    try:
        if suffix in (".npy", ".npz"):
            return _checked(_array(path, meaning))
        if suffix in (".csv", ".tsv") or column is not None:
            return _checked(_table(path, column, meaning))
        return _checked(_lines(path, meaning))
    except UnicodeDecodeError as error:
        raise BadCounts(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from None


def _checked(counted: Counted) -> Counted:
    if not counted.counts:
        raise BadCounts(f"there are no samples in {counted.source}")
    wrong = [count for count in counted.counts if count < 1]
    if wrong:
        raise BadCounts(f"a class count must be at least 1, not {wrong[0]}")
    return counted


def _folder(path: Path) -> Counted:
    """Each subfolder is a class, each file below it a sample; hidden ones are not."""
    classes = sorted(entry.name for entry in os.scandir(path) if entry.is_dir() and entry.name[0] != ".")
    if not classes:
        raise BadCounts(f"{path} has no subfolders, one for each class")
    counts = [_files(path / name) for name in classes]
    return Counted(classes, counts, f"{sum(counts)} files in {len(classes)} folders of {path}")


def _files(path: Path) -> int:
    return sum(sum(name[0] != "." for name in files) for _, _, files in os.walk(path))


def _array(path: Path, meaning: Meaning) -> Counted:
    try:
        with path.open("rb") as file:
            arrays = stored_arrays(file)
    except ValueError as error:
        raise BadCounts(f"{path} is not an array file, or it is damaged: {error}") from None
    found = next((arrays[name] for name in ("", *LABEL_ARRAYS) if name in arrays), None)
    if found is None:
        raise BadCounts(f"{path} has no array called {' or '.join(LABEL_ARRAYS)}")
    return _values(found, path, meaning)


def _values(array: np.ndarray[Any, Any], path: Path, meaning: Meaning) -> Counted:
    if array.ndim != 1 or array.dtype.kind not in "iufU":
        raise BadCounts(f"{path} holds {array.dtype} of shape {array.shape}, not one label or count a sample")
    if array.dtype.kind == "f":
        if not (np.isfinite(array).all() and (array == np.rint(array)).all()):
            raise BadCounts(f"{path} holds numbers that are not whole")
        array = array.astype(np.int64)
    if array.dtype.kind == "U":
        return _counted(Counter(array.tolist()), path, meaning)
    # Sorting integers is several times faster than hashing them.
    labels, counts = np.unique(array, return_counts=True)
    if meaning == "counts" or (meaning == "auto" and len(labels) == len(array)):
        return _as_counts(array.tolist(), path)
    return _of_labels(dict(zip(labels.tolist(), counts.tolist(), strict=True)), path)


def _lines(path: Path, meaning: Meaning) -> Counted:
    """One label a line. Splitting and counting bytes is far faster than decoding line by line."""
    data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    tally = _decoded(Counter(data.split(b"\n")))
    del tally[""]
    return _counted(tally, path, meaning)


def _decoded(raw: Counter[bytes]) -> Counter[str]:
    clean: Counter[str] = Counter()
    for label, count in raw.items():
        clean[label.decode("utf-8-sig").strip().strip('"')] += count
    return clean


def _table(path: Path, column: str | None, meaning: Meaning) -> Counted:
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
        first = next(reader, [])
        header = [] if first and all(map(_number, first)) else first
        index = _column(path, header, len(first), column)
        name = header[index].strip().lower() if header else ""
        as_counts = meaning == "counts" or (meaning == "auto" and name in COUNT_COLUMNS)
        rows: Iterable[list[str]] = reader if header else _chain(first, reader)
        try:
            if as_counts:
                return _count_column(path, header, index, list(rows))
            tally = _fast_tally(path, reader.dialect.delimiter, index, bool(header))
            if tally is None:
                tally = Counter(map(itemgetter(index), rows))
        except IndexError:
            raise BadCounts(f"line {reader.line_num} of {path} has no column {index}") from None
    return _counted(tally, path, meaning)


def _fast_tally(path: Path, delimiter: str, index: int, header: bool) -> Counter[str] | None:
    """Labels of a plain table; None if it is not so plain."""
    data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    cells = plain_column(data[data.find(b"\n") + 1 :] if header else data, delimiter, index)
    return None if cells is None else _decoded(Counter(cells))


def _chain(first: list[str], rest: Iterable[list[str]]) -> Iterable[list[str]]:
    yield first
    yield from rest


def _column(path: Path, header: Sequence[str], width: int, wanted: str | None) -> int:
    names = [name.strip() for name in header]
    if wanted is not None:
        if wanted in names:
            return names.index(wanted)
        if wanted.isdecimal() and int(wanted) < width:
            return int(wanted)
        raise BadCounts(f"{path} has no column {wanted!r}; it has {', '.join(names) or f'{width} columns'}")
    small = [name.lower() for name in names]
    for name in (*LABEL_COLUMNS, *COUNT_COLUMNS):
        # A table of classes with their counts is for its counts.
        if name in small and not (name in LABEL_COLUMNS and set(COUNT_COLUMNS) & set(small)):
            return small.index(name)
    if width == 1:
        return 0
    raise BadCounts(f"say which column of {path} to read: --column {' | '.join(names) or '0, 1, …'}")


def _count_column(path: Path, header: Sequence[str], index: int, rows: list[list[str]]) -> Counted:
    counted = _as_counts([row[index] for row in rows], path)
    small = [name.strip().lower() for name in header]
    named = [small.index(name) for name in LABEL_COLUMNS if name in small]
    labels = [row[named[0]] for row in rows] if named else counted.labels
    return Counted(labels, counted.counts, counted.source)


def _counted(tally: Counter[str], path: Path, meaning: Meaning) -> Counted:
    if "" in tally:
        raise BadCounts(f"{tally['']} rows of {path} have no label")
    single = all(count == 1 for count in tally.values())
    whole = all(map(str.isdecimal, tally))
    if meaning == "counts" or (meaning == "auto" and single and whole and len(tally) > 1):
        return _as_counts(list(tally.elements()), path)
    if all(map(_whole, tally)):
        numbers: Counter[int] = Counter()
        for label, count in tally.items():
            numbers[int(label)] += count
        return _of_labels(numbers, path)
    return _of_labels(tally, path)


def _of_labels(tally: Mapping[Any, int], path: Path) -> Counted:
    labels = sorted(tally)
    counts = [tally[label] for label in labels]
    return Counted(labels, counts, f"{sum(counts)} labels of {len(labels)} classes in {_name(path)}")


def _as_counts(values: Iterable[Any], path: Path) -> Counted:
    try:
        counts = [int(value) for value in values]
    except ValueError as error:
        raise BadCounts(f"{path} holds something other than counts: {error}") from None
    return Counted(range(len(counts)), counts, f"{len(counts)} class counts in {_name(path)}")


def _name(path: Path) -> str:
    return "standard input" if str(path) == "-" else str(path)


def _whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
