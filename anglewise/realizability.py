"""Is the entropy bound of weighted InfoNCE attained by some geometry, and by which?

The loss L = (1/n) Σ_i Σ_{j∈N(i)} p_ij (-log q_ij) equals (1/n) Σ_i [H(p_i) + KL(p_i ‖ q_i)], so for positive
weights it attains (1/n) Σ_i H(p_i) iff s_ij = log w_ij + c_i for j ∈ N(i): a question of distance geometry
([P2]). Every verdict carries its proof: an embedding with its residual, two embeddings that are not
congruent, or a witness that rules every geometry out, with a proven lower bound on the gap.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np

from anglewise.blas import single_threaded_blas
from anglewise.named import NamedWeighting
from anglewise.offset_family import decide_excluded
from anglewise.question import Question, check_arguments, effective_tolerance
from anglewise.sampling import FloatArray
from anglewise.symmetry import asymmetry_witness, fill_skipped, moves_against, symmetrize
from anglewise.unique_candidate import decide_included
from anglewise.verdict import Verdict
from anglewise.weighted_loss import Metric, SelfPairs
from anglewise.weights import BoolArray, LogWeights, Rows, given_log_weights
from anglewise.zero_weights import (
    decide_free_pairs,
    decide_zeros_on_sphere,
    decide_zeros_with_self_pairs,
    decide_zeros_without_self_pairs,
)

SINGLE_THREADED_BELOW = 1000
"""Items below which BLAS threads cost more than they bring."""


def realizability(
    weights: LogWeights | Rows | NamedWeighting | None = None,
    *,
    log_weights: Rows | None = None,
    metric: Metric = "cosine",
    temperature: float = 0.1,
    self_pairs: SelfPairs = "included",
    dimension: int | None = None,
    tolerance: float | None = None,
    embed: bool = True,
) -> Verdict:
    """Decides whether similarities can attain the entropy bound of the given weights.

    Args:
        weights: (n, n) nonnegative w_ij, `LogWeights`, or a named weighting, decided item by item.
        log_weights: (n, n) log w_ij instead; ``None`` or -inf for a zero weight.
        metric: "cosine", s_ij = z_i·z_j/T with unit rows, or "euclidean", s_ij = -‖z_i - z_j‖²/T.
        temperature: T in [1e-3, 1e4].
        self_pairs: whether j = i is in N(i).
        dimension: largest dimension allowed; ``None`` for no limit.
        tolerance: relative, in [1e-15, 1e-2], one for sign and rank of eigenvalues, times
            max(spectral norm, T). Default 1e-9, or 4n times the rounding of single-precision input; never
            below the rounding of the input.
        embed: whether to compute ``gram`` or ``squared_distances`` and the embeddings.

    Raises:
        InvalidInput: naming the argument, and the entry, outside its domain.

    >>> realizability([[1.0, 0.1], [0.1, 1.0]], temperature=0.5).verdict
    'realizable'
    >>> realizability([[1.0, 0.0], [0.0, 1.0]]).reason.code
    'zero_weight_on_sphere'
    """
    if isinstance(weights, NamedWeighting):
        weights = weights.per_item()
    given = given_log_weights(weights, log_weights)
    check_arguments(metric, temperature, self_pairs, dimension, tolerance)
    live = given.anchors(self_pairs)
    question = Question(
        weights=given,
        L=_counted(given, live, self_pairs),
        live=live,
        metric=metric,
        T=float(temperature),
        self_pairs=self_pairs,
        dimension=None if dimension is None else int(dimension),
        tolerance=effective_tolerance(given, tolerance),
        embed=embed,
    )
    with single_threaded_blas() if len(given) < SINGLE_THREADED_BELOW else nullcontext():
        return decide(question)


def decide(question: Question) -> Verdict:
    """The verdict of a checked question."""
    if question.weights.all_positive:
        return decide_positive(question)
    positive = question.weights.positive(question.self_pairs)
    zero = ~positive & question.live[:, None]
    if not question.included:
        np.fill_diagonal(zero, False)
    if not zero.any():
        free = int((~question.live).sum()) > 1
        return decide_free_pairs(question, decide_positive) if free else decide_positive(question)
    if question.cosine:
        return decide_zeros_on_sphere(question, zero)
    if question.included:
        return decide_zeros_with_self_pairs(question, zero, decide_positive)
    return decide_zeros_without_self_pairs(question, decide_positive)


def decide_positive(question: Question) -> Verdict:
    """All counted weights are positive."""
    sym = symmetrize(question.L, question.T, question.included)
    unit = max(1.0, sym.spread)
    if sym.residual > question.tolerance * unit:
        return _asymmetric(question, question.tolerance * unit, sym.residual / unit)
    return (decide_included if question.included else decide_excluded)(question, sym)


def _asymmetric(question: Question, limit: float, margin: float) -> Verdict:
    code, witness = asymmetry_witness(question.L, question.live, question.included, limit)
    return question.answer(
        "inconsistent",
        code,
        margin=-margin,
        witness=witness,
        largest_temperature=0.0,
        close_call=question.is_close(margin),
        gap_lower_bound=question.gap_from_moves(moves_against(witness)),
    )


def _counted(weights: LogWeights, live: BoolArray, self_pairs: SelfPairs) -> FloatArray:
    """Log-weights with a zero diagonal where it does not count, and the rows of skipped anchors filled."""
    L = weights.values
    if self_pairs == "excluded":
        L = L.copy()
        np.fill_diagonal(L, 0.0)
    return L if live.all() else fill_skipped(L, live, self_pairs == "included")
