"""The training monitor: in this process, with a service, and inside two kinds of trainers."""

from __future__ import annotations

import subprocess
import sys
import types
from importlib.util import find_spec
from typing import Any

import httpx2
import numpy as np
import pytest
from client_helpers import Script, client_of

from anglewise_client import Client, InfoNCE, NoService
from anglewise_client.monitor import Monitor, Sample, lightning_callback, transformers_callback, watch_trainer

LOSS = {"loss": InfoNCE(temperature=0.5)}
COUNTS = (40, 15, 5)
LABELS = np.repeat(np.arange(3), COUNTS)
EMBEDDINGS = np.eye(4)[LABELS] + 0.2 * np.random.default_rng(0).normal(size=(60, 4))
COMPARED = {"gram_distance_max", "gram_distance_fro", "r2_similarity", "r2_procrustes"}

needs_core = pytest.mark.skipif(find_spec("numba") is None, reason="only the client is installed")


def test_both_ways_of_measuring_agree(client: Client) -> None:
    here = Monitor(LOSS)(EMBEDDINGS, LABELS)
    there = Monitor(LOSS, client=client)(EMBEDDINGS, LABELS)
    assert here.keys() == there.keys()
    assert {f"anglewise/{name}" for name in COMPARED} < here.keys()
    for name, value in here.items():
        assert value == pytest.approx(there[name], rel=1e-6, abs=1e-8), name


def test_weightings_are_predictions_too(client: Client) -> None:
    prediction = {"weights": {"name": "supcon"}, "temperature": 0.5, "self_pairs": "included"}
    here = Monitor(prediction)(EMBEDDINGS, LABELS)
    there = Monitor(prediction, client=client)(EMBEDDINGS, LABELS)
    assert here["anglewise/entropic_gap"] == pytest.approx(there["anglewise/entropic_gap"], rel=1e-6)
    assert here["anglewise/entropic_gap"] > 0


def test_the_optimum_itself_is_close_to_the_prediction(client: Client) -> None:
    means = client.optimal_geometry(class_counts=COUNTS, **LOSS).class_means
    assert means is not None
    metrics = Monitor(LOSS)(means[LABELS], LABELS)
    assert metrics["anglewise/gram_distance_max"] < 1e-6
    assert metrics["anglewise/r2_similarity"] > 1 - 1e-6


@pytest.mark.parametrize("local", [True, False], ids=["here", "service"])
def test_counts_of_the_training_data_may_differ(client: Client, local: bool) -> None:
    means = client.optimal_geometry(class_counts=[400, 150, 50], **LOSS).class_means
    assert means is not None
    balanced = np.repeat(np.arange(3), 10)
    monitor = Monitor(LOSS, class_counts=[400, 150, 50], client=None if local else client)
    assert monitor(means[balanced], balanced)["anglewise/gram_distance_max"] < 1e-6
    assert Monitor(LOSS)(means[balanced], balanced)["anglewise/gram_distance_max"] > 1e-3
    with pytest.warns(RuntimeWarning, match="not measured"):
        assert monitor(EMBEDDINGS[:40], LABELS[:40]) == {}


@needs_core
def test_batches_make_a_report() -> None:
    logged: list[tuple[dict[str, float], int | None]] = []
    monitor = Monitor(LOSS, log=lambda metrics, step: logged.append((metrics, step)), prefix="geometry/")
    for start in range(0, 60, 7):
        monitor.add(EMBEDDINGS[start : start + 7], LABELS[start : start + 7])
    metrics = monitor.report(step=3)
    assert logged == [(metrics, 3)]
    assert metrics == Monitor(LOSS, prefix="geometry/").measure(EMBEDDINGS, LABELS)
    assert monitor.last is not None
    assert monitor.last.n == 60
    assert monitor.report() == {}


@needs_core
def test_embeddings_alone_are_measured() -> None:
    metrics = Monitor()(EMBEDDINGS, LABELS)
    assert "anglewise/nc1" in metrics
    assert not {f"anglewise/{name}" for name in COMPARED} & metrics.keys()


