"""Keeping a bounded, uniform sample of the embeddings that pass by."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from anglewise_client._arrays import float_matrix, label_vector

Embeddings = npt.NDArray[np.floating[Any]]


class Sample:
    """At most ``capacity`` labeled embeddings, each seen so far with the same probability.

    Every item gets a random number when it comes; those with the smallest are kept.  So an epoch of any
    length fits, and the class proportions stay right.

    >>> sample = Sample(capacity=2)
    >>> sample.add([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], [0, 1, 1])
    >>> len(sample), sample.seen
    (2, 3)
    """

    def __init__(self, capacity: int, seed: int = 0) -> None:
        if capacity < 1:
            raise ValueError("capacity must be at least 1")
        self.capacity = capacity
        self.seen = 0
        self._draw = np.random.default_rng(seed)
        self._keys: list[npt.NDArray[np.float64]] = []
        self._rows: list[Embeddings] = []
        self._labels: list[npt.NDArray[Any]] = []

    def add(self, embeddings: Any, labels: Any) -> None:
        """
        Args:
            embeddings: (n, d) array or tensor.
            labels: (n,) integers or strings.

        Raises:
            ValueError: the shapes or types are others, or d differs from before.
        """
        rows, names = float_matrix(embeddings, "embeddings"), label_vector(labels)
        if len(rows) != len(names):
            raise ValueError(f"there are {len(rows)} embeddings and {len(names)} labels")
        if self._rows and rows.shape[1] != self._rows[0].shape[1]:
            raise ValueError(f"embeddings had {self._rows[0].shape[1]} dimensions, now {rows.shape[1]}")
        self.seen += len(rows)
        self._keys.append(self._draw.random(len(rows)))
        # A copy: a loop may write the next batch into the same memory.
        self._rows.append(np.array(rows))
        self._labels.append(np.array(names))
        if len(self) > 2 * self.capacity:
            self._shrink()

    def arrays(self) -> tuple[Embeddings, npt.NDArray[Any]]:
        """What was kept: (n, d) and (n,).

        Raises:
            ValueError: nothing was added.
        """
        if not self._rows:
            raise ValueError("no embeddings were added")
        if self._held() > self.capacity or len(self._rows) > 1:
            self._shrink()
        return self._rows[0], self._labels[0]

    def clear(self) -> None:
        """Forget all."""
        self.seen = 0
        self._keys, self._rows, self._labels = [], [], []

    def __len__(self) -> int:
        return min(self._held(), self.capacity)

    def _held(self) -> int:
        return sum(map(len, self._keys))

    def _shrink(self) -> None:
        keys = np.concatenate(self._keys)
        kept = np.sort(np.argsort(keys, kind="stable")[: self.capacity])
        self._keys = [keys[kept]]
        self._rows = [np.concatenate(self._rows)[kept]]
        self._labels = [np.concatenate(self._labels)[kept]]
