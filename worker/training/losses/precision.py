"""Losses compute in float32 or float64, whatever the encoder computes in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def full_precision(like: Tensor) -> Iterator[Callable[[Tensor], Tensor]]:
    """Turns autocast off inside; yields a cast of half precisions to float32."""
    with torch.autocast(like.device.type, enabled=False):
        yield _at_least_single


def _at_least_single(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()
