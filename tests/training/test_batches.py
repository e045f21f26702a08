"""Batches, positives and views are functions of the seed and the batch's number."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from memory_context import MemoryContext

from jobs.training_spec import GaussianClasses, TrainingSpec
from worker.training.batches import Batches
from worker.training.data import TrainingData, evenly, load_data
from worker.training.networks import residual_network
from worker.training.plan import Plan, make_plan
from worker.training.projection import project
from worker.training.views import random_view


def data_and_plan(counts: list[int], batch: int, seed: int = 0) -> tuple[TrainingData, Plan]:
    document = {"data": {"class_counts": counts}, "objective": "sampled", "batch_size": batch, "seed": seed}
    spec = TrainingSpec.model_validate(document)
    return load_data(spec, MemoryContext()), make_plan(spec, counts)


def test_an_epoch_sees_every_sample_once() -> None:
    data, plan = data_and_plan([7, 4, 1], 4)
    batches = Batches(data, plan)
    assert batches.per_epoch == 3
    first = np.concatenate([batches.anchors(m) for m in range(3)])
    second = np.concatenate([batches.anchors(m) for m in range(3, 6)])
    assert sorted(first) == sorted(second) == list(range(12))
    assert first.tolist() != second.tolist()
    assert np.array_equal(Batches(data, plan).anchors(4), batches.anchors(4))
    other = Batches(data, dataclasses.replace(plan, seed=1))
    assert not np.array_equal(other.anchors(0), batches.anchors(0))


def test_positives_are_other_samples_of_the_class() -> None:
    data, plan = data_and_plan([7, 4, 1], 12)
    batches = Batches(data, plan)
    seen = set()
    for number in range(60):
        anchors = batches.anchors(number)
        positives = batches.positives(anchors, number)
        assert np.array_equal(data.y[anchors], data.y[positives])
        alone = data.y[anchors] == 2
        assert np.array_equal(anchors == positives, alone)
        seen |= set(zip(anchors.tolist(), positives.tolist(), strict=True))
    assert len(seen) == 7 * 6 + 4 * 3 + 1


def test_views_are_shifted_images() -> None:
    x = torch.zeros(64, 1, 16, 16)
    x[:, :, 8, 8] = 100.0
    view = random_view(x, 5)
    assert torch.equal(view, random_view(x, 5))
    assert not torch.equal(view, random_view(x, 6))
    places = view[:, 0].flatten(1).argmax(1)
    rows, columns = (places // 16 - 8).abs(), (places % 16 - 8).abs()
    assert rows.max() == columns.max() == 2
    peaks = view.flatten(1).max(1).values
    assert 79 < peaks.min() < 85
    assert 115 < peaks.max() < 121


def test_subsamples_keep_the_counts_and_follow_the_seed() -> None:
    counts = [100, 50, 20, 10, 5, 5, 5, 5, 5, 2]

    def load(seed: int) -> TrainingData:
        document = {"data": {"builtin": "digits", "class_counts": counts}, "encoder": {"name": "cnn"}}
        return load_data(TrainingSpec.model_validate({**document, "seed": seed}), MemoryContext())

    data = load(0)
    assert data.x is not None
    assert data.x.shape == (207, 1, 8, 8)
    assert data.x.mean() == pytest.approx(0, abs=1e-5)
    assert np.bincount(data.y).tolist() == counts
    assert (np.diff(data.y) >= 0).all()
    again, other = load(0), load(1)
    assert again.x is not None
    assert other.x is not None
    assert np.array_equal(data.x, again.x)
    assert not np.array_equal(data.x, other.x)


def test_data_sets_may_hold_color_images_and_names() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (30, 12, 10, 3), dtype=np.uint8), np.array(["cat", "dog", "ant"] * 10)
    name = "ds_01KBCJ6ZT0000000000000000Z"
    spec = TrainingSpec.model_validate({"data": {"dataset": name}, "encoder": {"name": "resnet18"}})
    data = load_data(spec, MemoryContext(datasets={name: (x, y)}))
    assert data.x is not None
    assert data.x.shape == (30, 3, 12, 10)
    assert data.labels == ("ant", "cat", "dog")


def test_gaussian_classes_lie_around_their_centers() -> None:
    spec = TrainingSpec.model_validate(
        {"data": {"generator": GaussianClasses(classes=3, separation=50.0)}, "encoder": {"name": "linear"}}
    )
    data = load_data(spec, MemoryContext())
    assert data.x is not None
    assert data.counts == (100, 100, 100)
    means = np.array([data.x[data.y == c].mean(0) for c in range(3)])
    nearest = ((data.x[:, None] - means) ** 2).sum(2).argmin(1)
    assert np.array_equal(nearest, data.y)


def test_evaluations_of_many_samples_keep_every_class() -> None:
    data, _ = data_and_plan([900, 90, 9, 1], 10)
    rows = evenly(data, 100)
    assert np.bincount(data.y[rows]).tolist() == [90, 9, 1, 1]
    assert len(evenly(data, 1000)) == 1000


def test_residual_networks_have_the_published_sizes() -> None:
    for name, features, parameters in (("resnet18", 512, 11_168_832), ("resnet50", 2048, 23_500_352)):
        network, count = residual_network(name, 3, 64)
        assert count == features
        assert sum(p.numel() for p in network.parameters()) == parameters
    small, count = residual_network("resnet50", 1, 2)
    assert small(torch.zeros(2, 1, 8, 8)).shape == (2, count)


def test_projections() -> None:
    z = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]])
    assert torch.linalg.vector_norm(project(z, "sphere"), dim=1).tolist() == pytest.approx([1.0, 1.0, 0.0])
    assert torch.linalg.vector_norm(project(z, "ball"), dim=1).tolist() == pytest.approx([1.0, 0.5, 0.0])
    assert torch.equal(project(z, "none"), z)
    coarse = project(z.bfloat16(), "sphere")
    assert torch.linalg.vector_norm(coarse[:2], dim=1).tolist() == pytest.approx([1.0, 1.0], abs=1e-6)
