"""Weights designed for a geometry are proven to attain it; impossible targets are refused by name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anglewise.design import design_weights
from anglewise.errors import InvalidInput, TooLarge
from tests.core.realizability_checks import check_verdict, entropy_gap, similarities

PATH_GRAM = np.array([[4.0, -4.0, 0.0], [-4.0, 8.0, -4.0], [0.0, -4.0, 4.0]])


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 7),
    rank=st.integers(1, 7),
    T=st.floats(0.01, 5.0),
    seed=st.integers(0, 2**32 - 1),
    metric=st.sampled_from(["cosine", "euclidean"]),
)
def test_any_geometry_can_be_asked_for(n: int, rank: int, T: float, seed: int, metric: str) -> None:
    Z = np.random.default_rng(seed).normal(size=(n, rank))
    if metric == "cosine":
        Z /= np.linalg.norm(Z, axis=1)[:, None]
    D = ((Z[:, None] - Z[None, :]) ** 2).sum(axis=2)
    for target in ({"gram": Z @ Z.T}, {"squared_distances": D}):
        design = design_weights(**target, metric=metric, temperature=T)
        proof = design.proof
        assert proof.verdict == "realizable"
        assert design.named is None
        if metric == "cosine":
            assert proof.gram is not None
            np.testing.assert_allclose(proof.gram, Z @ Z.T, atol=1e-9)
            hottest = design.largest_temperature
            assert hottest == "unbounded" or (hottest is not None and hottest >= T * (1 - 1e-6))
        else:
            assert proof.squared_distances is not None
            np.testing.assert_allclose(proof.squared_distances, D, atol=1e-9 * max(1.0, D.max()))
            assert design.largest_temperature == "unbounded"
        if design.weights is not None:
            check_verdict(design.weights, proof, metric, T)
            assert proof.embedding is not None
            assert entropy_gap(design.weights, similarities(proof.embedding, metric, T), "included") < 1e-8


@pytest.mark.parametrize("counts", [[1, 1], [5, 2, 1], [100, 10, 10, 1]])
@pytest.mark.parametrize("T", [0.05, 0.5, 2.0])
def test_simplex_is_soft_supcon(counts: list[int], T: float) -> None:
    C = len(counts)
    design = design_weights(simplex_class_counts=counts, temperature=T)
    assert design.epsilon == pytest.approx(math.exp(-C / ((C - 1) * T)), rel=1e-13)
    assert design.named is not None
    assert design.named.name == "soft_supcon"
    assert design.named.parameters == {"epsilon": design.epsilon}
    assert (design.level, design.counts.tolist()) == ("class", counts)
    assert (design.proof.verdict, design.proof.required_dimension) == ("realizable", C - 1)
    assert design.largest_temperature == pytest.approx(T)
    assert design.proof.gram is not None
    simplex = np.full((C, C), -1 / (C - 1)) + C / (C - 1) * np.eye(C)
    np.testing.assert_allclose(design.proof.gram, simplex, atol=1e-12)


def test_simplex_without_self_pairs_is_proven_per_item() -> None:
    design = design_weights(simplex_class_counts=[3, 2, 2], temperature=0.5, self_pairs="excluded")
    assert design.proof.attained
    assert design.proof.gram is not None
    assert len(design.proof.gram) == 7
    with pytest.raises(TooLarge):
        design_weights(simplex_class_counts=[3000, 1], self_pairs="excluded")


def test_euclidean_simplex() -> None:
    design = design_weights(simplex_class_counts=[2, 2, 2], metric="euclidean", temperature=0.5)
    assert design.named is None
    assert design.proof.squared_distances is not None
    np.testing.assert_allclose(design.proof.squared_distances[0, 1], 3.0)


def test_weights_that_underflow_are_given_as_logarithms_only() -> None:
    design = design_weights(simplex_class_counts=[2, 2, 2], temperature=1e-3)
    assert design.weights is None
    assert design.epsilon is None
    assert design.named is None
    assert design.log_epsilon == pytest.approx(-1500)
    assert design.log_weights.values[0, 1] == pytest.approx(-1500)
    assert design.proof.verdict == "realizable"


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_singular_gram_matrix_at_every_scale(scale: float) -> None:
    """A singular positive semidefinite matrix whose smallest eigenvalue rounds to -1e-16."""
    T = 0.1 * max(1.0, scale * 1e-2)
    design = design_weights(gram=scale * PATH_GRAM, metric="euclidean", temperature=T)
    assert (design.proof.verdict, design.proof.required_dimension) == ("realizable", 2)


@pytest.mark.parametrize(
    ("target", "metric", "field", "message"),
    [
        ({}, "cosine", ("target",), "exactly one"),
        ({"gram": [[1.0]], "squared_distances": [[0.0]]}, "cosine", ("target",), "exactly one"),
        ({"gram": [[1.0, 0.5], [0.4, 1.0]]}, "cosine", ("target", "gram", 0, 1), "symmetric"),
        ({"gram": [[1.0, 0.5], [0.5, 1.1]]}, "cosine", ("target", "gram", 1, 1), "must be 1"),
        (
            {"gram": [[1.0, 1.2], [1.2, 1.0]]},
            "cosine",
            ("target", "gram"),
            "matrix is -0.2",
        ),
        ({"gram": [[1.0, None], [0.0, 1.0]]}, "cosine", ("target", "gram", 0, 1), "finite"),
        ({"gram": [[1.0, math.nan], [0.0, 1.0]]}, "cosine", ("target", "gram", 0, 1), ""),
        ({"gram": [[1.0, 0.0], [0.0]]}, "cosine", ("target", "gram", 1), "entries"),
        (
            {"squared_distances": [[0.0, -1.0], [-1.0, 0.0]]},
            "euclidean",
            ("target", "squared_distances", 0, 1),
            "negative",
        ),
        (
            {"squared_distances": [[0.5, 1.0], [1.0, 0.0]]},
            "euclidean",
            ("target", "squared_distances", 0, 0),
            "itself",
        ),
        (
            {"squared_distances": [[0.0, 1, 9], [1, 0, 1], [9, 1, 0]]},
            "euclidean",
            ("target", "squared_distances"),
            "eigenvalue",
        ),
        (
            {"squared_distances": [[0.0, 5.0], [5.0, 0.0]]},
            "cosine",
            ("target", "squared_distances"),
            "unit vectors",
        ),
        ({"simplex_class_counts": [3]}, "cosine", ("target", "simplex", "class_counts"), "two classes"),
        ({"simplex_class_counts": [3, 0]}, "cosine", ("target", "simplex", "class_counts", 1), "positive"),
    ],
)
def test_impossible_targets(
    target: dict[str, Any], metric: str, field: tuple[str | int, ...], message: str
) -> None:
    with pytest.raises(InvalidInput) as error:
        design_weights(**target, metric=metric)
    assert error.value.field == field
    assert message in error.value.message


def test_arguments_are_checked_before_the_target() -> None:
    with pytest.raises(InvalidInput) as error:
        design_weights(gram=[[1.0]], temperature=-1.0)
    assert error.value.field == ("temperature",)
