"""Verdicts against the certified best geometry: two programs that share no mathematics."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from anglewise.realizability import realizability
from anglewise.weighted import best_geometry
from anglewise.weights import LogWeights
from tests.core.realizability_checks import random_weights

CLEAR_GAP = 1e-7


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("self_pairs", ["included", "excluded"])
@pytest.mark.parametrize("kind", ["planted", "noisy", "asymmetric", "stretched", "holes"])
def test_attained_iff_the_best_geometry_has_no_gap(metric: str, self_pairs: str, kind: str) -> None:
    rng = np.random.default_rng([len(kind), len(metric), len(self_pairs)])
    for _ in range(12):
        n, T = int(rng.integers(3, 7)), float(rng.uniform(0.2, 2.0))
        W = random_weights(rng, n, "noisy" if kind == "holes" else kind, T)
        if kind == "holes":
            holes = rng.random((n, n)) < 0.2
            W[holes | holes.T] = 0.0
            np.fill_diagonal(W, 1.0)
        question: dict[str, Any] = {"metric": metric, "temperature": T, "self_pairs": self_pairs}
        weights = LogWeights.from_weights(W)
        try:
            answer = realizability(weights, **question)
        except ValueError:
            assert not weights.positive(self_pairs).any()
            continue
        best = best_geometry(weights, **question)
        assert answer.entropy_bound == pytest.approx(best.entropy_bound, abs=1e-9)
        least = max(0.0, best.entropy_gap - best.certificate.gap)
        if answer.verdict == "inconsistent":
            assert 0 < answer.gap_lower_bound <= best.entropy_gap + 1e-12
            assert best.entropy_gap > 0
        elif answer.verdict != "undetermined":
            assert least < CLEAR_GAP
        if least > CLEAR_GAP:
            assert answer.verdict == "inconsistent"
