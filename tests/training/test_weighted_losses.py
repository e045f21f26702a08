"""Weighted InfoNCE of a batch: a loop over the definition, the core, and pytorch-metric-learning."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from anglewise import named_weighting
from anglewise.sampling import FloatArray
from anglewise.weighted_loss import evaluate
from anglewise.weighted_problem import build_problem
from worker.training.losses import weighted_infonce

LABELS = torch.tensor([0, 1, 1, 2, 0, 0, 2, 1, 0, 0])
COUNTS = [5, 3, 2]
TARGETS = [[1.0, 0.2], [0.3, 1.0], [-0.5, 0.4]]
WEIGHTINGS: list[dict[str, Any]] = [
    {"name": "supcon"},
    {"name": "soft_supcon", "epsilon": 0.05},
    {"name": "y_aware", "sigma": 0.7, "targets": TARGETS},
    {"name": "x_clr", "label_temperature": 0.5, "targets": TARGETS},
    {"name": "euclidean", "sigma": 0.7, "targets": TARGETS},
]


def log_weights(named: dict[str, Any], counts: list[int] | None = None) -> tuple[FloatArray, Any]:
    weighting = named_weighting(**named, class_counts=counts or COUNTS)
    return weighting.log_weights.values, weighting.metric


def embeddings(rows: int, columns: int = 4, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(rows, columns, generator=generator, dtype=torch.float64), dim=1)


def slow_loss(z: Tensor, labels: Tensor, log_w: FloatArray, T: float, metric: str, self_pairs: str) -> float:
    """The definition, one anchor and one pair at a time."""
    total, used = 0.0, 0
    for i in range(len(z)):
        others = [j for j in range(len(z)) if j != i or self_pairs == "included"]
        w = [math.exp(log_w[labels[i], labels[j]]) for j in others]
        if sum(w) == 0:
            continue
        s = [float(z[i] @ z[j]) / T if metric == "cosine" else -float(((z[i] - z[j]) ** 2).sum()) / T
             for j in others]  # fmt: skip
        top = max(s)
        log_total = top + math.log(sum(math.exp(x - top) for x in s))
        total += sum(p / sum(w) * (log_total - x) for p, x in zip(w, s, strict=True))
        used += 1
    return total / used


@pytest.mark.parametrize("block_numbers", [2**21, 30])
@pytest.mark.parametrize("self_pairs", ["included", "excluded"])
@pytest.mark.parametrize("named", WEIGHTINGS, ids=lambda named: named["name"])
def test_equals_the_definition_and_the_core(
    named: dict[str, Any], self_pairs: Any, block_numbers: int
) -> None:
    log_w, metric = log_weights(named)
    z = embeddings(10) * (1.0 if metric == "cosine" else 0.4)
    for T in (1.0, 0.1):
        options: dict[str, Any] = {"temperature": T, "metric": metric, "self_pairs": self_pairs}
        loss = weighted_infonce(z, LABELS, torch.tensor(log_w), **options, block_numbers=block_numbers)
        expected = slow_loss(z, LABELS, log_w, T, metric, self_pairs)
        assert loss.value.item() == pytest.approx(expected, rel=1e-12)
        assert loss.anchors == 10
        per_item = log_w[np.ix_(LABELS.numpy(), LABELS.numpy())]
        problem = build_problem(per_item, None, **options)
        core = problem.entropy_bound + evaluate(problem, z.numpy()).excess
        assert loss.value.item() == pytest.approx(core, rel=1e-11)


@pytest.mark.parametrize("self_pairs", ["included", "excluded"])
@pytest.mark.parametrize("named", WEIGHTINGS, ids=lambda named: named["name"])
def test_gradient(named: dict[str, Any], self_pairs: Any) -> None:
    log_w, metric = log_weights(named)
    z = embeddings(10).requires_grad_()
    for block_numbers in (2**21, 30):

        def loss(z: Tensor, block_numbers: int = block_numbers) -> Tensor:
            return weighted_infonce(
                z, LABELS, torch.tensor(log_w), temperature=0.5, metric=metric, self_pairs=self_pairs,
                block_numbers=block_numbers,
            ).value  # fmt: skip

        assert torch.autograd.gradcheck(loss, (z,))


def test_weights_between_samples() -> None:
    rng = np.random.default_rng(0)
    log_w = rng.standard_normal((6, 6))
    z, rows = embeddings(6), torch.arange(6)
    loss = weighted_infonce(z, rows, torch.tensor(log_w), temperature=0.3)
    assert loss.value.item() == pytest.approx(slow_loss(z, rows, log_w, 0.3, "cosine", "excluded"), rel=1e-12)


def test_anchors_without_positives_are_skipped() -> None:
    labels = torch.tensor([0, 1, 1, 3])
    log_w, _ = log_weights({"name": "supcon"}, [1, 2, 1, 1])
    z = embeddings(4).requires_grad_()
    loss = weighted_infonce(z, labels, torch.tensor(log_w), temperature=0.8)
    assert loss.anchors == 2
    assert loss.value.item() == pytest.approx(slow_loss(z.detach(), labels, log_w, 0.8, "cosine", "excluded"))
    alone = weighted_infonce(z, torch.arange(4), torch.tensor(log_w), temperature=0.8)
    assert alone.anchors == 0
    assert alone.value.item() == 0.0
    alone.value.backward()
    assert z.grad is not None
    assert not z.grad.any()


def test_a_batch_of_one() -> None:
    log_w, _ = log_weights({"name": "supcon"})
    z = embeddings(1).requires_grad_()
    loss = weighted_infonce(z, torch.tensor([2]), torch.tensor(log_w), temperature=0.1)
    loss.value.backward()
    assert (loss.value.item(), loss.anchors) == (0.0, 0)
    assert z.grad is not None
    assert not z.grad.any()


@pytest.mark.parametrize("temperature", [1e-3, 0.07, 1.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_equal_features_lose_the_logarithm_of_their_number(temperature: float, dtype: torch.dtype) -> None:
    z = torch.tensor([[1.0, 0.0]] * 16, dtype=dtype)
    labels = torch.arange(8).repeat(2)
    log_w, _ = log_weights({"name": "supcon"}, [2] * 8)
    loss = weighted_infonce(z, labels, torch.tensor(log_w), temperature=temperature)
    assert loss.value.item() == pytest.approx(math.log(15), rel=1e-6)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_low_temperatures_in_low_precision(dtype: torch.dtype, metric: Any) -> None:
    log_w, _ = log_weights({"name": "soft_supcon", "epsilon": 1e-30}, [8] * 4)
    labels = torch.arange(4).repeat(8)
    exact = embeddings(32).to(dtype)
    for temperature, same in ((0.01, 1e-4), (1e-3, 1e-3)):
        losses = []
        for z in (exact, exact.double()):
            z = z.clone().requires_grad_()
            loss = weighted_infonce(z, labels, torch.tensor(log_w), temperature=temperature, metric=metric)
            loss.value.backward()
            assert z.grad is not None
            assert torch.isfinite(z.grad).all()
            losses.append(loss.value.item())
        assert losses[0] == pytest.approx(losses[1], rel=same)


def test_no_square_of_the_batch_is_kept() -> None:
    log_w, _ = log_weights({"name": "supcon"}, [1] * 10)
    z = embeddings(1000).float().requires_grad_()
    loss = weighted_infonce(z, torch.arange(1000) % 10, torch.tensor(log_w), temperature=0.1)
    saved = list(loss.value.grad_fn.saved_tensors)  # type: ignore[union-attr]
    assert sum(t.numel() for t in saved) == z.numel()


def test_supcon_is_that_of_pytorch_metric_learning() -> None:
    """Equal as long as no anchor is alone: it averages over the anchors whose loss is not zero."""
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    log_w, _ = log_weights({"name": "supcon"})
    z = embeddings(10)
    ours = weighted_infonce(z, LABELS, torch.tensor(log_w), temperature=0.2)
    theirs = losses.SupConLoss(temperature=0.2)(z, LABELS)
    assert ours.value.item() == pytest.approx(theirs.item(), rel=1e-6)
