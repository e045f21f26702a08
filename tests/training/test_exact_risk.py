"""The torch risk equals the core's, in value and gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from anglewise.losses import Exponential, InfoNCE, Logistic, Loss, SquaredHinge, Triplet
from anglewise.risk import Risk as CoreRisk
from anglewise.sampling import FloatArray, Groups, Sampling, proportions_from_counts
from worker.training.risk import Risk

SAME = 1e-10
"""Both integrate to about 1e-14."""
COUNTS = [[500, 200, 50, 20], [1_000_000, 3, 2, 1], [9, 5]]
TEMPERATURES = [0.01, 0.1, 1.0, 10.0]


def infonce_losses(temperature: float) -> list[Loss]:
    finite = [
        InfoNCE(temperature=temperature, negatives=k, alpha=alpha, reduction=reduction)
        for k in (1, 2, 16, 100_000)
        for alpha in (0.0, 1.0, 50.0)
        for reduction in ("sum", "mean")
    ]
    infinite = [
        InfoNCE(temperature=temperature, negatives=math.inf, alpha=alpha, beta=3.0) for alpha in (0.0, 1.0)
    ]
    return [*finite, *infinite]


def separable_losses(temperature: float) -> list[Loss]:
    return [
        Logistic(temperature=temperature, negatives=4, margin=0.3),
        Exponential(temperature=temperature, negatives=4, reduction="mean"),
        SquaredHinge(negatives=3, margin=1.0),
        Triplet(negatives=3, margin=1.0),
    ]


def random_gram(classes: int, rng: np.random.Generator) -> FloatArray:
    means = rng.standard_normal((classes, 3))
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    gram = means @ means.T
    np.fill_diagonal(gram, 1.0)
    return gram


def core_risk(counts: Sequence[int], sampling: Sampling, loss: Loss) -> CoreRisk:
    """One group a class; counts must fall."""
    proportions = proportions_from_counts(counts)
    classes = len(counts)
    return CoreRisk(Groups(proportions, np.ones(classes, np.int64), np.arange(classes)), sampling, loss)


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
@pytest.mark.parametrize("counts", COUNTS, ids=str)
def test_value_and_gradient_are_the_cores(counts: list[int], sampling: Sampling) -> None:
    rng = np.random.default_rng(0)
    for temperature in TEMPERATURES:
        for loss in infonce_losses(temperature) + separable_losses(temperature):
            gram = random_gram(len(counts), rng)
            value, gradient = core_risk(counts, sampling, loss).value_and_gradient(gram)
            measured = torch.tensor(gram, requires_grad=True)
            risk = Risk(counts, sampling, loss)(measured)
            risk.backward()
            assert measured.grad is not None
            slope = measured.grad.numpy() * (1 - np.eye(len(counts)))
            scale = abs(value) if getattr(loss, "alpha", 1) > 0 else max(abs(value), 1.0)
            assert abs(risk.item() - value) <= SAME * scale, loss
            expected = gradient * (1 - np.eye(len(counts)))
            assert np.abs(slope - expected).max() <= SAME * np.abs(expected).max(), loss


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
def test_the_gradient_is_right_inside_the_ball(sampling: Sampling) -> None:
    rng = np.random.default_rng(1)
    means = torch.tensor(0.6 * rng.standard_normal((3, 2)) / np.sqrt(2), requires_grad=True)
    for loss in infonce_losses(0.7) + separable_losses(0.7)[:3]:
        risk = Risk([5, 3, 2], sampling, loss)
        assert torch.autograd.gradcheck(lambda m, risk=risk: risk(m @ m.T), (means,), atol=1e-7)


def test_shorter_means_have_a_higher_risk() -> None:
    gram = torch.tensor(random_gram(4, np.random.default_rng(2)))
    risk = Risk([500, 200, 50, 20], "supervised", InfoNCE(negatives=16, temperature=0.5))
    apart = 2 * torch.eye(4, dtype=torch.float64) - torch.ones(4, 4, dtype=torch.float64)
    assert risk(0.5 * apart) > risk(apart)
    assert torch.isfinite(risk(0.0 * gram))
