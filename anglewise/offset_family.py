"""Self pairs excluded: a one-parameter family of candidates, decided for all offsets at once.

s_ij = S0_ij + c leaves the offset c free. With M = T (S0 - shift) and κ = T (c + shift) the candidates are
G(κ) = I + M + κ (11ᵀ - I) (cosine, see `secular`) and B(κ) = ½ (J M J - κ J) (Euclidean).
"""

from __future__ import annotations

import numpy as np

from anglewise.embedding import from_cosines, from_squared_distances
from anglewise.question import Question
from anglewise.sampling import FloatArray
from anglewise.secular import OffsetCurve, offset_curve
from anglewise.symmetry import Symmetrized
from anglewise.temperature_range import largest_without_self_pairs
from anglewise.tridiagonal import Tridiagonal, tridiagonalize
from anglewise.verdict import LargestTemperature, Offset, Verdict, VerdictName, Witness


def decide_excluded(question: Question, sym: Symmetrized) -> Verdict:
    """The verdict for symmetrizable positive weights of n ≥ 2 items, self pairs excluded."""
    tri = tridiagonalize(sym.M)
    return (_decide_cosine if question.cosine else _decide_euclidean)(question, sym, tri)


# Cosine -----------------------------------------------------------------------------------------------


def _decide_cosine(question: Question, sym: Symmetrized, tri: Tridiagonal) -> Verdict:
    n, T = len(sym.M), question.T
    curve = offset_curve(tri.plus(identity=1.0))
    best = curve.offset(curve.peak)
    peak = curve.smallest(curve.peak)  # max over κ of λ_min(G(κ))
    scale = max(abs(peak), abs(_at(curve, best).eigenvalue(-1)), T)
    allowance = question.tolerance * scale
    facts: dict[str, object] = {
        "margin": peak / scale,
        "scale": scale,
        "largest_temperature": _largest_temperature(question, peak, n),
    }
    if peak < -allowance:
        return _no_offset(question, sym, curve, peak, close_call=question.is_close(peak / scale), **facts)
    interval = peak > allowance
    lower, upper = curve.ends() if interval else (best, best)
    G = _at(curve, upper)
    rank = G.count_above(allowance)
    d = question.dimension
    next_one = G.eigenvalue(-1 - d) if d is not None and d < n else None
    rank_margin = None if next_one is None else next_one / scale
    last_kept = G.eigenvalue(-rank) / scale if rank else None
    facts |= {
        "rank_margin": rank_margin,
        "offset": Offset(lower / T - sym.shift, upper / T - sym.shift),
        "close_call": question.is_close(peak / scale, rank_margin, last_kept),
    }
    if interval and question.allows(n - 1):
        if question.allows(n):  # any offset will do; inside, the Gram matrix is well conditioned
            other, code = 0.5 * (lower + upper), "offset_interval"
        else:
            other, code = lower, "two_ends"
        return _with_cosines(question, sym, "degenerate", code, rank, (upper, other), facts)
    if question.allows(rank):
        return _with_cosines(question, sym, "realizable", "unique", rank, (upper,), facts)
    assert next_one is not None
    distance = _distance_to_rank(curve, upper, next_one, allowance)
    return question.rank_refuted(
        rank, next_one, gap_lower_bound=question.gap_from_distance(distance, sym), **facts
    )


def _at(curve: OffsetCurve, kappa: float) -> Tridiagonal:
    """G(κ)."""
    return curve.P.plus(identity=-kappa, ones=kappa)


def _largest_temperature(question: Question, peak: float, n: int) -> LargestTemperature:
    """Defined where the dimension does not bind; below that only constant weights have an answer."""
    if question.allows(n - 1) or 1 - peak <= question.tolerance:
        return largest_without_self_pairs(peak, question.T, question.tolerance)
    return None


def _no_offset(
    question: Question, sym: Symmetrized, curve: OffsetCurve, peak: float, **facts: object
) -> Verdict:
    x = curve.P.lift(curve.refuting_vector())
    x /= np.linalg.norm(x)
    value = float(x @ x + x @ sym.M @ x + sym.shift * question.T * (x.sum() ** 2 - x @ x))
    witness = Witness(
        "vector",
        "(1ᵀx)² = xᵀx and xᵀ(I + T S0)x < 0, S0 the symmetrized log-weights: no offset makes it nonnegative",
        vector=x,
        value=value,
    )
    return question.answer(
        "inconsistent",
        "empty_offset_interval",
        witness=witness,
        gap_lower_bound=max(question.gap_along(x, -value, sym), question.gap_from_distance(-peak, sym)),
        **facts,
    )


