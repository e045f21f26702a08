"""Symmetrization: row constants c with log w_ij + c_i symmetric, or a proof that there are none.

Similarities are symmetric and the loss sees row i only up to a constant, so the entropy bound is attained
iff s_ij = log w_ij + c_i for all counted pairs ([P2]). With R_ij = log w_ij - log w_ji this needs
R_ij = c_j - c_i.

- Self pairs excluded: least squares gives c_i = -mean_j R_ij, up to a common constant, the *offset*.
- Self pairs included: s_ii is the same for every i, so c_i = -log w_ii.

The residual E_ij = R_ij + c_i - c_j of the least-squares c is the average over l of the 3-cycle sums
R_ij + R_jl + R_li, so the pair with the largest |E_ij| always lies on a 3-cycle at least as bad.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit

from anglewise.sampling import FloatArray
from anglewise.verdict import Witness
from anglewise.weights import BoolArray

TILE = 64


@dataclass(frozen=True)
class Symmetrized:
    """The required similarities, up to one common offset.

    Attributes:
        M: (n, n) T (S0 - shift) off the diagonal, 0 on it; S0 = (L + Lᵀ)/2 + (c_i + c_j)/2.
        shift: the mean of S0 off the diagonal with self pairs excluded, else 0. Removing it keeps M
            free of the scale of W.
        residual: max |E_ij|.
        pair: where it is taken.
        spread: largest minus smallest entry of S0 that counts.
    """

    M: FloatArray
    shift: float
    residual: float
    pair: tuple[int, int]
    spread: float


def symmetrize(L: FloatArray, T: float, included: bool) -> Symmetrized:
    """The symmetric part of finite log-weights L (n, n), in units of the similarity times T."""
    n = len(L)
    if included:
        c, shift = -np.diag(L), 0.0
    else:
        c = (L.sum(axis=0) - L.sum(axis=1)) / n
        shift = float((L.sum() - np.trace(L)) / (n * (n - 1)))
    M = np.empty((n, n))
    residual, i, j, low, high = _symmetric_part(np.ascontiguousarray(L), c, T, shift, M)
    if included:  # the diagonal, s_ii - s_ii = 0, counts too
        low, high = min(low, 0.0), max(high, 0.0)
    return Symmetrized(M, shift, float(residual), (int(i), int(j)), float(max(0.0, high - low)))


@njit(cache=True, nogil=True)
def _symmetric_part(
    L: FloatArray, c: FloatArray, T: float, shift: float, M: FloatArray
) -> tuple[float, int, int, float, float]:
    """Fills M; returns max |E|, its place, and the smallest and largest entry of S0 off the diagonal."""
    n = len(L)
    worst, at_i, at_j, low, high = 0.0, 0, 0, np.inf, -np.inf
    for top in range(0, n, TILE):
        for left in range(0, top + 1, TILE):
            for i in range(top, min(top + TILE, n)):
                for j in range(left, min(left + TILE, i)):
                    forth, back = L[i, j] + c[i], L[j, i] + c[j]
                    s = 0.5 * (forth + back)
                    M[i, j] = T * (s - shift)
                    M[j, i] = M[i, j]
                    low, high = min(low, s), max(high, s)
                    if abs(forth - back) > worst:
                        worst, at_i, at_j = abs(forth - back), i, j
    for i in range(n):
        M[i, i] = 0.0
    return worst, at_i, at_j, low, high


def asymmetry_witness(L: FloatArray, live: BoolArray, included: bool, limit: float) -> tuple[str, Witness]:
    """Why no row constants make log W symmetric to within ``limit``: a reason code and its witness.

    A 3-cycle when W itself is not symmetrizable. Otherwise, self pairs included, a pair whose two
    self weights ask for different similarities. Only anchors that count are in it.
    """
    items = np.flatnonzero(live)
    L = L[np.ix_(items, items)]
    R = L - L.T
    np.fill_diagonal(R, 0.0)
    c = -R.mean(axis=1)
    E = R + c[:, None] - c[None, :]
    i, j = map(int, np.unravel_index(np.abs(E).argmax(), E.shape))
    if not included or abs(E[i, j]) > limit:
        sums = R[i, j] + R[j] + R[:, i]
        l = int(np.abs(sums).argmax())  # noqa: E741
        return "not_symmetrisable", Witness(
            "cycle",
            "log(w_ij/w_ji) + log(w_jl/w_lj) + log(w_li/w_il) is not 0 for items i, j, l, "
            "but symmetric similarities make it 0",
            items=(int(items[i]), int(items[j]), int(items[l])),
            value=float(sums[l]),
        )
    ratio = L - np.diag(L)[:, None]
    E = ratio - ratio.T
    i, j = map(int, np.unravel_index(np.abs(E).argmax(), E.shape))
    return "self_weights", Witness(
        "self_pair",
        "log(w_ij/w_ii) - log(w_ji/w_jj) is not 0 for items i, j, but s_ii = s_jj",
        items=(int(items[i]), int(items[j])),
        value=float(E[i, j]),
    )


def moves_against(witness: Witness) -> list[tuple[int, int, float]]:
    """Probability moves (i, j, amount), zero in each row's sum, under which Σ amount · s_ij = 0."""
    sign = -math.copysign(1.0, witness.value or 0.0)
    if witness.kind == "self_pair":
        i, j = witness.items
        return [(i, j, sign), (i, i, -sign), (j, i, -sign), (j, j, sign)]
    return moves_along_cycle(witness.items, sign)


def moves_along_cycle(cycle: tuple[int, ...], forward: float) -> list[tuple[int, int, float]]:
    """``forward`` on each pair in the direction of the cycle, its negative on each pair against it."""
    moves = []
    for k, row in enumerate(cycle):
        moves += [(row, cycle[(k + 1) % len(cycle)], forward), (row, cycle[k - 1], -forward)]
    return moves


def fill_skipped(L: FloatArray, live: BoolArray, included: bool) -> FloatArray:
    """Rows of skipped anchors replaced by what the counted rows ask of the same pairs.

    For a skipped i and a counted j, s_ij = s_ji = log w_ji + c_j. Pairs of two skipped anchors are not
    constrained at all and stay at -inf.
    """
    filled = L.copy()
    block = L[np.ix_(live, live)]
    block = np.where(np.isneginf(block), 0.0, block)  # zeros are decided elsewhere
    c = np.zeros(len(L))
    c[live] = -np.diag(block) if included else (block.sum(axis=0) - block.sum(axis=1)) / len(block)
    skipped = np.flatnonzero(~live)
    filled[skipped] = -np.inf
    filled[np.ix_(skipped, live)] = (L[np.ix_(live, skipped)] + c[live][:, None]).T
    filled[skipped, skipped] = 0.0
    return filled