@needs_core
def test_tensors_are_measured() -> None:
    torch = pytest.importorskip("torch")
    z = torch.tensor(EMBEDDINGS, requires_grad=True)
    expected = Monitor(LOSS)(EMBEDDINGS, LABELS)
    assert Monitor(LOSS)(z, torch.tensor(LABELS)) == pytest.approx(expected)
    half = Monitor(LOSS)(z.to(torch.bfloat16), torch.tensor(LABELS))
    assert half["anglewise/nc1"] == pytest.approx(expected["anglewise/nc1"], rel=0.1)


class Writer:
    """TensorBoard's interface."""

    def __init__(self) -> None:
        self.scalars: list[tuple[str, float, int | None]] = []

    def add_scalar(self, name: str, value: float, step: int | None) -> None:
        self.scalars.append((name, value, step))


@needs_core
def test_loggers_of_several_kinds() -> None:
    writer = Writer()
    metrics = Monitor(log=writer)(EMBEDDINGS, LABELS, step=1)
    assert writer.scalars == [(name, value, 1) for name, value in metrics.items()]
    logger = types.SimpleNamespace(log_metrics=lambda metrics, step: calls.append(step))
    calls: list[Any] = []
    Monitor(log=logger)(EMBEDDINGS, LABELS, step=2)
    assert calls == [2]
    with pytest.raises(TypeError, match="log must be"):
        Monitor(log=3)


@needs_core
def test_a_lost_service_does_not_end_a_training() -> None:
    lost, _ = client_of(Script([httpx2.ConnectError("refused")]))
    with pytest.warns(RuntimeWarning, match="no service answers"):
        assert Monitor(LOSS, client=lost)(EMBEDDINGS, LABELS) == {}
    with pytest.raises(NoService):
        Monitor(LOSS, client=lost, on_error="raise")(EMBEDDINGS, LABELS)
    with pytest.warns(RuntimeWarning, match=r"loss\.temperature"):
        assert Monitor({"loss": {"temperature": -1.0}})(EMBEDDINGS, LABELS) == {}


def test_a_sample_keeps_proportions() -> None:
    sample = Sample(capacity=1000)
    labels = np.repeat([0, 1], [9_000, 1_000])
    for start in range(0, 10_000, 300):
        part = labels[start : start + 300]
        sample.add(part[:, None].astype(np.float64), part)
    rows, kept = sample.arrays()
    assert (len(sample), sample.seen, len(rows)) == (1000, 10_000, 1000)
    assert abs(int(kept.sum()) - 100) < 40
    np.testing.assert_array_equal(rows[:, 0], kept)
    sample.clear()
    assert len(sample) == 0
    with pytest.raises(ValueError, match="no embeddings"):
        sample.arrays()


def test_a_sample_copies() -> None:
    sample, batch = Sample(capacity=10), np.ones((2, 2))
    sample.add(batch, [0, 1])
    batch[:] = 5.0
    assert sample.arrays()[0].max() == 1.0


@pytest.mark.parametrize(
    ("embeddings", "labels"),
    [(np.ones((2, 3)), [0]), (np.ones(3), [0, 1, 2]), (np.ones((1, 2)), [0])],
    ids=["too few labels", "a vector", "another dimension"],
)
def test_a_sample_refuses_other_shapes(embeddings: Any, labels: Any) -> None:
    sample = Sample(capacity=4)
    sample.add(np.ones((2, 3)), [0, 1])
    with pytest.raises(ValueError, match="embeddings"):
        sample.add(embeddings, labels)
    with pytest.raises(ValueError, match="at least 1"):
        Sample(capacity=0)


def test_importing_the_monitor_loads_no_framework() -> None:
    code = (
        "import sys, anglewise_client.monitor, anglewise_client.cli; "
        "print([m for m in ('torch', 'lightning', 'transformers', 'anglewise', 'pandas', 'matplotlib') "
        "if m in sys.modules])"
    )
    path = next(p for p in sys.path if p.endswith("clients/python"))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": path}
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.filterwarnings("ignore")
def test_lightning_logs_each_epoch(tmp_path: Any) -> None:
    torch = pytest.importorskip("torch")
    lightning = pytest.importorskip("lightning")

    class Encoder(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 3)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.layer(batch[0]).square().mean()

        def validation_step(self, batch: Any, _: int) -> Any:
            return {"embeddings": self.layer(batch[0])}

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.TensorDataset(torch.tensor(EMBEDDINGS).float(), torch.tensor(LABELS))
    loader = torch.utils.data.DataLoader(data, batch_size=25)
    steps: list[int | None] = []
    monitor = Monitor(LOSS, log=lambda metrics, step: steps.append(step))
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
        callbacks=[lightning_callback(monitor)],
    )
    trainer.fit(Encoder(), loader, loader)
    assert steps == [3, 6]
    assert monitor.last is not None
    assert monitor.last.n == 60
    logged = trainer.callback_metrics["anglewise/gram_distance_max"]
    assert float(logged) == pytest.approx(monitor.last.metrics.gram_distance_max, rel=1e-5)


