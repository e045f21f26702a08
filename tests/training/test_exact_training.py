"""Free features under the exact risk reach the certified optimum."""

from __future__ import annotations

import io
import json
from typing import Any

import numpy as np
import pytest
from memory_context import MemoryContext

from anglewise.errors import InvalidInput
from jobs.training_spec import TrainingSpec
from worker.training.context import Diverged, Stopped
from worker.training.trainer import train

COUNTS = [500, 200, 50, 20]
LOSSES: list[dict[str, Any]] = [
    {"name": "infonce", "negatives": 16},
    {"name": "infonce", "negatives": 256, "reduction": "mean"},
    {"name": "infonce", "negatives": 8, "alpha": 0.0},
    {"name": "logistic", "negatives": 4},
    {"name": "exponential", "negatives": 4},
]


def run(document: dict[str, Any], context: MemoryContext | None = None) -> dict[str, Any]:
    spec = TrainingSpec.model_validate(document)
    return train(spec, context or MemoryContext())


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: "-".join(map(str, loss.values())))
def test_free_features_reach_the_optimum(loss: dict[str, Any], sampling: str) -> None:
    for temperature in (1.0, 0.1):
        summary = run(
            {
                "data": {"class_counts": COUNTS},
                "loss": {**loss, "temperature": temperature, "sampling": sampling},
                "evaluate_every": 100,
            }
        )
        assert summary["metrics"]["gram_distance_max"] < 1e-3
        assert abs(summary["metrics"]["risk_gap"]) < 1e-5
        assert summary["metrics"]["cdnv"] < 1e-6
        assert summary["predicted"]["certificate"]["certified"]
        np.testing.assert_allclose(summary["measured_gram"], summary["predicted"]["gram"], atol=1e-3)


@pytest.mark.parametrize("sampling", ["supervised", "unsupervised"])
def test_the_ball_is_filled_to_its_surface(sampling: str) -> None:
    context = MemoryContext()
    loss = {"name": "infonce", "negatives": 16, "temperature": 0.5, "sampling": sampling}
    summary = run({"data": {"class_counts": COUNTS}, "loss": loss, "projection": "ball"}, context)
    embeddings = np.load(io.BytesIO(context.artifacts["embeddings.npy"][0]))
    assert np.linalg.norm(embeddings, axis=1) == pytest.approx(1.0, abs=1e-3)
    assert summary["metrics"]["gram_distance_max"] < 1e-3
    assert abs(summary["metrics"]["risk_gap"]) < 1e-5


def test_fewer_dimensions_than_classes_are_compared_with_the_optimum_there() -> None:
    loss = {"name": "infonce", "negatives": 16, "temperature": 1.0}
    summary = run({"data": {"class_counts": COUNTS}, "loss": loss, "dimension": 2})
    assert len(summary["predicted"]["gram"]) == 4
    assert summary["metrics"]["risk_gap"] > -1e-8


def test_minorities_collapse_as_predicted() -> None:
    loss = {"name": "infonce", "negatives": 2, "temperature": 1.0, "sampling": "unsupervised"}
    summary = run({"data": {"class_counts": [960, 20, 20]}, "loss": loss})
    assert summary["metrics"]["minority_collapse_index"] == pytest.approx(1.0, abs=1e-4)
    assert "predicted" in summary["verdict"]


def test_summary_artifacts_and_reports() -> None:
    context = MemoryContext()
    loss = {"name": "infonce", "temperature": 1.0, "negatives": 4}
    document = {"data": {"class_counts": [30, 10, 5]}, "loss": loss, "steps": 40, "evaluate_every": 10}
    summary = run({**document, "seed": 3}, context)
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert list(context.series)[:3] == [0, 10, 20]
    assert context.steps[-1] == (summary["steps"], 40)
    assert {"loss", "risk_gap", "entropic_gap", "r2_similarity", "nc1", "cdnv"} < set(context.series[10])
    embeddings = np.load(io.BytesIO(context.artifacts["embeddings.npy"][0]), allow_pickle=False)
    labels = np.load(io.BytesIO(context.artifacts["labels.npy"][0]), allow_pickle=False)
    assert embeddings.shape == (45, 3)
    assert embeddings.dtype == np.float64
    assert np.bincount(labels).tolist() == [30, 10, 5]
    reports = {"report.html", "report.json", "report.png"}
    assert set(context.artifacts) == {"embeddings.npy", "labels.npy", "checkpoint.safetensors"} | reports
    assert summary["metrics"] == context.series[summary["steps"]]


