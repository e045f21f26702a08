"""Metrics over the steps of a run, as a picture."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

PANELS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("loss", ("loss",), "linear"),
    ("gap to optimum and to entropy bound", ("risk_gap", "entropic_gap"), "log"),
    ("distance from prediction, spread", ("gram_distance_max", "gram_distance_fro", "nc1"), "log"),
    ("agreement with the prediction", ("r2_similarity", "r2_procrustes"), "linear"),
)
"""Title, metrics and scale of each panel."""
SMALLEST = 1e-16
"""What is smaller is rounding, and has no place on a logarithmic axis."""


def draw_curves(history: Sequence[tuple[int, Mapping[str, float | None]]]) -> bytes:
    """A PNG image.

    Args:
        history: step and metrics of every evaluation.
    """
    from matplotlib.figure import Figure  # only where a report is written

    figure = Figure(figsize=(15, 3.6), dpi=100, layout="constrained")
    for axes, (title, names, scale) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        axes.set_title(title)
        axes.set_xlabel("step")
        drawn = [_draw(axes, name, _points(history, name, scale)) for name in names]
        if any(drawn):
            axes.set_yscale(scale)
            axes.legend(fontsize=8)
        else:
            axes.text(0.5, 0.5, "no values", ha="center", va="center", transform=axes.transAxes)
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def _points(
    history: Sequence[tuple[int, Mapping[str, float | None]]], name: str, scale: str
) -> list[tuple[int, float]]:
    found = [(step, values.get(name)) for step, values in history]
    return [
        (step, value)
        for step, value in found
        if value is not None and (scale == "linear" or value > SMALLEST)
    ]


def _draw(axes: Any, name: str, points: list[tuple[int, float]]) -> bool:
    if points:
        axes.plot(*zip(*points, strict=True), label=name.replace("_", " "), marker=".", markersize=3)
    return bool(points)
