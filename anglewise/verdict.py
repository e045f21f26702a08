"""What `anglewise.realizability.realizability` answers: a verdict and its proof."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anglewise.sampling import FloatArray

VerdictName = Literal["realizable", "degenerate", "inconsistent", "undetermined"]
LargestTemperature = float | Literal["unbounded"] | None
WitnessKind = Literal[
    "cycle",
    "self_pair",
    "pair",
    "vector",
    "rank",
    "zero",
    "path",
    "directed_cycle",
    "blocks",
    "skipped",
]


@dataclass(frozen=True)
class Witness:
    """A fact about W that anyone can check and that decides the case.

    Attributes:
        kind: what the fact is about.
        statement: the fact in words and symbols; ``items`` are its indices in the order named there.
        items: indices of items; for kind "blocks" the block of every item.
        vector: (n,) the vector x of the statement, of unit length.
        value: the number the statement speaks of.
    """

    kind: WitnessKind
    statement: str
    items: tuple[int, ...] = ()
    vector: FloatArray | None = None
    value: float | None = None


@dataclass(frozen=True)
class Reason:
    """The argument that decides: a stable code and a sentence."""

    code: str
    message: str


@dataclass(frozen=True)
class Offset:
    """The closed range of c in s_ij = S0_ij + c; ``None`` is an unbounded end."""

    lower: float | None
    upper: float | None


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether some geometry attains the entropy bound of a weighting ([P2]; see `realizability`).

    Attributes:
        verdict: "realizable": attained, by one geometry up to isometry. "degenerate": attained by
            several that are not congruent, or approached at infinity only. "inconsistent": not attained
            nor approached in this metric and dimension. "undetermined": not decided.
        attained: whether the bound is attained; ``None`` when undetermined.
        unique: whether exactly one geometry attains it.
        reason: code and sentence.
        required_dimension: least dimension that attains (or approaches) the bound; ``None`` when none
            does or it is not known.
        offset: feasible c in s_ij = S0_ij + c, S0 the symmetrized log-weights in the gauge Σ c_i = 0;
            self pairs excluded only, and only for symmetrizable positive weights.
        margin: smallest eigenvalue of the required Gram matrix (at the best offset) / scale; for
            asymmetric weights minus the asymmetry / its scale. At least -tolerance is feasible.
        rank_margin: (dimension + 1)-th largest eigenvalue / scale; above tolerance refutes ``dimension``.
        close_call: a deciding number lies within a factor 1000 of the tolerance.
        tolerance: relative, as used (the requested one, raised to the rounding of the input).
        scale: max(spectral norm of the required Gram matrix, T); tolerance · scale is the absolute one.
        largest_temperature: the largest T at which these weights attain the bound in this metric and
            dimension; "unbounded", 0 for none, ``None`` where it is not defined or not known.
        witness: the proof of an inconsistency, or the structure behind a limit at infinity.
        gram: (n, n) Gram matrix of ``embedding``, cosine metric.
        squared_distances: (n, n) of ``embedding``, Euclidean metric.
        embedding: (n, r) rows that attain the bound, r = required_dimension.
        second_embedding: (n, r') rows that attain it too and are not congruent to ``embedding``.
        residual: largest absolute deviation of the embeddings' inner products (cosine) or squared
            distances (Euclidean) from what the weights ask for.
        entropy_bound: (1/n) Σ H(p_i), the lower bound on the loss.
        gap_lower_bound: a proven lower bound on the loss of any geometry minus ``entropy_bound``; 0
            where nothing better is proven.
        skipped_anchors: anchors without a positive counted weight; they are not in any average.
    """

    verdict: VerdictName
    attained: bool | None
    unique: bool
    reason: Reason
    tolerance: float
    entropy_bound: float
    required_dimension: int | None = None
    offset: Offset | None = None
    margin: float | None = None
    rank_margin: float | None = None
    scale: float | None = None
    close_call: bool = False
    largest_temperature: LargestTemperature = None
    witness: Witness | None = None
    gram: FloatArray | None = None
    squared_distances: FloatArray | None = None
    embedding: FloatArray | None = None
    second_embedding: FloatArray | None = None
    residual: float | None = None
    gap_lower_bound: float = 0.0
    skipped_anchors: tuple[int, ...] = ()
