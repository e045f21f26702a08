"""Weights for a wanted geometry: log w_ij = s_ij is realizable by construction, and attains it.

Rows are normalized so that log w_ii = 0: log w_ij = (G_ij - 1)/T on the sphere, -D_ij/T for distances. For
the simplex of C classes, G_ij = -1/(C - 1), this is Soft SupCon with ε = exp(-C/((C - 1)T)) ([P2]).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigvalsh

from anglewise.blas import single_threaded_blas
from anglewise.embedding import centered
from anglewise.errors import InvalidInput, TooLarge
from anglewise.named import Counts, Level, NamedWeighting, soft_supcon
from anglewise.question import check_arguments
from anglewise.realizability import SINGLE_THREADED_BELOW, realizability
from anglewise.sampling import FloatArray, IntArray
from anglewise.verdict import LargestTemperature, Verdict
from anglewise.weighted_loss import Metric, SelfPairs
from anglewise.weights import LogWeights

Matrix = Sequence[Sequence[float]] | npt.NDArray[np.floating]

TARGET_TOLERANCE = 1e-9
"""Allowed asymmetry, diagonal error and negative eigenvalue of a target, relative to its size."""
SMALLEST_LOG_WEIGHT = math.log(float(np.finfo(np.float64).tiny))
MAX_SIMPLEX_ITEMS = 3000


@dataclass(frozen=True, eq=False)
class Design:
    """Weights whose optimal geometry is the target.

    Attributes:
        log_weights: (m, m) log w_ij; always exact.
        weights: (m, m) w_ij, or ``None`` if one of them is below the normal double-precision range: then
            only the logarithms say what is meant.
        level: "item": one row per item of the target; "class": one row per class (simplex).
        counts: (m,) items per row.
        named: the weighting of that name, if there is one.
        epsilon: for the simplex, the weight between classes; ``None`` elsewhere or where it underflows.
        log_epsilon: its logarithm.
        largest_temperature: up to which temperature these weights stay realizable; see `Verdict`.
        proof: the verdict on these weights. Self pairs included: realizable, by the target alone. Self
            pairs excluded: the target attains the bound, perhaps among others.
    """

    log_weights: LogWeights
    weights: FloatArray | None
    level: Level
    counts: IntArray
    named: NamedWeighting | None
    epsilon: float | None
    log_epsilon: float | None
    largest_temperature: LargestTemperature
    proof: Verdict


def design_weights(
    *,
    gram: Matrix | None = None,
    squared_distances: Matrix | None = None,
    simplex_class_counts: Counts | None = None,
    metric: Metric = "cosine",
    temperature: float = 0.1,
    self_pairs: SelfPairs = "included",
) -> Design:
    """Weights that the target geometry attains at this temperature.

    Args:
        gram: (n, n) positive semidefinite target; unit diagonal for the cosine metric.
        squared_distances: (n, n) Euclidean target distances; for the cosine metric those of unit vectors.
        simplex_class_counts: items per class; the target is the centered simplex of the classes.
        metric, temperature, self_pairs: as for `realizability`.

    Raises:
        InvalidInput: not exactly one target, or one that no geometry has: the message names the entry or
            the eigenvalue. `TooLarge` for a simplex of more than 3,000 items with self pairs excluded.

    >>> design = design_weights(simplex_class_counts=[5, 2, 1], temperature=0.5)
    >>> round(design.epsilon, 6), design.proof.verdict
    (0.049787, 'realizable')
    """
    targets = {
        "gram": gram,
        "squared_distances": squared_distances,
        "simplex": simplex_class_counts,
    }
    if sum(target is not None for target in targets.values()) != 1:
        raise InvalidInput(("target",), "give exactly one of gram, squared_distances and simplex")
    question: dict[str, Any] = {"metric": metric, "temperature": temperature, "self_pairs": self_pairs}
    check_arguments(metric, temperature, self_pairs)
    if simplex_class_counts is not None:
        return _simplex(simplex_class_counts, question)
    if gram is not None:
        D = _distances_of_gram(gram, metric)
    else:
        assert squared_distances is not None
        D = _checked_distances(squared_distances, metric)
    # Unit vectors have G_ij - 1 = -D_ij/2.
    L = -D / temperature if metric == "euclidean" else -D / (2 * temperature)
    log_weights = LogWeights.from_log_weights(L, "target")
    proof = realizability(log_weights, **question)
    if not proof.attained:  # inside the tolerance above, and outside that of the verdict
        raise InvalidInput(("target",), f"no geometry has it: {proof.reason.message}")
    return _design(log_weights, np.ones(len(L), dtype=np.int64), proof)


def _simplex(class_counts: Counts, question: dict[str, Any]) -> Design:
    C, T = len(class_counts), float(question["temperature"])
    if C < 2:
        raise InvalidInput(("target", "simplex", "class_counts"), "a simplex needs at least two classes")
    # Squared distances between its unit vectors are 2C/(C - 1).
    gap = C / (C - 1) / T if question["metric"] == "cosine" else 2 * C / (C - 1) / T
    log_epsilon = -gap
    epsilon = math.exp(log_epsilon) if log_epsilon >= SMALLEST_LOG_WEIGHT else None
    try:
        # A name only where ε is a number: its logarithm below says the rest.
        named = soft_supcon(epsilon if epsilon is not None else 1.0, class_counts=class_counts)
    except InvalidInput as error:
        raise InvalidInput(("target", "simplex", *error.field), error.message) from error
    counts = named.counts
    L = np.full((C, C), log_epsilon)
    np.fill_diagonal(L, 0.0)
    log_weights = LogWeights(L)
    if question["self_pairs"] == "included":  # repeating an item changes nothing
        proof = realizability(log_weights, **question)
    else:
        if counts.sum() > MAX_SIMPLEX_ITEMS:
            raise TooLarge(
                ("target", "simplex", "class_counts"),
                f"with self pairs excluded the proof is per item; at most {MAX_SIMPLEX_ITEMS} items",
            )
        rows = np.repeat(np.arange(C), counts)
        proof = realizability(LogWeights(L[np.ix_(rows, rows)]), **question)
    fits = epsilon is not None and question["metric"] == "cosine"
    return _design(
        log_weights,
        counts,
        proof,
        level="class",
        named=named if fits else None,
        epsilon=epsilon,
        log_epsilon=log_epsilon,
    )


def _design(
    log_weights: LogWeights,
    counts: IntArray,
    proof: Verdict,
    *,
    level: Level = "item",
    named: NamedWeighting | None = None,
    epsilon: float | None = None,
    log_epsilon: float | None = None,
) -> Design:
    L = log_weights.values
    return Design(
        log_weights=log_weights,
        weights=np.exp(L) if L.min() >= SMALLEST_LOG_WEIGHT else None,
        level=level,
        counts=counts,
        named=named,
        epsilon=epsilon,
        log_epsilon=log_epsilon,
        largest_temperature=proof.largest_temperature,
        proof=proof,
    )


def _distances_of_gram(gram: Matrix, metric: Metric) -> FloatArray:
    field = ("target", "gram")
    G = _symmetric(field, gram)
    scale = float(np.abs(G).max())
    if metric == "cosine":
        wrong = np.flatnonzero(np.abs(np.diag(G) - 1) > TARGET_TOLERANCE)
        if wrong.size:
            i = int(wrong[0])
            raise InvalidInput((*field, i, i), f"must be 1 for the cosine metric, not {G[i, i]:.12g}")
    _require_semidefinite(field, G, scale)
    D = np.diag(G)[:, None] + np.diag(G)[None, :] - 2 * G
    np.fill_diagonal(D, 0.0)
    return np.asarray(np.maximum(D, 0.0))


def _checked_distances(squared_distances: Matrix, metric: Metric) -> FloatArray:
    field = ("target", "squared_distances")
    D = _symmetric(field, squared_distances)
    scale = float(np.abs(D).max())
    if (wrong := np.argwhere(-TARGET_TOLERANCE * scale > D)).size:
        i, j = map(int, wrong[0])
        raise InvalidInput((*field, i, j), f"must not be negative, but is {D[i, j]:.12g}")
    if (off := np.flatnonzero(np.abs(np.diag(D)) > TARGET_TOLERANCE * scale)).size:
        i = int(off[0])
        raise InvalidInput((*field, i, i), f"an item is at distance 0 from itself, not {D[i, i]:.12g}")
    np.fill_diagonal(D, 0.0)
    if metric == "cosine":
        _require_semidefinite(field, 1 - 0.5 * D, 1.0, "of the Gram matrix 1 - D/2 of unit vectors")
    else:
        _require_semidefinite(field, -0.5 * centered(D), scale, "of -JDJ/2, the Gram matrix they need")
    return np.asarray(np.maximum(D, 0.0))


def _symmetric(field: tuple[str, str], rows: Matrix) -> FloatArray:
    """The symmetric part, if the rest is rounding."""
    try:
        A = LogWeights.from_log_weights(rows, field[1]).values
    except InvalidInput as error:
        message = "must be a finite number up to 1e9" if len(error.field) == 3 else error.message
        raise InvalidInput(("target", *error.field), message) from error
    if (missing := np.argwhere(np.isneginf(A))).size:
        raise InvalidInput((*field, *map(int, missing[0])), "must be finite")
    off: FloatArray = np.abs(A - A.T)
    if off.max() > TARGET_TOLERANCE * np.abs(A).max():
        i, j = map(int, np.unravel_index(off.argmax(), off.shape))
        raise InvalidInput((*field, i, j), f"must be symmetric, but is {off[i, j]:.3g} off its mirror entry")
    return np.asarray(0.5 * (A + A.T))


def _require_semidefinite(
    field: tuple[str, str], G: FloatArray, scale: float, what: str = "of the Gram matrix"
) -> None:
    with single_threaded_blas() if len(G) < SINGLE_THREADED_BELOW else nullcontext():
        smallest = float(eigvalsh(G, subset_by_index=[0, 0])[0])
    if smallest < -TARGET_TOLERANCE * max(scale, float(np.abs(G).sum(axis=1).max())):
        raise InvalidInput(field, f"no geometry has it: the smallest eigenvalue {what} is {smallest:.9g}")
