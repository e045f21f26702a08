"""What a loss returns."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class BatchLoss(NamedTuple):
    """The loss of one batch.

    Attributes:
        value: mean over the anchors that count; 0, with zero gradients, where none does.
        anchors: how many anchors count: those with a positive and a negative to compare.
    """

    value: Tensor
    anchors: int
