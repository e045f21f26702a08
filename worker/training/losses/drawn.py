"""Losses over sampled negatives: ψ(f·(f⁻_1 - f⁺), …, f·(f⁻_k - f⁺)) averaged over anchors ([P1]).

Shapes: B anchors, M candidates for negatives, K negatives an anchor, D dimensions.
Memory is O(B·(M + K)): similarities are computed once and gathered. Large batches go in blocks of anchors
whose intermediate results are computed again for the gradient.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from anglewise.losses import InfoNCE, Loss
from worker.training.losses.batch_loss import BatchLoss
from worker.training.losses.negatives import COLLISION, NONE
from worker.training.losses.precision import full_precision
from worker.training.risk import pair_loss

BLOCK_NUMBERS = 2**23
"""Numbers of one block of similarities."""
LOWEST = -1e30
"""In place of -∞, whose differences are no numbers."""


def drawn_loss(
    anchors_BD: Tensor,
    positives_BD: Tensor,
    candidates_MD: Tensor,
    negatives_BK: Tensor,
    loss: Loss,
    *,
    block_numbers: int = BLOCK_NUMBERS,
) -> BatchLoss:
    """The mean of the loss over anchors with negatives.

    Args:
        anchors_BD, positives_BD, candidates_MD: embeddings; at least float32 is used inside.
        negatives_BK: rows of the candidates, or `COLLISION`: a sample as far from the anchor as its positive
            is, t = 0. An anchor whose row starts with `NONE` is skipped.
        loss: its ``negatives`` must be K; for infinitely many see `averaged_loss`.
    """
    size, count = negatives_BK.shape
    used_B = negatives_BK[:, 0] != NONE
    anchors = int(used_B.sum())
    if anchors < size:
        anchors_BD, positives_BD, negatives_BK = (
            anchors_BD[used_B],
            positives_BD[used_B],
            negatives_BK[used_B],
        )
    with full_precision(anchors_BD) as cast:
        a_BD, p_BD, c_MD = cast(anchors_BD), cast(positives_BD), cast(candidates_MD)
        if anchors == 0:
            return BatchLoss((a_BD.sum() + p_BD.sum() + c_MD.sum()) * 0.0, 0)
        rows = max(1, block_numbers // (len(c_MD) + count))
        total = a_BD.new_zeros(())
        for start in range(0, anchors, rows):
            part = slice(start, start + rows)
            arguments = (a_BD[part], p_BD[part], c_MD, negatives_BK[part], loss)
            if anchors <= rows:
                total = _sum(*arguments)
            else:
                total = total + checkpoint(_sum, *arguments, use_reentrant=False)
    return BatchLoss(total / anchors, anchors)


def averaged_loss(
    anchors_BD: Tensor,
    positives_BD: Tensor,
    candidates_MD: Tensor,
    allowed_BM: Tensor,
    loss: Loss,
    *,
    collisions: float = 0.0,
) -> BatchLoss:
    """`drawn_loss` for infinitely many negatives: the mean over all that may be drawn stands for theirs.

    Args:
        allowed_BM: which candidates an anchor may draw; anchors without any are skipped.
        collisions: the share of negatives that are the anchor itself, at t = 0.
    """
    counts_B = allowed_BM.sum(1)
    anchors = int((counts_B > 0).sum())
    with full_precision(anchors_BD) as cast:
        a_BD, p_BD, c_MD = cast(anchors_BD), cast(positives_BD), cast(candidates_MD)
        t_BM = a_BD @ c_MD.T - (a_BD * p_BD).sum(1, keepdim=True)
        zero, shares_B = t_BM.new_zeros(()), (1 - collisions) / counts_B.clamp(min=1).to(t_BM.dtype)
        if isinstance(loss, InfoNCE):
            s_BM = (t_BM / loss.temperature).masked_fill(~allowed_BM, LOWEST)
            mean_B = torch.logsumexp(s_BM, dim=1) + shares_B.log()
            if collisions > 0:
                mean_B = torch.logaddexp(mean_B, zero + math.log(collisions))
            psi_B = _log_sum(mean_B, loss)
        else:
            phi_BM = pair_loss(t_BM, loss).masked_fill(~allowed_BM, 0.0)
            psi_B = phi_BM.sum(1) * shares_B + collisions * pair_loss(zero, loss)
        total = psi_B.masked_fill(counts_B == 0, 0.0).sum()
    return BatchLoss(total / max(1, anchors), anchors)


def _sum(a_BD: Tensor, p_BD: Tensor, c_MD: Tensor, negatives_BK: Tensor, loss: Loss) -> Tensor:
    """Σ over these anchors of ψ(t)."""
    t_BK = (a_BD @ c_MD.T).gather(1, negatives_BK.clamp(min=0)) - (a_BD * p_BD).sum(1, keepdim=True)
    return psi(t_BK.masked_fill(negatives_BK == COLLISION, 0.0), loss).sum()


def psi(t_BK: Tensor, loss: Loss) -> Tensor:
    """(B,) ψ of each row."""
    count = t_BK.shape[1]
    averaged = loss.reduction == "mean"
    if not isinstance(loss, InfoNCE):
        phi_BK = pair_loss(t_BK, loss)
        return phi_BK.mean(1) if averaged else phi_BK.sum(1)
    return _log_sum(torch.logsumexp(t_BK / loss.temperature, dim=1) - math.log(count) * averaged, loss)


def _log_sum(log_terms_B: Tensor, loss: InfoNCE) -> Tensor:
    """log(α + β e^x)."""
    log_alpha = math.log(loss.alpha) if loss.alpha > 0 else -math.inf
    return torch.logaddexp(log_terms_B.new_tensor(log_alpha), math.log(loss.beta) + log_terms_B)
