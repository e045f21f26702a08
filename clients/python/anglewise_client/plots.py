"""Pictures of answers, with matplotlib; nothing here opens a window."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from anglewise_client._arrays import Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from anglewise_client.job_models import JobMetrics
    from anglewise_client.thresholds import CollapseMap
    from anglewise_client.verdicts import Realizability

FEW_LABELS = 24
FEW_CURVES = 8
MISSING = "a picture needs matplotlib: pip install 'anglewise-client[plot]'"


def new_axes(columns: int = 1, **options: Any) -> Any:
    """Fresh axes of a figure that belongs to no window system."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError(MISSING) from None
    figure = Figure(figsize=(5.2 * columns, 4.4), layout="constrained")
    return figure.subplots(1, columns, **options)


def heat_map(
    matrix: Floats,
    ax: Axes | None = None,
    title: str = "",
    labels: list[Any] | None = None,
    limit: float | None = 1.0,
) -> Axes:
    """A matrix in colors: from -limit to limit, blue to red; or over its own range (None)."""
    ax = ax if ax is not None else new_axes()
    scale = {"cmap": "viridis"} if limit is None else {"vmin": -limit, "vmax": limit, "cmap": "RdBu_r"}
    image = ax.imshow(matrix, interpolation="nearest", **scale)
    if labels is not None and len(labels) <= FEW_LABELS:
        names = [str(label) for label in labels]
        ax.set_xticks(range(len(names)), names, rotation=90)
        ax.set_yticks(range(len(names)), names)
    ax.set_title(title)
    ax.figure.colorbar(image, ax=ax, shrink=0.8)
    return ax


def factor(gram: Floats, dimensions: int) -> Floats:
    """(C, dimensions) coordinates in the leading directions of a Gram matrix."""
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    leading = np.argsort(values)[::-1][:dimensions]
    points = vectors[:, leading] * np.sqrt(np.maximum(values[leading], 0.0))
    return np.pad(points, ((0, 0), (0, dimensions - points.shape[1])))


def class_means(
    gram: Floats,
    ax: Axes | None = None,
    dimensions: Literal[2, 3] = 2,
    labels: list[Any] | None = None,
    title: str = "class means, leading directions",
) -> Axes:
    """Class means as arrows from the origin."""
    if dimensions not in (2, 3):
        raise ValueError("dimensions must be 2 or 3")
    if ax is None:
        ax = new_axes(subplot_kw={"projection": "3d"} if dimensions == 3 else {})
    points = factor(gram, dimensions)
    names = [str(i) for i in range(len(points))] if labels is None else [str(label) for label in labels]
    for point in points:
        ax.plot(*np.stack([np.zeros(dimensions), point]).T, color="0.7", linewidth=0.8)
    drawn: Any = ax
    drawn.scatter(*points.T, c=np.arange(len(points)), cmap="viridis")
    if len(points) <= FEW_LABELS:
        for point, name in zip(points, names, strict=True):
            drawn.text(*point, f" {name}")
    if dimensions == 2:
        ax.set_aspect("equal", adjustable="datalim")
    ax.set_title(title)
    return ax


def side_by_side(
    measured: Floats,
    predicted: Floats | None,
    ax: Axes | None = None,
    labels: list[Any] | None = None,
    words: str = "",
) -> Axes:
    """Measured cosines; without ``ax`` beside the predicted ones and their difference."""
    if ax is not None or predicted is None:
        return heat_map(measured, ax, "measured cosines", labels)
    axes = new_axes(3)
    first = heat_map(measured, axes[0], "measured cosines", labels)
    heat_map(predicted, axes[1], "predicted cosines", labels)
    difference = measured - predicted
    limit = max(float(abs(difference).max()), 0.05)
    heat_map(difference, axes[2], "measured - predicted", labels, limit=limit)
    axes[0].figure.suptitle(textwrap.fill(words, 140), fontsize=9)
    return first


def collapse_map(answer: CollapseMap, ax: Axes | None = None) -> Axes:
    """Curves over x, one for each y; many y become a heat map."""
    ax = ax if ax is not None else new_axes()
    title = answer.quantity.replace("_", " ")
    x, y = np.array(answer.x.numbers), answer.y.values
    finite = np.isfinite(x)
    if len(y) <= FEW_CURVES:
        for value, row in zip(y, answer.values, strict=True):
            ax.plot(x[finite], row[finite], marker="o", markersize=3, label=f"{answer.y.name} {value}")
        ax.set_xlabel(answer.x.name)
        ax.set_ylabel(title)
        if len(x[finite]) > 1 and x[finite].min() > 0 and x[finite].max() > 50 * x[finite].min():
            ax.set_xscale("log")
        ax.legend()
        return ax
    image = ax.imshow(answer.values, origin="lower", aspect="auto", interpolation="nearest")
    few = max(1, len(answer.x.values) // 8)
    ax.set_xticks(range(0, len(x), few), [str(value) for value in answer.x.values[::few]])
    few = max(1, len(y) // 8)
    ax.set_yticks(range(0, len(y), few), [str(value) for value in y[::few]])
    ax.set_xlabel(answer.x.name)
    ax.set_ylabel(answer.y.name)
    ax.figure.colorbar(image, ax=ax, label=title)
    return ax


def verdict(answer: Realizability, ax: Axes | None = None) -> Axes:
    """The embedding that attains the bound, or the refuted matrix, under the verdict and its witness."""
    words = f"{answer.verdict}: {answer.reason.message}"
    if answer.witness is not None:
        words += f" - {answer.witness}"
    title = textwrap.fill(words, 60)
    if answer.embedding is not None:
        centered = (
            answer.embedding - answer.embedding.mean(axis=0) if answer.gram is None else answer.embedding
        )
        return class_means(centered @ centered.T, ax, title=title)
    matrix = answer.gram if answer.gram is not None else answer.squared_distances
    if matrix is not None:
        return heat_map(matrix, ax, title, limit=None)
    ax = ax if ax is not None else new_axes()
    if answer.witness is not None and answer.witness.vector is not None:
        ax.bar(range(len(answer.witness.vector)), answer.witness.vector)
        ax.set_xlabel("item")
        ax.set_ylabel("x")
    else:
        ax.set_axis_off()
    ax.set_title(title)
    return ax


def curves(metrics: JobMetrics, ax: Axes | None = None, names: list[str] | None = None) -> Axes:
    """Series of a training over steps."""
    ax = ax if ax is not None else new_axes()
    for name in names if names is not None else list(metrics.series):
        ax.plot(metrics.steps(name), metrics.values(name), label=name)
    ax.set_xlabel("step")
    ax.legend()
    return ax
