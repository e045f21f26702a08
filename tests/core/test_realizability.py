"""Verdicts against stored reference cases, and what every verdict promises."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anglewise.errors import InvalidInput
from anglewise.gap_bounds import entropy_gain
from anglewise.realizability import realizability
from anglewise.weights import LogWeights
from tests.core.realizability_checks import check_verdict

REFERENCE: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "data" / "realizability.json").read_text()
)
ROUNDING = 1e-9
"""The reference values are stored to ten digits."""


@pytest.mark.parametrize("case", REFERENCE, ids=lambda case: case["name"])
def test_reference(case: dict[str, Any]) -> None:
    question = {k: case[k] for k in ("metric", "temperature", "self_pairs", "dimension")}
    answer = realizability(case["weights"], **question)
    assert (answer.verdict, answer.reason.code) == (case["verdict"], case["reason"])
    assert answer.attained is case["attained"]
    assert answer.required_dimension == case["required_dimension"]
    if case["offset"] is None:
        assert answer.offset is None
    else:
        assert answer.offset is not None
        for end, expected in zip((answer.offset.lower, answer.offset.upper), case["offset"], strict=True):
            assert end == pytest.approx(expected, abs=ROUNDING) if expected is not None else end is None
    if "entropy_bound" in case:
        assert answer.entropy_bound == pytest.approx(case["entropy_bound"], abs=ROUNDING)
    if "gap" in case:
        assert answer.gap_lower_bound <= case["gap"] + ROUNDING
        assert (answer.gap_lower_bound > 0) == (case["verdict"] == "inconsistent")
    check_verdict(np.array(case["weights"]), answer, **question)


def test_single_item() -> None:
    sphere = realizability([[2.0]])
    assert (sphere.verdict, sphere.required_dimension) == ("realizable", 1)
    assert sphere.largest_temperature == "unbounded"
    point = realizability([[2.0]], metric="euclidean")
    assert (point.verdict, point.required_dimension) == ("realizable", 0)
    assert point.embedding is not None
    assert point.embedding.shape == (1, 0)
    with pytest.raises(InvalidInput, match="no pair"):
        realizability([[2.0]], self_pairs="excluded")


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_two_items_without_self_pairs_fit_any_geometry(metric: str) -> None:
    for d in (None, 1, 2):
        answer = realizability([[1.0, 0.3], [7.0, 1.0]], metric=metric, self_pairs="excluded", dimension=d)
        assert answer.verdict == "degenerate"
        assert answer.attained
        check_verdict(
            np.array([[1.0, 0.3], [7.0, 1.0]]), answer, metric, 0.1, self_pairs="excluded", dimension=d
        )


@pytest.mark.parametrize("n", [2, 3, 5])
def test_constant_weights(n: int) -> None:
    W = np.full((n, n), 3.0)
    assert realizability(W).required_dimension == 1
    assert realizability(W).largest_temperature == "unbounded"
    assert realizability(W, metric="euclidean").required_dimension == 0
    free = realizability(W, temperature=0.5, self_pairs="excluded")
    assert free.reason.code == "offset_interval"
    assert free.largest_temperature == "unbounded"
    assert free.offset is not None
    shift = math.log(3)
    assert free.offset.lower == pytest.approx(-1 / (n - 1) / 0.5 - shift)
    assert free.offset.upper == pytest.approx(1 / 0.5 - shift)
    collapsed = realizability(W, self_pairs="excluded", dimension=1)
    assert collapsed.verdict == ("degenerate" if n == 2 else "realizable")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"metric": "manhattan"}, ("metric",)),
        ({"self_pairs": True}, ("self_pairs",)),
        ({"temperature": 0.0}, ("temperature",)),
        ({"temperature": "0.1"}, ("temperature",)),
        ({"dimension": True}, ("dimension",)),
        ({"temperature": math.nan}, ("temperature",)),
        ({"dimension": 0}, ("dimension",)),
        ({"dimension": 1.5}, ("dimension",)),
        ({"tolerance": 0.1}, ("tolerance",)),
        ({"tolerance": math.nan}, ("tolerance",)),
        ({"log_weights": [[0.0]]}, ("weights",)),
    ],
)
def test_arguments_outside_their_domain(options: dict[str, Any], field: tuple[str, ...]) -> None:
    with pytest.raises(InvalidInput) as error:
        realizability([[1.0, 0.5], [0.5, 1.0]], **options)
    assert error.value.field == field


def test_log_weights_and_weights_agree() -> None:
    L = [[0.0, -1.0], [-1.0, None]]
    by_log = realizability(log_weights=L, metric="euclidean")
    by_weight = realizability([[1.0, math.exp(-1)], [math.exp(-1), 0.0]], metric="euclidean")
    by_object = realizability(LogWeights.from_log_weights(L), metric="euclidean")
    assert by_log.reason == by_weight.reason == by_object.reason
    assert by_log.reason.code == "zero_self_weight"
    assert by_log.gap_lower_bound == pytest.approx(by_weight.gap_lower_bound)


def test_temperatures_at_which_weights_underflow() -> None:
    G = np.array([[1.0, -0.5, -0.5], [-0.5, 1.0, -0.5], [-0.5, -0.5, 1.0]])
    answer = realizability(log_weights=G / 1e-3, temperature=1e-3)
    assert (answer.verdict, answer.required_dimension) == ("realizable", 2)
    assert answer.gram is not None
    np.testing.assert_allclose(answer.gram, G, atol=1e-12)


def test_without_embedding_the_verdict_is_the_same() -> None:
    for case in REFERENCE:
        question = {k: case[k] for k in ("metric", "temperature", "self_pairs", "dimension")}
        full, short = (realizability(case["weights"], **question, embed=embed) for embed in (True, False))
        assert (full.verdict, full.reason, full.margin) == (short.verdict, short.reason, short.margin)
        assert short.gram is short.squared_distances is short.embedding is short.second_embedding is None


def test_gap_bound_where_some_probabilities_underflow() -> None:
    L = [[0.0, -700.0, 3.0], [-1.0, 0.0, -690.0], [-650.0, 2.0, 0.0]]
    answer = realizability(log_weights=L, temperature=1.0)
    assert answer.verdict == "inconsistent"
    assert 0 <= answer.gap_lower_bound < 1e3


@pytest.mark.parametrize(("p", "direction"), [([0.5, 1e-280], [-1.0, 1.0]), ([1.0, 1e-308], [-1.0, 1.0])])
def test_entropy_gain_of_a_rise_beyond_the_range_of_doubles(p: list[float], direction: list[float]) -> None:
    assert 0 <= entropy_gain(p, direction, 1) <= 1
