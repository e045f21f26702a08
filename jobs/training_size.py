"""How large a network and its activations are, known before anything is built.

The figures for residual networks were measured on those of `worker.training.networks`; a test compares all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from anglewise.errors import TooLarge
from jobs.training_encoders import CNN, MLP, EncoderField, ResNet

MAX_PARAMETERS = 250_000_000
"""4 GB in single precision, with their gradients and what Adam knows of them."""
MAX_KEPT = 2**34
"""Numbers kept between the passes through an encoder: 64 GiB in single precision."""
RESNETS = {"resnet18": (2_730, 8, 19), "resnet50": (5_740, 32, 101)}
"""Parameters divided by width², features by width, and numbers kept of a sample by width and pixels."""


def check_size(encoder: EncoderField, dimension: int, shape: Sequence[int], encoded: int) -> None:
    """Refuse what would need more memory than any machine here has.

    Args:
        dimension: of the embeddings.
        shape: of one sample.
        encoded: samples encoded at once.

    Raises:
        TooLarge: at ``("encoder",)`` or ``("batch_size",)``.
    """
    if parameter_count(encoder, dimension, shape) > MAX_PARAMETERS:
        raise TooLarge(("encoder",), f"has more than {MAX_PARAMETERS} parameters")
    if kept_numbers(encoder, shape) * encoded > MAX_KEPT:
        message = f"keeps more than {MAX_KEPT} numbers of this encoder; chunk_size or processes keep fewer"
        raise TooLarge(("batch_size",), message)


def parameter_count(encoder: EncoderField, dimension: int, shape: Sequence[int]) -> int:
    """About how many parameters there are, without biases."""
    if isinstance(encoder, CNN):
        head = [encoder.channels[-1], *encoder.head, dimension]
        return 9 * _products(encoder.channels) + _products(head)
    if isinstance(encoder, ResNet):
        body, features, _ = RESNETS[encoder.name]
        return body * encoder.width**2 + _products([features * encoder.width, *encoder.head, dimension])
    hidden = encoder.hidden if isinstance(encoder, MLP) else []
    return _products([math.prod(shape), *hidden, dimension])


def kept_numbers(encoder: EncoderField, shape: Sequence[int]) -> int:
    """About how many numbers one sample leaves for its gradient."""
    pixels: int = math.prod(sorted(shape)[-2:])
    if isinstance(encoder, CNN):
        return 2 * sum(channels * pixels // int(4**stage) for stage, channels in enumerate(encoder.channels))
    if isinstance(encoder, ResNet):
        return RESNETS[encoder.name][2] * encoder.width * pixels
    return math.prod(shape) + sum(encoder.hidden if isinstance(encoder, MLP) else [])


def _products(sizes: Sequence[int]) -> int:
    return sum(before * after for before, after in pairwise(sizes))
