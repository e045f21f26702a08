"""Matrices and embeddings from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import typer

from anglewise_client._arrays import stored_arrays

Arrays = dict[str, np.ndarray[Any, Any]]


def read_matrix(path: Path) -> np.ndarray[Any, Any]:
    """(n, n) from an .npy file or a text of numbers, separated by commas or blanks.

    Raises:
        typer.BadParameter: it is not there, or not such a matrix.
    """
    try:
        if path.suffix.lower() == ".npy":
            matrix = _first(path, _arrays(path), "")
        else:
            text = path.read_text(encoding="utf-8-sig")
            rows = [line.replace(",", " ").split() for line in text.splitlines() if line.strip()]
            matrix = np.array(rows, dtype=np.float64)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path} is not a matrix: {error}") from None
    if matrix.ndim != 2 or matrix.dtype.kind not in "fiu":
        raise typer.BadParameter(f"{path} does not hold a matrix")
    return matrix


def read_embeddings(path: Path, labels: Path | None) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Embeddings (n, d) and labels (n,) from one .npz file, or from an .npy and a file of labels.

    Raises:
        typer.BadParameter: an array is not there.
    """
    arrays = _arrays(path)
    embeddings = _first(path, arrays, "embeddings", "features", "z", "x", "")
    if labels is None:
        return embeddings, _first(path, arrays, "labels", "y", "targets")
    if labels.suffix.lower() in (".npy", ".npz"):
        return embeddings, _first(labels, _arrays(labels), "labels", "y", "targets", "")
    lines = labels.read_text(encoding="utf-8-sig").split("\n")
    words = [line.strip() for line in lines if line.strip()]
    whole = all(word.removeprefix("-").isdecimal() for word in words)
    return embeddings, np.array(words, dtype=np.int64 if whole else np.str_)


def _arrays(path: Path) -> Arrays:
    try:
        with path.open("rb") as file:
            return stored_arrays(file)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{path} is not an array file: {error}") from None


def _first(path: Path, arrays: Arrays, *names: str) -> np.ndarray[Any, Any]:
    for name in names:
        if name in arrays:
            return arrays[name]
    wanted = ", ".join(name for name in names if name)
    raise typer.BadParameter(f"{path} has no array called {wanted}; it has {', '.join(arrays) or 'none'}")