def test_lightning_says_what_is_missing() -> None:
    from anglewise_client.monitor.lightning import from_step

    assert from_step(None, {"z": 1, "y": 2}, None) == (1, 2)
    assert from_step(None, {"embeddings": 1}, {"labels": 2}) == (1, 2)
    assert from_step(None, {"embeddings": 1}, [0, 2]) == (1, 2)
    with pytest.raises(ValueError, match="must return"):
        from_step(None, 0.5, [0, 2])


@pytest.fixture
def transformers(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """The two classes of transformers that matter, as small as can be."""

    class TrainerCallback:
        def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None: ...

    class Trainer:
        def __init__(self, model: Any, eval_dataset: Any) -> None:
            self.model, self.eval_dataset = model, eval_dataset
            self.callbacks: list[Any] = []
            self.history: list[dict[str, float]] = []

        def add_callback(self, callback: Any) -> None:
            assert isinstance(callback, TrainerCallback)
            self.callbacks.append(callback)

        def log(self, metrics: dict[str, float]) -> None:
            self.history.append(metrics)

        def evaluate(self) -> None:
            args = types.SimpleNamespace(device="cpu")
            state = types.SimpleNamespace(global_step=7)
            for callback in self.callbacks:
                callback.on_evaluate(
                    args, state, None, model=self.model, eval_dataloader=self.eval_dataset, metrics={}
                )

    module = types.ModuleType("transformers")
    module.TrainerCallback = TrainerCallback  # type: ignore[attr-defined]
    module.Trainer = Trainer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", module)
    return module


class Model:
    training = True

    def eval(self) -> None:
        self.training = False

    def train(self, mode: bool) -> None:
        self.training = mode


def embed(model: Model, batch: dict[str, Any]) -> tuple[Any, Any]:
    assert not model.training
    return batch["inputs"], batch["labels"]


@needs_core
def test_hugging_face_logs_each_evaluation(transformers: Any) -> None:
    batches = [{"inputs": EMBEDDINGS[i::4], "labels": LABELS[i::4]} for i in range(4)]
    steps: list[int | None] = []
    monitor = Monitor(LOSS, log=lambda metrics, step: steps.append(step))
    trainer = transformers.Trainer(Model(), batches)
    watch_trainer(trainer, monitor, embed=embed)
    trainer.evaluate()
    assert trainer.model.training
    assert steps == [7]
    assert monitor.last is not None
    assert monitor.last.n == 60
    assert "anglewise/r2_procrustes" in trainer.history[0]
    few = transformers.Trainer(Model(), batches)
    watch_trainer(few, monitor, embed=embed, max_batches=2)
    few.evaluate()
    assert monitor.last.n == 30


def test_hugging_face_without_data_is_left_alone(transformers: Any) -> None:
    callback = transformers_callback(Monitor(LOSS), embed=embed)
    callback.on_evaluate(None, None, None, model=None, eval_dataloader=None)


@pytest.mark.parametrize("name", ["lightning", "transformers"])
def test_missing_frameworks_are_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("lightning.pytorch", "pytorch_lightning", "transformers"):
        monkeypatch.setitem(sys.modules, module, None)
    make: Any = lightning_callback if name == "lightning" else transformers_callback
    options = {} if name == "lightning" else {"embed": embed}
    with pytest.raises(ImportError, match=f"pip install {name}"):
        make(Monitor(LOSS), **options)


def test_without_anglewise_a_service_measures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anglewise_client.monitor.loop.available", lambda: False)
    monkeypatch.setenv("ANGLEWISE_URL", "http://127.0.0.1:9")
    monitor = Monitor(LOSS, on_error="raise")
    monitor._measure.client = client_of(Script([httpx2.ConnectError("refused")]))[0]
    with pytest.raises(NoService):
        monitor(EMBEDDINGS, LABELS)
