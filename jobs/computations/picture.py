"""A picture of a diagnosis: the measured cosines beside the predicted ones, and the angles of both."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from anglewise.sampling import FloatArray

MAX_CELLS = 500
"""Larger matrices are drawn from every k-th class."""
MAX_TICKS = 24
MAX_LABEL = 12
BINS = np.linspace(0, 180, 61)
MARGINS = {"left": 0.06, "right": 0.98, "bottom": 0.18, "top": 0.9, "wspace": 0.25}
MEASURED, PREDICTED = "tab:blue", "tab:orange"


def picture_id(png: bytes) -> str:
    """The address of a picture is its content."""
    return hashlib.sha256(png).hexdigest()[:32]


def draw(measured: FloatArray, predicted: FloatArray | None, labels: Sequence[int | str]) -> bytes:
    """A PNG image.

    Args:
        measured, predicted: (C, C) cosines between class means.
        labels: (C,) of the classes.
    """
    from matplotlib.figure import Figure  # only solver processes draw

    panels = 2 if predicted is None else 3
    figure = Figure(figsize=(5 * panels, 4.6), dpi=100)
    axes = figure.subplots(1, panels, gridspec_kw=MARGINS)
    image = _gram(axes[0], "measured cosines", measured, labels)
    if predicted is not None:
        _gram(axes[1], "predicted cosines", predicted, labels)
    figure.colorbar(image, ax=list(axes[: panels - 1]), shrink=0.8)
    _angles(axes[-1], measured, predicted)
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def _gram(axes: Any, title: str, gram: FloatArray, labels: Sequence[int | str]) -> Any:
    step = -(-len(gram) // MAX_CELLS)
    shown = gram[::step, ::step]
    image = axes.imshow(shown, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
    stride = -(-len(shown) // MAX_TICKS)
    positions = np.arange(0, len(shown), stride)
    names = [_printable(labels[step * int(position)]) for position in positions]
    # Labels are data: a dollar sign in one starts no formula.
    axes.set_xticks(positions, names, rotation=90, fontsize=7, parse_math=False)
    axes.set_yticks(positions, names, fontsize=7, parse_math=False)
    axes.set_title(title if step == 1 else f"{title}, every {step}th class")
    return image


def _angles(axes: Any, measured: FloatArray, predicted: FloatArray | None) -> None:
    axes.set_title("angles between class means")
    axes.set_xlabel("degrees")
    axes.set_ylabel("share of pairs")
    if len(measured) < 2:
        axes.text(0.5, 0.5, "one class: no angles", ha="center", va="center", transform=axes.transAxes)
        return
    for gram, name, color in ((measured, "measured", MEASURED), (predicted, "predicted", PREDICTED)):
        if gram is not None:
            share = _histogram(gram)
            axes.stairs(share, BINS, fill=True, alpha=0.5, color=color, label=name)
    axes.legend()


def _histogram(gram: FloatArray) -> FloatArray:
    """Share of the angles of pairs of different classes in each bin."""
    total = np.zeros(len(BINS) - 1)
    for i, row in enumerate(gram[:-1]):
        degrees = np.degrees(np.arccos(np.clip(row[i + 1 :], -1.0, 1.0)))
        total += np.histogram(degrees, BINS)[0]
    return np.asarray(total / total.sum(), dtype=np.float64)


def _printable(label: int | str) -> str:
    """Short, and of characters that the font is sure to have."""
    text = "".join(c if c.isprintable() and ord(c) < 0x250 else "?" for c in str(label))
    return text if len(text) <= MAX_LABEL else text[: MAX_LABEL - 1] + "…"
