"""Self pairs included: one Gram matrix can attain the bound, and its spectrum decides ([P2]).

s_ij = log(w_ij/w_ii) + s_ii with s_ii = 1/T on the sphere and 0 for distances. With M = T S0 this asks for
K = 11ᵀ + M (cosine) or K = ½ J M J (Euclidean): positive semidefinite, of rank at most d.
"""

from __future__ import annotations

import numpy as np

from anglewise.embedding import from_cosines, from_squared_distances
from anglewise.question import Question, unit_pair
from anglewise.sampling import FloatArray
from anglewise.symmetry import Symmetrized
from anglewise.temperature_range import largest_with_self_pairs
from anglewise.tridiagonal import Tridiagonal, tridiagonalize
from anglewise.verdict import LargestTemperature, Verdict, Witness


def decide_included(question: Question, sym: Symmetrized) -> Verdict:
    """The verdict for symmetrizable positive weights, self pairs included."""
    n, T, d = len(sym.M), question.T, question.dimension
    if n == 1 and not question.cosine:
        return _attained(question, sym, 0, scale=T, margin=0.0, largest_temperature="unbounded")
    tri = tridiagonalize(sym.M)
    # The ones vector is in the kernel of ½ JMJ and needs no test.
    K = tri.plus(ones=1.0) if question.cosine else tri.times(0.5).trailing()
    smallest, largest = K.eigenvalue(0), K.eigenvalue(-1)
    scale = max(abs(smallest), abs(largest), T)
    allowance = question.tolerance * scale
    margin = smallest / scale
    hottest = _largest_temperature(question, tri, smallest >= -allowance, allowance)
    if smallest < -allowance:
        return _refuted(
            question,
            sym,
            K if question.cosine else tri,
            smallest,
            scale,
            margin=margin,
            close_call=question.is_close(margin),
            largest_temperature=hottest,
        )
    rank = K.count_above(allowance)
    last_kept = K.eigenvalue(-rank) / scale if rank else None
    next_one = K.eigenvalue(-1 - d) if d is not None and d < len(K) else None
    rank_margin = None if next_one is None else next_one / scale
    facts = {
        "margin": margin,
        "rank_margin": rank_margin,
        "scale": scale,
        "close_call": question.is_close(margin, rank_margin, last_kept),
        "largest_temperature": hottest,
    }
    if not question.allows(rank):
        assert next_one is not None
        return question.rank_refuted(
            rank, next_one, gap_lower_bound=question.gap_from_distance(next_one, sym), **facts
        )
    return _attained(question, sym, rank, **facts)


def _largest_temperature(
    question: Question, tri: Tridiagonal, feasible: bool, allowance: float
) -> LargestTemperature:
    """On the sphere T_max; distances scale with T, so they fit at every temperature or at none."""
    if question.cosine:
        affine_dimension = 0 if len(tri) == 1 else tri.trailing().count_above(allowance)
        if not question.allows(max(affine_dimension, 1)):
            return 0.0
        K = tri.plus(ones=1.0)
        return largest_with_self_pairs(K, question.T, question.tolerance, allowance)
    return "unbounded" if feasible and question.allows(tri.trailing().count_above(2 * allowance)) else 0.0


def _attained(question: Question, sym: Symmetrized, rank: int, **facts: object) -> Verdict:
    fields = dict(facts, required_dimension=rank)
    if question.embed and question.cosine:
        K = 1.0 + sym.M
        Z, residual = from_cosines(K, rank)
        fields |= {"gram": K, "embedding": Z, "residual": residual + 0.5 * question.T * sym.residual}
    elif question.embed:
        Z, residual = from_squared_distances(-sym.M, rank)
        D = np.maximum(0.0, -sym.M)
        residual += 0.5 * question.T * sym.residual
        fields |= {"squared_distances": D, "embedding": Z, "residual": residual}
    return question.answer("realizable", "unique", **fields)


def _refuted(
    question: Question, sym: Symmetrized, tri: Tridiagonal, smallest: float, scale: float, **facts: object
) -> Verdict:
    """A negative eigenvalue: by one pair if a pair shows it, else by the eigenvector."""
    pair = _impossible_pair(question, sym.M, question.tolerance * scale)
    if question.cosine:
        x = tri.lift(tri.eigenvector(0))
    else:
        x = tri.lift(np.concatenate([[0.0], tri.trailing().eigenvector(0)]))
        x -= x.mean()
    x /= np.linalg.norm(x)
    excess = -_quadratic(question, sym.M, x)
    gap = max(question.gap_along(x, excess, sym), question.gap_from_distance(-smallest, sym))
    if pair is not None:
        code, witness = "pair", pair[0]
        gap = max(gap, question.gap_along(pair[1], -_quadratic(question, sym.M, pair[1]), sym))
    else:
        code = "negative_eigenvalue"
        witness = _eigenvector_witness(question, sym.M, x)
    return question.answer("inconsistent", code, witness=witness, gap_lower_bound=gap, scale=scale, **facts)


def _quadratic(question: Question, M: FloatArray, x: FloatArray) -> float:
    """Σ x_i x_j over what feasible geometries keep nonnegative: xᵀKx, or xᵀMx = 2 xᵀKx for x ⊥ 1."""
    return float(x @ M @ x) + (float(x.sum()) ** 2 if question.cosine else 0.0)


def _eigenvector_witness(question: Question, M: FloatArray, x: FloatArray) -> Witness:
    if question.cosine:
        statement = "xᵀKx < 0 for K_ij = 1 + T log(w_ij/w_ii), the required Gram matrix"
        return Witness("vector", statement, vector=x, value=_quadratic(question, M, x))
    statement = "xᵀKx < 0 for K = -½JDJ, J = I - 11ᵀ/n, D_ij = T log(w_ii/w_ij), the required Gram matrix"
    return Witness("vector", statement, vector=x, value=0.5 * _quadratic(question, M, x))


def _impossible_pair(
    question: Question, M: FloatArray, allowance: float
) -> tuple[Witness, FloatArray] | None:
    """The pair with the worst required cosine or squared distance, and its vector, if worse than allowed."""
    high, low = int(M.argmax()), int(M.argmin())
    above, below = float(M.flat[high]), -2.0 - float(M.flat[low])
    if question.cosine and max(above, below) > allowance:
        i, j = _counted_first(question, *divmod(high if above >= below else low, len(M)))
        cosine = 1 + float(M[i, j])
        witness = Witness(
            "pair", "1 + T log(w_ij/w_ii) is outside [-1, 1], and has to be a cosine", (i, j), None, cosine
        )
        return witness, unit_pair(len(M), i, j, -1.0 if cosine > 0 else 1.0)
    if not question.cosine and above > 2 * allowance:
        i, j = _counted_first(question, *divmod(high, len(M)))
        witness = Witness(
            "pair", "T log(w_ii/w_ij) is negative, and has to be a squared distance", (i, j), None, -above
        )
        return witness, unit_pair(len(M), i, j, -1.0)
    return None


def _counted_first(question: Question, i: int, j: int) -> tuple[int, int]:
    """The pair with the anchor first whose own weights ask for it: a skipped anchor has none."""
    return (i, j) if question.live[i] else (j, i)
