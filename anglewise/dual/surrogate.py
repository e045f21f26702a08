"""A model of the risk that agrees with it to first order and has an explicit dual.

Around a reference Gram matrix R each row's risk is modelled as

    F_g(A) = M_g log(1 - Σ_h c_gh + Σ_h c_gh e^{(A_gh - R_gh)/T_s}),    c = T ∂F/∂A / M,

with T/T_s times the gradient of the exact row at R; the common factor T/T_s moves no minimizer.
M_g = (E w)²/E w² makes its curvature along a common shift of the row exact; with M = 1 it majorizes the exact
risk near R. T_s is T, or a larger temperature matched to the curvature seen in the last step.
log m = min_v (v + m e^{-v} - 1) makes the minimizing A explicit (`kernels`). For the exponential loss the
model is the risk itself and there is no v.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit

from anglewise.dual import small
from anglewise.dual.kernels import (
    best_scale,
    clip_pairs,
    dual_state,
    dual_trace,
    pairs,
    row_sums,
    row_terms,
    row_totals,
    row_weights,
    v_hessian,
)
from anglewise.dual.partition import Partition
from anglewise.losses import Exponential, InfoNCE, Logistic
from anglewise.parallel import over_rows
from anglewise.risk import Risk, RiskEvaluation
from anglewise.sampling import FloatArray

THREADED_UNITS = 384
"""From this many units on the pairs are shared between threads."""


def temperature(risk: Risk) -> float:
    """T of a loss that has one."""
    loss = risk.loss
    assert isinstance(loss, (InfoNCE, Logistic, Exponential))
    return loss.temperature


@dataclass
class State:
    """The dual function at (Y, v): the minimizing A and the sums the derivatives need.

    Attributes:
        pairs: (4, B, B) S; A, the minimizer; X = e^{(A - R)/T}; share, that over S + Sᵀ (0 where clipped).
        rows: (4, G) total, free_total: Σ_b ω c X over all and over unclipped pairs; omega; gradient: ∂Φ/∂v.
        value: Φ(Y, v) at the best scale of Y; ``noise`` its rounding error.
        residual: the largest |∂Φ/∂v_g| / w_g.
        log_scale: t, the best scale of Z being e^t; ``trace`` that of Z at this scale.
        free: 4T ⟨N, Z⟩ over unclipped pairs, the curvature in the scale.
        clipped: pairs at the box.
    """

    pairs: FloatArray
    rows: FloatArray
    value: float = 0.0
    noise: float = 0.0
    residual: float = 0.0
    log_scale: float = 0.0
    trace: float = 0.0
    free: float = 0.0
    clipped: int = 0

    def __post_init__(self) -> None:
        self.S, self.A, self.X, self.share = self.pairs
        self.total, self.free_total, self.omega, self.gradient = self.rows


@njit(cache=True, nogil=True, error_model="numpy")
def _model_gradient(
    gradient: FloatArray, A: FloatArray, R: FloatArray, T: float, c: FloatArray, bends: bool, H: FloatArray
) -> None:
    """Fills H with the gradient at A of the model whose gradient at R is ``gradient``."""
    for g in range(A.shape[0]):
        total = 1.0
        for h in range(A.shape[0]):
            E = math.exp(min((A[g, h] - R[g, h]) / T, 700.0))
            H[g, h] = gradient[g, h] * E
            total += c[g, h] * (E - 1.0)
        if bends:
            for h in range(A.shape[0]):
                H[g, h] /= total


class Surrogate:
    """The model of ``risk`` around the Gram matrix ``R`` with evaluation ``at``.

    ``T`` is T_s, ``stretch`` T_s/T: what one unit of the model is worth in units of the risk.
    """

    def __init__(self, risk: Risk, at: RiskEvaluation, R: FloatArray, stretch: float = 1.0) -> None:
        self.risk, self.at, self.R, self.stretch = risk, at, R, stretch
        T = temperature(risk)
        self.T = stretch * T
        self.bends = risk.form is not None
        multiplicity = risk.form.multiplicity if risk.form is not None else 1.0
        curvature = at.curvature if self.bends else np.ones(len(risk.groups))
        self.weight = multiplicity * risk.anchor * curvature
        # c per class pair, then for all classes of the group seen from one anchor.
        per_anchor = multiplicity * curvature * risk.groups.proportions
        self.c_pair = T * at.gradient / per_anchor[:, None]
        self.c_group = risk.law.neighbors * self.c_pair
        self._spare: list[State] = []

    def gradient(self, A: FloatArray, temperature: float | None = None) -> FloatArray:
        """H of the model at a group Gram matrix, in units of the risk (as `RiskEvaluation.gradient`).

        Args:
            temperature: T_s, if not that of the model.
        """
        H = np.empty_like(self.R)
        T = self.T if temperature is None else temperature
        _model_gradient(self.at.gradient, A, self.R, T, self.c_group, self.bends, H)
        return H

    def set_partition(self, partition: Partition) -> None:
        """Sums the coefficients over the units of a partition."""
        self.partition = partition
        self._spare.clear()
        if not partition.any_merged:
            self.c, self.reference = self.c_group, self.R
            self.excess = -self.c_group.sum(axis=1)
            return
        G, B, unit = len(partition.unit), len(partition), partition.unit
        Q = np.zeros((G, B))
        Q[np.arange(G), unit] = 1.0
        members = Q.sum(axis=0)
        self.reference = (Q.T @ self.R @ Q) / (members[:, None] * members)
        spread = self.reference[np.ix_(unit, unit)] - self.R
        free = ~partition.fixed
        shifted = np.exp(np.minimum(np.where(free, spread, 0.0) / self.T, 700.0))
        self.c = np.where(free, self.c_group * shifted, 0.0) @ Q
        at_one = np.expm1(np.minimum((1.0 - self.R) / self.T, 700.0))
        # constant part of the row minus 1, without cancellation
        self.excess = np.where(free, -self.c_group, self.c_group * at_one).sum(axis=1)

    def state(self, Y: FloatArray, v: FloatArray) -> State:
        """The dual function at (Y, v)."""
        p = self.partition
        s = self._spare.pop() if self._spare else self._new_state()
        row_weights(self.weight, v, s.omega)
        if len(p) >= THREADED_UNITS:
            free = self._threaded_state(Y, s)
        else:
            s.log_scale, s.trace, free, s.clipped = dual_state(
                Y, s.omega, self.c, p.unit, p.n, p.N, self.reference, self.T,
                s.S, s.A, s.X, s.share, s.total, s.free_total,
            )  # fmt: skip
        s.free = 4.0 * self.T * free
        s.value, size, s.residual = row_terms(self.weight, self.excess, v, s.total, self.bends, s.gradient)
        s.noise = 1e-15 * (size + s.trace)
        if not math.isfinite(s.value):
            raise FloatingPointError("the dual function overflows")
        return s

    def _threaded_state(self, Y: FloatArray, s: State) -> float:
        """`dual_state` with the pairs shared between threads; returns ⟨N, Z⟩ over unclipped pairs."""
        p, R, T = self.partition, self.reference, self.T
        row_sums(s.omega, self.c, p.unit, s.S)
        over_rows(
            lambda start, stop: pairs(start, stop, Y, p.N, s.S, R, T, s.A, s.X, s.share),
            len(p),
            threaded=True,
        )
        trace = dual_trace(Y, p.n)
        t = best_scale(s.A, s.share, T, trace)
        parts: list[tuple[int, float, int]] = []

        def clip(start: int, stop: int) -> None:
            free, clipped = clip_pairs(start, stop, p.N, s.S, R, T, t, s.A, s.X, s.share)
            parts.append((start, free, clipped))

        over_rows(clip, len(p), threaded=True)
        row_totals(s.omega, self.c, p.unit, s.X, s.share, s.total, s.free_total)
        s.log_scale, s.trace, s.clipped = t, trace * math.exp(t), sum(part[2] for part in parts)
        # In order of the rows, whatever thread was first: the same sum each time.
        return sum(part[1] for part in sorted(parts))

    def is_small(self, Y: FloatArray) -> bool:
        """Whether the kernels of `small` are the faster ones."""
        return max(Y.size, len(self.weight)) <= small.MAX_UNKNOWNS

    @property
    def model(self) -> small.Model:
        """The surrogate and its partition for the kernels of `small`."""
        p = self.partition
        return small.Model(
            self.weight, self.excess, self.c, p.unit, p.n, p.N, self.reference, self.T,
            p.any_merged, self.bends,
        )  # fmt: skip

    def minimized_over_v(self, Y: FloatArray, v: FloatArray, tolerance: float) -> tuple[FloatArray, State]:
        """v and the state that minimize Φ(Y, ·), for small problems."""
        B, G = len(self.partition), len(self.weight)
        P, W = np.empty((2, 4, B, B)), np.empty((2, 4, G))
        v, kept, scalars, finite = small.minimize_over_v(self.model, Y, v, tolerance, P, W)
        if not finite:
            raise FloatingPointError("the dual function overflows")
        return v, State(P[kept], W[kept], *scalars)

    def release(self, state: State) -> None:
        """Gives the arrays of a state back for reuse."""
        self._spare.append(state)

    def _new_state(self) -> State:
        B, G = len(self.partition), len(self.weight)
        return State(np.empty((4, B, B)), np.empty((4, G)))

    def v_hessian(self, s: State) -> tuple[FloatArray, FloatArray]:
        """Hessian in v at the best scale, scaled to unit diagonal, and the scaling (G,)."""
        G = len(self.weight)
        H, scaling = np.empty((G, G)), np.empty(G)
        p = self.partition
        v_hessian(
            self.weight, self.excess, s.omega, self.c, p.unit, s.share, s.total, s.free_total, s.free,
            p.any_merged, H, scaling,
        )  # fmt: skip
        return H, scaling
