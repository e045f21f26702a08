"""Weighted InfoNCE of one batch ([P2]): SupCon, Soft SupCon, y-Aware, X-CLR, Euclidean.

    L = mean_i Σ_j p_ij (-log q_ij),   p_ij = w_ij/Σ_l w_il,   q_i = softmax_j(s_ij)

over the anchors with a positive weight; s is z_i·z_j/T or -‖z_i - z_j‖²/T. Its gradient in s_ij is
(q_ij - p_ij)/n, so value and gradient come from one pass over blocks of rows and no N × N matrix is kept.

Shapes: N samples, R rows of a block, C classes, D dimensions.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from anglewise.weighted_loss import Metric, SelfPairs
from worker.training.losses.batch_loss import BatchLoss
from worker.training.losses.precision import full_precision

BLOCK_NUMBERS = 2**21
"""Numbers of one block of similarities: few enough for the processor's caches."""


def weighted_infonce(
    z_ND: Tensor,
    classes_N: Tensor,
    log_weights_CC: Tensor,
    *,
    temperature: float,
    metric: Metric = "cosine",
    self_pairs: SelfPairs = "excluded",
    block_numbers: int = BLOCK_NUMBERS,
) -> BatchLoss:
    """The loss of one batch, differentiable once in ``z_ND``.

    Args:
        z_ND: embeddings, unit rows for the cosine metric; at least float32 is used inside.
        classes_N: class of each sample, or 0..N-1 with weights between samples.
        log_weights_CC: log w between classes, -inf for a zero weight.
    """
    with full_precision(z_ND) as cast:
        z_ND = cast(z_ND)
        p_CC = _probabilities(classes_N, log_weights_CC, self_pairs).to(z_ND.dtype)
        used_N = (p_CC.sum(1) > 0)[classes_N]
        excluded = self_pairs == "excluded"
        anchors = int(used_N.sum())
        arguments = (z_ND, classes_N, p_CC, used_N, anchors, temperature, metric, excluded, block_numbers)
        value: Tensor = _WeightedInfoNCE.apply(*arguments)  # type: ignore[no-untyped-call]
    return BatchLoss(value, anchors)


def _probabilities(classes_N: Tensor, log_weights_CC: Tensor, self_pairs: SelfPairs) -> Tensor:
    """(C, C) p_ij of an anchor of each class against a sample of each, in double precision.

    Rows are zero for classes whose anchors have no positive, columns for those without samples. An excluded
    anchor itself still has to be cleared.
    """
    log_w_CC = log_weights_CC.double()
    counts_C = torch.bincount(classes_N, minlength=len(log_w_CC)).double()
    others_CC = counts_C.expand_as(log_w_CC).clone()
    if self_pairs == "excluded":
        others_CC.diagonal().sub_(1.0).clamp_(min=0.0)
    log_total_C = torch.logsumexp(log_w_CC + others_CC.log(), dim=1, keepdim=True)
    return torch.exp(log_w_CC - log_total_C).masked_fill((others_CC == 0) | log_total_C.isinf(), 0.0)


class _WeightedInfoNCE(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z_ND: Tensor,
        classes_N: Tensor,
        p_CC: Tensor,
        used_N: Tensor,
        anchors: int,
        temperature: float,
        metric: Metric,
        excluded: bool,
        block_numbers: int,
    ) -> Tensor:
        center_D = z_ND.mean(0) if metric == "euclidean" else 0.0  # distances then cancel less
        x_ND = z_ND - center_D
        wanted = ctx.needs_input_grad[0]
        gradient_ND = torch.zeros_like(x_ND) if wanted else None
        p_CN = p_CC.index_select(1, classes_N)
        total = x_ND.new_zeros((), dtype=torch.float64)
        rows = max(1, block_numbers // len(x_ND))
        for start in range(0, len(x_ND), rows):
            part = slice(start, min(start + rows, len(x_ND)))
            s_RN = _similarity(x_ND, part, temperature, metric)
            p_RN = p_CN.index_select(0, classes_N[part])
            if excluded:
                s_RN.diagonal(start).fill_(-math.inf)
                p_RN.diagonal(start).fill_(0.0)
            p_RN *= used_N[part, None]
            s_RN -= s_RN.amax(1, keepdim=True).clamp(min=torch.finfo(s_RN.dtype).min)
            q_RN = s_RN.exp()
            sum_R1 = q_RN.sum(1, keepdim=True).clamp(min=1.0)  # 0 for a lone sample
            if excluded:  # 0 · ∞ otherwise
                s_RN.diagonal(start).fill_(0.0)
            total += (used_N[part, None] * sum_R1.log()).sum(dtype=torch.float64)
            total -= torch.linalg.vecdot(p_RN, s_RN).sum(dtype=torch.float64)
            if gradient_ND is not None:
                q_RN *= used_N[part, None] / sum_R1
                _add_gradient(gradient_ND, q_RN.sub_(p_RN), x_ND, part, metric)
        if gradient_ND is not None:
            ctx.save_for_backward(gradient_ND * _slope(temperature, metric) / max(1, anchors))
        return (total / max(1, anchors)).to(x_ND.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient_ND,) = ctx.saved_tensors
        return gradients[0] * gradient_ND, *[None] * 8


def _similarity(x_ND: Tensor, part: slice, temperature: float, metric: Metric) -> Tensor:
    s_RN = (x_ND[part] * (_slope(temperature, metric))) @ x_ND.T
    if metric == "cosine":
        return s_RN
    squares_N = (x_ND**2).sum(1) / temperature
    return (s_RN - squares_N[part, None] - squares_N).clamp_(max=0.0)


def _slope(temperature: float, metric: Metric) -> float:
    """The factor of z_i·z_j in s_ij."""
    return 1.0 / temperature if metric == "cosine" else 2.0 / temperature


def _add_gradient(gradient_ND: Tensor, e_RN: Tensor, x_ND: Tensor, part: slice, metric: Metric) -> None:
    """Add ∂/∂x of Σ e_ij s_ij, without the slope; rows of e sum to zero or not."""
    gradient_ND[part] += e_RN @ x_ND
    gradient_ND += e_RN.T @ x_ND[part]
    if metric == "euclidean":
        gradient_ND[part] -= e_RN.sum(1, keepdim=True) * x_ND[part]
        gradient_ND -= e_RN.sum(0)[:, None] * x_ND