def test_stops_at_the_wanted_gap() -> None:
    document = {
        "data": {"class_counts": COUNTS},
        "loss": {"temperature": 1.0, "negatives": 4},
        "evaluate_every": 1,
        "stop_gap": 1e-2,
    }
    summary = run(document)
    assert summary["stopped_early"]
    assert summary["steps"] < 60
    assert 1e-6 < summary["metrics"]["risk_gap"] <= 1e-2


@pytest.mark.parametrize("cut", [1, 7, 13, 30])
@pytest.mark.parametrize("optimizer", ["lbfgs", "adam", "sgd"])
def test_resumed_runs_equal_uninterrupted_ones(optimizer: str, cut: int) -> None:
    document = {
        "data": {"class_counts": [40, 20, 5]},
        "loss": {"temperature": 0.5, "negatives": 3},
        "optimizer": {"name": optimizer},
        "steps": 31,
        "evaluate_every": 5,
        "checkpoint_every": 1000,
    }
    whole = MemoryContext()
    expected = run(document, whole)
    first = MemoryContext(stop_after=cut)
    with pytest.raises(Stopped):
        run(document, first)
    assert first.checkpoint is not None
    assert first.checkpoint[0] == cut
    second = MemoryContext(checkpoint=first.checkpoint)
    summary = run(document, second)
    assert second.events == [f"Going on from step {cut}."]
    assert summary["metrics"] == expected["metrics"]
    assert second.artifacts["embeddings.npy"] == whole.artifacts["embeddings.npy"]
    assert {**first.series, **second.series} == whole.series


def test_cancelling_stops_without_a_checkpoint() -> None:
    context = MemoryContext(stop_after=3, reason="cancel")
    with pytest.raises(Stopped):
        run({"data": {"class_counts": [5, 5]}, "checkpoint_every": 100}, context)
    assert context.checkpoint is None
    assert len(context.steps) == 3


def test_an_unreadable_checkpoint_starts_over() -> None:
    document = {"data": {"class_counts": [9, 5, 3]}, "loss": {"temperature": 1.0}, "steps": 12}
    context = MemoryContext(checkpoint=(5, b"\x08\0\0\0\0\0\0\0{}"))
    summary = run(document, context)
    assert context.events[0].startswith("Starting over: ")
    assert summary["metrics"] == run(document)["metrics"]


def test_a_loss_that_is_no_number_ends_the_run() -> None:
    document = {
        "data": {"class_counts": [9, 5, 3]},
        "optimizer": {"name": "sgd", "lr": 1e4, "weight_decay": 1.0},
        "precision": "float32",
        "steps": 500,
    }
    context = MemoryContext()
    with pytest.raises(Diverged, match=r"finite|became") as error:
        run(document, context)
    assert error.value.code == "diverged"
    assert not context.artifacts


def test_one_class_is_a_point() -> None:
    loss = {"sampling": "unsupervised", "temperature": 1.0}
    summary = run({"data": {"class_counts": [12]}, "loss": loss})
    assert summary["predicted"]["gram"] == [[1.0]]
    assert summary["metrics"]["risk_gap"] == pytest.approx(0.0, abs=1e-12)


def test_supervised_negatives_need_a_second_class() -> None:
    with pytest.raises(InvalidInput) as error:
        run({"data": {"class_counts": [12]}})
    assert error.value.field == ("loss", "sampling")


@pytest.mark.parametrize("cut", [25, 31, 40])
def test_single_precision_resumes_with_the_same_numbers(cut: int) -> None:
    """What an optimizer remembers in double precision stays so."""
    loss = {"temperature": 0.5, "negatives": 4}
    document = {"data": {"class_counts": [8, 5, 3]}, "loss": loss, "precision": "float32", "steps": 60}
    whole, first = MemoryContext(), MemoryContext(stop_after=cut)
    expected = run(document, whole)
    assert expected["steps"] > cut
    with pytest.raises(Stopped):
        run(document, first)
    second = MemoryContext(checkpoint=first.checkpoint)
    assert run(document, second)["steps"] == expected["steps"]
    assert second.artifacts["embeddings.npy"] == whole.artifacts["embeddings.npy"]
