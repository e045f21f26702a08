"""Sentences that follow from the numbers of a run, and only from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from memory_context import MemoryContext

from jobs.training_spec import TrainingSpec
from worker.training.data import TrainingData, load_data
from worker.training.plan import Plan, make_plan
from worker.training.prediction import Prediction, predict
from worker.training.reasons import Pair, furthest_pairs, reasons, told

COUNTS = [90, 9, 1]


def setting(**fields: Any) -> tuple[TrainingData, Plan, Prediction]:
    document = {"data": {"class_counts": COUNTS}, "objective": "sampled", "batch_size": 50, **fields}
    spec = TrainingSpec.model_validate(document)
    data, plan = load_data(spec, MemoryContext()), make_plan(spec, COUNTS)
    return data, plan, dataclasses.replace(predict(spec, plan, data), risk=2.0)


def of_gaps(gaps: Sequence[float | None], **fields: Any) -> list[str]:
    """What is said of a run with these gaps, evaluated every ten steps."""
    history = [(10 * i, {"risk_gap": gap}) for i, gap in enumerate(gaps)]
    return [each for each in reasons(*setting(**fields), history, []) if "batch" not in each]


@pytest.mark.parametrize(
    ("gaps", "fields", "expected"),
    [
        (
            [1.0, 0.5, 0.4, 0.3, 0.1],
            {},
            [
                "The risk of the class means is 0.1 above the optimum of 2 (0.05 of it).",
                "It still fell by 67% in the last quarter of the steps: the run had not settled.",
            ],
        ),
        (
            [1.0, 0.5, 0.4, 0.1, 0.095],
            {"loss": {"name": "supcon"}},
            [
                "The loss of all samples is 0.095 above the optimum of 2 (0.048 of it).",
                "It changed by 5% in the last quarter of the steps, as the learning rate fell to 0.",
            ],
        ),
        (
            [1.0, 0.5, 0.4, 0.10, 0.12],
            {"schedule": {"name": "constant"}},
            [
                "The risk of the class means is 0.12 above the optimum of 2 (0.06 of it).",
                "It rose by 20% in the last quarter of the steps.",
            ],
        ),
        (
            [1.0, 0.5, 0.4, 0.10, 0.102],
            {"schedule": {"name": "constant"}},
            [
                "The risk of the class means is 0.1 above the optimum of 2 (0.051 of it).",
                "It changed by 2% in the last quarter of the steps, so the run has settled.",
            ],
        ),
        ([1.0, 1e-12], {}, ["The risk of the class means is 1e-12 above the optimum of 2 (5e-13 of it)."]),
        ([1.0, -1e-13], {}, ["The risk of the class means is 0 above the optimum of 2 (0 of it)."]),
        (
            [1.0, -0.1],
            {},
            ["The risk of the class means is 0.1 below the predicted 2: that is not its optimum."],
        ),
        ([1.0, None], {}, []),
    ],
)
def test_the_gap_and_its_trend(gaps: list[float | None], fields: dict[str, Any], expected: list[str]) -> None:
    assert of_gaps(gaps, **fields) == expected


def test_without_a_prediction_nothing_is_said_of_it() -> None:
    data, plan, prediction = setting(batch_size=100)
    nothing = dataclasses.replace(prediction, risk=None, gram=None)
    assert reasons(data, plan, nothing, [(0, {"risk_gap": None})], []) == []


@pytest.mark.parametrize(
    ("fields", "said"), [({}, True), ({"batch_size": 100}, False), ({"objective": "exact"}, False)]
)
def test_rare_classes_in_batches(fields: dict[str, Any], said: bool) -> None:
    found = reasons(*setting(**fields), [(0, {})], [])
    expected = "A batch of 50 holds 0.5 samples of class 2, the rarest, on average (1 sample in all)."
    assert found == ([expected] if said else [])


def test_the_furthest_pairs_come_first() -> None:
    rng = np.random.default_rng(0)
    measured, predicted = (np.tril(rng.uniform(-1, 1, (8, 8))) for _ in range(2))
    measured, predicted = measured + measured.T, predicted + predicted.T
    pairs = furthest_pairs(measured, predicted)
    slow = [Pair(i, j, measured[i, j], predicted[i, j]) for i in range(8) for j in range(i + 1, 8)]
    assert pairs == sorted(slow, key=lambda pair: -abs(pair.measured - pair.predicted))[:10]
    assert furthest_pairs(None, predicted) == furthest_pairs(measured, None) == []
    assert furthest_pairs(np.eye(1), np.eye(1)) == []
    first = told(pairs, "abcdefgh")[0]
    assert first["classes"] == ["abcdefgh"[pairs[0].first], "abcdefgh"[pairs[0].second]]


@pytest.mark.parametrize(("measured", "said"), [(0.26, True), (0.255, False)])
def test_pairs_that_are_off_are_named(measured: float, said: bool) -> None:
    data, plan, prediction = setting(batch_size=100)
    found = reasons(data, plan, prediction, [(0, {})], [Pair(1, 2, measured, 0.246)])
    pair = "classes 1 (9 samples) and 2 (1 sample)"
    expected = f"Furthest off are {pair}: their cosine is 0.26 where 0.25 is predicted."
    assert found == ([expected] if said else [])
