"""The checkpoint of a training embeds its own samples as the training did, and others by the same rule."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from memory_context import MemoryContext

from anglewise.errors import InvalidInput
from jobs.datasets.builtin import load_builtin
from jobs.training_spec import TrainingSpec
from worker.training import checkpoint
from worker.training.trained import load_encoder
from worker.training.trainer import train

NAME = "ds_01KBCJ6ZT0000000000000000Z"
COUNTS = [20, 10, 5, 5, 5, 5, 5, 5, 5, 5]
RUN: dict[str, Any] = {
    "data": {"builtin": "digits", "class_counts": COUNTS},
    "encoder": {"name": "mlp", "hidden": [16]},
    "loss": {"name": "supcon"},
    "steps": 3,
}


def trained(document: dict[str, Any], **datasets: Any) -> tuple[bytes, np.ndarray[Any, Any]]:
    """The checkpoint of a run, and the embeddings it left."""
    context = MemoryContext(datasets=datasets)
    train(TrainingSpec.model_validate(document), context)
    embeddings = np.load(io.BytesIO(context.artifacts["embeddings.npy"][0]))
    return context.artifacts["checkpoint.safetensors"][0], embeddings


@pytest.mark.parametrize(
    "encoder",
    [
        {"name": "linear"},
        {"name": "mlp", "hidden": [16]},
        {"name": "cnn", "channels": [4], "head": [8]},
        {"name": "resnet18", "width": 2, "head": []},
    ],
    ids=lambda encoder: encoder["name"],
)
@pytest.mark.parametrize("more", [{}, {"precision": "float64"}, {"precision": "bf16", "dimension": 3}])
def test_samples_of_the_training_are_embedded_as_in_it(
    encoder: dict[str, Any], more: dict[str, Any], tmp_path: Path
) -> None:
    digits, _ = load_builtin("digits")
    x, y = digits[:40] * 10 + 7, np.repeat(["a", "b"], 20)
    data, expected = trained({**RUN, "data": {"dataset": NAME}, "encoder": encoder, **more}, **{NAME: (x, y)})
    (tmp_path / "checkpoint.safetensors").write_bytes(data)
    found = load_encoder(tmp_path / "checkpoint.safetensors")(x)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_an_embedding_is_that_of_its_sample_alone() -> None:
    """Neither its neighbors nor their mean matter, as they do in training."""
    data, _ = trained({**RUN, "encoder": {"name": "cnn", "channels": [4], "head": []}})
    encode, (digits, _) = load_encoder(data), load_builtin("digits")
    whole = encode(digits[:50])
    np.testing.assert_allclose(
        np.concatenate([encode(digits[i : i + 1]) for i in range(50)]), whole, atol=1e-5
    )
    np.testing.assert_allclose(np.linalg.norm(whole, axis=1), 1, atol=1e-5)
    assert encode(digits[:0]).shape == (0, whole.shape[1])


def test_color_images_may_have_their_channels_last() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (12, 6, 5, 3), dtype=np.uint8), np.arange(12) % 2
    data, _ = trained({**RUN, "data": {"dataset": NAME}}, **{NAME: (x, y)})
    encode = load_encoder(data)
    assert encode.shape == (3, 6, 5)
    assert np.array_equal(encode(x), encode(np.moveaxis(x, -1, 1)))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (np.zeros((2, 7, 8)), "shape"),
        (np.zeros((2, 64)), "shape"),
        (np.full((2, 8, 8), np.nan), "finite"),
        (np.full((2, 8, 8), 1e300), "finite"),
        (np.full((2, 8, 8), "x"), "numbers"),
    ],
)
def test_samples_it_cannot_take(samples: np.ndarray[Any, Any], message: str) -> None:
    data, _ = trained(RUN)
    with pytest.raises(InvalidInput, match=message):
        load_encoder(data)(samples)


def test_free_features_embed_nothing_else() -> None:
    data, _ = trained({"data": {"class_counts": [4, 2]}, "steps": 2})
    with pytest.raises(InvalidInput, match="free features"):
        load_encoder(data)


@pytest.mark.parametrize("data", [b"", b"x" * 100, checkpoint.pack({"step": 1}), checkpoint.pack([])])
def test_other_files_are_no_encoders(data: bytes) -> None:
    with pytest.raises(checkpoint.Unreadable):
        load_encoder(data)
