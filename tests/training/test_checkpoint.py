"""Checkpoints give back exactly what was put in."""

from __future__ import annotations

import json
import math

import pytest
import safetensors.torch
import torch

from worker.training.checkpoint import Unreadable, pack, unpack


def test_trees_come_back_exactly() -> None:
    big = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
    state = {
        "step": 3,
        "tensors": [big, big[1:], big.T, torch.tensor(2, dtype=torch.int64), torch.ones(2, dtype=torch.bool)],
        "state": {0: {"exp_avg": torch.tensor([math.pi, -0.0])}, 1: {}},
        "numbers": [0.1 + 0.2, 2**100, None, True, "text"],
    }
    found = unpack(pack(state))
    assert found["step"] == 3
    assert found["numbers"] == state["numbers"]
    assert list(found["state"]) == [0, 1]
    for before, after in zip(state["tensors"], found["tensors"], strict=True):  # type: ignore[call-overload]
        assert before.dtype == after.dtype
        assert torch.equal(before, after)
    assert torch.equal(found["state"][0]["exp_avg"], state["state"][0]["exp_avg"])  # type: ignore[index]


def test_tensors_are_named_by_their_place() -> None:
    data = pack({"encoder": {"network.0.weight": torch.ones(2)}, "losses": [torch.zeros(1)]})
    assert set(safetensors.torch.load(data)) == {"encoder.network.0.weight", "losses.0"}


def test_names_never_collide() -> None:
    found = unpack(pack({"a": {"b": torch.ones(1)}, "a.b": torch.zeros(1)}))
    assert found["a"]["b"].item() == 1
    assert found["a.b"].item() == 0


def test_numbers_that_json_lacks_are_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        pack({"loss": math.nan})


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"", lambda data: b"x" * 100])
def test_damaged_data(damage: object) -> None:
    data = pack({"weights": torch.ones(5)})
    with pytest.raises(Unreadable):
        unpack(damage(data))  # type: ignore[operator]


def test_other_formats_are_refused() -> None:
    other = json.dumps({"format": 2, "tree": {}})
    with pytest.raises(Unreadable, match="format 2"):
        unpack(safetensors.torch.save({}, metadata={"anglewise": other}))
    with pytest.raises(Unreadable):
        unpack(safetensors.torch.save({"w": torch.ones(1)}))
