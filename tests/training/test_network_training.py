"""Networks on batches: they approach the prediction, and resume bit for bit."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from memory_context import MemoryContext

from anglewise import best_geometry, supcon
from anglewise.errors import InvalidInput
from anglewise.metrics import measure
from jobs.training_spec import TrainingSpec
from worker.training.context import Stopped, Stopping
from worker.training.trainer import train

LONG_TAIL = {"builtin": "digits", "class_counts": [40, 30, 20, 12, 8, 6, 4, 3, 2, 1]}
CLOUDS = {"generator": {"classes": 4, "samples_per_class": 100}, "class_counts": [100, 60, 30, 10]}


def run(document: dict[str, Any], context: MemoryContext | None = None) -> dict[str, Any]:
    return train(TrainingSpec.model_validate(document), context or MemoryContext())


@pytest.mark.parametrize(
    "loss",
    [
        {"name": "infonce", "temperature": 0.5, "negatives": 16},
        {"name": "infonce", "temperature": 0.5, "negatives": "infinite", "sampling": "unsupervised"},
        {"name": "logistic", "temperature": 0.5, "negatives": 4},
        {"name": "soft_supcon", "temperature": 0.5, "epsilon": 0.1},
        {"name": "supcon", "temperature": 0.5},
    ],
    ids=lambda loss: f"{loss['name']}-{loss.get('negatives')}",
)
def test_a_perceptron_approaches_the_prediction(loss: dict[str, Any]) -> None:
    document = {"data": CLOUDS, "encoder": {"name": "mlp"}, "loss": loss, "steps": 250, "batch_size": 200}
    context = MemoryContext()
    summary = run(document, context)
    gaps = [values["risk_gap"] for values in context.series.values()]
    assert gaps[0] is not None
    assert gaps[-1] is not None
    assert gaps[0] > 0.1
    assert -1e-6 < gaps[-1] < 0.02
    assert summary["metrics"]["r2_similarity"] > 0.9


def test_the_euclidean_loss_recovers_the_targets() -> None:
    loss = {"name": "euclidean", "sigma": 1.0, "temperature": 0.5, "targets": [0.0, 1.0, 2.0, 3.0]}
    summary = run({"data": CLOUDS, "encoder": {"name": "mlp"}, "loss": loss, "steps": 300, "batch_size": 200})
    assert summary["metrics"]["r2_procrustes"] > 0.95
    assert summary["metrics"]["gram_distance_max"] is None
    assert "Squared distances" in summary["verdict"]


def test_views_are_positives_of_classes_that_have_one_sample() -> None:
    """Two views of each sample: the optimum is that of twice the counts, and singletons count."""
    counts = [30, 1, 1, 1, 1, 1, 1, 1, 1, 1]
    loss = {"name": "supcon", "temperature": 0.5}
    document = {
        "data": {"builtin": "digits", "class_counts": counts},
        "encoder": {"name": "mlp"},
        "loss": loss,
    }
    summary = run({**document, "positives": "views", "steps": 2})
    doubled = supcon(class_counts=[2 * count for count in counts])
    expected = best_geometry(doubled, temperature=0.5, self_pairs="excluded")
    np.testing.assert_allclose(summary["predicted"]["gram"], expected.gram, atol=1e-6)
    assert summary["predicted"]["risk"] == pytest.approx(expected.loss, rel=1e-9)
    assert not any("no positive" in text for text in summary["predicted"]["warnings"])
    assert summary["metrics"]["risk_gap"] > 0


@pytest.mark.parametrize(
    ("labels", "targets"),
    [(np.array([7, -2, 40]), [-2.0, 7.0, 40.0]), (np.array(["c", "a", "b"]), [0.0, 1.0, 2.0])],
)
def test_integer_labels_are_the_targets(labels: np.ndarray[Any, Any], targets: list[float]) -> None:
    """Nobody wants ages of 20, 21 and 60 to be equally far apart."""
    name = "ds_01KBCJ6ZT0000000000000000Z"
    datasets = {name: (np.random.default_rng(0).standard_normal((30, 4)), np.tile(labels, 10))}
    document = {"data": {"dataset": name}, "encoder": {"name": "linear"}, "steps": 3}
    found = []
    for given in (None, targets):
        loss = {"name": "euclidean", "sigma": 9.0, "targets": given}
        context = MemoryContext(datasets=datasets)
        summary = run({**document, "loss": loss}, context)
        found.append((summary["predicted"]["gram"], context.artifacts["embeddings.npy"][0]))
    assert found[0] == found[1]
    distances = np.subtract.outer(targets, targets) ** 2
    gram = np.array(found[0][0])
    squares = np.diag(gram)[:, None] + np.diag(gram) - 2 * gram
    np.testing.assert_allclose(squares, distances * 0.1 / (2 * 9.0**2), atol=1e-6)


RESUMED: list[dict[str, Any]] = [
    {"data": CLOUDS, "objective": "sampled", "loss": {"negatives": 5}},
    {"data": LONG_TAIL, "encoder": {"name": "cnn", "channels": [4, 8], "head": [8]}, "positives": "views"},
    {
        "data": LONG_TAIL,
        "encoder": {"name": "resnet18", "width": 2, "head": []},
        "optimizer": {"name": "sgd"},
        "loss": {"name": "supcon"},
        "accumulate": 2,
    },
    {"data": CLOUDS, "encoder": {"name": "mlp"}, "optimizer": {"name": "adamw"}, "precision": "bf16"},
]


@pytest.mark.parametrize("cut", [1, 6, 8])
@pytest.mark.parametrize("document", RESUMED, ids=["free", "cnn", "resnet18", "mlp"])
def test_resumed_runs_equal_uninterrupted_ones(document: dict[str, Any], cut: int) -> None:
    loss = {"temperature": 0.5, **document.get("loss", {})}
    document = {**document, "loss": loss, "steps": 9, "batch_size": 32, "evaluate_every": 4}
    whole = MemoryContext()
    expected = run(document, whole)
    first = MemoryContext(stop_after=cut)
    with pytest.raises(Stopped):
        run(document, first)
    second = MemoryContext(checkpoint=first.checkpoint)
    summary = run(document, second)
    assert summary["metrics"] == expected["metrics"]
    assert second.artifacts["embeddings.npy"] == whole.artifacts["embeddings.npy"]
    assert {**first.series, **second.series} == whole.series


@pytest.mark.parametrize("encoder", ["linear", "resnet50"])
def test_every_encoder_trains(encoder: str) -> None:
    fields = {"width": 1, "head": [4]} if encoder == "resnet50" else {}
    context = MemoryContext()
    document = {"data": LONG_TAIL, "encoder": {"name": encoder, **fields}, "dimension": 5, "steps": 2}
    summary = run({**document, "loss": {"temperature": 0.5}}, context)
    embeddings = np.load(io.BytesIO(context.artifacts["embeddings.npy"][0]))
    assert embeddings.shape == (126, 5)
    assert embeddings.dtype == np.float32
    assert np.linalg.norm(embeddings, axis=1) == pytest.approx(1.0, abs=1e-5)
    assert summary["steps"] == 2


def test_anchors_without_positives_are_counted() -> None:
    context = MemoryContext()
    document = {"data": LONG_TAIL, "encoder": {"name": "linear"}, "loss": {"name": "supcon"}, "steps": 4}
    run({**document, "batch_size": 16}, context)
    anchors = context.series[4]["anchors"]
    assert anchors is not None
    assert 4 < anchors < 16


def test_data_that_does_not_fit_the_spec() -> None:
    name = "ds_01KBCJ6ZT0000000000000000Z"
    datasets = {name: (np.zeros((6, 5)), np.array([0, 0, 0, 1, 1, 1]))}
    for fields, field in (
        ({"encoder": {"name": "cnn"}}, ("encoder", "name")),
        ({"encoder": {"name": "mlp"}, "positives": "views"}, ("positives",)),
        ({"data": {"dataset": name, "class_counts": [4, 1]}}, ("data", "class_counts", 0)),
        ({"loss": {"name": "y_aware", "sigma": 1.0, "targets": [1.0]}}, ("loss", "targets")),
    ):
        with pytest.raises(InvalidInput) as error:
            run({"data": {"dataset": name}, **fields}, MemoryContext(datasets=datasets))
        assert error.value.field == field


def test_the_last_evaluation_is_what_the_core_measures() -> None:
    context = MemoryContext()
    document = {"data": CLOUDS, "encoder": {"name": "mlp"}, "loss": {"temperature": 0.5}, "steps": 40}
    summary = run(document, context)
    embeddings = np.load(io.BytesIO(context.artifacts["embeddings.npy"][0]))
    labels = np.load(io.BytesIO(context.artifacts["labels.npy"][0]))
    expected = measure(embeddings, labels, predicted_gram=np.array(summary["predicted"]["gram"])).values()
    found = summary["metrics"]
    both = set(expected) & set(found)
    assert set(expected) - both == {"alignment", "uniformity"}
    for name in both - {"entropic_gap"}:  # which needs weights, and these negatives have none
        assert found[name] == pytest.approx(expected[name], rel=1e-6), name
    assert 1 < found["effective_rank"] < 4
    assert 0 < found["procrustes_similarity"] < 1


def test_a_stop_heard_late_is_for_the_next_step() -> None:
    """Between the question and the step others may be told of it: the answer must not change meanwhile."""

    class Impatient(MemoryContext):
        """Asked once before each step, and says "shutdown" from the third time on."""

        asked = 0

        @property
        def stopping(self) -> Stopping | None:
            self.asked += 1
            return "shutdown" if self.asked > 3 else None

    context = Impatient()
    with pytest.raises(Stopped):
        run({"data": CLOUDS, "encoder": {"name": "linear"}, "loss": {"temperature": 0.5}}, context)
    assert context.checkpoint is not None
    assert (context.checkpoint[0], context.asked) == (3, 4)
