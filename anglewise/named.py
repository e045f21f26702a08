"""The weightings of [P2] that have names, from labels, class counts or label vectors.

| name          | w_ij                             | metric    | from                    |
|---------------|----------------------------------|-----------|-------------------------|
| `supcon`      | 1 in one class, 0 between        | cosine    | labels or class counts  |
| `soft_supcon` | 1 in one class, ε between        | cosine    | labels or class counts  |
| `y_aware`     | exp(-‖y_i - y_j‖² / (2σ²))       | cosine    | label vectors           |
| `euclidean`   | exp(-‖y_i - y_j‖² / (2σ²))       | euclidean | label vectors           |
| `x_clr`       | exp(cos(y_i, y_j) / T_w)         | cosine    | label vectors           |

Items of one class have equal weights, so a weighting over classes is held at class level: one row per
class, and how many items each class has. Given both, label vectors are one per class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from anglewise.errors import InvalidInput, TooLarge
from anglewise.sampling import FloatArray, IntArray, proportions_from_counts
from anglewise.weighted_loss import Metric, SelfPairs
from anglewise.weights import LogWeights

Level = Literal["class", "item"]
WeightingName = Literal["supcon", "soft_supcon", "y_aware", "euclidean", "x_clr"]
Counts = Sequence[int] | npt.NDArray[np.integer]
Labels = Sequence[int] | Sequence[str] | npt.NDArray[Any]
Vectors = Sequence[Sequence[float]] | Sequence[float] | npt.NDArray[np.floating]

MAX_ITEMS = 20_000
LARGEST_TARGET = 1e100
"""Entries of label vectors up to this have finite squared distances."""


@dataclass(frozen=True, eq=False)
class NamedWeighting:
    """Weights with a name.

    Attributes:
        name: the name in [P2].
        metric: the metric of the latent similarity the name goes with.
        parameters: ε, σ or T_w under the names the builders take.
        level: "class": one row per class of ``counts`` items each; "item": one row per item.
        log_weights: (m, m) log w between rows; the diagonal is also the weight inside a class.
        counts: (m,) items per row, all 1 at item level.
        index: (n,) row of each item, in the caller's order.
        classes: labels of the classes in the order of the rows, if they came from labels.
    """

    name: WeightingName
    metric: Metric
    parameters: dict[str, float]
    level: Level
    log_weights: LogWeights
    counts: IntArray
    index: IntArray = field(repr=False)
    classes: tuple[int | str, ...] = ()

    @property
    def items(self) -> int:
        """n, the number of items."""
        return int(self.counts.sum())

    def per_item(self) -> LogWeights:
        """(n, n) log-weights between items.

        Raises:
            TooLarge: more than 20,000 items.
        """
        if self.items > MAX_ITEMS:
            raise TooLarge(
                ("class_counts",), f"{self.items} items make too large a matrix (limit {MAX_ITEMS})"
            )
        rows = self.index if len(self.index) else np.repeat(np.arange(len(self.counts)), self.counts)
        return LogWeights(self.log_weights.values[np.ix_(rows, rows)], self.log_weights.resolution)

    def skipped_rows(self, self_pairs: SelfPairs) -> IntArray:
        """Rows whose items have no positive weight and are skipped as anchors.

        With self pairs excluded these are SupCon's classes of a single item.
        """
        positive = self.log_weights.values > -np.inf
        if self_pairs == "excluded":
            np.fill_diagonal(positive, positive.diagonal() & (self.counts > 1))
        return np.flatnonzero(~positive.any(axis=1)).astype(np.int64)

    def skipped_anchors(self, self_pairs: SelfPairs) -> int:
        """How many items are skipped as anchors."""
        return int(self.counts[self.skipped_rows(self_pairs)].sum())


def supcon(*, labels: Labels | None = None, class_counts: Counts | None = None) -> NamedWeighting:
    """SupCon: w = 1 inside a class, 0 between classes.

    >>> supcon(class_counts=[3, 1]).skipped_anchors("excluded")
    1
    """
    return _between_classes("supcon", -math.inf, {}, labels, class_counts)


def soft_supcon(
    epsilon: float, *, labels: Labels | None = None, class_counts: Counts | None = None
) -> NamedWeighting:
    """Soft SupCon: w = 1 inside a class, ε in (0, 1] between classes."""
    _require_number("epsilon", epsilon, 0.0, 1.0)
    return _between_classes("soft_supcon", math.log(epsilon), {"epsilon": epsilon}, labels, class_counts)


def y_aware(
    sigma: float,
    *,
    labels: Vectors | None = None,
    targets: Vectors | None = None,
    class_counts: Counts | None = None,
) -> NamedWeighting:
    """y-Aware: the Gaussian kernel of scalar labels or of label vectors ``targets``, cosine similarities."""
    return _gaussian("y_aware", "cosine", sigma, labels, targets, class_counts)


def euclidean(
    sigma: float,
    *,
    labels: Vectors | None = None,
    targets: Vectors | None = None,
    class_counts: Counts | None = None,
) -> NamedWeighting:
    """The Gaussian kernel of the labels with Euclidean similarities: z = √(T/(2σ²)) y up to isometry."""
    return _gaussian("euclidean", "euclidean", sigma, labels, targets, class_counts)


def x_clr(
    label_temperature: float, *, targets: Vectors, class_counts: Counts | None = None
) -> NamedWeighting:
    """X-CLR: w = exp(cos(y_i, y_j)/T_w) of label vectors, none of them zero."""
    _require_number("label_temperature", label_temperature, 1e-9, 1e9)
    Y = _vectors("targets", targets)
    largest = np.abs(Y).max(axis=1)
    zero = np.flatnonzero(largest == 0)
    if zero.size:
        raise InvalidInput(("targets", int(zero[0])), "a zero vector has no direction")
    Y = Y / largest[:, None]
    Y /= np.linalg.norm(Y, axis=1)[:, None]
    cosines = np.clip(Y @ Y.T, -1.0, 1.0)
    cosines = 0.5 * (cosines + cosines.T)
    np.fill_diagonal(cosines, 1.0)
    parameters = {"label_temperature": label_temperature}
    return _of_vectors("x_clr", "cosine", parameters, cosines / label_temperature, class_counts)


def named_weighting(name: str, **arguments: Any) -> NamedWeighting:
    """The weighting of that name; the arguments are those of its builder.

    Raises:
        InvalidInput: an unknown name, an argument the weighting does not take or lacks, or a value
            outside its domain.
    """
    builders = {
        "supcon": (supcon, (), ("labels", "class_counts")),
        "soft_supcon": (soft_supcon, ("epsilon",), ("labels", "class_counts")),
        "y_aware": (y_aware, ("sigma",), ("labels", "targets", "class_counts")),
        "euclidean": (euclidean, ("sigma",), ("labels", "targets", "class_counts")),
        "x_clr": (x_clr, ("label_temperature", "targets"), ("class_counts",)),
    }
    if name not in builders:
        raise InvalidInput(("name",), f"must be one of {', '.join(builders)}")
    build, needed, optional = builders[name]
    given = {key: value for key, value in arguments.items() if value is not None}
    for key in given:
        if key not in needed + optional:
            raise InvalidInput((key,), f"{name} does not take this")
    for key in needed:
        if key not in given:
            raise InvalidInput((key,), f"{name} needs this")
    weighting: NamedWeighting = build(**given)  # type: ignore[operator]
    return weighting


def _between_classes(
    name: WeightingName,
    log_between: float,
    parameters: dict[str, float],
    labels: Labels | None,
    class_counts: Counts | None,
) -> NamedWeighting:
    if (labels is None) == (class_counts is None):
        raise InvalidInput(("labels",), "give exactly one of labels and class_counts")
    classes: tuple[int | str, ...] = ()
    index = np.zeros(0, dtype=np.int64)
    if labels is not None:
        classes, index = _classes(labels)
        counts = np.bincount(index).astype(np.int64)
    else:
        assert class_counts is not None
        counts = _counts(class_counts)
    L = np.full((len(counts), len(counts)), log_between)
    np.fill_diagonal(L, 0.0)
    return NamedWeighting(name, "cosine", parameters, "class", LogWeights(L), counts, index, classes)


def _gaussian(
    name: WeightingName,
    metric: Metric,
    sigma: float,
    labels: Vectors | None,
    targets: Vectors | None,
    class_counts: Counts | None,
) -> NamedWeighting:
    if (labels is None) == (targets is None):
        raise InvalidInput(("targets",), "give exactly one of labels and targets")
    _require_number("sigma", sigma, 1e-100, 1e100)
    Y = _vectors("labels", labels) if labels is not None else _vectors("targets", targets)
    scaled = Y / (math.sqrt(2) * sigma)
    L = 0.0 - cdist(scaled, scaled, "sqeuclidean")
    return _of_vectors(name, metric, {"sigma": sigma}, L, class_counts)


def _of_vectors(
    name: WeightingName,
    metric: Metric,
    parameters: dict[str, float],
    L: FloatArray,
    class_counts: Counts | None,
) -> NamedWeighting:
    try:
        log_weights = LogWeights.from_log_weights(L)
    except InvalidInput as error:
        wanted = next(iter(parameters))
        raise InvalidInput((wanted,), "too small for these labels: log-weights overflow") from error
    n = len(L)
    if class_counts is None:
        ones = np.ones(n, dtype=np.int64)
        return NamedWeighting(name, metric, parameters, "item", log_weights, ones, np.arange(n))
    counts = _counts(class_counts)
    if len(counts) != n:
        raise InvalidInput(("class_counts",), f"has {len(counts)} classes where targets has {n} vectors")
    return NamedWeighting(name, metric, parameters, "class", log_weights, counts, np.zeros(0, dtype=np.int64))


def _counts(class_counts: Counts) -> IntArray:
    proportions_from_counts(class_counts)  # checks
    return np.asarray(class_counts, dtype=np.int64)


def _classes(labels: Labels) -> tuple[tuple[int | str, ...], IntArray]:
    """The distinct labels in sorted order and the class of each item."""
    if isinstance(labels, (str, bytes)) or not isinstance(labels, (Sequence, np.ndarray)):
        raise InvalidInput(("labels",), "must be a list of integers or of strings")
    if len(labels) == 0:
        raise InvalidInput(("labels",), "needs at least one item")
    values = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    kind: type = str if isinstance(values[0], str) else int
    for i, value in enumerate(values):
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (kind, np.integer)):
            raise InvalidInput(("labels", i), "must be an integer or a string, the same kind for all items")
    distinct = sorted(set(values))
    position = {value: k for k, value in enumerate(distinct)}
    return tuple(distinct), np.array([position[value] for value in values], dtype=np.int64)


def _vectors(name: str, values: Vectors | None) -> FloatArray:
    """(n, dim) finite label vectors; plain numbers are vectors of one component."""
    if isinstance(values, (str, bytes)) or not isinstance(values, (Sequence, np.ndarray)):
        raise InvalidInput((name,), "must be a list of numbers or of vectors")
    try:
        raw = np.asarray(values)
    except ValueError as error:
        raise InvalidInput((name,), "vectors must have equal lengths") from error
    if raw.size == 0 or raw.ndim not in (1, 2):
        raise InvalidInput((name,), "needs at least one number or vector")
    if raw.dtype.kind not in "iuf":
        raise InvalidInput((name,), "must be numbers")
    Y = raw.astype(np.float64).reshape(len(raw), -1)
    bad = np.argwhere(~(np.abs(Y) <= LARGEST_TARGET))
    if bad.size:
        i, j = map(int, bad[0])
        raise InvalidInput((name, i, j) if raw.ndim == 2 else (name, i), "must be finite, at most 1e100")
    return Y


def _require_number(name: str, value: float, low: float, high: float) -> None:
    """value in (0 or low, high]: a low of 0 is excluded."""
    numeric = isinstance(value, (int, float, np.number)) and not isinstance(value, (bool, np.bool_))
    if not (numeric and low <= value <= high and value > 0):
        raise InvalidInput((name,), f"must be a number in {'(' if low == 0 else '['}{low:g}, {high:g}]")
