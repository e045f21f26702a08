"""What a training job may ask for, and how it is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from anglewise.errors import InvalidInput
from jobs.training_spec import TrainingSpec

COUNTS = {"class_counts": [50, 20, 5]}
DIGITS = {"builtin": "digits"}
CNN = {"name": "cnn"}


def spec(**fields: Any) -> TrainingSpec:
    found = TrainingSpec.model_validate(fields)
    found.check()
    return found


def test_free_features_of_class_counts_need_nothing_else() -> None:
    found = spec(data=COUNTS)
    assert found.exact
    assert found.encoder.name == "free"
    assert found.loss.name == "infonce"
    assert found.data.counts() == [50, 20, 5]


def test_every_source_and_loss_has_defaults() -> None:
    assert spec(data=DIGITS, encoder={"name": "resnet18"}).data.counts() is not None
    assert spec(data={"generator": {}}, encoder={"name": "mlp"}).data.counts() == [100] * 10
    assert spec(data={"dataset": "ds_01KBCJ6ZT0000000000000000Z"}).data.counts() is None
    for loss in (
        {"name": "supcon"},
        {"name": "soft_supcon", "epsilon": 0.1},
        {"name": "y_aware", "sigma": 1.0},
        {"name": "x_clr", "label_temperature": 0.5, "targets": [[1.0], [2.0], [3.0]]},
        {"name": "euclidean", "sigma": 1.0},
        {"name": "triplet", "margin": 0.5, "sampling": "unsupervised"},
        {"negatives": "infinite"},
    ):
        assert spec(data=COUNTS, loss=loss).loss.name == loss.get("name", "infonce")


def test_the_schema_is_complete() -> None:
    schema = TrainingSpec.model_json_schema()
    assert schema["required"] == ["data"]
    for definition in schema["$defs"].values():
        assert definition["additionalProperties"] is False


def test_documents_survive_a_round_trip() -> None:
    found = spec(data=DIGITS, encoder={"name": "mlp", "hidden": [8]}, loss={"name": "supcon"}, epochs=3)
    assert TrainingSpec.model_validate_json(found.model_dump_json()) == found


BAD: list[tuple[dict[str, Any], tuple[str | int, ...]]] = [
    ({"data": {}}, ("data",)),
    ({"data": {**DIGITS, "generator": {}}}, ("data",)),
    ({"data": COUNTS, "encoder": {"name": "mlp"}}, ("data",)),
    ({"data": {"generator": {}}, "encoder": CNN}, ("encoder", "name")),
    ({"data": DIGITS, "encoder": CNN, "objective": "exact"}, ("objective",)),
    ({"data": COUNTS, "loss": {"hardness": 1.0}}, ("loss", "hardness")),
    ({"data": COUNTS, "loss": {"name": "euclidean", "sigma": 1.0}, "projection": "ball"}, ("projection",)),
    ({"data": COUNTS, "loss": {"name": "supcon"}, "projection": "ball"}, ("projection",)),
    ({"data": COUNTS, "dimension": 1}, ("dimension",)),
    ({"data": {"class_counts": [3, 2, 2, 1]}, "projection": "ball", "dimension": 2}, ("dimension",)),
    ({"data": COUNTS, "positives": "views"}, ("positives",)),
    ({"data": DIGITS, "encoder": CNN, "optimizer": {"name": "lbfgs"}}, ("optimizer", "name")),
    ({"data": COUNTS, "epochs": 3}, ("epochs",)),
    ({"data": DIGITS, "encoder": CNN, "epochs": 3, "steps": 3}, ("epochs",)),
    ({"data": COUNTS, "precision": "bf16"}, ("precision",)),
    ({"data": COUNTS, "accumulate": 2}, ("accumulate",)),
    ({"data": COUNTS, "steps": 1_000_000, "evaluate_every": 1}, ("evaluate_every",)),
    ({"data": {"class_counts": [5]}}, ("loss", "sampling")),
    ({"data": {"class_counts": [5]}, "loss": {"name": "supcon"}}, ("data", "class_counts")),
    ({"data": {**DIGITS, "class_counts": [5, 5]}}, ("data", "class_counts")),
    ({"data": {**DIGITS, "class_counts": [5] * 9 + [500]}}, ("data", "class_counts", 9)),
    ({"data": {"class_counts": [3_000_000, 1]}}, ("data", "class_counts")),
    ({"data": {"class_counts": [1] * 6000}}, ("data", "class_counts")),
    ({"data": {"class_counts": [1_000_000, 1]}, "dimension": 100}, ("dimension",)),
    ({"data": {"class_counts": [30_000, 1]}, "loss": {"name": "supcon"}}, ("data", "class_counts")),
    ({"data": {"generator": {"samples_per_class": 1_000_000}}}, ("data", "generator")),
    ({"data": COUNTS, "loss": {"name": "y_aware", "sigma": 1.0, "targets": [1.0]}}, ("loss", "targets")),
    ({"data": COUNTS, "loss": {"negatives": "infinite", "reduction": "sum"}}, ("loss", "reduction")),
    (
        {
            "data": {"dataset": "ds_01KBCJ6ZT0000000000000000Z"},
            "encoder": CNN,
            "batch_size": 65_536,
            "loss": {"negatives": 2000},
        },
        ("loss", "negatives"),
    ),
]


@pytest.mark.parametrize(("document", "field"), BAD, ids=lambda value: str(value)[:60])
def test_fields_that_exclude_each_other(document: dict[str, Any], field: tuple[str | int, ...]) -> None:
    with pytest.raises(InvalidInput) as error:
        spec(**document)
    assert error.value.field == field


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"steps": 0}, ("steps",)),
        ({"steps": "5"}, ("steps",)),
        ({"seed": -1}, ("seed",)),
        ({"stop_gap": float("nan")}, ("stop_gap",)),
        ({"batch_size": True}, ("batch_size",)),
        ({"loss": {"name": "nothing"}}, ("loss",)),
        ({"loss": {"temperature": 1e-4}}, ("loss", "infonce", "temperature")),
        ({"encoder": {"name": "vgg"}}, ("encoder",)),
        ({"encoder": {"name": "mlp", "hidden": [0]}}, ("encoder", "mlp", "hidden", 0)),
        ({"optimizer": {"name": "sgd", "lr": 0}}, ("optimizer", "lr")),
        ({"data": {"dataset": "../etc"}}, ("data", "dataset")),
        ({"data": {"class_counts": [5, 0]}}, ("data", "class_counts", 1)),
        ({"unknown": 1}, ("unknown",)),
    ],
)
def test_values_out_of_bounds(fields: dict[str, Any], place: tuple[str | int, ...]) -> None:
    with pytest.raises(ValidationError) as error:
        TrainingSpec.model_validate({"data": COUNTS, **fields})
    assert error.value.errors()[0]["loc"] == place
