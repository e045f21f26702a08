"""The exact class-level risk S(A) as a torch function (A3, A4; [P1] Lemma 1), equal to the core's.

S(A) = Σ_i λ_i E_{j_1..j_k ~ p(·|i)} ψ(t_{i j_1}, …), t_ij = A_ij - A_ii, for Gram matrices of class means
inside the unit ball: the diagonal may be below 1, and then pulls the means outwards.

Shapes: C classes, Q quadrature nodes; gram_CC[i, j] is anchor i against negative j.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from anglewise.losses import Exponential, InfoNCE, Logistic, Loss, SquaredHinge, Triplet
from anglewise.quadrature import LEFT_END, MAX_NODES, STEP
from anglewise.risk import LogSum, log_sum_form, multiplicity
from anglewise.sampling import Sampling, proportions_from_counts

CHUNK_NUMBERS = 2_000_000
"""Q·C² numbers held at a time."""
MAX_CHUNK = 64
TINY = 1e-308


def negative_law(proportions_C: Tensor, sampling: Sampling) -> Tensor:
    """(C, C) p(j|i): λ_j, or λ_j/(1 - λ_i) over the other classes."""
    law_CC = proportions_C.expand(len(proportions_C), -1).clone()
    if sampling == "unsupervised":
        return law_CC
    law_CC.fill_diagonal_(0.0)
    return law_CC / law_CC.sum(1, keepdim=True)


class Risk:
    """S(A) for fixed class counts, sampling and loss (hardness 0), in double precision."""

    def __init__(
        self, class_counts: Sequence[int], sampling: Sampling, loss: Loss, device: torch.device | str = "cpu"
    ) -> None:
        self.proportions_C = torch.tensor(proportions_from_counts(class_counts), device=device)
        self.law_CC = negative_law(self.proportions_C, sampling)
        self.loss = loss
        self.form = log_sum_form(loss)

    def __call__(self, gram_CC: Tensor) -> Tensor:
        """S(A), differentiable once.

        Args:
            gram_CC: inner products of the class means, float64.
        """
        t_CC = gram_CC - gram_CC.diagonal()[:, None]
        if self.form is not None:
            return self.form.multiplicity * (self.proportions_C @ self._log_sums(self.form, t_CC))
        phi_CC = pair_loss(t_CC, self.loss)
        return multiplicity(self.loss) * (self.proportions_C[:, None] * self.law_CC * phi_CC).sum()

    def _log_sums(self, form: LogSum, t_CC: Tensor) -> Tensor:
        assert isinstance(self.loss, (InfoNCE, Logistic))
        log_x_CC = form.log_beta + t_CC / self.loss.temperature
        if math.isinf(form.draws):
            means_C = torch.logsumexp(log_x_CC + self.law_CC.log(), dim=1)
            return torch.logaddexp(means_C.new_tensor(form.log_alpha), means_C)
        if form.draws == 1:
            return (self.law_CC * torch.logaddexp(log_x_CC.new_tensor(form.log_alpha), log_x_CC)).sum(1)
        return expected_log_sum(log_x_CC, self.law_CC, float(form.draws), form.log_alpha)


def pair_loss(t: Tensor, loss: Loss) -> Tensor:
    """φ(t) of a separable loss Σ_l φ(t_l)."""
    if isinstance(loss, Logistic):
        return softplus((t + loss.margin) / loss.temperature)
    if isinstance(loss, Exponential):
        return torch.exp(t / loss.temperature)
    assert isinstance(loss, (SquaredHinge, Triplet))
    excess = torch.relu(t + loss.margin)
    return excess**2 if isinstance(loss, SquaredHinge) else excess


def expected_log_sum(log_x_CC: Tensor, law_CC: Tensor, draws: float, log_alpha: float) -> Tensor:
    """(C,) E log(α + Σ_l X_{J_l}) over independent draws J_l ~ law, differentiable once."""
    result: Tensor = _ExpectedLogSum.apply(log_x_CC, law_CC, draws, log_alpha)  # type: ignore[no-untyped-call]
    return result


class _ExpectedLogSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_x_CC: Tensor, law_CC: Tensor, draws: float, log_alpha: float) -> Tensor:
        value_C, share_CC = _integrate(log_x_CC, law_CC, draws, log_alpha)
        ctx.save_for_backward(law_CC * share_CC)
        return value_C

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        (slope_CC,) = ctx.saved_tensors
        return gradients[0][:, None] * slope_CC, None, None, None


def _integrate(log_x_CC: Tensor, p_CC: Tensor, k: float, log_alpha: float) -> tuple[Tensor, Tensor]:
    """The value and share_ij, as `anglewise.quadrature` has them, all rows at once.

    Everything is scaled by the largest of α and the X_j of a row, so nothing overflows.
    """
    drawn_CC = p_CC > 0
    log_x_CC = log_x_CC.masked_fill(~drawn_CC, -math.inf)
    scale_C = log_x_CC.max(dim=1).values.clamp(min=log_alpha)
    y_CC = log_x_CC - scale_C[:, None]
    smallest_C = y_CC.masked_fill(~drawn_CC, math.inf).min(dim=1).values
    a_C = torch.exp(log_alpha - scale_C)
    c_C = a_C + k * (p_CC * y_CC.exp()).sum(1)
    from_alpha_C = c_C < 4 * a_C
    value_C, share_CC = torch.zeros_like(c_C), torch.zeros_like(y_CC)
    chunk = max(1, min(MAX_CHUNK, CHUNK_NUMBERS // y_CC.numel()))
    for first in range(0, MAX_NODES, chunk):
        u_Q = LEFT_END + STEP * torch.arange(first, first + chunk, dtype=y_CC.dtype, device=y_CC.device)
        log_cs_Q, jacobian_Q = u_Q - torch.exp(-u_Q), (1 + torch.exp(-u_Q)) * STEP
        cs_Q1 = log_cs_Q.clamp(max=700).exp()[:, None]
        as_QC = a_C / c_C * cs_Q1
        z_QCC = (log_cs_Q[:, None, None] - c_C.log()[:, None] + y_CC).clamp(max=700).exp()
        decay_QCC = torch.exp(-z_QCC)
        log_phi_QC = _log_phi(p_CC, z_QCC, decay_QCC)
        k_log_phi_QC = k * log_phi_QC
        term_QC = torch.where(
            from_alpha_C,
            -torch.expm1(k_log_phi_QC) * torch.exp(-as_QC),
            _difference(cs_Q1, as_QC, k_log_phi_QC),
        )
        value_C += jacobian_Q @ term_QC
        weight_QC = k * torch.exp(k_log_phi_QC - log_phi_QC - as_QC)
        share_CC += torch.einsum("q,qi,qij->ij", jacobian_Q, weight_QC, z_QCC * decay_QCC)
        if cs_Q1[-1] > 40:
            z_C = (log_cs_Q[-1] - c_C.log() + smallest_C).clamp(max=700).exp()
            least_C = share_CC.masked_fill(~drawn_CC, math.inf).min(dim=1).values
            few_C = weight_QC[-1] <= 1e-22 * share_CC.max(dim=1).values
            shares_done_C = (weight_QC[-1] * torch.exp(-z_C) <= 1e-17 * least_C) | few_C
            remaining_C = torch.exp(k_log_phi_QC[-1] - as_QC[-1])
            value_done_C = torch.where(from_alpha_C, as_QC[-1] > 40, (remaining_C < 1e-20) | (z_C > 45))
            if bool((shares_done_C & value_done_C).all()):
                break
    base_C = torch.where(from_alpha_C, torch.full_like(c_C, log_alpha), scale_C + c_C.log())
    return base_C + value_C, share_CC


def _log_phi(p_CC: Tensor, z_QCC: Tensor, decay_QCC: Tensor) -> Tensor:
    """log Σ_j p_j e^{-z_j}, without cancellation at either end."""
    gone_QC = (p_CC * -torch.expm1(-z_QCC)).sum(-1)
    left_QC = (p_CC * decay_QCC).sum(-1).clamp(min=TINY)
    return torch.where(gone_QC < 0.5, torch.log1p(-gone_QC.clamp(max=0.5)), left_QC.log())


def _difference(cs_Q1: Tensor, as_QC: Tensor, k_log_phi_QC: Tensor) -> Tensor:
    """e^{-cs} - e^{-as} φ^k, also where the two nearly cancel."""
    exponent_QC = cs_Q1 - as_QC + k_log_phi_QC
    near_QC = -torch.expm1(exponent_QC.clamp(max=0.1)) * torch.exp(-cs_Q1)
    return torch.where(exponent_QC < 0.1, near_QC, torch.exp(-cs_Q1) - torch.exp(k_log_phi_QC - as_QC))
