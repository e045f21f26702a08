"""Batches in chunks: the gradient of one pass, the memory of one chunk."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from memory_context import MemoryContext
from torch import Tensor, nn

from jobs.training_spec import TrainingSpec
from worker.training.chunks import encode_in_chunks
from worker.training.losses import weighted_infonce
from worker.training.networks import convolutions, perceptron
from worker.training.projection import project
from worker.training.trainer import train


def gradients(encoder: nn.Module, x: Tensor, chunk: int) -> list[Tensor]:
    """Of SupCon, which compares all samples with all."""
    encoder.zero_grad()
    z = project(encode_in_chunks(encoder, x, chunk), "sphere")
    classes = torch.arange(len(x)) % 3
    log_weights = torch.full((3, 3), -torch.inf, dtype=torch.float64).fill_diagonal_(0.0)
    weighted_infonce(z, classes, log_weights, temperature=0.1).value.backward()  # type: ignore[no-untyped-call]
    found = [p.grad for p in encoder.parameters()]
    assert all(gradient is not None for gradient in found)
    return [gradient.clone() for gradient in found if gradient is not None]


@pytest.mark.parametrize("chunk", [2, 7, 16, 49, 50])
def test_the_gradient_is_that_of_one_pass(chunk: int) -> None:
    torch.manual_seed(0)
    encoder = perceptron([6, 16, 4]).double()
    x = torch.randn(50, 6, dtype=torch.float64)
    for whole, parts in zip(gradients(encoder, x, 50), gradients(encoder, x, chunk), strict=True):
        assert torch.allclose(whole, parts, rtol=1e-12, atol=1e-15)


def test_running_statistics_count_every_chunk_once() -> None:
    torch.manual_seed(0)
    encoder = convolutions([1, 4])
    twin = copy.deepcopy(encoder)
    x = torch.randn(13, 1, 5, 5)
    gradients(encoder, x, 6)
    with torch.no_grad():
        for part in torch.split(x, [5, 4, 4]):
            twin(part)
    for name, buffer in encoder.named_buffers():
        if "running" in name:
            assert torch.equal(buffer, twin.get_buffer(name))
            assert not torch.equal(buffer, torch.zeros_like(buffer))
    norm = encoder[1]
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.momentum == 0.1


def test_the_forward_pass_keeps_samples_and_no_activations() -> None:
    encoder, x = perceptron([3, 512, 2]), torch.randn(64, 3)
    kept: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        encode_in_chunks(encoder, x, 8)
        assert sum(kept) == x.numel()
        encode_in_chunks(encoder, x, 64)
        assert sum(kept) > 64 * 512


@pytest.mark.parametrize(("samples", "chunk"), [(33, 32), (3, 2), (5, 2), (17, 4)])
def test_no_chunk_has_a_single_sample(samples: int, chunk: int) -> None:
    seen: list[int] = []
    encoder = perceptron([3, 2])
    encoder.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    encode_in_chunks(encoder, torch.randn(samples, 3), chunk)
    assert sum(seen) == samples
    assert 2 <= min(seen) <= max(seen) <= chunk + 1
    assert max(seen) - min(seen) <= 1


def test_each_chunk_is_encoded_again_when_the_one_before_is_done() -> None:
    encoder, x = perceptron([3, 8, 2]), torch.randn(24, 3, requires_grad=True)
    heard: list[str] = []
    encoder.register_forward_pre_hook(lambda *_: heard.append("forward"))
    encoder.register_full_backward_hook(lambda *_: heard.append("backward"))
    gradients(encoder, x, 8)
    assert heard == ["forward"] * 3 + ["forward", "backward"] * 3


@pytest.mark.parametrize("encoder", ["mlp", "cnn"])
def test_trainings_take_chunks(encoder: str) -> None:
    fields: dict[str, Any] = {"cnn": {"channels": [2, 4]}}.get(encoder, {"hidden": [8]})
    document = {
        "data": {"builtin": "digits", "class_counts": [20] * 10},
        "encoder": {"name": encoder, **fields},
        "loss": {"name": "infonce", "temperature": 0.5, "negatives": 4},
        "positives": "views" if encoder == "cnn" else "class",
        "steps": 3,
        "batch_size": 50,
        "precision": "float64",
    }
    if encoder == "mlp":
        document["data"] = {"generator": {"classes": 4, "samples_per_class": 20, "dimension": 5}}
    whole, chunked = MemoryContext(), MemoryContext()
    train(TrainingSpec.model_validate(document), whole)
    train(TrainingSpec.model_validate({**document, "chunk_size": 17}), chunked)
    losses = [[context.series[step]["loss"] for step in (1, 2, 3)] for context in (whole, chunked)]
    if encoder == "mlp":
        assert losses[1] == pytest.approx(losses[0], rel=1e-9)
    else:  # normalization sees one chunk at a time
        assert losses[1] == pytest.approx(losses[0], rel=0.2)
        assert losses[1][0] != losses[0][0]
