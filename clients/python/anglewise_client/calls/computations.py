"""The computations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from anglewise_client._arrays import float_matrix, label_vector, listed
from anglewise_client._call import ARRAY, Call
from anglewise_client.calls.encoding import (
    accept,
    axis_of,
    fields_of,
    given,
    log_weights_of,
    npy,
    npz_upload,
    plain,
    weights_of,
)
from anglewise_client.calls.reading import chosen, model
from anglewise_client.diagnosis import Diagnosis
from anglewise_client.geometry import Geometry, WeightedGeometry
from anglewise_client.losses import AnyLoss, AnyWeighting
from anglewise_client.thresholds import AxisName, CollapseMap, Quantity, Threshold
from anglewise_client.verdicts import Design, Realizability

Sampling: TypeAlias = Literal["supervised", "unsupervised"]
Metric: TypeAlias = Literal["cosine", "euclidean"]
SelfPairs: TypeAlias = Literal["included", "excluded"]
CountsLike: TypeAlias = Sequence[int] | npt.NDArray[np.integer[Any]]
FloatsLike: TypeAlias = Sequence[float] | npt.NDArray[np.floating[Any]]
MatrixLike: TypeAlias = Sequence[Sequence[float]] | npt.NDArray[np.floating[Any]]
LogMatrixLike: TypeAlias = Sequence[Sequence[float | None]] | npt.NDArray[np.floating[Any]]
LossLike: TypeAlias = AnyLoss | Mapping[str, Any]
WeightingLike: TypeAlias = AnyWeighting | Mapping[str, Any]
AxisLike: TypeAlias = tuple[AxisName, Sequence[float | str]] | Mapping[str, Any]

SMALL_JSON = 20_000
"""Numbers up to which arrays are sent as JSON; more travel as .npy or .npz."""


def optimal_geometry(
    *,
    class_counts: CountsLike | None = None,
    class_proportions: FloatsLike | None = None,
    weights: MatrixLike | WeightingLike | None = None,
    log_weights: LogMatrixLike | None = None,
    sampling: Sampling | None = None,
    loss: LossLike | None = None,
    metric: Metric | None = None,
    temperature: float | None = None,
    self_pairs: SelfPairs | None = None,
    dimension: int | None = None,
    nonnegative: bool | None = None,
    solver: Literal["auto", "cvxpy"] | None = None,
    tolerance: float | None = None,
    groups: bool | None = None,
    full: bool = False,
) -> Call[Geometry]:
    """The optimal geometry of class means, with a certified gap.

    Exactly one of ``class_counts``, ``class_proportions``, ``weights`` and ``log_weights``. What is left out
    has the default of the service: supervised sampling, InfoNCE with 256 negatives at temperature 0.1,
    tolerance 1e-8.

    Args:
        class_counts: (C,) samples of each class.
        class_proportions: (C,) shares that sum to 1.
        weights, log_weights, metric, temperature, self_pairs: see `best_geometry`; the answer then is a
            `WeightedGeometry`.
        sampling: negatives from the other classes (supervised) or from all of them (unsupervised).
        loss: such as ``InfoNCE(temperature=0.5)``, or a dictionary with the same fields.
        dimension: of the class means; None: as many as the optimum needs.
        nonnegative: features without negative coordinates (ReLU).
        solver: ``"cvxpy"``: the slow reference, for small problems.
        tolerance: largest relative gap that counts as certified.
        groups: also answer by groups of equal proportions.
        full: fetch whole arrays however many classes there are (as .npz).

    Raises:
        InvalidRequest: a value is wrong; ``errors`` names the field.
        TooLarge, DeadlineMet: too much for a synchronous answer; send it as a job.
    """
    body = given(
        class_counts=listed(class_counts),
        class_proportions=listed(class_proportions),
        weights=weights_of(weights),
        log_weights=log_weights_of(log_weights),
        sampling=sampling,
        loss=fields_of(loss),
        metric=metric,
        temperature=temperature,
        self_pairs=self_pairs,
        dimension=dimension,
        nonnegative=nonnegative,
        solver=solver,
        tolerance=tolerance,
        groups=groups,
    )
    return Call("POST", "/optimal-geometry", chosen(geometry_kind), body=body, accept=accept(full))


def best_geometry(
    *,
    weights: MatrixLike | WeightingLike | None = None,
    log_weights: LogMatrixLike | None = None,
    metric: Metric | None = None,
    temperature: float | None = None,
    self_pairs: SelfPairs | None = None,
    dimension: int | None = None,
    tolerance: float | None = None,
    full: bool = False,
) -> Call[WeightedGeometry]:
    """The best geometry that a weight matrix of weighted InfoNCE allows: ``optimal_geometry`` with weights.

    Args:
        weights: (n, n) numbers, not negative; or a named weighting such as ``SupCon(class_counts=[10, 5])``.
        log_weights: or their (n, n) natural logarithms; None or -inf for a weight of zero.
        metric: similarity is z_i·z_j/T on the sphere (cosine, the default) or -‖z_i - z_j‖²/T (euclidean).
        temperature: T, 0.1 by default.
        self_pairs: whether an anchor is compared with itself (included, the default).
        dimension: of the embedding; None: as many as the optimum needs.
        tolerance: largest gap relative to the loss that counts as certified.
        full: fetch whole arrays however many rows there are (as .npz).

    Raises:
        InvalidRequest, TooLarge, DeadlineMet: as `optimal_geometry`.
    """
    call = optimal_geometry(
        weights=weights,
        log_weights=log_weights,
        metric=metric,
        temperature=temperature,
        self_pairs=self_pairs,
        dimension=dimension,
        tolerance=tolerance,
        full=full,
    )
    return cast("Call[WeightedGeometry]", call)


def collapse_threshold(
    *, classes: int, sampling: Sampling | None = None, loss: LossLike | None = None
) -> Call[Threshold]:
    """The majority proportion from which on C - 1 equal minorities merge into one point.

    Args:
        classes: C, at least 2.
        sampling, loss: as for `optimal_geometry`.
    """
    body = given(classes=classes, sampling=sampling, loss=fields_of(loss))
    return Call("POST", "/collapse-threshold", model(Threshold), body=body)


def collapse_map(
    *,
    x: AxisLike,
    y: AxisLike,
    classes: int | None = None,
    majority_proportion: float | None = None,
    sampling: Sampling | None = None,
    loss: LossLike | None = None,
    quantity: Quantity | None = None,
) -> Call[CollapseMap]:
    """One quantity over a grid of two parameters.

    Args:
        x, y: name and values, such as ``("temperature", [0.1, 0.5, 1.0])``; the names are
            ``majority_proportion``, ``negatives``, ``temperature``, ``alpha`` and ``classes``.
        classes: C: one majority and C - 1 equal minorities; unless it is an axis.
        majority_proportion: for angles, unless it is an axis.
        quantity: ``"largest_cosine"`` (default), ``"exact_threshold"`` or ``"smallest_angle_degrees"``.
    """
    body = given(
        x=axis_of(x),
        y=axis_of(y),
        classes=classes,
        majority_proportion=majority_proportion,
        sampling=sampling,
        loss=fields_of(loss),
        quantity=quantity,
    )
    return Call("POST", "/collapse-map", model(CollapseMap), body=body)


def realizability(
    *,
    weights: MatrixLike | WeightingLike | None = None,
    log_weights: LogMatrixLike | None = None,
    metric: Metric | None = None,
    temperature: float | None = None,
    self_pairs: SelfPairs | None = None,
    dimension: int | None = None,
    tolerance: float | None = None,
    full: bool = False,
) -> Call[Realizability]:
    """Whether some embedding attains the entropy bound of these weights, with a proof either way.

    Args:
        weights, log_weights, metric, temperature, self_pairs: as for `best_geometry`.
        dimension: largest dimension allowed; None: any.
        tolerance: relative, for the sign and the rank of eigenvalues.
        full: fetch whole arrays however many rows there are (as .npz).
    """
    settings = given(
        metric=metric,
        temperature=temperature,
        self_pairs=self_pairs,
        dimension=dimension,
        tolerance=tolerance,
    )
    read = model(Realizability)
    holds = "weights" if log_weights is None else "log_weights"
    matrix = weights if log_weights is None else log_weights
    alone = weights is None or log_weights is None
    if alone and isinstance(matrix, np.ndarray) and matrix.size > SMALL_JSON:
        array = float_matrix(matrix, holds)
        query = settings | {"holds": holds}
        return Call(
            "POST",
            "/realizability",
            read,
            query=query,
            content=npy(array),
            media_type=ARRAY,
            accept=accept(full),
        )
    body = settings | given(weights=weights_of(weights), log_weights=log_weights_of(log_weights))
    return Call("POST", "/realizability", read, body=body, accept=accept(full))


def weights(
    *,
    gram: MatrixLike | None = None,
    squared_distances: MatrixLike | None = None,
    simplex_class_counts: CountsLike | None = None,
    metric: Metric | None = None,
    temperature: float | None = None,
    self_pairs: SelfPairs | None = None,
    full: bool = False,
) -> Call[Design]:
    """Weights whose optimum is the wanted geometry. Exactly one target.

    Args:
        gram: (n, n) inner products; the diagonal is 1 for the cosine metric.
        squared_distances: (n, n)
        simplex_class_counts: (C,) items of each class, where the class means shall be a centered simplex.
        metric, temperature, self_pairs: as for `best_geometry`.
        full: fetch whole arrays however many rows there are (as .npz).
    """
    simplex = None if simplex_class_counts is None else {"class_counts": listed(simplex_class_counts)}
    target = given(gram=listed(gram), squared_distances=listed(squared_distances), simplex=simplex)
    body = given(target=target, metric=metric, temperature=temperature, self_pairs=self_pairs)
    return Call("POST", "/weights", model(Design), body=body, accept=accept(full))


def diagnose(
    *,
    embeddings: Any = None,
    labels: Any = None,
    job: str | None = None,
    prediction: Mapping[str, Any] | BaseModel | None = None,
    normalize: bool | None = None,
) -> Call[Diagnosis]:
    """Trained embeddings beside the optimum for their class counts.

    Args:
        embeddings: (n, d) array or tensor.
        labels: (n,) integers or strings.
        job: or the id of a training job, for the embeddings it made.
        prediction: arguments of `optimal_geometry` without counts, such as
            ``{"loss": {"temperature": 0.1}, "sampling": "unsupervised"}``; None: only measure.
        normalize: divide each embedding by its norm first (the default).

    Raises:
        ValueError: the arrays do not have these shapes or types.
    """
    options = given(prediction=fields_of(prediction), normalize=normalize)
    read = model(Diagnosis)
    if job is not None:
        return Call("POST", "/diagnose", read, body=options | {"job": job})
    if embeddings is None or labels is None:
        raise ValueError("give embeddings and labels, or a job")
    Z, classes = float_matrix(embeddings, "embeddings"), label_vector(labels)
    if len(Z) != len(classes):
        raise ValueError(f"there are {len(Z)} embeddings and {len(classes)} labels")
    if Z.size <= SMALL_JSON:
        return Call("POST", "/diagnose", read, body=options | {"embeddings": Z, "labels": classes})
    form = {
        name: value if isinstance(value, str) else json.dumps(value, default=plain)
        for name, value in options.items()
    }
    return Call(
        "POST", "/diagnose", read, files={"file": npz_upload(embeddings=Z, labels=classes)}, form=form
    )


def geometry_kind(document: dict[str, Any]) -> type[Geometry]:
    """Answers for weights name their metric."""
    return WeightedGeometry if "metric" in document else Geometry
