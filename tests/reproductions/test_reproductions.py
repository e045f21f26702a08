"""The experiments of the papers, in small."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from examples.reproductions import (
    collapse_images,
    collapse_sweep,
    label_text,
    sampled_negatives,
    soft_supcon,
    thickness_regression,
    three_classes,
)
from examples.reproductions.__main__ import EXPERIMENTS, main
from examples.reproductions.experiment import Experiment, of_encoder, rows
from examples.reproductions.presets import CPU, PRESETS, Preset
from examples.reproductions.running import Outcome, Training, run, seeded
from examples.reproductions.tables import Result
from examples.reproductions.thickness import line_thickness
from jobs.training_spec import TrainingSpec

DOCUMENT = Path(__file__).parents[2] / "docs" / "reproductions.md"
TINY = replace(
    CPU,
    processes=1,
    seeds=(0,),
    network_seeds=(0,),
    largest=40,
    encoders={
        "mlp": {"name": "mlp", "hidden": [8]},
        "cnn": {"name": "cnn", "channels": [2], "head": [4]},
        "resnet18": {"name": "resnet18", "width": 1, "head": []},
    },
    steps=2,
    batch_size=32,
    longer=3,
    sampled_steps=(50, 600),
    drawn=(60,),
    drawn_steps=3,
    sweep_around=1,
    thickness_images=100,
    thickness_held_out=40,
    thickness_steps=2,
    thickness_encoder={"name": "cnn", "channels": [2], "head": [4]},
)
"""Large enough for free features, far too small for networks."""


def free_rows(experiment: Experiment) -> Result:
    """The result of free features alone."""
    planned = [training for training in experiment.trainings(TINY) if "encoder" not in training.spec]
    return experiment.result(TINY, run(planned))


@pytest.mark.parametrize("width", [3, 5, 8])
def test_the_thickness_of_a_bar_is_its_width(width: int) -> None:
    image = np.zeros((40, 40))
    image[5:35, 15 : 15 + width] = 200
    assert line_thickness(image) == pytest.approx(width, rel=0.15)
    assert line_thickness(image.T) == pytest.approx(line_thickness(image), rel=1e-6)


def test_a_thicker_line_is_thicker_whatever_its_direction() -> None:
    y, x = np.mgrid[:40, :40]
    distance = np.abs(x - y) / np.sqrt(2)
    thin, thick = (line_thickness((distance < half).astype(float)) for half in (1.5, 3.0))
    assert thin == pytest.approx(3.0, abs=0.8)
    assert thick == pytest.approx(6.0, abs=0.8)


def test_collapse_is_crossed_at_the_exact_threshold() -> None:
    result = collapse_sweep.EXPERIMENT(TINY)
    assert result.holds
    assert "NOT" not in result.finding
    merged = {(row[0], row[1]): float(row[5]) == 0.0 for row in result.rows if row[3] == 0.9}
    assert merged["unsupervised", "1"]
    assert merged["supervised", "16"]
    assert not merged["unsupervised", "16"]
    assert not merged["unsupervised", "infinite"]


def test_soft_supcon_is_the_simplex_and_supcon_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soft_supcon, "COUNTS", [30, 12, 5, 2])
    result = free_rows(soft_supcon.EXPERIMENT)
    assert result.holds
    supcon, soft = result.rows
    assert float(supcon[-1]) > 0.01 > 1e-6 > float(soft[-1])


def test_label_texts_are_realized_while_they_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_text, "EACH", 4)
    result = free_rows(label_text.EXPERIMENT)
    assert result.holds
    assert [row[1] for row in result.rows] == ["realizable", "realizable", "inconsistent"]
    assert float(result.rows[-1][5]) > 1 > 1e-3 > float(result.rows[-1][6])


def test_sampled_negatives_approach_the_optimum() -> None:
    assert sampled_negatives.EXPERIMENT(TINY).holds


@pytest.mark.parametrize("module", [collapse_images, thickness_regression])
def test_a_claim_that_is_not_met_is_said_not_to_be(module: object) -> None:
    experiment = getattr(module, "EXPERIMENT")  # noqa: B009
    result = experiment(TINY)
    assert not result.holds
    assert "NOT" in result.finding
    assert "*Claim met:* no." in result.markdown()


def test_what_it_costs_to_merge_the_minorities_is_little_just_below_the_threshold() -> None:
    free = [training for training in collapse_images.trainings(TINY) if "encoder" not in training.spec]
    assert 0 < collapse_images.merging(run(free)[0]) < 1e-3


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_every_training_of_a_preset_is_a_valid_job(preset: Preset, name: str) -> None:
    few = replace(preset, thickness_images=100, thickness_held_out=10)  # measuring thousands takes a while
    planned = EXPERIMENTS[name].trainings(few)
    assert planned
    for training in planned:
        spec = TrainingSpec.model_validate(training.spec)
        spec.check()
        if training.images is not None and spec.data.class_counts is not None:
            available = np.bincount(training.images[1])
            assert (np.asarray(spec.data.class_counts) <= available).all()


def test_several_processes_find_what_one_finds() -> None:
    planned = [training for training in three_classes.trainings(TINY) if "encoder" in training.spec]
    alone, shared = run(planned, 1), run(planned, 2)
    assert [each.training.cells for each in shared] == [training.cells for training in planned]
    for one, other in zip(alone, shared, strict=True):
        np.testing.assert_allclose(other.array("embeddings.npy"), one.array("embeddings.npy"), atol=1e-5)


def test_rows_show_the_seed_that_is_furthest_off() -> None:
    training = Training(("mlp",), {"seed": 0})
    outcomes = [
        Outcome(each, {"measured_gram": [[1, x], [x, 1]], "predicted": {"gram": [[1, 0], [0, 1]]}}, {})
        for each, x in zip(seeded(training, (4, 5, 6)), (0.1, -0.3, 0.2), strict=True)
    ]
    assert rows(outcomes, lambda outcome: (float(outcome.measured[0, 1]),)) == [("mlp", "4, 5, 6", -0.3)]


def test_networks_and_free_features_are_told_apart() -> None:
    outcomes = [Outcome(training, {}, {}) for training in three_classes.trainings(TINY)[:2]]
    assert [outcome.training.cells[0] for outcome in of_encoder(outcomes, networks=True)] == ["mlp"]
    assert [outcome.training.cells[0] for outcome in of_encoder(outcomes, networks=False)] == ["free"]


def test_results_are_tables_and_json() -> None:
    result = Result("T", "claimed", ("a", "b"), [(1, 0.123456), ("x", float("nan"))], "found", True)
    assert "| a | b |\n| --- | --- |\n| 1 | 0.1235 |" in result.markdown()
    assert result.document()["rows"] == [[1, 0.123456], ["x", None]]


def test_results_are_written_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = Result("Title", "claimed", ("a",), [(0.5,)], "NOT found", False)
    monkeypatch.setitem(EXPERIMENTS, "thickness", Experiment(lambda preset: [], lambda preset, found: result))
    assert main(["thickness", "--preset", "gpu", "--json", str(tmp_path / "results.json")]) == 1
    document = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert document["preset"] == "gpu"
    assert set(document["versions"]) == {"python", "anglewise", "torch", "numpy"}
    assert document["results"] == [{"name": "thickness", **result.document(), "seconds": 0.0}]
    assert "NOT found" in capsys.readouterr().out


def test_an_unknown_experiment_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["levitation"])
    assert "levitation" in capsys.readouterr().err


def test_the_document_has_every_experiment() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text.count("\n## ") == text.count("*Paper:*") == text.count("*Measured:*") == len(EXPERIMENTS)
