"""The samples and labels of a training run, subsampled to the class counts asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anglewise.errors import InvalidInput
from jobs.datasets.builtin import load_builtin
from jobs.datasets.generators import gaussian_classes
from jobs.training_spec import TrainingSpec, check_subsample
from worker.training.context import Samples
from worker.training.plan import Stream, generator

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
Embeddings = npt.NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Samples sorted by class.

    Attributes:
        x: (n, features) vectors or (n, channels, height, width) images with mean 0 and variance 1 over
            all entries; None where only labels are needed.
        y: (n,) class numbers 0..C-1, ascending.
        labels: (C,) the labels of the classes as given.
        counts: (C,) samples of each class.
        center, spread: mean and standard deviation of the entries before.
    """

    x: FloatArray | None
    y: IntArray
    labels: tuple[int | str, ...]
    counts: tuple[int, ...]
    center: float = 0.0
    spread: float = 1.0

    @property
    def classes(self) -> int:
        return len(self.counts)

    def __len__(self) -> int:
        return len(self.y)


def load_data(spec: TrainingSpec, samples: Samples) -> TrainingData:
    """
    Raises:
        InvalidInput: the data does not go with the spec.
    """
    if spec.data.dataset is None and spec.data.builtin is None and spec.data.generator is None:
        assert spec.data.class_counts is not None
        counts = tuple(spec.data.class_counts)
        y = np.repeat(np.arange(len(counts)), counts).astype(np.int64)
        return TrainingData(None, y, tuple(range(len(counts))), counts)
    x, raw = _source(spec, samples)
    labels, y = np.unique(raw, return_inverse=True)
    keep = _subsample(y.astype(np.int64), spec.data.class_counts, spec.seed)
    y = y[keep].astype(np.int64)
    counts = tuple(np.bincount(y, minlength=len(labels)).tolist())
    if spec.encoder.name == "free":
        return TrainingData(None, y, tuple(labels.tolist()), counts)
    values = numbers(arranged(x[keep], spec.encoder.name), ("data", "dataset"))
    spec.check_shape(values.shape[1:], len(y))
    center, spread = float(values.mean(dtype=np.float64)), float(values.std(dtype=np.float64)) or 1.0
    standard = standardized(values, center, spread)
    return TrainingData(standard, y, tuple(labels.tolist()), counts, center, spread)


def _source(spec: TrainingSpec, samples: Samples) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.generic]]:
    if spec.data.builtin is not None:
        return load_builtin(spec.data.builtin)
    if spec.data.generator is not None:
        return gaussian_classes(spec.data.generator)
    assert spec.data.dataset is not None
    x, y = samples.dataset(spec.data.dataset)
    if y.ndim != 1 or len(x) != len(y) or len(y) == 0:
        raise InvalidInput(("data", "dataset"), f"has samples {x.shape} and labels {y.shape}")
    return x, y


def _subsample(y: IntArray, counts: list[int] | None, seed: int) -> IntArray:
    """Rows to keep, sorted by class: ``counts[c]`` random ones of class c, or all."""
    available = np.bincount(y).tolist()
    if counts is None:
        return np.argsort(y, kind="stable").astype(np.int64)
    check_subsample(counts, available)
    rows = []
    for c, count in enumerate(counts):
        chosen = generator(seed, Stream.SUBSAMPLE, c).permutation(np.flatnonzero(y == c))[:count]
        rows.append(np.sort(chosen))
    return np.concatenate(rows).astype(np.int64)


def arranged(x: npt.NDArray[np.generic], encoder: str) -> npt.NDArray[np.generic]:
    """Images as (n, channels, height, width), vectors as (n, features).

    Raises:
        InvalidInput: a convolutional encoder and samples that are no images.
    """
    if x.ndim == 3:
        return x[:, None]
    if x.ndim == 4:
        last, first = x.shape[-1] in (1, 3, 4), x.shape[1] in (1, 3, 4)
        return np.moveaxis(x, -1, 1) if last and not first else x
    if encoder in ("cnn", "resnet18", "resnet50"):
        raise InvalidInput(("encoder", "name"), f"needs images, not samples of shape {x.shape[1:]}")
    return x.reshape(len(x), -1)


def numbers(x: npt.NDArray[np.generic], field: tuple[str, ...]) -> FloatArray:
    """In single precision.

    Raises:
        InvalidInput: at the field: entries that are no finite numbers.
    """
    if x.dtype.kind not in "fiub":
        raise InvalidInput(field, "samples must be numbers")
    with np.errstate(over="ignore"):
        values = x.astype(np.float32)
    if not np.isfinite(values).all():
        raise InvalidInput(field, "samples must be finite, in single precision")
    return values


def standardized(values: FloatArray, center: float, spread: float) -> FloatArray:
    """What an encoder sees: mean 0 and variance 1 over all entries of the training set."""
    wide = values - np.float64(center)  # the largest single-precision numbers have no differences
    return np.ascontiguousarray(wide / spread, dtype=np.float32)


def evenly(data: TrainingData, most: int) -> IntArray:
    """About ``most`` rows, the same share of every class and at least one; all if there are fewer."""
    if len(data) <= most:
        return np.arange(len(data), dtype=np.int64)
    first = np.concatenate([[0], np.cumsum(data.counts)[:-1]])
    shares = [max(1, round(count * most / len(data))) for count in data.counts]
    parts = [start + np.arange(share) for start, share in zip(first, shares, strict=True)]
    return np.concatenate(parts).astype(np.int64)
