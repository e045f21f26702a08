"""The files of a report, by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from jobs.computations.picture import draw
from worker.training.evaluation import History
from worker.training.report.curves import draw_curves
from worker.training.report.page import render

HTML, JSON, PNG = "text/html; charset=utf-8", "application/json", "image/png"


def report_files(
    summary: Mapping[str, Any], history: History, *, angular: bool
) -> dict[str, tuple[bytes, str]]:
    """Content and media type of ``report.json``, ``report.png`` and ``report.html``.

    Args:
        summary: of the run, as `train` returns it.
        history: every evaluation.
        angular: whether the loss measures angles, so that there are cosines to draw.
    """
    curves = draw_curves(history)
    cosines = _cosines(summary) if angular else None
    pictures = {"Loss and metrics over the steps": curves}
    if cosines is not None:
        pictures = {"Cosines between class means, and their angles": cosines, **pictures}
    data = {"summary": summary, "history": [{"step": step, **values} for step, values in history]}
    return {
        "report.json": (json.dumps(data, allow_nan=False).encode(), JSON),
        "report.png": (cosines if cosines is not None else curves, PNG),
        "report.html": (render(summary, pictures).encode(), HTML),
    }


def _cosines(summary: Mapping[str, Any]) -> bytes | None:
    """Measured beside predicted; None where there are too many classes."""
    if summary["measured_gram"] is None:
        return None
    predicted = summary["predicted"]["gram"]
    labels = [described["label"] for described in summary["classes"]]
    return draw(
        np.array(summary["measured_gram"]), None if predicted is None else np.array(predicted), labels
    )
