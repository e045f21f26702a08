"""Random views of images: shifted, brightened or darkened, with noise.

Shapes: B images, channels, H × W.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

SHIFT = 8
"""Images move by up to 1/8 of their side in each direction."""
CONTRAST = 0.2
NOISE = 0.1


def random_view(x_BCHW: Tensor, seed: int) -> Tensor:
    """One view of each image, a function of the images and the seed."""
    random = torch.Generator(x_BCHW.device).manual_seed(seed)
    size, _, height, width = x_BCHW.shape
    reach = max(1, min(height, width) // SHIFT)
    options = {"generator": random, "device": x_BCHW.device}
    corner_B2 = torch.randint(0, 2 * reach + 1, (size, 2), **options)  # type: ignore[call-overload]
    rows_BH = corner_B2[:, :1] + torch.arange(height, device=x_BCHW.device)
    columns_BW = corner_B2[:, 1:] + torch.arange(width, device=x_BCHW.device)
    edged = pad(x_BCHW, (reach,) * 4, mode="replicate")
    images = torch.arange(size, device=x_BCHW.device)
    moved_BHWC = edged[images[:, None, None], :, rows_BH[:, :, None], columns_BW[:, None, :]]
    contrast = 1 + CONTRAST * (2 * torch.rand((size, 1, 1, 1), **options) - 1)  # type: ignore[call-overload]
    noise = NOISE * torch.randn(x_BCHW.shape, **options)  # type: ignore[call-overload]
    view: Tensor = moved_BHWC.permute(0, 3, 1, 2) * contrast + noise
    return view.to(x_BCHW.dtype)
