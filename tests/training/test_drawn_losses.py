"""Losses over sampled negatives: loops over the definition, the exact risk, pytorch-metric-learning."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from anglewise.losses import Exponential, InfoNCE, Logistic, Loss, SquaredHinge, Triplet
from anglewise.sampling import Sampling
from worker.training.losses import allowed_negatives, averaged_loss, draw_negatives, drawn_loss, negatives
from worker.training.losses.negatives import COLLISION, NONE, IntArray
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
    negatives = torch.tensor([[0, 1, 2], [6, 6, 3], [COLLISION, 5, 0], [NONE, NONE, NONE], [2, 3, 4]])
    total = 0.0
    for i in (0, 1, 2, 4):
        t = [
            0.0 if j == COLLISION else float(anchors[i] @ (candidates[j] - positives[i]))
            for j in negatives[i]
        ]
        total += slow_psi(t, loss)
    for block_numbers in (2**23, 20):
        found = drawn_loss(anchors, positives, candidates, negatives, loss, block_numbers=block_numbers)
        assert found.anchors == 4
        assert found.value.item() == pytest.approx(total / 4, rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES[:6], ids=str)
def test_gradient(loss: Loss) -> None:
    negatives = torch.tensor([[0, 1, COLLISION], [6, 6, 3], [NONE, NONE, NONE]])
    tensors = tuple(embeddings(rows, seed).requires_grad_() for seed, rows in enumerate((3, 3, 7)))
    for block_numbers in (2**23, 10):

        def value(a: Tensor, p: Tensor, c: Tensor, block_numbers: int = block_numbers) -> Tensor:
            return drawn_loss(a, p, c, negatives, loss, block_numbers=block_numbers).value

        assert torch.autograd.gradcheck(value, tensors)


DATA = np.repeat([0, 1, 2], [6, 3, 2])
"""Few samples, so that draws coincide often."""


def populations(classes: IntArray, sampling: Sampling, data: IntArray = DATA) -> IntArray:
    """Samples that each anchor may draw."""
    return len(data) - (np.bincount(data)[classes] if sampling == "supervised" else np.zeros_like(classes))


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
@pytest.mark.parametrize("loss", LOSSES[:5], ids=str)
def test_batches_average_to_the_exact_risk(loss: Loss, sampling: Sampling) -> None:
    """Collapsed classes of eleven samples: the mean over batches is S(A) within four standard errors."""
    rng = np.random.default_rng(0)
    means = embeddings(3, 4)
    expected = Risk([6, 3, 2], sampling, loss)(means @ means.T).item()
    values = []
    for _ in range(3000):
        classes = rng.permutation(DATA)
        z = means[torch.from_numpy(classes)]
        drawn = draw_negatives(classes, populations(classes, sampling), 3, sampling, rng)
        values.append(drawn_loss(z, z, z, torch.from_numpy(drawn), loss).value.item())
    error = np.std(values) / math.sqrt(len(values))
    assert abs(np.mean(values) - expected) < 4 * error + 1e-12
    assert error < 0.01 * abs(expected) + 0.002


INFINITE: list[Loss] = [
    InfoNCE(negatives=math.inf, temperature=0.5, beta=2.0),
    InfoNCE(negatives=math.inf, temperature=0.5, alpha=0.0),
    Logistic(negatives=math.inf, temperature=0.5),
]


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
@pytest.mark.parametrize("loss", INFINITE, ids=str)
def test_infinitely_many_negatives_are_all_of_the_batch(loss: Loss, sampling: Sampling) -> None:
    """The mean over them stands for the expectation, beside the share of the anchor itself."""
    classes = np.array([0, 0, 1, 2, 0])
    allowed = torch.from_numpy(allowed_negatives(classes, sampling))
    a, p, c = (embeddings(5, seed).requires_grad_() for seed in range(3))
    for collisions, copies in ((0.0, 0), (0.2, 1)):
        total = 0.0
        for i in range(5):
            t = [(a[i] @ (c[j] - p[i])).item() for j in range(5) if allowed[i, j]] * 4
            total += slow_psi(t + [0.0] * (len(t) // 4) * copies, loss)
        found = averaged_loss(a, p, c, allowed, loss, collisions=collisions)
        assert found.value.item() == pytest.approx(total / 5, rel=1e-12)
        assert found.anchors == 5

        def value(a: Tensor, p: Tensor, c: Tensor, collisions: float = collisions) -> Tensor:
            return averaged_loss(a, p, c, allowed, loss, collisions=collisions).value

        assert torch.autograd.gradcheck(value, (a, p, c))
    none = averaged_loss(a, p, c, torch.zeros_like(allowed), loss, collisions=0.2)
    none.value.backward()  # type: ignore[no-untyped-call]
    assert (none.value.item(), none.anchors) == (0.0, 0)
    assert a.grad is not None
    assert not a.grad.any()


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
@pytest.mark.parametrize("loss", INFINITE, ids=str)
def test_all_of_the_data_with_infinitely_many_negatives_is_the_exact_risk(
    loss: Loss, sampling: Sampling
) -> None:
    means = embeddings(3, 4)
    z, allowed = means[torch.from_numpy(DATA)], torch.from_numpy(allowed_negatives(DATA, sampling))
    collisions = 1 / len(DATA) if sampling == "unsupervised" else 0.0
    found = averaged_loss(z, z, z, allowed, loss, collisions=collisions)
    expected = Risk([6, 3, 2], sampling, loss)(means @ means.T).item()
    assert found.value.item() == pytest.approx(expected, rel=1e-12)


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
    one, four = np.zeros(1, dtype=np.int64), np.zeros(4, dtype=np.int64)
    drawn = draw_negatives(four, four, 3, "supervised", rng)
    assert (drawn == NONE).all()
    assert (draw_negatives(one, one + 9, 3, "unsupervised", rng) == NONE).all()
    z = embeddings(4, 0).requires_grad_()
    found = drawn_loss(z, z, z, torch.from_numpy(drawn), LOSSES[0])
    found.value.backward()  # type: ignore[no-untyped-call]
    assert found.anchors == 0
    assert z.grad is not None
    assert not z.grad.any()


@pytest.mark.parametrize("size", [11, 8])
@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
def test_negatives_are_independent_samples_of_the_data(sampling: Sampling, size: int) -> None:
    """Which two samples an anchor draws, over many random batches: as two independent draws would."""
    rng = np.random.default_rng(0)
    hits = np.zeros((3, 11, 11))
    for _ in range(8000):
        rows = rng.permutation(11)[:size]
        classes = DATA[rows]
        drawn = draw_negatives(classes, populations(classes, sampling), 2, sampling, rng)
        for anchor, pair in zip(rows, drawn, strict=True):
            if pair[0] != NONE:
                first, second = (anchor if one == COLLISION else rows[one] for one in pair)
                hits[DATA[anchor], first, second] += 1
    hits += hits.transpose(0, 2, 1)  # pairs come in any order
    for label in range(3):
        allowed = (label != DATA) if sampling == "supervised" else np.ones(11, dtype=bool)
        expected = np.outer(allowed, allowed) / allowed.sum() ** 2
        found = hits[label] / hits[label].sum()
        error = np.sqrt(expected / hits[label].sum() * 2)
        assert np.abs(found - expected).max() < 5 * error.max()
        assert not found[~np.outer(allowed, allowed)].any()


def slow_negatives(
    classes: IntArray, data: IntArray, count: int, sampling: Sampling, rng: np.random.Generator
) -> IntArray:
    """Anchor by anchor: each new draw takes the next of its own list, around and around."""
    size = len(classes)
    order, starts, draws = rng.permutation(size), rng.integers(0, size, size), rng.random((size, count))
    drawn = np.full((size, count), NONE)
    for i in range(size):
        if sampling == "supervised":
            listed = [j for j in order if classes[j] != classes[i]]
        else:
            place = int(np.flatnonzero(order == i)[0])
            listed = [*order[place + 1 :], *order[:place]]
        numbers = sorted(int(u * populations(classes, sampling, data)[i]) for u in draws[i])
        distinct = sorted(set(numbers))
        for step, number in enumerate(numbers if listed else []):
            taken = listed[(starts[i] + distinct.index(number)) % len(listed)]
            drawn[i, step] = COLLISION if sampling == "unsupervised" and number == 0 else taken
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
        y = rng.integers(0, classes, size)
        data = np.concatenate([y, y])
        expected = slow_negatives(y, data, count, sampling, np.random.default_rng(size))
        draw = partial(
            draw_negatives, count=count, sampling=sampling, populations=populations(y, sampling, data)
        )
        for numbers in (y, y * 2**40 - 7):  # classes may have any
            assert np.array_equal(draw(numbers, rng=np.random.default_rng(size)), expected)


def test_negatives_beyond_the_batch_repeat() -> None:
    classes, rng = np.array([0, 1, 1]), np.random.default_rng(0)
    drawn = draw_negatives(classes, np.full(3, 10**9), 4, "supervised", rng)
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
