"""How thick the lines of a drawing are, measured from its pixels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import ndimage

FINE = 4
"""Images are enlarged so often: lines are only two or three pixels wide."""


def line_thickness(image: npt.NDArray[np.number]) -> float:
    """Mean width of the strokes in pixels: along their middle, twice the distance to the background.

    Args:
        image: (h, w), bright lines on black.
    """
    scaled = ndimage.zoom(image.astype(np.float64) / image.max(), FINE, order=1)
    depth = ndimage.distance_transform_edt(scaled > 0.5)
    ridge = (depth == ndimage.maximum_filter(depth, size=3)) & (depth > 0)
    return float(2 * depth[ridge].mean() / FINE)
