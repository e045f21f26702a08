import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anglewise.errors import InvalidInput
from anglewise.means import class_means, expand_rows, simplex_vertex
from anglewise.sampling import FloatArray, Groups, group_classes


def random_gram(sizes: list[int], extra: int, seed: int) -> tuple[Groups, FloatArray]:
    """A feasible Gram matrix on groups in random order, from mean directions inside the unit ball."""
    rng = np.random.default_rng(seed)
    weights = np.repeat(np.arange(len(sizes), 0, -1.0), sizes)
    groups = group_classes(rng.permutation(weights / weights.sum()))
    directions = rng.normal(size=(len(sizes), extra))
    directions /= np.linalg.norm(directions, axis=1)[:, None]
    n = groups.sizes.astype(float)
    directions *= np.where(n > 1, rng.uniform(0, 1, len(sizes)), 1.0)[:, None]
    A = directions @ directions.T
    squared = np.diag(A).copy()
    A[np.diag_indices(len(n))] = np.where(n > 1, (n * squared - 1) / np.maximum(n - 1, 1), 1.0)
    return groups, A


@settings(deadline=None, max_examples=60, derandomize=True)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.integers(1, 8), st.integers(0, 10**6))
def test_inner_products_of_the_means_are_the_gram_matrix(sizes: list[int], extra: int, seed: int) -> None:
    groups, A = random_gram(sizes, extra, seed)
    C = groups.classes
    means = class_means(groups, A)
    M, full = means.mean_rows(0, C), expand_rows(groups, A, 0, C)
    np.testing.assert_allclose(M @ M.T, full, atol=1e-12)
    np.testing.assert_allclose(means.group_gram, np.where(np.isfinite(A), A, 0), atol=1e-12)
    assert means.rank == np.linalg.matrix_rank(full, tol=1e-9)
    assert M.shape == (C, means.rank)


def test_blocks_of_rows_equal_the_whole() -> None:
    groups, A = random_gram([3, 1, 4], 3, 0)
    means = class_means(groups, A, dimension=12)
    M, full = means.mean_rows(0, 8), means.gram_rows(0, 8)
    assert M.shape == (8, 12)
    assert not M[:, means.rank :].any()
    np.testing.assert_array_equal(np.vstack([means.mean_rows(0, 5), means.mean_rows(5, 8)]), M)
    np.testing.assert_array_equal(np.vstack([means.gram_rows(0, 5), means.gram_rows(5, 8)]), full)


def test_twenty_thousand_classes_need_no_full_array() -> None:
    weights = np.repeat([5.0, 1.0], [100, 19_900])
    groups = group_classes(weights / weights.sum())
    means = class_means(groups, np.array([[-0.001, -1e-4], [-1e-4, 0.001]]))
    rows = means.mean_rows(90, 110)
    assert means.rank == 20_000
    np.testing.assert_allclose(rows @ rows.T, means.gram_rows(90, 110)[:, 90:110], atol=1e-12)


def test_signs_and_order_are_the_same_on_every_run() -> None:
    groups, A = random_gram([2, 3, 1], 4, 5)
    once, again = class_means(groups, A), class_means(groups, A.copy())
    np.testing.assert_array_equal(once.group_means, again.group_means)
    largest = np.abs(once.group_means * np.sqrt(groups.sizes)[:, None]).max(axis=0)
    assert ((once.group_means * np.sqrt(groups.sizes)[:, None]).max(axis=0) == largest).all()


def test_simplex_vertices() -> None:
    vertices = np.array([simplex_vertex(5, i) for i in range(5)])
    np.testing.assert_allclose(vertices @ vertices.T, np.eye(5) - 1 / 5, atol=1e-15)


def test_a_dimension_below_the_rank_is_refused() -> None:
    groups, A = random_gram([3], 2, 1)
    with pytest.raises(InvalidInput) as caught:
        class_means(groups, A, dimension=1)
    assert caught.value.field == ("dimension",)
