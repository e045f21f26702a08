"""Data that is computed from a few numbers, the same on every machine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from jobs.training_spec import GaussianClasses


def gaussian_classes(spec: GaussianClasses) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """x (n, dimension) and y (n,): centers of length ``separation``, isotropic noise around them."""
    rng = np.random.default_rng(spec.seed)
    centers = rng.standard_normal((spec.classes, spec.dimension))
    centers *= spec.separation / np.linalg.norm(centers, axis=1, keepdims=True)
    y = np.repeat(np.arange(spec.classes), spec.samples_per_class).astype(np.int64)
    noise = rng.standard_normal((len(y), spec.dimension), dtype=np.float32)
    return (centers[y] + spec.noise * noise).astype(np.float32), y


def long_tail_counts(classes: int, maximum: int, ratio: float) -> list[int]:
    """n_c = maximum · ratio^(c/(classes-1)), rounded, at least 1: the first class has ``maximum`` samples,
    the last ``ratio`` times as many.

    >>> long_tail_counts(4, 1000, 0.001)
    [1000, 100, 10, 1]
    """
    steps = max(classes - 1, 1)
    return [max(1, round(maximum * ratio ** (c / steps))) for c in range(classes)]
