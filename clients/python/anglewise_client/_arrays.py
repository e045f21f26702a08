"""Numpy arrays as fields of pydantic models."""

from __future__ import annotations

import zipfile
import zlib
from typing import Annotated, Any, BinaryIO

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Labels = npt.NDArray[np.int64] | npt.NDArray[np.str_]


def _floats(value: Any) -> Any:
    """null becomes NaN."""
    return None if value is None else np.asarray(value, dtype=np.float64)


def _matrix(value: Any) -> Any:
    """Rows of equal length; also of no rows at all."""
    array = _floats(value)
    if array is None:
        return None
    if array.size == 0:
        return array.reshape(len(array), 0)
    if array.ndim != 2:
        raise ValueError(f"must have two axes, not {array.ndim}")
    return array


def _ints(value: Any) -> Any:
    return None if value is None else np.asarray(value, dtype=np.int64)


def _finite_lists(array: Floats | None) -> Any:
    """As JSON has it: NaN becomes null."""
    if array is None:
        return None
    if np.isfinite(array).all():
        return array.tolist()
    cells = array.astype(object)
    cells[~np.isfinite(array)] = None
    return cells.tolist()


def _lists(array: Ints | None) -> Any:
    return None if array is None else array.tolist()


_NUMBERS = WithJsonSchema({"type": "array"})
_FLOATS_TO_JSON = PlainSerializer(_finite_lists, when_used="json")

Matrix = Annotated[Floats, BeforeValidator(_matrix), _FLOATS_TO_JSON, _NUMBERS]
"""(rows, columns) of float64."""
Vector = Annotated[Floats, BeforeValidator(_floats), _FLOATS_TO_JSON, _NUMBERS]
"""(n,) of float64."""
Index = Annotated[Ints, BeforeValidator(_ints), PlainSerializer(_lists, when_used="json"), _NUMBERS]
"""(n,) of int64."""


def stored_arrays(file: BinaryIO) -> dict[str, npt.NDArray[Any]]:
    """All arrays of an .npz file; that of an .npy file under an empty name. Nothing is unpickled.

    Raises:
        ValueError: it is another kind of file, or damaged.
    """
    try:
        loaded = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            return {name: loaded[name] for name in loaded.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise ValueError(str(error) or type(error).__name__) from error


def host_array(values: Any) -> npt.NDArray[Any]:
    """A numpy array of a tensor, an array or lists; tensors are detached and copied from their device.

    >>> host_array([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    if hasattr(values, "detach"):
        values = values.detach()
        if str(getattr(values, "dtype", "")) in ("torch.bfloat16", "torch.float16"):
            values = values.float()
        values = values.cpu().numpy()
    return np.asarray(values)


def listed(values: Any) -> Any:
    """Arrays, tensors and columns of tables as lists; lists stay as they are, down to the type of numbers.

    >>> listed(np.array([1, 2])), listed((5, 1.5))
    ([1, 2], [5, 1.5])
    """
    if values is None:
        return None
    if hasattr(values, "detach") or hasattr(values, "__array__"):
        return host_array(values).tolist()
    return list(values)


def float_matrix(values: Any, name: str) -> npt.NDArray[np.floating]:
    """(rows, columns) of float32 or float64.

    Raises:
        ValueError: it is not such a matrix.
    """
    array = host_array(values)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise ValueError(f"{name} must be a matrix of numbers, not {array.dtype} of shape {array.shape}")
    kept = array.dtype in (np.float32, np.float64)
    return array if kept else array.astype(np.float64)


def label_vector(values: Any, name: str = "labels") -> npt.NDArray[Any]:
    """(n,) of integers or strings; whole floats, as tables have them, become integers.

    Raises:
        ValueError: it is not such a vector.
    """
    array = host_array(values)
    if array.dtype.kind == "U" and array is not values and any(not isinstance(v, str) for v in values):
        raise ValueError(f"{name} must be all integers or all strings")
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array.ravel()):
        array = array.astype(np.str_)
    if array.dtype.kind == "f" and np.isfinite(array).all() and (array == np.rint(array)).all():
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iuU":
        raise ValueError(
            f"{name} must be a vector of integers or strings, not {array.dtype} of shape {array.shape}"
        )
    return array
