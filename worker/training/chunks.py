"""Large batches through an encoder in chunks, without keeping what lies between input and embedding.

The loss of a batch needs all its embeddings at once, their gradients do not: each chunk is encoded again when
its gradient is due. Memory is that of one chunk, for one more pass through the encoder (Gao et al., *Scaling
Deep Contrastive Learning Batch Size under Memory Limited Setup*, 2021).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


def encode_in_chunks(encoder: nn.Module, x: Tensor, chunk: int) -> Tensor:
    """(n, d) embeddings of the samples, with the gradient of a single pass.

    Normalization layers see one chunk at a time.

    Args:
        x: (n, ...) samples, or (n,) rows.
        chunk: samples encoded at once, at least 2. Chunks are of equal size, up to one sample, so that none
            has too few to normalize by.
    """
    if len(x) <= chunk:
        z: Tensor = encoder(x)
        return z

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _statistics_kept(encoder)

    parts = [
        checkpoint(encoder, part, use_reentrant=False, preserve_rng_state=False, context_fn=contexts)
        for part in torch.tensor_split(x, min(-(-len(x) // chunk), len(x) // 2))
    ]
    return torch.cat(parts)


@contextmanager
def _statistics_kept(encoder: nn.Module) -> Iterator[None]:
    """Running means do not move: the second pass would count every chunk twice."""
    layers = [module for module in encoder.modules() if isinstance(module, _BatchNorm)]
    momenta = [layer.momentum for layer in layers]
    for layer in layers:
        layer.momentum = 0.0
    try:
        yield
    finally:
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum
