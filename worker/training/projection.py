"""Where embeddings live: the unit sphere, the unit ball, or all of space."""

from __future__ import annotations

import torch
from torch import Tensor

from worker.training.plan import Projection


def project(z_ND: Tensor, projection: Projection) -> Tensor:
    """Rows brought into the set: divided by their length (sphere), or by it where above 1 (ball).

    Lengths are taken in float32 at least, so that bfloat16 outputs land on the sphere too.
    """
    if projection == "none":
        return z_ND
    z_ND = z_ND if z_ND.dtype == torch.float64 else z_ND.float()
    least = torch.finfo(z_ND.dtype).tiny if projection == "sphere" else 1.0
    length_N1: Tensor = torch.linalg.vector_norm(z_ND, dim=1, keepdim=True)
    return z_ND / length_N1.clamp(min=least)
