"""The graph of positive weights: components, paths and cycles."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import breadth_first_order, connected_components

from anglewise.sampling import IntArray
from anglewise.weights import BoolArray


def components(adjacent: BoolArray) -> tuple[int, IntArray]:
    """Number of connected components of a symmetric relation and the component of each item."""
    count, label = connected_components(csr_matrix(adjacent.astype(np.int8)), directed=False)
    return int(count), label.astype(np.int64)


def path_between(adjacent: BoolArray, start: int, end: int) -> list[int]:
    """A shortest directed path from start to end, which must exist."""
    before = breadth_first_order(csr_matrix(adjacent.astype(np.int8)), start, directed=True)[1]
    path = [end]
    while path[-1] != start:
        path.append(int(before[path[-1]]))
    return path[::-1]


def cycle_through(positive: BoolArray, one_sided: BoolArray) -> tuple[int, ...] | None:
    """A directed cycle in ``positive`` whose first step is in ``one_sided``, if there is one."""
    strong = connected_components(csr_matrix(positive.astype(np.int8)), directed=True, connection="strong")[1]
    inside = np.argwhere(one_sided & (strong[:, None] == strong[None, :]))
    if not len(inside):
        return None
    i, j = map(int, inside[0])
    return (i, *path_between(positive, j, i)[:-1])


def spanning_forest(adjacent: BoolArray) -> tuple[IntArray, IntArray]:
    """Breadth-first order of all items and the parent of each, -1 for roots; ``adjacent`` symmetric."""
    count, label = components(adjacent)
    graph = csr_matrix(adjacent.astype(np.int8))
    order, parent = [], np.full(len(adjacent), -1, dtype=np.int64)
    for k in range(count):
        reached, before = breadth_first_order(graph, int(np.flatnonzero(label == k)[0]), directed=False)
        order.append(reached)
        parent[reached[1:]] = before[reached[1:]]
    return np.concatenate(order).astype(np.int64), parent


def cycle_closed_by(parent: IntArray, i: int, j: int) -> tuple[int, ...]:
    """The cycle i → j → … → i that the pair (i, j) closes with the tree that holds both."""

    def ancestors(v: int) -> list[int]:
        line = [v]
        while parent[line[-1]] >= 0:
            line.append(int(parent[line[-1]]))
        return line

    up_i, up_j = ancestors(i), ancestors(j)
    common = next(v for v in up_j if v in up_i)
    cycle = [i, *up_j[: up_j.index(common) + 1], *reversed(up_i[1 : up_i.index(common)])]
    return tuple(cycle[:-1] if common == i else cycle)
