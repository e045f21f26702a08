"""Zero weights: w_ij = 0 asks for s_ij = -∞, an infinite distance.

On the sphere |s_ij| ≤ 1/T, so a zero keeps the loss away from the bound. In Euclidean space groups of items
can be driven apart, and the bound is then approached and not attained: zeros must separate the items into
blocks with positive weights inside. With self pairs excluded and d ≥ n - 1 more is possible, because only
ratios inside a row matter: adding t to all squared distances costs nothing, so s is any symmetric matrix.
(Derived for this library.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from anglewise.question import MESSAGES, Question
from anglewise.sampling import FloatArray, IntArray
from anglewise.support_graph import components, cycle_closed_by, cycle_through, path_between, spanning_forest
from anglewise.symmetry import moves_along_cycle
from anglewise.verdict import Reason, Verdict, Witness
from anglewise.weights import BoolArray

Decide = Callable[[Question], Verdict]


def decide_zeros_on_sphere(question: Question, zero: BoolArray) -> Verdict:
    """Inconsistent: q_i puts at least 1 / (1 + (#positives/#zeros) e^{2/T}) on the zeros."""
    i, j = map(int, np.argwhere(zero)[0])
    zeros = zero.sum(axis=1)[question.live]
    positives = question.weights.positive(question.self_pairs).sum(axis=1)[question.live]
    gap = float(np.log1p(zeros / positives * math.exp(-2 / question.T)).mean())
    witness = Witness("zero", "w_ij = 0 asks for s_ij = -∞, and |s_ij| ≤ 1/T on the sphere", (i, j))
    return question.answer(
        "inconsistent",
        "zero_weight_on_sphere",
        witness=witness,
        largest_temperature=0.0,
        gap_lower_bound=gap,
    )


def decide_zeros_with_self_pairs(question: Question, zero: BoolArray, decide: Decide) -> Verdict:
    """Euclidean, self pairs included: s_ii = 0, so a positive weight asks for one finite distance."""
    L = question.L
    if zero.diagonal().any():
        return _zero_self_weight(question, zero)
    finite = np.isfinite(L)  # rows of skipped anchors filled in by symmetry
    one_sided = finite & ~finite.T
    if one_sided.any():
        j, i = map(int, np.argwhere(one_sided)[0])
        witness = Witness(
            "pair", "w_ij = 0 asks for an infinite distance and w_ji > 0 for a finite one", (i, j)
        )
        moves = [(i, j, 1.0), (i, i, -1.0), (j, i, -1.0), (j, j, 1.0)]
        return _inconsistent(question, "one_sided_zero", witness, moves)
    blocks, block = components(finite)
    hole = np.argwhere((block[:, None] == block[None, :]) & ~finite)
    constrained = hole[question.live[hole].any(axis=1)]
    if len(constrained):
        return _zero_inside_block(question, finite, *map(int, constrained[0]))
    if len(hole):  # two skipped anchors whose distance only others restrict
        return question.answer("undetermined", "skipped_anchor", witness=_skipped_witness(question))
    return _blocks_apart(question, blocks, block, decide)


def decide_zeros_without_self_pairs(question: Question, decide: Decide) -> Verdict:
    """Euclidean, self pairs excluded."""
    n = len(question.L)
    positive = question.weights.positive("excluded")
    constrained = np.outer(question.live, question.live)
    two_sided = positive & positive.T
    one_sided = positive & ~positive.T & constrained
    count, block = components(two_sided)
    cycle = cycle_through(positive & constrained, one_sided)
    if cycle is not None:
        witness = Witness(
            "directed_cycle",
            "w > 0 from each item to the next around the cycle, w = 0 from the second back to the first; "
            "symmetric similarities make the log-ratios around a cycle sum to 0",
            cycle,
        )
        return _inconsistent(question, "one_sided_zero", witness, moves_along_cycle(cycle, -1.0))
    asymmetric = _asymmetric_cycle(question, two_sided)
    if asymmetric is not None:
        return asymmetric
    separate = not one_sided.any() and not positive[:, ~question.live].any()
    complete = bool((two_sided == ((block[:, None] == block[None, :]) & ~np.eye(n, dtype=bool))).all())
    if separate and complete:
        return _blocks_apart(question, count, block, decide)
    if question.allows(n - 1):
        return question.answer("degenerate", "approached_at_infinity", witness=_block_witness(block))
    return question.answer("undetermined", "zero_inside_block_low_dimension", witness=_block_witness(block))


def _inconsistent(
    question: Question, code: str, witness: Witness, moves: list[tuple[int, int, float]]
) -> Verdict:
    gap = question.gap_from_moves(moves)
    return question.answer(
        "inconsistent", code, witness=witness, largest_temperature=0.0, gap_lower_bound=gap
    )


def _zero_self_weight(question: Question, zero: BoolArray) -> Verdict:
    """s_ii = 0 is the largest similarity, so q_ii ≥ 1/n where p_ii = 0."""
    n, anchors = len(zero), question.anchors
    i = int(np.flatnonzero(zero.diagonal())[0])
    witness = Witness("zero", "w_ii = 0 asks for q_ii = 0, and s_ii = 0 is the largest similarity", (i, i))
    return question.answer(
        "inconsistent",
        "zero_self_weight",
        witness=witness,
        largest_temperature=0.0,
        gap_lower_bound=-math.log1p(-1 / n) * int(zero.diagonal().sum()) / anchors,
    )


def _zero_inside_block(question: Question, finite: BoolArray, i: int, j: int) -> Verdict:
    """‖z_i - z_j‖² ≤ m Σ of the m squared distances along a path, all finite, and w_ij = 0."""
    if not question.live[i]:
        i, j = j, i
    path = path_between(finite, i, j)
    m = float(len(path) - 1)
    moves = [(i, j, 1.0), (i, i, -1.0)]
    for a, b in pairwise(path):
        row, column = (a, b) if question.live[a] else (b, a)
        moves += [(row, column, -m), (row, row, m)]
    witness = Witness(
        "path",
        "w > 0 along the path asks for finite distances, and w = 0 from its first to its last item for an "
        "infinite one",
        tuple(path),
    )
    return _inconsistent(question, "zero_inside_block", witness, _merged(moves))


def _merged(moves: list[tuple[int, int, float]]) -> list[tuple[int, int, float]]:
    total: dict[tuple[int, int], float] = {}
    for i, j, amount in moves:
        total[i, j] = total.get((i, j), 0.0) + amount
    return [(i, j, amount) for (i, j), amount in total.items() if amount]


def _asymmetric_cycle(question: Question, two_sided: BoolArray) -> Verdict | None:
    """Potentials along spanning trees of the two-sided pairs; a pair they contradict closes a cycle."""
    L = np.where(two_sided, question.weights.values, 0.0)
    R = L - L.T
    c = np.zeros(len(L))
    order, parent = spanning_forest(two_sided)
    for v in order[parent[order] >= 0]:
        c[v] = c[parent[v]] + R[parent[v], v]
    E = np.where(two_sided, R - (c[None, :] - c[:, None]), 0.0)
    spread = float(np.ptp(L[two_sided])) if two_sided.any() else 0.0
    worst = float(np.abs(E).max())
    if worst <= question.tolerance * max(1.0, spread):
        return None
    i, j = map(int, np.unravel_index(np.abs(E).argmax(), E.shape))
    cycle = cycle_closed_by(parent, i, j)
    value = float(sum(R[a, b] for a, b in zip(cycle, (*cycle[1:], cycle[0]), strict=True)))
    witness = Witness(
        "cycle",
        "log(w_ab/w_ba) summed over the pairs a → b around the cycle is not 0, "
        "but symmetric similarities make it 0",
        cycle,
        None,
        value,
    )
    verdict = _inconsistent(
        question, "not_symmetrisable", witness, moves_along_cycle(cycle, -math.copysign(1.0, value))
    )
    return replace(verdict, margin=-worst / max(1.0, spread))


def _blocks_apart(question: Question, count: int, block: IntArray, decide: Decide) -> Verdict:
    """Complete blocks: each is decided alone, then they are driven apart."""
    required, close = 1, False
    for k in range(count):
        items = np.flatnonzero(block == k)
        if len(items) == 1 or not question.live[items].any():
            continue
        answer = decide(question.block(items))
        close |= answer.close_call
        if answer.verdict == "inconsistent":
            return _from_block(question, answer, items)
        required = max(required, answer.required_dimension or 0)
    return question.answer(
        "degenerate",
        "approached_at_infinity",
        required_dimension=required,
        close_call=close,
        witness=_block_witness(block),
    )


def _from_block(question: Question, answer: Verdict, items: IntArray) -> Verdict:
    """A block that fails, with its witness in the numbering of the whole."""
    witness = answer.witness
    assert witness is not None
    vector: FloatArray | None = None
    if witness.vector is not None:
        vector = np.zeros(len(question.L))
        vector[items] = witness.vector
    if witness.kind != "rank":
        witness = replace(witness, items=tuple(int(items[i]) for i in witness.items))
    witness = replace(witness, vector=vector, statement=f"{witness.statement} (inside one block)")
    return question.answer(
        "inconsistent",
        answer.reason.code,
        message=f"a block of {len(items)} items cannot: {answer.reason.message}",
        required_dimension=answer.required_dimension,
        margin=answer.margin,
        rank_margin=answer.rank_margin,
        scale=answer.scale,
        close_call=answer.close_call,
        largest_temperature=0.0,
        witness=witness,
        gap_lower_bound=answer.gap_lower_bound * int(question.live[items].sum()) / question.anchors,
    )


def _block_witness(block: IntArray) -> Witness:
    return Witness(
        "blocks",
        "items of one block are joined by positive weights; the bound is approached as distances grow",
        tuple(map(int, block)),
    )


def decide_free_pairs(question: Question, decide: Decide) -> Verdict:
    """Counted weights are positive, but two or more skipped anchors leave their own pairs free.

    Euclidean, self pairs excluded, d ≥ n - 1: any symmetric s will do. Otherwise the counted items alone
    may already be impossible; if not, completing the matrix is left open.
    """
    n, skipped = len(question.L), ~question.live
    if not question.cosine and not question.included and question.allows(n - 1):
        L = question.L.copy()
        L[np.ix_(skipped, skipped)] = L[question.live].mean()
        answer = decide(replace(question, L=L))
        if answer.verdict == "degenerate":
            free = Reason("free_pairs", MESSAGES["free_pairs"])
            return replace(answer, reason=free, required_dimension=None, offset=None)
        return answer
    items = np.flatnonzero(question.live)
    if len(items) > 1:
        answer = decide(question.block(items))
        if answer.verdict == "inconsistent":
            # By the chain rule KL(p_i‖q_i) is at least p_i's share of the block times that inside it.
            share = float(question.P[np.ix_(items, items)].sum(axis=1).min())
            return _from_block(
                question, replace(answer, gap_lower_bound=share * answer.gap_lower_bound), items
            )
    return question.answer("undetermined", "skipped_anchor", witness=_skipped_witness(question))


def _skipped_witness(question: Question) -> Witness:
    return Witness(
        "skipped",
        "these anchors have no positive weight of their own, but others have positive weights on them",
        tuple(map(int, np.flatnonzero(~question.live))),
    )
