"""Losses over sampled negatives: loops over the definition, the exact risk, pytorch-metric-learning."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from anglewise.losses import Exponential, InfoNCE, Logistic, Loss, SquaredHinge, Triplet
from anglewise.sampling import Sampling
from worker.training.losses import allowed_negatives, averaged_loss, draw_negatives, drawn_loss, negatives
from worker.training.losses.negatives import IntArray
from worker.training.risk import Risk

LOSSES: list[Loss] = [
    InfoNCE(negatives=3, temperature=0.5),
    InfoNCE(negatives=3, temperature=0.5, reduction="mean", alpha=2.0, beta=3.0),
    InfoNCE(negatives=3, temperature=0.5, alpha=0.0),
    Logistic(negatives=3, temperature=0.5, margin=0.2),
    Exponential(negatives=3, temperature=0.5, reduction="mean"),
    SquaredHinge(negatives=3, margin=0.5),
    Triplet(negatives=3, margin=0.5),
]


def embeddings(rows: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return normalize(torch.randn(rows, 3, generator=generator, dtype=torch.float64), dim=1)


def slow_psi(t: list[float], loss: Loss) -> float:
    """ψ as [P1] writes it."""
    if isinstance(loss, InfoNCE):
        beta = loss.beta / len(t) if loss.reduction == "mean" else loss.beta
        return math.log(loss.alpha + beta * sum(math.exp(x / loss.temperature) for x in t))
    if isinstance(loss, Logistic):
        phi = [math.log(1 + math.exp((x + loss.margin) / loss.temperature)) for x in t]
    elif isinstance(loss, Exponential):
        phi = [math.exp(x / loss.temperature) for x in t]
    else:
        assert isinstance(loss, (SquaredHinge, Triplet))
        phi = [max(0.0, x + loss.margin) ** (2 if isinstance(loss, SquaredHinge) else 1) for x in t]
    return sum(phi) / (len(t) if loss.reduction == "mean" else 1)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_equals_the_definition(loss: Loss) -> None:
    anchors, positives, candidates = embeddings(5, 0), embeddings(5, 1), embeddings(7, 2)
    negatives = torch.tensor([[0, 1, 2], [6, 6, 3], [4, 5, 0], [-1, -1, -1], [2, 3, 4]])
    total = 0.0
    for i in (0, 1, 2, 4):
        t = [float(anchors[i] @ (candidates[j] - positives[i])) for j in negatives[i]]
        total += slow_psi(t, loss)
    for block_numbers in (2**23, 20):
        found = drawn_loss(anchors, positives, candidates, negatives, loss, block_numbers=block_numbers)
        assert found.anchors == 4
        assert found.value.item() == pytest.approx(total / 4, rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES[:6], ids=str)
def test_gradient(loss: Loss) -> None:
    negatives = torch.tensor([[0, 1, 2], [6, 6, 3], [-1, -1, -1]])
    tensors = tuple(embeddings(rows, seed).requires_grad_() for seed, rows in enumerate((3, 3, 7)))
    for block_numbers in (2**23, 10):

        def value(a: Tensor, p: Tensor, c: Tensor, block_numbers: int = block_numbers) -> Tensor:
            return drawn_loss(a, p, c, negatives, loss, block_numbers=block_numbers).value

        assert torch.autograd.gradcheck(value, tensors)


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
@pytest.mark.parametrize("loss", [LOSSES[0], LOSSES[1], LOSSES[2], LOSSES[3], LOSSES[4]], ids=str)
def test_batches_average_to_the_exact_risk(loss: Loss, sampling: Sampling) -> None:
    """Collapsed classes, many batches of iid samples: the mean is S(A) within four standard errors."""
    rng = np.random.default_rng(0)
    proportions = np.array([0.5, 0.3, 0.2])
    means = embeddings(3, 4)
    expected = Risk([5, 3, 2], sampling, loss)(means @ means.T).item()
    values = []
    for _ in range(300):
        classes = rng.choice(3, 400, p=proportions)
        z = means[torch.from_numpy(classes)]
        negatives = torch.from_numpy(draw_negatives(classes, 3, sampling, rng))
        values.append(drawn_loss(z, z, z, negatives, loss).value.item())
    error = np.std(values) / math.sqrt(len(values))
    assert abs(np.mean(values) - expected) < 4 * error + 1e-12
    assert error < 0.01 * abs(expected) + 0.01


INFINITE: list[Loss] = [
    InfoNCE(negatives=math.inf, temperature=0.5, beta=2.0),
    InfoNCE(negatives=math.inf, temperature=0.5, alpha=0.0),
    Logistic(negatives=math.inf, temperature=0.5),
]


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
@pytest.mark.parametrize("loss", INFINITE, ids=str)
def test_infinitely_many_negatives_are_all_of_the_batch(loss: Loss, sampling: Sampling) -> None:
    """The mean over them stands for the expectation."""
    classes = np.array([0, 0, 1, 2, 0])
    allowed = torch.from_numpy(allowed_negatives(classes, sampling))
    a, p, c = (embeddings(5, seed).requires_grad_() for seed in range(3))
    total = 0.0
    for i in range(5):
        t = [(a[i] @ (c[j] - p[i])).item() for j in range(5) if allowed[i, j]]
        total += slow_psi(t, loss)
    found = averaged_loss(a, p, c, allowed, loss)
    assert found.value.item() == pytest.approx(total / 5, rel=1e-12)
    assert found.anchors == 5
    assert torch.autograd.gradcheck(lambda a, p, c: averaged_loss(a, p, c, allowed, loss).value, (a, p, c))
    none = averaged_loss(a, p, c, torch.zeros_like(allowed), loss)
    none.value.backward()  # type: ignore[no-untyped-call]
    assert (none.value.item(), none.anchors) == (0.0, 0)
    assert a.grad is not None
    assert not a.grad.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [0.01, 1e-3])
def test_low_temperatures_in_low_precision(dtype: torch.dtype, temperature: float) -> None:
    for loss in (
        InfoNCE(negatives=3, temperature=temperature),
        Logistic(negatives=3, temperature=temperature),
    ):
        rows = [embeddings(5, seed).to(dtype) for seed in range(3)]
        negatives = torch.tensor([[0, 1, 2]] * 5)
        single = [z.clone().requires_grad_() for z in rows]
        found = drawn_loss(single[0], single[1], single[2], negatives, loss)
        found.value.backward()  # type: ignore[no-untyped-call]
        exact = drawn_loss(rows[0].double(), rows[1].double(), rows[2].double(), negatives, loss)
        assert found.value.item() == pytest.approx(exact.value.item(), rel=1e-4)
        assert all(torch.isfinite(z.grad).all() for z in single if z.grad is not None)


def test_no_negatives_no_loss() -> None:
    rng = np.random.default_rng(0)
    drawn = draw_negatives(np.zeros(4, dtype=np.int64), 3, "supervised", rng)
    assert (drawn == -1).all()
    assert (draw_negatives(np.zeros(1, dtype=np.int64), 3, "unsupervised", rng) == -1).all()
    z = embeddings(4, 0).requires_grad_()
    found = drawn_loss(z, z, z, torch.from_numpy(drawn), LOSSES[0])
    found.value.backward()  # type: ignore[no-untyped-call]
    assert found.anchors == 0
    assert z.grad is not None
    assert not z.grad.any()


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
def test_negatives_are_distinct_allowed_and_even(sampling: Sampling) -> None:
    rng = np.random.default_rng(0)
    classes = np.array([0, 0, 0, 1, 1, 2])
    hits = np.zeros((6, 6))
    for _ in range(4000):
        drawn = draw_negatives(classes, 2, sampling, rng)
        assert (drawn[:, 0] != drawn[:, 1]).all()
        np.add.at(hits, (np.arange(6)[:, None], drawn), 1)
    allowed = ~np.eye(6, dtype=bool) if sampling == "unsupervised" else classes[:, None] != classes
    expected = allowed / allowed.sum(1, keepdims=True)
    assert np.abs(hits / hits.sum(1, keepdims=True) - expected).max() < 0.02


def slow_negatives(classes: IntArray, count: int, sampling: Sampling, rng: np.random.Generator) -> IntArray:
    """Anchor by anchor: from a random place of its own list on, around and around."""
    size = len(classes)
    order, starts = rng.permutation(size), rng.integers(0, size, size)
    drawn = np.full((size, count), -1)
    for i in range(size):
        if sampling == "supervised":
            listed = [j for j in order if classes[j] != classes[i]]
        else:
            place = int(np.flatnonzero(order == i)[0])
            listed = [*order[place + 1 :], *order[:place]]
        if listed:
            drawn[i] = [listed[(starts[i] + step) % len(listed)] for step in range(count)]
    return drawn


@pytest.mark.parametrize("mask_numbers", [2**20, 100, 1])
@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
def test_negatives_are_those_of_a_loop(
    sampling: Sampling, mask_numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many classes are taken at once; an interrupted run draws the same again."""
    monkeypatch.setattr(negatives, "MASK_NUMBERS", mask_numbers)
    rng = np.random.default_rng(0)
    for size, classes, count in ((1, 1, 2), (2, 1, 1), (2, 2, 3), (7, 3, 1), (40, 4, 5), (40, 60, 41)):
        y = rng.integers(0, classes, size) * 2**40 - 7
        expected = slow_negatives(y, count, sampling, np.random.default_rng(size))
        found = draw_negatives(y, count, sampling, np.random.default_rng(size))
        assert np.array_equal(found, expected)


def test_negatives_beyond_the_batch_repeat() -> None:
    drawn = draw_negatives(np.array([0, 1, 1]), 4, "supervised", np.random.default_rng(0))
    assert sorted(drawn[0].tolist()) == [1, 1, 2, 2]
    assert drawn[1].tolist() == [0, 0, 0, 0]


def test_ntxent_of_pytorch_metric_learning() -> None:
    """With one positive an anchor it is InfoNCE with every other sample as a negative, in sum form.

    With several positives it differs: one term a positive pair, with only that positive in its sum.
    """
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    z = embeddings(8, 0)
    labels = torch.arange(4).repeat(2)
    others = torch.tensor([[j for j in range(8) if labels[j] != labels[i]] for i in range(8)])
    ours = drawn_loss(z, z[torch.arange(8) - 4], z, others, InfoNCE(negatives=6, temperature=0.2))
    theirs = losses.NTXentLoss(temperature=0.2)(z, labels)
    assert ours.value.item() == pytest.approx(theirs.item(), rel=1e-6)
