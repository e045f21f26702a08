"""The answer of `best_geometry`: an embedding, its loss and the proof of how good it is."""

from __future__ import annotations

from dataclasses import dataclass

from anglewise.geometry import Certificate, SolverReport
from anglewise.sampling import FloatArray
from anglewise.weighted_loss import Metric


@dataclass(frozen=True, eq=False)
class WeightedGeometry:
    """The best geometry found for a weight matrix, and its proof.

    Rows are the rows of the given log-weights: items, or classes when counts were given.

    Attributes:
        metric: "cosine" or "euclidean".
        gram: (m, m) inner products of the embedding (Euclidean: about its mean).
        squared_distances: (m, m) for the Euclidean metric, else None.
        embedding: (m, dimension) rows z_i, zero-padded to the dimension asked for.
        dimension: columns of ``embedding``.
        rank: numerical rank of ``embedding``.
        loss: L of the embedding ([P2]).
        entropy_bound: (1/n) Σ_i H(p_i) ≤ L.
        entropy_gap: loss - entropy_bound = (1/n) Σ_i KL(p_i‖q_i), at least 0.
        certificate: bound on ``loss`` minus the minimum over all Gram matrices, relative to ``loss``.
        report: method, iterations, rows of the reduced problem, seconds.
        unique: whether the minimizer is known to be unique up to isometry.
        attained: False when the minimum is only approached as distances grow; ``embedding`` is then
            finite and within rounding of it.
        anchors: n, the number of items.
        anchors_used: items with at least one positive; the mean in L is over these.
        warnings: plain sentences for people.
    """

    metric: Metric
    gram: FloatArray
    squared_distances: FloatArray | None
    embedding: FloatArray
    dimension: int
    rank: int
    loss: float
    entropy_bound: float
    entropy_gap: float
    certificate: Certificate
    report: SolverReport
    unique: bool
    attained: bool
    anchors: int
    anchors_used: int
    warnings: tuple[str, ...] = ()