def _distance_to_rank(curve: OffsetCurve, upper: float, next_one: float, allowance: float) -> float:
    """A lower bound, over all κ, on the distance of G(κ) from semidefinite matrices of rank d.

    The distance is at least λ_{d+1}(G(κ)) and at least -λ_min(G(κ)). Below the upper end by s, λ_{d+1} is at
    least next_one - (n - 1)s, and at least s because G(κ) restricted to the complement of 1 is T1 - κ. Above
    it λ_min is concave and falling, so its value at one s bounds the rest.
    """
    n = len(curve.P)
    step = 0.5 * next_one / (n - 1)
    beyond = -_at(curve, upper + step).eigenvalue(0)
    return max(0.0, min((next_one - allowance) / n, 0.5 * next_one, beyond))


def _with_cosines(
    question: Question,
    sym: Symmetrized,
    verdict: VerdictName,
    code: str,
    rank: int,
    offsets: tuple[float, ...],
    facts: dict[str, object],
) -> Verdict:
    fields = dict(facts, required_dimension=rank)
    if question.embed:
        n = len(sym.M)
        K = _cosines(sym.M, offsets[0])
        Z, residual = from_cosines(K, rank)
        fields |= {"gram": K, "embedding": Z}
        if len(offsets) > 1:
            fields["second_embedding"], second = from_cosines(
                _cosines(sym.M, offsets[1]), n if code == "offset_interval" else n - 1
            )
            residual = max(residual, second)
        fields["residual"] = residual + 0.5 * question.T * sym.residual
    return question.answer(verdict, code, **fields)


def _cosines(M: FloatArray, kappa: float) -> FloatArray:
    K = M + kappa
    np.fill_diagonal(K, 1.0)
    return K


# Euclidean --------------------------------------------------------------------------------------------


def _decide_euclidean(question: Question, sym: Symmetrized, tri: Tridiagonal) -> Verdict:
    """κ ≤ μ, the smallest eigenvalue of M on the complement of 1: always attained in n - 1 dimensions."""
    n, T, d = len(sym.M), question.T, question.dimension
    T1 = tri.trailing()
    mu, top = T1.eigenvalue(0), T1.eigenvalue(-1)
    B = T1.plus(identity=-mu).times(0.5)
    scale = max(0.5 * (top - mu), T)
    allowance = question.tolerance * scale
    rank = B.count_above(allowance)
    enough = question.allows(rank)
    next_one = B.eigenvalue(-1 - d) if d is not None and d < n - 1 else None
    rank_margin = None if next_one is None else next_one / scale
    last_kept = B.eigenvalue(-rank) / scale if rank else None
    facts: dict[str, object] = {
        "margin": 0.0,
        "rank_margin": rank_margin,
        "scale": scale,
        "offset": Offset(None, mu / T - sym.shift),
        "close_call": next_one is not None and question.is_close(rank_margin, last_kept),
        "largest_temperature": "unbounded" if enough or question.allows(n - 1) else 0.0,
    }
    if question.allows(n - 1):
        return _with_distances(question, sym, rank, (mu, mu - scale), facts)
    if enough:
        return _with_distances(question, sym, rank, (mu,), facts)
    assert next_one is not None
    return question.rank_refuted(
        rank, next_one, gap_lower_bound=question.gap_from_distance(0.5 * next_one, sym), **facts
    )


def _with_distances(
    question: Question, sym: Symmetrized, rank: int, offsets: tuple[float, ...], facts: dict[str, object]
) -> Verdict:
    degenerate = len(offsets) > 1
    fields = dict(facts, required_dimension=rank)
    if question.embed:
        D = _distances(sym.M, offsets[0])
        Z, residual = from_squared_distances(D, rank)
        fields |= {"squared_distances": np.maximum(D, 0.0), "embedding": Z}
        if degenerate:
            D = _distances(sym.M, offsets[1])
            fields["second_embedding"], second = from_squared_distances(D, len(D) - 1)
            residual = max(residual, second)
        fields["residual"] = residual + 0.5 * question.T * sym.residual
    if degenerate:
        return question.answer("degenerate", "offset_half_line", **fields)
    return question.answer("realizable", "unique", **fields)


def _distances(M: FloatArray, kappa: float) -> FloatArray:
    D = -M - kappa
    np.fill_diagonal(D, 0.0)
    return D
