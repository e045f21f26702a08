"""A realizability question after its input is checked, and the parts every answer shares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from anglewise.errors import InvalidInput
from anglewise.gap_bounds import deviation_gap, entropy_gain, vector_gap
from anglewise.losses import MAX_TEMPERATURE, MIN_TEMPERATURE
from anglewise.sampling import FloatArray, IntArray
from anglewise.symmetry import Symmetrized
from anglewise.verdict import Reason, Verdict, VerdictName, Witness
from anglewise.weighted_loss import Metric, SelfPairs
from anglewise.weights import EPS, BoolArray, LogWeights, entropy_bound

DEFAULT_TOLERANCE = 1e-9
SMALLEST_TOLERANCE, LARGEST_TOLERANCE = 1e-15, 1e-2
MAX_DIMENSION = 10**9
CLOSE = 1e3
"""A margin within this factor of the tolerance is a close call."""

MESSAGES = {
    "unique": "exactly one geometry attains the entropy bound",
    "offset_interval": "every offset of an interval gives a geometry that attains the entropy bound",
    "offset_half_line": "every offset up to a largest one gives a geometry that attains the entropy bound",
    "two_ends": "both ends of the offset interval give a geometry that attains the entropy bound",
    "free_pairs": "pairs of skipped anchors are free, so several geometries attain the entropy bound",
    "approached_at_infinity": "the entropy bound is approached as distances grow, and never attained",
    "not_symmetrisable": "no row scaling makes the weights symmetric, but similarities are symmetric",
    "self_weights": "the weights become symmetric only with row scalings that the self weights contradict",
    "pair": "one pair of items needs a cosine outside [-1, 1] or a negative squared distance",
    "negative_eigenvalue": "the only Gram matrix that could attain the bound is not positive semidefinite",
    "rank": "the geometry that attains the bound needs more dimensions than allowed",
    "empty_offset_interval": "at every offset the required Gram matrix has a negative eigenvalue",
    "zero_weight_on_sphere": "a zero weight needs an infinite distance, and the sphere is bounded",
    "zero_self_weight": "a zero self weight needs an item to be infinitely far from itself",
    "zero_inside_block": "a zero weight needs an infinite distance, but finite distances join the two items",
    "one_sided_zero": "a zero weight needs an infinite distance where the opposite weight needs a finite one",
    "zero_inside_block_low_dimension": "zeros inside a connected block in low dimension ask for a graph "
    "of unit distances, which is NP-hard to embed in general",
    "skipped_anchor": "skipped anchors leave similarities free that the other rows only partly determine",
}


@dataclass(frozen=True, eq=False)
class Question:
    """Weights, metric, temperature, dimension and tolerance.

    Attributes:
        weights: as given.
        L: (n, n) log-weights with the rows of skipped anchors filled in by symmetry.
        live: (n,) the anchors that count.
        tolerance: relative, at least the rounding of the input.
    """

    weights: LogWeights
    L: FloatArray
    live: BoolArray
    metric: Metric
    T: float
    self_pairs: SelfPairs
    dimension: int | None
    tolerance: float
    embed: bool

    @property
    def cosine(self) -> bool:
        return self.metric == "cosine"

    @property
    def included(self) -> bool:
        return self.self_pairs == "included"

    @property
    def anchors(self) -> int:
        """How many anchors count."""
        return int(self.live.sum())

    @cached_property
    def P(self) -> FloatArray:
        """(n, n) p_ij; zero rows for skipped anchors."""
        return self.weights.probabilities(self.self_pairs)

    def block(self, items: IntArray) -> Question:
        """The same question about some of the items, without embeddings."""
        part = np.ix_(items, items)
        return replace(
            self,
            weights=LogWeights(self.weights.values[part], self.weights.resolution, self.weights.field),
            L=self.L[part],
            live=self.live[items],
            embed=False,
        )

    def allows(self, dimension: int) -> bool:
        return self.dimension is None or self.dimension >= dimension

    def is_close(self, *margins: float | None) -> bool:
        low, high = self.tolerance / CLOSE, self.tolerance * CLOSE
        return any(m is not None and low < abs(m) < high for m in margins)

    def answer(self, verdict: VerdictName, code: str, **fields: Any) -> Verdict:
        """A verdict with the fields that follow from the question filled in."""
        attained = {"realizable": True, "inconsistent": False, "undetermined": None}.get(verdict, True)
        if code == "approached_at_infinity":
            attained = False
        message = fields.pop("message", None) or MESSAGES[code]
        witness = fields.get("witness")
        if witness is not None and witness.vector is not None and witness.vector[~self.live].any():
            by_symmetry = f"{witness.statement} (rows of skipped anchors: what the other rows ask of them)"
            fields["witness"] = replace(witness, statement=by_symmetry)
        return Verdict(
            verdict=verdict,
            attained=attained,
            unique=verdict == "realizable",
            reason=Reason(code, message),
            tolerance=self.tolerance,
            entropy_bound=entropy_bound(self.weights, self.self_pairs),
            skipped_anchors=tuple(map(int, np.flatnonzero(~self.live))),
            **fields,
        )

    def rank_refuted(self, required: int, eigenvalue: float, **fields: Any) -> Verdict:
        """Inconsistent because ``required`` dimensions exceed the allowed one."""
        witness = Witness(
            "rank",
            f"the required Gram matrix has {required} eigenvalues above the tolerance; eigenvalue number "
            f"{(self.dimension or 0) + 1} is not 0",
            items=(required,),
            value=eigenvalue,
        )
        message = f"attaining the bound needs {required} dimensions, and {self.dimension} are allowed"
        return self.answer(
            "inconsistent", "rank", message=message, required_dimension=required, witness=witness, **fields
        )

    def gap_along(self, x: FloatArray, excess: float, sym: Symmetrized) -> float:
        """Lower bound on the entropy gap from one vector; see `gap_bounds.vector_gap`.

        What the weights themselves are asymmetric by is taken off the excess: the direction moves at
        most 3 T (Σ|x_i|)² in all, and each entry is off its symmetric part by half the residual.
        """
        if not self.included and not self.live.all():
            return 0.0
        excess -= 1.5 * self.T * float(np.abs(x).sum()) ** 2 * sym.residual
        return vector_gap(self.P, x, self.T, excess, self.anchors, self.included)

    def gap_from_moves(self, moves: Sequence[tuple[int, int, float]]) -> float:
        """Lower bound from moving probability along a few entries; see `gap_bounds.entropy_gain`."""
        return entropy_gain(
            [float(self.P[i, j]) for i, j, _ in moves], [m for _, _, m in moves], self.anchors
        )

    def gap_from_distance(self, distance: float, sym: Symmetrized) -> float:
        """Lower bound when each feasible Gram matrix is ``distance`` (spectral norm) from the required ones.

        If every counted deviation stayed below u, entries would be off by less than (2u + asymmetry) T,
        and the matrix by less than n times that; half of it for squared distances.
        """
        per_entry = distance / (len(self.L) * self.T) * (1 if self.cosine else 2)
        P = self.P[self.live]
        smallest = float(P.min(initial=1.0, where=self.weights.positive(self.self_pairs)[self.live]))
        return deviation_gap(smallest, 0.5 * (per_entry - sym.residual), self.anchors)


def check_arguments(
    metric: str,
    temperature: float,
    self_pairs: str,
    dimension: int | None = None,
    tolerance: float | None = None,
) -> None:
    """Raises `InvalidInput` naming the first argument outside its domain."""
    if metric not in ("cosine", "euclidean"):
        raise InvalidInput(("metric",), "must be 'cosine' or 'euclidean'")
    if self_pairs not in ("included", "excluded"):
        raise InvalidInput(("self_pairs",), "must be 'included' or 'excluded'")
    _require_number("temperature", temperature, MIN_TEMPERATURE, MAX_TEMPERATURE)
    if dimension is not None:
        _require_number("dimension", dimension, 1, MAX_DIMENSION)
        if dimension != int(dimension):
            raise InvalidInput(("dimension",), "must be an integer")
    if tolerance is not None:
        _require_number("tolerance", tolerance, SMALLEST_TOLERANCE, LARGEST_TOLERANCE)


def _require_number(name: str, value: float, low: float, high: float) -> None:
    numeric = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not (numeric and low <= value <= high):
        raise InvalidInput((name,), f"must be a number in [{low:g}, {high:g}]")


def effective_tolerance(weights: LogWeights, requested: float | None) -> float:
    """The requested relative tolerance, raised to what the input's own rounding allows to decide."""
    n, resolution = len(weights), weights.resolution
    largest = weights.values.max()
    smallest = weights.values.min(initial=largest, where=weights.values > -np.inf)
    rounding = 8 * EPS * max(n, abs(float(smallest)), abs(float(largest)))
    if requested is None:
        requested = max(DEFAULT_TOLERANCE, 4 * n * resolution if resolution > EPS else 0.0)
    return min(max(requested, rounding), LARGEST_TOLERANCE)


def unit_pair(n: int, i: int, j: int, sign: float) -> FloatArray:
    """(e_i + sign e_j)/√2."""
    x = np.zeros(n)
    x[i], x[j] = math.sqrt(0.5), sign * math.sqrt(0.5)
    return x
