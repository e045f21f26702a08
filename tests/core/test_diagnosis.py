"""Measured embeddings beside a prediction."""

from __future__ import annotations

import numpy as np
import pytest

from anglewise import optimal_geometry
from anglewise.diagnosis import cosines_to_predicted, diagnose, linked_groups
from anglewise.errors import InvalidInput
from anglewise.metrics import gram_factor


def merged_gram(sizes):
    """Groups of classes at simplex vertices; classes of one group coincide."""
    G = len(sizes)
    group = np.repeat(np.arange(G), sizes)
    return ((G * np.eye(G) - 1) / (G - 1))[group][:, group]


def embeddings(gram, counts, noise=0.0, seed=0, d=None):
    rng = np.random.default_rng(seed)
    M = gram_factor(gram)
    d = d or M.shape[1]
    M = np.pad(M, ((0, 0), (0, d - M.shape[1]))) @ np.linalg.qr(rng.standard_normal((d, d)))[0]
    y = np.repeat(np.arange(len(gram)), counts)
    return M[y] + noise * rng.standard_normal((len(y), d)), y


def test_predicted_merging_is_recognized():
    A = merged_gram([1, 1, 1, 3])
    X, y = embeddings(A, [50, 40, 30, 4, 3, 2], noise=1e-3)
    d = diagnose(X, y + 4, predicted=A)
    assert d.merged == ((7, 8, 9),)
    assert d.predicted_merged == ((7, 8, 9),)
    assert "Classes 7, 8, 9 have merged; predicted at these proportions." in d.verdict
    assert "match the prediction" in d.verdict
    assert [c.count for c in d.classes] == [50, 40, 30, 4, 3, 2]
    assert all(c.cosine_to_predicted == pytest.approx(1, abs=1e-4) for c in d.classes)
    assert d.classes[3].nearest in (8, 9)
    assert d.classes[3].nearest_cosine == pytest.approx(1, abs=1e-4)
    np.testing.assert_allclose(d.measured_gram, A, atol=1e-2)


def test_unpredicted_merging_is_called_so():
    A = merged_gram([1, 1, 1, 1])
    X, y = embeddings(merged_gram([1, 1, 2]), [20] * 4)
    d = diagnose(X, np.array(["ant", "bee", "cat", "dog"])[y], predicted=A)
    assert d.merged == (("cat", "dog"),)
    assert d.predicted_merged == ()
    assert "Classes cat, dog have merged; not predicted at these proportions." in d.verdict
    assert "differ from the predicted geometry by up to 1.33 in cosine" in d.verdict


def test_partly_predicted_and_near_merging():
    near = merged_gram([1, 1, 2]).astype(float)
    near[2, 3] = near[3, 2] = 0.995
    X, y = embeddings(merged_gram([1, 1, 2]), [20] * 4)
    assert "within a cosine of 0.99" in diagnose(X, y, predicted=near).verdict
    X, y = embeddings(merged_gram([1, 3]), [20] * 4)
    verdict = diagnose(X, y, predicted=merged_gram([1, 1, 2])).verdict
    assert "Classes 1, 2, 3 have merged; of these only classes 2, 3 were predicted to." in verdict


def test_missing_merging_is_called_so():
    X, y = embeddings(merged_gram([1, 1, 1, 1]), [20] * 4)
    verdict = diagnose(X, y, predicted=merged_gram([1, 1, 2])).verdict
    assert "Classes 2, 3 are predicted to share the same direction but are still apart." in verdict


def test_without_a_prediction():
    X, y = embeddings(merged_gram([1, 1, 1]), [10] * 3, noise=0.3)
    d = diagnose(X, y)
    assert d.predicted_gram is None
    assert d.metrics.gram_distance_max is None
    assert all(c.cosine_to_predicted is None for c in d.classes)
    assert "No two classes have merged." in d.verdict
    assert "within-class spread" in d.verdict


def test_spread_is_reported_in_percent():
    X, y = embeddings(merged_gram([1, 1, 1]), [10] * 3)
    assert "Items sit on their class means: 0.00%" in diagnose(X, y).verdict
    X, y = embeddings(merged_gram([1, 1, 1]), [100] * 3, noise=0.5)
    d = diagnose(X, y)
    share = sum(c.count * c.within_variance for c in d.classes) / d.items
    assert f"Classes are not points: {share:.1%}" in d.verdict


def test_a_rotated_class_is_found():
    A = np.eye(3)
    U = np.eye(3)
    U[2] = [0.0, np.sin(0.5), np.cos(0.5)]
    cosines = cosines_to_predicted(U, A)
    assert cosines[0] == pytest.approx(1, abs=1e-9)
    # The common rotation splits the half radian between the two classes.
    np.testing.assert_allclose(cosines[1:], np.cos(0.25), atol=1e-9)


def test_one_class_zero_rows_and_zero_means():
    assert diagnose(np.ones((3, 2)), ["a"] * 3, predicted=np.eye(1)).verdict.endswith("There is one class.")
    d = diagnose(np.zeros((4, 2)), [0, 0, 1, 1], predicted=np.eye(2))
    assert d.zero_embeddings == 4
    assert "All embeddings are zero." in d.verdict
    assert d.classes[0].nearest is None
    d = diagnose(np.array([[1.0, 0], [-1, 0], [0, 1]]), [0, 0, 1])
    assert "1 class means are zero" in d.verdict
    assert np.isfinite(d.measured_gram).all()


def test_long_lists_of_classes_are_cut():
    A = merged_gram([1, 30])
    X, y = embeddings(A, [2] * 31)
    assert "and 18 more have merged" in diagnose(X, y, predicted=A).verdict


def test_linked_groups_chain():
    G = np.array([[1, 0.995, 0.98], [0.995, 1, 0.995], [0.98, 0.995, 1]])
    assert linked_groups(("a", "b", "c"), G, 0.99) == (("a", "b", "c"),)
    assert linked_groups(("a", "b", "c"), G, 0.999) == ()


def test_bad_input_is_named():
    X = np.ones((3, 2), dtype=np.float32)
    X[1, 0] = np.nan
    with pytest.raises(InvalidInput) as error:
        diagnose(X, [0, 1, 1])
    assert error.value.field == ("embeddings", 1, 0)
    with pytest.raises(InvalidInput) as error:
        diagnose(np.eye(2), [0, 1], predicted=np.array([[1, 0.5], [0.1, 1]]))
    assert error.value.field == ("predicted_gram",)


def test_a_geometry_may_stand_for_its_gram_matrix() -> None:
    geometry = optimal_geometry([40, 20, 20])
    embeddings, labels = np.repeat(geometry.class_means, 2, axis=0), np.repeat(np.arange(3), 2)
    whole = diagnose(embeddings, labels, predicted=geometry)
    assert whole.verdict == diagnose(embeddings, labels, predicted=geometry.gram).verdict
    assert whole.metrics.gram_distance_max == pytest.approx(0, abs=1e-12)
