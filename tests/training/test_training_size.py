"""Networks are about as large as was said before they were built."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from memory_context import MemoryContext
from torch import Tensor

from anglewise.errors import TooLarge
from jobs.training_size import kept_numbers, parameter_count
from jobs.training_spec import TrainingSpec
from worker.training.data import load_data
from worker.training.encoders import build_encoder
from worker.training.plan import make_plan

DIGITS = {"builtin": "digits"}
ENCODERS: list[dict[str, Any]] = [
    {"name": "linear"},
    {"name": "mlp", "hidden": [300, 200]},
    {"name": "cnn", "channels": [16, 32, 64]},
    {"name": "resnet18", "width": 8},
    {"name": "resnet18", "width": 32},
    {"name": "resnet50", "width": 8},
]


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda fields: fields["name"])
def test_sizes_are_about_what_torch_finds(encoder: dict[str, Any]) -> None:
    spec = TrainingSpec.model_validate({"data": DIGITS, "encoder": encoder, "dimension": 10})
    data = load_data(spec, MemoryContext())
    network = build_encoder(spec, data, make_plan(spec, list(data.counts)))
    parameters = sum(p.numel() for p in network.parameters())
    assert parameter_count(spec.encoder, 10, (8, 8)) == pytest.approx(parameters, rel=0.05)

    own = {p.data_ptr() for p in network.parameters()}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in own:
            kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    samples = 16
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        z = network(torch.from_numpy(data.x[:samples]))  # type: ignore[index]
    assert z.shape == (samples, 10)
    found = sum(kept.values()) / samples
    assert kept_numbers(spec.encoder, (8, 8)) == pytest.approx(found, rel=0.2)


def test_stored_samples_are_looked_at_when_they_are_read() -> None:
    name = "ds_01KBCJ6ZT0000000000000000Z"
    samples = torch.zeros(4, 3, 1024, 1024).numpy(), torch.arange(4).numpy() % 2
    document = {"data": {"dataset": name}, "encoder": {"name": "resnet50", "width": 64}, "batch_size": 4}
    spec = TrainingSpec.model_validate(document)
    spec.check()
    with pytest.raises(TooLarge, match="chunk_size") as error:
        load_data(spec, MemoryContext(datasets={name: samples}))
    assert error.value.field == ("batch_size",)
